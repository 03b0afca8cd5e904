//! Asks other API servers what they serve.

use bytes::Bytes;
use http::Request;
use http::header::{ACCEPT, HeaderValue};
use machinery::status::Status;
use serde_json::Value;

use super::{Way, connect};
use crate::authn::User;
use crate::outgoing::dial::SendError;
use crate::outgoing::relay;

/// Why a server does not say what it serves.
#[derive(Debug, thiserror::Error)]
pub(super) enum AskError {
    #[error("no way to ask")]
    NoWay,
    #[error("context deadline exceeded")]
    Timeout,
    #[error(transparent)]
    Path(#[from] http::uri::InvalidUri),
    #[error("Get {url:?}: {error}")]
    Send { url: String, error: SendError },
    #[error("{}", .0.message)]
    Body(Status),
    #[error("bad status from {url}: {code}")]
    Code { url: String, code: u16 },
}

/// Asks as the aggregator itself; the answer must be JSON.
pub(super) async fn ask(way: &Way, path: &str, url: &str) -> Result<Value, AskError> {
    let user =
        User { name: "system:kube-aggregator".into(), groups: vec![crate::authz::MASTERS.into()], ..User::default() };
    let mut headers = http::HeaderMap::new();
    headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    connect::introduce(&mut headers, &user);
    let uri: http::Uri = path.parse()?;
    let (code, bytes) = match way {
        Way::Here(handler) => {
            let mut request = Request::new(Bytes::new());
            (*request.uri_mut(), *request.headers_mut()) = (uri, headers);
            let response = handler(request).await;
            (response.status(), response.into_body())
        }
        Way::Nowhere => return Err(AskError::NoWay),
        Way::There(remote) => {
            let mut request = Request::new(relay::empty());
            (*request.uri_mut(), *request.headers_mut()) = (uri, headers);
            let response =
                connect::send(remote, request).await.map_err(|error| AskError::Send { url: url.into(), error })?;
            let code = response.status();
            (code, crate::body::read(response.into_body()).await.map_err(AskError::Body)?)
        }
    };
    if !code.is_success() {
        return Err(AskError::Code { url: url.into(), code: code.as_u16() });
    }
    Ok(serde_json::from_slice(&bytes).unwrap_or(Value::Null))
}
