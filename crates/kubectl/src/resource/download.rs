//! Manifests that stand under a URL.

use http_body_util::BodyExt;
use kube::client::Body;

use crate::failure::{Failure, Result};
use crate::session::user_agent;

/// How often a URL may lead to another.
const REDIRECTS_MAX: usize = 10;

/// What stands under a URL, or where it leads to.
pub(super) async fn of_url(url: &str) -> Result<Vec<u8>> {
    let mut next = url.to_string();
    for _ in 0..REDIRECTS_MAX {
        let uri: http::Uri = next
            .parse()
            .map_err(|error| Failure::message(format!("the URL passed to filename {url:?} is not valid: {error}")))?;
        let followed = follow(&uri).await;
        match followed.map_err(|error| Failure::message(format!("unable to read URL {url:?}, {error}")))? {
            Followed::Content(bytes) => return Ok(bytes),
            Followed::Elsewhere(location) => next = location,
        }
    }
    Err(Failure::message(format!("unable to read URL {url:?}, stopped after {REDIRECTS_MAX} redirects")))
}

/// What one request for a manifest leads to.
enum Followed {
    Content(Vec<u8>),
    /// The URL of another place.
    Elsewhere(String),
}

/// Why a manifest cannot be fetched.
#[derive(Debug, thiserror::Error)]
enum FetchError {
    #[error(transparent)]
    Uri(#[from] http::uri::InvalidUri),
    #[error(transparent)]
    Request(#[from] http::Error),
    #[error(transparent)]
    Client(#[from] kube::Error),
    #[error("server reported {code} {reason}, status code={code}")]
    Refused { code: u16, reason: &'static str },
}

async fn follow(uri: &http::Uri) -> std::result::Result<Followed, FetchError> {
    let authority = uri.authority().map(ToString::to_string).unwrap_or_default();
    let base = format!("{}://{authority}", uri.scheme_str().unwrap_or("https"));
    let path = uri.path_and_query().map_or("/".to_string(), ToString::to_string);
    let mut config = kube::Config::new(base.parse()?);
    config.default_retry = false;
    config.proxy_url = crate::proxy::of_environment(&base).and_then(|proxy| proxy.parse().ok());
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = crate::proxy::client(config, None)?;
    let request = http::Request::get(path).header("user-agent", user_agent()).body(Body::empty())?;
    let answer = client.send(request).await?;
    let code = answer.status();
    if let (true, Some(location)) = (code.is_redirection(), answer.headers().get("location")) {
        let location = location.to_str().unwrap_or_default();
        let whole = if location.contains("://") { location.to_string() } else { format!("{base}{location}") };
        return Ok(Followed::Elsewhere(whole));
    }
    if !code.is_success() {
        return Err(FetchError::Refused { code: code.as_u16(), reason: code.canonical_reason().unwrap_or_default() });
    }
    Ok(Followed::Content(answer.into_body().collect().await?.to_bytes().to_vec()))
}
