//! Probes and hooks over HTTP and HTTPS. Certificates are not checked: a probe asks whether the server answers, not who it is.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};

use super::{Answer, authority, tcp};

const BODY_MAX: usize = 10 * 1024;
const REDIRECTS_MAX: usize = 10;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Get {
    pub https: bool,
    pub host: String,
    pub port: u16,
    pub path: String,
    pub headers: Vec<(String, String)>,
}

impl Get {
    pub fn url(&self) -> String {
        let scheme = if self.https { "https" } else { "http" };
        format!("{scheme}://{}{}", authority(&self.host, self.port), self.path)
    }
}

pub(super) async fn ask(get: &Get, timeout: Duration) -> Answer {
    match self::get(get, timeout).await {
        Ok((status, _)) if (200..300).contains(&status) => Answer::Success,
        // A redirect that is not followed.
        Ok((status, body)) if (300..400).contains(&status) => {
            Answer::Warning(format!("Probe terminated redirects, Response body: {body}"))
        }
        Ok((status, _)) => Answer::Failure(format!("HTTP probe failed with statuscode: {status}")),
        Err(error) => Answer::Failure(error.to_string()),
    }
}

/// Why no answer came, worded as Go's client does.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GetError {
    #[error("Get \"{url}\": {source}")]
    Request { url: String, source: RequestError },
    #[error("Get \"{url}\": stopped after {REDIRECTS_MAX} redirects")]
    Redirects { url: String },
    #[error("Get \"{url}\": context deadline exceeded (Client.Timeout exceeded while awaiting headers)")]
    Late { url: String },
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum RequestError {
    #[error(transparent)]
    Dial(#[from] tcp::DialError),
    #[error(transparent)]
    Name(#[from] rustls::pki_types::InvalidDnsNameError),
    #[error(transparent)]
    Tls(#[from] std::io::Error),
    #[error(transparent)]
    Head(#[from] http::Error),
    #[error("{}", wording(.0))]
    Exchange(#[from] hyper::Error),
}

/// The status and the body of the answer, after redirects on the same host. One that leads elsewhere counts as it is.
pub(crate) async fn get(get: &Get, timeout: Duration) -> Result<(u16, String), GetError> {
    let whole = async {
        let mut get = get.clone();
        for _ in 0..REDIRECTS_MAX {
            let Answered { status, location, body } =
                once(&get, timeout).await.map_err(|source| GetError::Request { url: get.url(), source })?;
            let Some(next) = location.filter(|_| (300..400).contains(&status)).and_then(|to| follow(&get, &to)) else {
                return Ok((status, body));
            };
            get = next;
        }
        Err(GetError::Redirects { url: get.url() })
    };
    match tokio::time::timeout(timeout, whole).await {
        Ok(result) => result,
        Err(_) => Err(GetError::Late { url: get.url() }),
    }
}

fn follow(from: &Get, location: &str) -> Option<Get> {
    let uri: http::Uri = location.parse().ok()?;
    let path = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
    let Some(host) = uri.host() else { return Some(Get { path, ..from.clone() }) };
    if host.trim_matches(['[', ']']) != from.host {
        return None;
    }
    let https = uri.scheme_str().map_or(from.https, |scheme| scheme == "https");
    let port = uri.port_u16().unwrap_or(if https { 443 } else { 80 });
    Some(Get { https, port, path, ..from.clone() })
}

struct Answered {
    status: u16,
    location: Option<String>,
    body: String,
}

async fn once(get: &Get, timeout: Duration) -> Result<Answered, RequestError> {
    let stream = tcp::connect(&get.host, get.port, timeout).await?;
    if !get.https {
        return exchange(get, stream).await;
    }
    let name = ServerName::try_from(get.host.clone())?;
    let connector = tokio_rustls::TlsConnector::from(unverified());
    let stream = connector.connect(name, stream).await?;
    exchange(get, stream).await
}

async fn exchange<S>(get: &Get, stream: S) -> Result<Answered, RequestError>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let mut request = http::Request::get(&get.path);
    let mut host = authority(&get.host, get.port);
    for (name, value) in &get.headers {
        if name.eq_ignore_ascii_case("host") {
            host = value.clone();
        } else {
            request = request.header(name, value);
        }
    }
    let request = request
        .header(http::header::HOST, host)
        .header(http::header::CONNECTION, "close")
        .body(Empty::<Bytes>::new())?;
    let exchange = async {
        let response = sender.send_request(request).await?;
        let status = response.status().as_u16();
        let location = response.headers().get(http::header::LOCATION).and_then(|value| value.to_str().ok());
        let location = location.map(str::to_owned);
        // The body is read so that the server is not cut off, up to a bound.
        let body = Limited::new(response.into_body(), BODY_MAX).collect().await;
        let body = match body {
            Ok(body) => String::from_utf8_lossy(&body.to_bytes()).into_owned(),
            Err(error) => {
                tracing::trace!(%error, "cannot read probe response to its end");
                String::new()
            }
        };
        Ok(Answered { status, location, body })
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

fn wording(error: &hyper::Error) -> String {
    if error.is_incomplete_message() { "EOF".to_owned() } else { error.to_string() }
}

fn unverified() -> Arc<ClientConfig> {
    static CONFIG: std::sync::OnceLock<Arc<ClientConfig>> = std::sync::OnceLock::new();
    let config = CONFIG.get_or_init(|| {
        let builder = trust::client_without_verification().expect("the provider has the default protocol versions");
        Arc::new(builder.with_no_client_auth())
    });
    config.clone()
}
