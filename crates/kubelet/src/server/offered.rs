//! Streams for clients of the CRI socket (`crictl exec`, `attach`, `port-forward`): a client asks over the socket, gets an
//! address, and connects to it with the protocols that the kubelet's own server speaks. An address is a secret: it works once,
//! for a minute, from this machine only.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use component_base::tasks;
use cri::serve::{Stream, StreamServer};
use cri::{Code, v1};
use http::Request;
use http::request::Parts;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use rand::RngCore;
use reconcile::Shutdown;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

use super::answers::{self, Answer};
use super::port_forward::Target;
use super::remote_command::Wanted;
use super::streaming;
use crate::Error;

/// How long a client may take to come, as with other runtimes.
const OFFER_LIFETIME: Duration = Duration::from_secs(60);
/// Addresses that are waited for at the same time, as with other runtimes.
const OFFERS_MAX: usize = 1000;
const CONNECTIONS_MAX: usize = 1024;
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

pub struct OfferedStreams {
    runtime: Arc<dyn cri::Runtime>,
    address: SocketAddr,
    offers: Mutex<HashMap<String, Offer>>,
}

struct Offer {
    stream: Stream,
    until: Instant,
}

impl OfferedStreams {
    /// Listens on a free port of the loopback address until told to end.
    pub async fn start(runtime: Arc<dyn cri::Runtime>, shutdown: Shutdown) -> Result<Arc<OfferedStreams>, Error> {
        let failed = |source| Error::Io { step: "listen for streams of the CRI socket".to_owned(), source };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let streams = Arc::new(OfferedStreams { runtime, address, offers: Mutex::default() });
        tasks::spawn(accept(streams.clone(), listener, shutdown));
        Ok(streams)
    }

    /// The stream behind an address, for the first who asks.
    fn take(&self, kind: &str, token: &str) -> Option<Stream> {
        let offer = self.offers.lock().remove(token)?;
        (offer.until > Instant::now() && kind_of(&offer.stream) == kind).then_some(offer.stream)
    }

    async fn check(&self, stream: &Stream) -> cri::Result<()> {
        match stream {
            Stream::Exec(request) => {
                check_streams(request.tty, request.stdin, request.stdout, request.stderr)?;
                self.check_container(&request.container_id).await
            }
            Stream::Attach(request) => {
                check_streams(request.tty, request.stdin, request.stdout, request.stderr)?;
                self.check_container(&request.container_id).await
            }
            Stream::PortForward(request) => {
                let status =
                    self.runtime.pod_sandbox_status(required(&request.pod_sandbox_id, "pod_sandbox_id")?).await?;
                if status.state() == v1::PodSandboxState::SandboxReady {
                    return Ok(());
                }
                Err(cri::Error::unknown(format!("sandbox container {:?} is not running", status.id)))
            }
        }
    }

    async fn check_container(&self, id: &str) -> cri::Result<()> {
        let status = self.runtime.container_status(required(id, "container_id")?).await?;
        if status.state() == v1::ContainerState::ContainerRunning {
            return Ok(());
        }
        Err(cri::Error::unknown(format!("container is in {} state", status.state().as_str_name())))
    }
}

fn invalid(message: impl Into<String>) -> cri::Error {
    cri::Error::new(Code::InvalidArgument, message)
}

fn required<'a>(id: &'a str, field: &str) -> cri::Result<&'a str> {
    if id.is_empty() { Err(invalid(format!("missing required {field}"))) } else { Ok(id) }
}

fn check_streams(tty: bool, stdin: bool, stdout: bool, stderr: bool) -> cri::Result<()> {
    if tty && stderr {
        return Err(invalid("tty and stderr cannot both be true"));
    }
    if !stdin && !stdout && !stderr {
        return Err(invalid("one of stdin, stdout, or stderr must be set"));
    }
    Ok(())
}

fn kind_of(stream: &Stream) -> &'static str {
    match stream {
        Stream::Exec(_) => "exec",
        Stream::Attach(_) => "attach",
        Stream::PortForward(_) => "portforward",
    }
}

/// 128 random bits as a word of a path.
fn new_token() -> String {
    let mut bytes = [0; 16];
    rand::rng().fill_bytes(&mut bytes);
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[async_trait]
impl StreamServer for OfferedStreams {
    async fn offer(&self, stream: Stream) -> cri::Result<String> {
        self.check(&stream).await?;
        let (token, kind, now) = (new_token(), kind_of(&stream), Instant::now());
        let mut offers = self.offers.lock();
        offers.retain(|_, offer| offer.until > now);
        if offers.len() >= OFFERS_MAX {
            return Err(cri::Error::new(Code::ResourceExhausted, "maximum number of in-flight requests exceeded"));
        }
        offers.insert(token.clone(), Offer { stream, until: now + OFFER_LIFETIME });
        Ok(format!("http://{}/{kind}/{token}", self.address))
    }
}

async fn accept(streams: Arc<OfferedStreams>, listener: TcpListener, shutdown: Shutdown) {
    let places = Arc::new(tokio::sync::Semaphore::new(CONNECTIONS_MAX));
    loop {
        let stream = tokio::select! {
            () = shutdown.cancelled() => return,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept connection for a stream of the CRI socket");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            },
        };
        let Ok(place) = places.clone().try_acquire_owned() else {
            tracing::warn!("too many streams of the CRI socket; closing the newest connection");
            continue;
        };
        let (streams, shutdown) = (streams.clone(), shutdown.clone());
        tasks::spawn(async move {
            let _place = place;
            tokio::select! {
                () = shutdown.cancelled() => {}
                () = serve(streams, stream) => {}
            }
        });
    }
}

async fn serve(streams: Arc<OfferedStreams>, stream: TcpStream) {
    // Keystrokes must not wait for more of them; a socket that cannot do this still works.
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request: Request<Incoming>| {
        let streams = streams.clone();
        async move {
            let (mut parts, _) = request.into_parts();
            Ok::<_, Infallible>(answer(&streams, &mut parts).await)
        }
    });
    let mut server = hyper::server::conn::http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
    let connection = server.serve_connection(TokioIo::new(stream), service).with_upgrades();
    if let Err(error) = connection.await {
        tracing::debug!(%error, "connection ended");
    }
}

