//! Streams that a foreign runtime serves itself: the client's request goes to the address the runtime gave, and after the
//! upgrade bytes go both ways untouched.

use bytes::Bytes;
use component_base::tasks;
use http::request::Parts;
use http::{HeaderValue, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Empty};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::answers::{Answer, full, text};

pub async fn answer(parts: &mut Parts, url: &str) -> Answer {
    match pass(parts, url).await {
        Ok(answer) => answer,
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("error dialing backend: {error}")),
    }
}

/// Why the runtime's own server cannot be reached; the client reads it.
#[derive(Debug, thiserror::Error)]
enum PassError {
    #[error("{url}: {source}")]
    Url { url: String, source: http::uri::InvalidUri },
    #[error("{0}: no host")]
    NoHost(String),
    #[error("{0}: only http is supported to a container runtime")]
    Scheme(String),
    #[error("dial tcp {place}: {source}")]
    Dial { place: String, source: std::io::Error },
    #[error(transparent)]
    Http(#[from] hyper::Error),
    #[error(transparent)]
    Host(#[from] http::header::InvalidHeaderValue),
    #[error("the client's connection cannot be upgraded")]
    NotUpgradable,
}

async fn pass(parts: &mut Parts, url: &str) -> Result<Answer, PassError> {
    let invalid = |source| PassError::Url { url: url.to_owned(), source };
    let uri: Uri = url.parse().map_err(invalid)?;
    let authority = uri.authority().ok_or_else(|| PassError::NoHost(url.to_owned()))?.clone();
    if uri.scheme_str() != Some("http") {
        return Err(PassError::Scheme(url.to_owned()));
    }
    let place = format!("{}:{}", authority.host(), authority.port_u16().unwrap_or(80));
    let stream = TcpStream::connect(&place).await.map_err(|source| PassError::Dial { place, source })?;
    // Keystrokes must not wait for more of them; a socket that cannot do this still works.
    let _ = stream.set_nodelay(true);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tasks::spawn(connection.with_upgrades());

    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let mut request = Request::new(Empty::<Bytes>::new());
    *request.method_mut() = parts.method.clone();
    *request.uri_mut() = path.parse().map_err(invalid)?;
    *request.headers_mut() = parts.headers.clone();
    // The runtime knows its streams by their address alone.
    request.headers_mut().remove(http::header::AUTHORIZATION);
    let host = HeaderValue::from_str(authority.as_str())?;
    request.headers_mut().insert(http::header::HOST, host);
    let mut response = sender.send_request(request).await?;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        let (head, body) = response.into_parts();
        let body = body.map_err(std::io::Error::other).boxed_unsync();
        return Ok(Answer::from_parts(head, body));
    }
    let theirs = hyper::upgrade::on(&mut response);
    let ours = parts.extensions.remove::<OnUpgrade>().ok_or(PassError::NotUpgradable)?;
    tasks::spawn(async move {
        let (Ok(ours), Ok(theirs)) = tokio::join!(ours, theirs) else { return };
        // Whichever way it ends, both connections are closed with it.
        let _ = tokio::io::copy_bidirectional(&mut TokioIo::new(ours), &mut TokioIo::new(theirs)).await;
    });
    let (head, _) = response.into_parts();
    Ok(Answer::from_parts(head, full("")))
}
