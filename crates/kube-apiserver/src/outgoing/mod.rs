//! HTTP to others: webhooks, audit, foreign API servers, providers of OpenID Connect. `dial.rs` connects, `way.rs` through a
//! proxy where one is set, `relay.rs` carries what
//! is passed on, and this file asks those whose address an operator gave in a file or flag: one request, one answer of bounded
//! size, within a time; connections are kept for the next.

pub(crate) mod dial;
pub(crate) mod relay;
pub(crate) mod way;
mod bounded;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use component_base::tasks;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use tokio::time::Instant;

use crate::audit::kubeconfig::Place;

use dial::{Connection, SendError};

pub use bounded::Bounded;

/// How much may be answered: a review or a set of keys, and room around it.
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// Connections that wait for the next request.
const IDLE_MAX: usize = 32;
/// As long as Go's client keeps one.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);
const AGENT: &str = "kube-apiserver";

/// Why there is no answer. The texts name addresses and never what was sent.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Failed {
    #[error("context deadline exceeded")]
    Timeout,
    #[error("{0}")]
    Connect(Arc<SendError>),
    #[error("{0}")]
    Exchange(Arc<dyn std::error::Error + Send + Sync>),
    #[error("the response is larger than {ANSWER_BYTES_MAX} bytes")]
    TooLong,
}

impl Failed {
    fn connect(error: impl Into<SendError>) -> Failed {
        Failed::Connect(Arc::new(error.into()))
    }

    fn exchange(error: impl std::error::Error + Send + Sync + 'static) -> Failed {
        Failed::Exchange(Arc::new(error))
    }
}

/// What came back, whatever its code.
#[derive(Debug)]
pub struct Answer {
    pub code: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
}

type Sender = SendRequest<Full<Bytes>>;

/// The way to one place.
pub struct Client {
    place: Place,
    idle: Mutex<Vec<(Sender, Instant)>>,
}

impl Client {
    pub fn new(place: Place) -> Client {
        Client { place, idle: Mutex::default() }
    }

    /// The address, for messages.
    pub fn url(&self) -> String {
        let scheme = if self.place.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}{}", authority(&self.place), self.place.path)
    }

    pub async fn post(&self, body: Bytes, timeout: Duration) -> Result<Answer, Failed> {
        self.send(Method::POST, body, timeout).await
    }

    pub async fn get(&self, timeout: Duration) -> Result<Answer, Failed> {
        self.send(Method::GET, Bytes::new(), timeout).await
    }

    async fn send(&self, method: Method, body: Bytes, timeout: Duration) -> Result<Answer, Failed> {
        tokio::time::timeout(timeout, self.exchange(method, body)).await.unwrap_or(Err(Failed::Timeout))
    }

    async fn exchange(&self, method: Method, body: Bytes) -> Result<Answer, Failed> {
        // One that was kept may have been closed by the other side just now: then a new one is tried.
        if let Some(sender) = self.kept()
            && let Ok(answer) = self.over(sender, &method, body.clone()).await
        {
            return Ok(answer);
        }
        let sender = self.connect().await?;
        self.over(sender, &method, body).await
    }

    async fn over(&self, mut sender: Sender, method: &Method, body: Bytes) -> Result<Answer, Failed> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method.clone();
        *request.uri_mut() = self.place.path.parse().map_err(|error: http::uri::InvalidUri| Failed::exchange(error))?;
        let headers = request.headers_mut();
        headers.insert(HOST, HeaderValue::from_str(&authority(&self.place)).map_err(Failed::exchange)?);
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, */*"));
        headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
        crate::traces::propagate(headers);
        if *method == Method::POST {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        if let Some(authorization) = &self.place.authorization {
            headers.insert(AUTHORIZATION, authorization.clone());
        }
        let (head, body) = sender.send_request(request).await.map_err(Failed::exchange)?.into_parts();
        let read = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
        let read = read.map_err(|error| {
            if error.is::<LengthLimitError>() { Failed::TooLong } else { Failed::Exchange(error.into()) }
        })?;
        self.keep(sender);
        Ok(Answer { code: head.status.as_u16(), headers: head.headers, body: read.to_bytes() })
    }

    async fn connect(&self) -> Result<Sender, Failed> {
        let (host, port) = (&self.place.host, self.place.port);
        let connection: Box<dyn Connection> = match &self.place.tls {
            None => Box::new(dial::plain(host, port).await.map_err(Failed::connect)?),
            Some(tls) => {
                let name = ServerName::try_from(host.clone()).map_err(Failed::connect)?;
                dial::secured(host, port, tls.clone(), name).await.map_err(Failed::connect)?
            }
        };
        let (sender, connection) = handshake(TokioIo::new(connection)).await.map_err(Failed::exchange)?;
        // It ends when the sender is dropped or the other side closes it.
        tasks::spawn(connection);
        Ok(sender)
    }

    fn kept(&self) -> Option<Sender> {
        let mut idle = self.idle.lock();
        while let Some((sender, since)) = idle.pop() {
            if sender.is_ready() && since.elapsed() < IDLE_TIMEOUT {
                return Some(sender);
            }
        }
        None
    }

    fn keep(&self, sender: Sender) {
        let mut idle = self.idle.lock();
        idle.retain(|(sender, since)| !sender.is_closed() && since.elapsed() < IDLE_TIMEOUT);
        if idle.len() < IDLE_MAX {
            idle.push((sender, Instant::now()));
        }
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.debug_tuple("Client").field(&self.url()).finish()
    }
}

fn authority(place: &Place) -> String {
    let host = if place.host.contains(':') { format!("[{}]", place.host) } else { place.host.clone() };
    match (place.tls.is_some(), place.port) {
        (true, 443) | (false, 80) => host,
        (_, port) => format!("{host}:{port}"),
    }
}
