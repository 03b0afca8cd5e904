//! Connections to foreign API servers, with the front proxy's certificate and the headers that say who asks.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use component_base::tasks;
use http::header::{HOST, HeaderName, HeaderValue, SEC_WEBSOCKET_PROTOCOL};
use http::{HeaderMap, Request, Response};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use rustls::ClientConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::Value;

use super::Remote;
use crate::authn::User;
use crate::outgoing::dial::SendError;
use crate::outgoing::relay::Outgoing;
use crate::outgoing::way::Way;
use crate::pki::{Credentials, Error};

/// How this server proves that it may speak for others, if it can.
pub struct Identity {
    pair: Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>,
    pub(super) egress: Way,
}

impl Identity {
    pub fn new(credentials: &Credentials, egress: Way) -> Result<Identity, Error> {
        let Some(pair) = &credentials.front_proxy_client else { return Ok(Identity { pair: None, egress }) };
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pair.certificate_pem.as_bytes()).collect();
        let key = PrivateKeyDer::from_pem_slice(pair.key_pem.as_bytes()).map_err(failed)?;
        Ok(Identity { pair: Some((chain.map_err(failed)?, key)), egress })
    }

    /// How to speak with the server of that APIService: it must show a certificate of its bundle, unless anyone's will do.
    pub fn config(&self, spec: &Value) -> Result<Arc<ClientConfig>, Error> {
        let builder = match spec["insecureSkipTLSVerify"].as_bool() {
            Some(true) => trust::client_without_verification().map_err(failed)?,
            _ => {
                let bundle = STANDARD.decode(spec["caBundle"].as_str().unwrap_or("")).map_err(failed)?;
                trust::client(trust::bundle(&bundle).map_err(failed)?).map_err(failed)?
            }
        };
        let config = match &self.pair {
            None => builder.with_no_client_auth(),
            Some((chain, key)) => builder.with_client_auth_cert(chain.clone(), key.clone_key()).map_err(failed)?,
        };
        Ok(Arc::new(config))
    }
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::Tls(error.to_string())
}

/// What may stand in a header's name as it is; everything else is escaped, as upstream.
const EXTRA_KEY: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~')
    .remove(b'!')
    .remove(b'$')
    .remove(b'&')
    .remove(b'\'')
    .remove(b'*')
    .remove(b'+')
    .remove(b'^')
    .remove(b'`')
    .remove(b'|')
    .remove(b'#');

/// Browsers hand over tokens among a WebSocket's protocols; a foreign server could use them elsewhere.
pub(crate) fn hide_token(headers: &mut HeaderMap) {
    let Some(protocols) = headers.get(SEC_WEBSOCKET_PROTOCOL).and_then(|value| value.to_str().ok()) else { return };
    let kept = protocols.split(',').map(str::trim).filter(|one| !one.starts_with("base64url.bearer.authorization."));
    match HeaderValue::from_str(&kept.collect::<Vec<_>>().join(", ")) {
        Ok(kept) if !kept.is_empty() => headers.insert(SEC_WEBSOCKET_PROTOCOL, kept),
        _ => headers.remove(SEC_WEBSOCKET_PROTOCOL),
    };
}

/// Says who asks, and nothing that the client said itself.
pub fn introduce(headers: &mut HeaderMap, user: &User) {
    let said: Vec<HeaderName> = headers.keys().filter(|name| name.as_str().starts_with("x-remote-")).cloned().collect();
    said.iter().for_each(|name| {
        headers.remove(name);
    });
    let mut add = |name: &str, value: &str| {
        if let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), HeaderValue::from_str(value)) {
            headers.append(name, value);
        }
    };
    add("x-remote-user", &user.name);
    if !user.uid.is_empty() {
        add("x-remote-uid", &user.uid);
    }
    user.groups.iter().for_each(|group| add("x-remote-group", group));
    for (key, values) in &user.extra {
        let name = format!("x-remote-extra-{}", utf8_percent_encode(&key.to_lowercase(), EXTRA_KEY));
        values.iter().for_each(|value| add(&name, value));
    }
}

/// Sends a request on a connection of its own: to one of the server's places, and to the next where nobody is there.
pub async fn send(remote: &Remote, mut request: Request<Outgoing>) -> Result<Response<Incoming>, SendError> {
    let name = ServerName::try_from(remote.server_name.clone())?;
    let first = if remote.places.is_empty() { 0 } else { rand::random_range(0..remote.places.len()) };
    let mut refused = SendError::NoEndpoints;
    for (host, port) in remote.places.iter().cycle().skip(first).take(remote.places.len()) {
        let connection = match remote.egress.secured(host, *port, remote.tls.clone(), name.clone()).await {
            Ok(connection) => connection,
            Err(error) => {
                refused = error.into();
                continue;
            }
        };
        let handshake = hyper::client::conn::http1::handshake(TokioIo::new(connection)).await;
        let (mut sender, connection) = handshake?;
        // It ends with its answer, or when the answer is dropped because the client has gone.
        tasks::spawn(connection.with_upgrades());
        let host = HeaderValue::from_str(&remote.server_name)?;
        request.headers_mut().insert(HOST, host);
        return Ok(sender.send_request(request).await?);
    }
    Err(refused)
}
