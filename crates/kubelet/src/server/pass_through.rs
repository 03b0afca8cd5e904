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
        Err(message) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("error dialing backend: {message}")),
    }
}

async fn pass(parts: &mut Parts, url: &str) -> Result<Answer, String> {
    let uri: Uri = url.parse().map_err(|error| format!("{url}: {error}"))?;
    let authority = uri.authority().ok_or_else(|| format!("{url}: no host"))?.clone();
    if uri.scheme_str() != Some("http") {
        return Err(format!("{url}: only http is supported to a container runtime"));
    }
    let place = format!("{}:{}", authority.host(), authority.port_u16().unwrap_or(80));
    let stream = TcpStream::connect(&place).await.map_err(|error| format!("dial tcp {place}: {error}"))?;
    // Keystrokes must not wait for more of them; a socket that cannot do this still works.
    let _ = stream.set_nodelay(true);
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
    tasks::spawn(connection.with_upgrades());

    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let mut request = Request::new(Empty::<Bytes>::new());
    *request.method_mut() = parts.method.clone();
    *request.uri_mut() = path.parse().map_err(|error| format!("{url}: {error}"))?;
    *request.headers_mut() = parts.headers.clone();
    // The runtime knows its streams by their address alone.
    request.headers_mut().remove(http::header::AUTHORIZATION);
    let host = HeaderValue::from_str(authority.as_str()).map_err(|error| error.to_string())?;
    request.headers_mut().insert(http::header::HOST, host);
    let mut response = sender.send_request(request).await.map_err(|error| error.to_string())?;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        let (head, body) = response.into_parts();
        let body = body.map_err(std::io::Error::other).boxed_unsync();
        return Ok(Answer::from_parts(head, body));
    }
    let theirs = hyper::upgrade::on(&mut response);
    let ours = parts.extensions.remove::<OnUpgrade>().ok_or("the client's connection cannot be upgraded")?;
    tasks::spawn(async move {
        let (Ok(ours), Ok(theirs)) = tokio::join!(ours, theirs) else { return };
        // Whichever way it ends, both connections are closed with it.
        let _ = tokio::io::copy_bidirectional(&mut TokioIo::new(ours), &mut TokioIo::new(theirs)).await;
    });
    let (head, _) = response.into_parts();
    Ok(Answer::from_parts(head, full("")))
}
