//! The other way round: any [`Runtime`] as a CRI v1 endpoint on a unix socket, for crictl or an upstream kubelet.

mod images;
mod lists;
mod metrics;
mod runtime;
mod verbose;

use std::future::Future;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::net::{UnixListener, UnixStream};

use crate::v1::image_service_server::ImageServiceServer;
use crate::v1::runtime_service_server::RuntimeServiceServer;
use crate::{Code, Error, Result, Runtime, v1};

const MESSAGE_BYTES_MAX: usize = 16 << 20;
/// After a connection that could not be accepted: out of descriptors, most likely.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

pub struct Config {
    pub socket: PathBuf,
    /// What the runtime manages cgroups with; a kubelet asks for it.
    pub cgroup_driver: v1::CgroupDriver,
    /// Where clients find the streams of a runtime that has them in this process. Not needed for one that answers with
    /// addresses itself.
    pub streams: Option<Arc<dyn StreamServer>>,
}

/// What a client wants to be connected to.
#[derive(Clone, Debug)]
pub enum Stream {
    Exec(v1::ExecRequest),
    Attach(v1::AttachRequest),
    PortForward(v1::PortForwardRequest),
}

/// Something that speaks SPDY or WebSocket with clients.
#[async_trait]
pub trait StreamServer: Send + Sync {
    /// An address under which one client can have this stream, for a short time. Nothing starts before it comes.
    async fn offer(&self, stream: Stream) -> Result<String>;
}

/// Serves until told to end.
pub async fn serve(runtime: Arc<dyn Runtime>, config: Config, shutdown: impl Future<Output = ()> + Send) -> Result<()> {
    let (listener, owner) = listen(&config.socket).await?;
    let socket = config.socket.clone();
    let service = Service { runtime, config: Arc::new(config) };
    let incoming = futures::stream::unfold(listener, move |listener| async move {
        let stream = accept(&listener, owner).await;
        Some((Ok::<_, std::io::Error>(stream), listener))
    });
    let served = tonic::transport::Server::builder()
        .add_service(RuntimeServiceServer::new(service.clone()).max_decoding_message_size(MESSAGE_BYTES_MAX))
        .add_service(ImageServiceServer::new(service).max_decoding_message_size(MESSAGE_BYTES_MAX))
        .serve_with_incoming_shutdown(incoming, shutdown)
        .await;
    // Left behind it would only be found dead.
    let _ = std::fs::remove_file(&socket);
    served.map_err(|error| Error::unknown(format!("serve {}: {error}", socket.display())))
}

/// The next client that may speak: root, or whoever runs this process. The mode of the socket says the same, but not while
/// it is being made, and not to a process that was given the descriptor of a folder.
async fn accept(listener: &UnixListener, owner: u32) -> UnixStream {
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "cannot accept connection to the CRI socket");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        match stream.peer_cred() {
            Ok(peer) if may_connect(peer.uid(), owner) => return stream,
            Ok(peer) => {
                tracing::warn!(uid = peer.uid(), "refusing connection to the CRI socket: only root may connect")
            }
            Err(error) => tracing::warn!(%error, "refusing connection to the CRI socket: cannot tell whose it is"),
        }
    }
}

fn may_connect(uid: u32, owner: u32) -> bool {
    uid == 0 || uid == owner
}

/// The listener, and whose socket it is.
async fn listen(socket: &PathBuf) -> Result<(UnixListener, u32)> {
    let fail =
        |error: std::io::Error| Error::new(Code::Unavailable, format!("listen at {}: {error}", socket.display()));
    if socket.exists() {
        if UnixStream::connect(socket).await.is_ok() {
            return Err(Error::new(Code::AlreadyExists, format!("someone serves {} already", socket.display())));
        }
        std::fs::remove_file(socket).map_err(fail)?;
    }
    let listener = UnixListener::bind(socket).map_err(fail)?;
    // Whoever can write to it is root on this node.
    std::fs::set_permissions(socket, std::fs::Permissions::from_mode(0o600)).map_err(fail)?;
    let owner = std::fs::metadata(socket).map_err(fail)?.uid();
    Ok((listener, owner))
}

#[derive(Clone)]
struct Service {
    runtime: Arc<dyn Runtime>,
    config: Arc<Config>,
}

type Answer<T> = std::result::Result<tonic::Response<T>, tonic::Status>;

fn answer<T>(value: T) -> Answer<T> {
    Ok(tonic::Response::new(value))
}

fn wanted<T>(field: Option<T>, what: &str) -> std::result::Result<T, tonic::Status> {
    field.ok_or_else(|| tonic::Status::invalid_argument(format!("the request has no {what}")))
}

impl From<Error> for tonic::Status {
    fn from(error: Error) -> tonic::Status {
        let code = match error.code {
            Code::NotFound => tonic::Code::NotFound,
            Code::AlreadyExists => tonic::Code::AlreadyExists,
            Code::InvalidArgument => tonic::Code::InvalidArgument,
            Code::DeadlineExceeded => tonic::Code::DeadlineExceeded,
            Code::Unavailable => tonic::Code::Unavailable,
            Code::Unimplemented => tonic::Code::Unimplemented,
            Code::ResourceExhausted => tonic::Code::ResourceExhausted,
            Code::Unknown => tonic::Code::Unknown,
        };
        tonic::Status::new(code, error.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_root_and_the_owner_may_connect() {
        assert!(may_connect(0, 0) && may_connect(0, 1000) && may_connect(1000, 1000));
        assert!(!may_connect(1000, 0) && !may_connect(1001, 1000));
    }
}