async fn answer(streams: &OfferedStreams, parts: &mut Parts) -> Answer {
    let path = parts.uri.path().to_owned();
    let Some((kind, token)) = path.strip_prefix('/').and_then(|path| path.split_once('/')) else {
        return answers::not_found();
    };
    // Before the address is used up: who cannot use it may come again with the right protocol.
    if !streaming::upgradable(&parts.headers) {
        return streaming::not_upgradable();
    }
    let Some(stream) = streams.take(kind, token) else { return answers::not_found() };
    let runtime = &streams.runtime;
    let wanted = match &stream {
        Stream::Exec(v1::ExecRequest { tty, stdin, stdout, stderr, .. })
        | Stream::Attach(v1::AttachRequest { tty, stdin, stdout, stderr, .. }) => {
            Wanted { stdin: *stdin, stdout: *stdout, stderr: *stderr, tty: *tty }
        }
        Stream::PortForward(request) => {
            let sandbox = request.pod_sandbox_id.clone();
            let target = Target { runtime: runtime.clone(), pod: sandbox.clone(), uid: String::new(), sandbox };
            return streaming::forward_to(parts, target, streaming::numbers(&request.port));
        }
    };
    streaming::process(runtime, parts, wanted, stream).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::fake_runtime::FakeRuntime;

    async fn offered() -> Arc<OfferedStreams> {
        let runtime = Arc::new(FakeRuntime::new());
        OfferedStreams::start(runtime, Shutdown::default()).await.unwrap()
    }

    fn waiting(streams: &OfferedStreams, token: &str, until: Instant) {
        let stream = Stream::Exec(v1::ExecRequest::default());
        streams.offers.lock().insert(token.to_owned(), Offer { stream, until });
    }

    #[tokio::test]
    async fn an_address_works_once_for_its_kind_and_for_a_minute() {
        let streams = offered().await;
        let soon = Instant::now() + OFFER_LIFETIME;
        waiting(&streams, "a", soon);
        assert!(streams.take("exec", "a").is_some());
        assert!(streams.take("exec", "a").is_none(), "used up");
        waiting(&streams, "b", soon);
        assert!(streams.take("attach", "b").is_none(), "another kind");
        waiting(&streams, "c", Instant::now() - Duration::from_millis(1));
        assert!(streams.take("exec", "c").is_none(), "too late");
    }

    #[tokio::test]
    async fn wrong_requests_are_told_before_an_address_is_given() {
        let streams = offered().await;
        let exec = |container_id: &str, tty, stdin, stderr| {
            Stream::Exec(v1::ExecRequest {
                container_id: container_id.into(),
                tty,
                stdin,
                stderr,
                ..Default::default()
            })
        };
        let refused = async |stream| streams.offer(stream).await.unwrap_err().message;
        assert_eq!(refused(exec("c", true, true, true)).await, "tty and stderr cannot both be true");
        assert_eq!(refused(exec("c", false, false, false)).await, "one of stdin, stdout, or stderr must be set");
        assert_eq!(refused(exec("", false, true, false)).await, "missing required container_id");
        let forward = Stream::PortForward(v1::PortForwardRequest::default());
        assert_eq!(refused(forward).await, "missing required pod_sandbox_id");
        assert!(streams.offers.lock().is_empty());
    }

    #[tokio::test]
    async fn only_so_many_addresses_are_waited_for() {
        let streams = offered().await;
        for number in 0..OFFERS_MAX {
            waiting(&streams, &number.to_string(), Instant::now() + OFFER_LIFETIME);
        }
        let sandbox = streams.runtime.run_pod_sandbox(v1::PodSandboxConfig::default(), "").await.unwrap();
        let forward =
            || Stream::PortForward(v1::PortForwardRequest { pod_sandbox_id: sandbox.clone(), port: vec![80] });
        assert_eq!(streams.offer(forward()).await.unwrap_err().code, Code::ResourceExhausted);
        // Those that nobody came for make room.
        for offer in streams.offers.lock().values_mut() {
            offer.until = Instant::now() - Duration::from_millis(1);
        }
        let url = streams.offer(forward()).await.unwrap();
        assert!(url.starts_with("http://127.0.0.1:") && url.contains("/portforward/"), "{url}");
        assert_eq!(streams.offers.lock().len(), 1);
    }
}
