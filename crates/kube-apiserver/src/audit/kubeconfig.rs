//! The kubeconfig of a webhook that an operator names: where it is, whom to believe there, and who we are.

use std::path::Path;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use machinery::codec;
use rustls::ClientConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::Value;

/// Where requests are sent to.
pub struct Place {
    pub host: String,
    pub port: u16,
    pub path: String,
    /// None for plain HTTP.
    pub tls: Option<Arc<ClientConfig>>,
    pub authorization: Option<HeaderValue>,
}

/// Why a kubeconfig leads nowhere.
#[derive(Debug, thiserror::Error)]
pub enum KubeconfigError {
    #[error(transparent)]
    Read(#[from] std::io::Error),
    #[error(transparent)]
    Decode(#[from] codec::DecodeError),
    #[error("it has no current-context")]
    NoContext,
    #[error("its context names no cluster")]
    NoCluster,
    #[error("user has {0}, which knarr does not support: use a certificate or a token")]
    Credentials(&'static str),
    #[error("its cluster has a proxy-url: knarr reaches webhooks directly")]
    Proxy,
    #[error("server: {0}")]
    Server(http::uri::InvalidUri),
    #[error("server: it must begin with https:// or http://")]
    Scheme,
    #[error("server: URL has no host")]
    NoHost,
    #[error("{field}-data: {error}")]
    Data { field: &'static str, error: base64::DecodeError },
    #[error("{field} {path}: {error}")]
    File { field: &'static str, path: String, error: std::io::Error },
    #[error("TLS: {0}")]
    Tls(Box<dyn std::error::Error + Send + Sync>),
    #[error("the token is not plain text")]
    Token,
}

impl KubeconfigError {
    fn tls(error: impl std::error::Error + Send + Sync + 'static) -> KubeconfigError {
        KubeconfigError::Tls(Box::new(error))
    }
}

pub fn read(path: &Path) -> Result<Place, KubeconfigError> {
    let text = std::fs::read_to_string(path)?;
    let config = codec::decode_yaml(text.as_bytes())?.value;
    place(&config, path.parent().unwrap_or(Path::new(".")))
}

fn place(config: &Value, folder: &Path) -> Result<Place, KubeconfigError> {
    let text = |value: &Value| value.as_str().unwrap_or("").to_string();
    let named = |list: &str, name: &str, field: &str| {
        let mut entries = config[list].as_array().into_iter().flatten();
        entries.find(|entry| entry["name"] == name).map(|entry| entry[field].clone())
    };
    let context = text(&config["current-context"]);
    let context = named("contexts", &context, "context").ok_or(KubeconfigError::NoContext)?;
    let cluster = named("clusters", &text(&context["cluster"]), "cluster").ok_or(KubeconfigError::NoCluster)?;
    let user = named("users", &text(&context["user"]), "user").unwrap_or_default();
    for field in ["exec", "auth-provider"] {
        if !user[field].is_null() {
            return Err(KubeconfigError::Credentials(field));
        }
    }
    if cluster["proxy-url"].as_str().is_some_and(|url| !url.is_empty()) {
        return Err(KubeconfigError::Proxy);
    }

    let uri: http::Uri = text(&cluster["server"]).parse().map_err(KubeconfigError::Server)?;
    let secure = match uri.scheme_str() {
        Some("https") => true,
        Some("http") => false,
        _ => return Err(KubeconfigError::Scheme),
    };
    let host = uri.host().ok_or(KubeconfigError::NoHost)?.trim_matches(['[', ']']).to_string();
    Ok(Place {
        host,
        port: uri.port_u16().unwrap_or(if secure { 443 } else { 80 }),
        path: uri.path_and_query().map_or("/", |path| path.as_str()).to_string(),
        tls: if secure { Some(tls(&cluster, &user, folder)?) } else { None },
        authorization: authorization(&user, folder)?,
    })
}

/// Data in the file itself, or in a file beside it.
fn data(value: &Value, field: &'static str, folder: &Path) -> Result<Option<Vec<u8>>, KubeconfigError> {
    if let Some(text) = value[format!("{field}-data")].as_str().filter(|text| !text.is_empty()) {
        return STANDARD.decode(text).map(Some).map_err(|error| KubeconfigError::Data { field, error });
    }
    match value[field].as_str().filter(|path| !path.is_empty()) {
        Some(path) => {
            let read = std::fs::read(folder.join(path));
            read.map(Some).map_err(|error| KubeconfigError::File { field, path: path.into(), error })
        }
        None => Ok(None),
    }
}

fn tls(cluster: &Value, user: &Value, folder: &Path) -> Result<Arc<ClientConfig>, KubeconfigError> {
    let builder = match cluster["insecure-skip-tls-verify"].as_bool() {
        Some(true) => trust::client_without_verification().map_err(KubeconfigError::tls)?,
        _ => {
            // As Go's client: without an authority, those that the system trusts.
            let trusted = match data(cluster, "certificate-authority", folder)? {
                Some(bundle) => trust::bundle(&bundle).map_err(KubeconfigError::tls)?,
                None => trust::system(),
            };
            trust::client(trusted).map_err(KubeconfigError::tls)?
        }
    };
    let pair = (data(user, "client-certificate", folder)?, data(user, "client-key", folder)?);
    let (Some(certificate), Some(key)) = pair else { return Ok(Arc::new(builder.with_no_client_auth())) };
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&certificate).collect();
    let key = PrivateKeyDer::from_pem_slice(&key).map_err(KubeconfigError::tls)?;
    let config = builder.with_client_auth_cert(chain.map_err(KubeconfigError::tls)?, key);
    Ok(Arc::new(config.map_err(KubeconfigError::tls)?))
}

fn authorization(user: &Value, folder: &Path) -> Result<Option<HeaderValue>, KubeconfigError> {
    let token = match (user["token"].as_str(), user["tokenFile"].as_str()) {
        (Some(token), _) if !token.is_empty() => token.to_string(),
        (_, Some(path)) if !path.is_empty() => {
            let read = std::fs::read_to_string(folder.join(path));
            read.map_err(|error| KubeconfigError::File { field: "tokenFile", path: path.into(), error })?
        }
        _ => String::new(),
    };
    let text = match (token.trim(), user["username"].as_str()) {
        ("", None) => return Ok(None),
        ("", Some(name)) => {
            let password = user["password"].as_str().unwrap_or("");
            format!("Basic {}", STANDARD.encode(format!("{name}:{password}")))
        }
        (token, _) => format!("Bearer {token}"),
    };
    HeaderValue::from_str(&text).map(Some).map_err(|_| KubeconfigError::Token)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn config(server: &str, user: Value) -> Value {
        json!({
            "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
            "clusters": [{"name": "k", "cluster": {"server": server, "insecure-skip-tls-verify": true}}],
            "users": [{"name": "u", "user": user}],
        })
    }

    #[test]
    fn places_are_read() {
        let check = |server: &str, user: Value, expected: (&str, u16, &str, bool, &str)| {
            let place = place(&config(server, user), Path::new("/")).map_err(|error| format!("{server}: {error}")).ok();
            let place = place.unwrap();
            let said = place.authorization.as_ref().map_or("", |value| value.to_str().unwrap());
            assert_eq!((place.host.as_str(), place.port, place.path.as_str(), place.tls.is_some(), said), expected);
        };
        check("https://a.example:8443/sink?x=1", json!({}), ("a.example", 8443, "/sink?x=1", true, ""));
        check("http://[::1]", json!({"token": "t"}), ("::1", 80, "/", false, "Bearer t"));
        let basic = json!({"username": "a", "password": "b"});
        check("https://1.2.3.4", basic, ("1.2.3.4", 443, "/", true, "Basic YTpi"));
    }

    #[test]
    fn what_is_missing_is_named() {
        let check = |config: Value, expected: &str| {
            let error = place(&config, Path::new("/")).err().map(|error| error.to_string());
            assert_eq!(error.as_deref(), Some(expected));
        };
        check(json!({}), "it has no current-context");
        check(config("ftp://a", json!({})), "server: it must begin with https:// or http://");
        let mut unreadable = config("https://a", json!({}));
        unreadable["clusters"][0]["cluster"] = json!({"server": "https://a", "certificate-authority": "/no/such"});
        check(unreadable, "certificate-authority /no/such: No such file or directory (os error 2)");
    }
}
