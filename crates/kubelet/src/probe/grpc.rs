//! Probes with gRPC's health protocol: one unary call, small enough to be written and read here.

use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper_util::rt::{TokioExecutor, TokioIo};

use super::{Answer, USER_AGENT, authority, tcp};

const ANSWER_MAX: usize = 4 * 1024;
static SERVING: &[&str] = &["UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"];

pub(super) async fn ask(host: &str, port: u16, service: &str, timeout: Duration) -> Answer {
    let address = authority(host, port);
    let late = || {
        let seconds = timeout.as_secs();
        format!("timeout: failed to connect service \"{address}\" within {seconds}s: context deadline exceeded")
    };
    let stream = match tcp::connect(host, port, timeout).await {
        Ok(stream) => stream,
        Err(_) => return Answer::Failure(late()),
    };
    match tokio::time::timeout(timeout, call(stream, &address, service)).await {
        Err(_) => Answer::Failure(format!("timeout: health rpc did not complete within {}s", timeout.as_secs())),
        Ok(Err(error)) => Answer::Failure(format!("error: health rpc probe failed: {error}")),
        Ok(Ok(Reply { status: 0, serving, .. })) => match SERVING.get(serving as usize) {
            Some(&"SERVING") => Answer::Success,
            other => {
                let word = other.copied().unwrap_or("UNKNOWN");
                Answer::Failure(format!("service unhealthy (responded with \"{word}\")"))
            }
        },
        Ok(Ok(Reply { status: 12, message, .. })) => Answer::Failure(format!(
            "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): {message}"
        )),
        Ok(Ok(Reply { status, message, .. })) => {
            Answer::Failure(format!("error: health rpc probe failed: rpc error: code = {status} desc = {message}"))
        }
    }
}

struct Reply {
    status: i32,
    message: String,
    serving: u64,
}

/// Why the call came to no end.
#[derive(Debug, thiserror::Error)]
enum CallError {
    #[error(transparent)]
    Http(#[from] hyper::Error),
    #[error(transparent)]
    Head(#[from] http::Error),
    /// Broken off, or longer than it may be.
    #[error(transparent)]
    Body(#[from] Box<dyn std::error::Error + Send + Sync>),
}

async fn call(stream: tokio::net::TcpStream, address: &str, service: &str) -> Result<Reply, CallError> {
    let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (mut sender, connection) = handshake.await?;
    let request = http::Request::post(format!("http://{address}/grpc.health.v1.Health/Check"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("user-agent", USER_AGENT)
        .body(Full::new(Bytes::from(message(service))))?;
    let exchange = async {
        let response = sender.send_request(request).await?;
        let headers = response.headers().clone();
        let body = Limited::new(response.into_body(), ANSWER_MAX).collect().await?;
        // An answer without a message carries its status in the headers.
        let trailers = body.trailers().cloned().unwrap_or_default();
        let field = |name: &str| {
            let value = trailers.get(name).or_else(|| headers.get(name))?;
            value.to_str().ok().map(str::to_owned)
        };
        let status = field("grpc-status").and_then(|status| status.parse().ok()).unwrap_or(2);
        let message = field("grpc-message").unwrap_or_default();
        Ok(Reply { status, message, serving: serving(&body.to_bytes()) })
    };
    tokio::pin!(connection);
    tokio::pin!(exchange);
    tokio::select! {
        result = &mut exchange => result,
        ended = &mut connection => match ended {
            Ok(()) => exchange.await,
            Err(error) => Err(error.into()),
        },
    }
}

/// `HealthCheckRequest { service = 1 }` behind gRPC's five bytes.
fn message(service: &str) -> Vec<u8> {
    let mut inner = Vec::new();
    if !service.is_empty() {
        inner.push(0x0a);
        let mut length = service.len();
        while length >= 0x80 {
            inner.push((length as u8) | 0x80);
            length >>= 7;
        }
        inner.push(length as u8);
        inner.extend_from_slice(service.as_bytes());
    }
    let mut framed = vec![0];
    framed.extend_from_slice(&(inner.len() as u32).to_be_bytes());
    framed.extend_from_slice(&inner);
    framed
}

/// `HealthCheckResponse { status = 1 }`; an absent field is 0.
fn serving(body: &[u8]) -> u64 {
    match body.get(5..) {
        Some([0x08, value, ..]) => u64::from(*value),
        _ => 0,
    }
}
