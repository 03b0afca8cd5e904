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

pub fn read(path: &Path) -> Result<Place, String> {
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    let config = codec::decode_yaml(text.as_bytes()).map_err(|error| error.to_string())?.value;
    place(&config, path.parent().unwrap_or(Path::new(".")))
}

fn place(config: &Value, folder: &Path) -> Result<Place, String> {
    let text = |value: &Value| value.as_str().unwrap_or("").to_string();
    let named = |list: &str, name: &str, field: &str| {
        let mut entries = config[list].as_array().into_iter().flatten();
        entries.find(|entry| entry["name"] == name).map(|entry| entry[field].clone())
    };
    let context = text(&config["current-context"]);
    let context = named("contexts", &context, "context").ok_or("it has no current-context")?;
    let cluster = named("clusters", &text(&context["cluster"]), "cluster").ok_or("its context names no cluster")?;
    let user = named("users", &text(&context["user"]), "user").unwrap_or_default();
    for field in ["exec", "auth-provider"] {
        if !user[field].is_null() {
            return Err(format!("user has {field}, which knarr does not support: use a certificate or a token"));
        }
    }
    if cluster["proxy-url"].as_str().is_some_and(|url| !url.is_empty()) {
        return Err("its cluster has a proxy-url: knarr reaches webhooks directly".into());
    }

    let uri: http::Uri = text(&cluster["server"]).parse().map_err(|error| format!("server: {error}"))?;
    let secure = match uri.scheme_str() {
        Some("https") => true,
        Some("http") => false,
        _ => return Err("server: it must begin with https:// or http://".into()),
    };
    let host = uri.host().ok_or("server: URL has no host")?.trim_matches(['[', ']']).to_string();
    Ok(Place {
        host,
        port: uri.port_u16().unwrap_or(if secure { 443 } else { 80 }),
        path: uri.path_and_query().map_or("/", |path| path.as_str()).to_string(),
        tls: if secure { Some(tls(&cluster, &user, folder)?) } else { None },
        authorization: authorization(&user, folder)?,
    })
}

/// Data in the file itself, or in a file beside it.
fn data(value: &Value, field: &str, folder: &Path) -> Result<Option<Vec<u8>>, String> {
    if let Some(text) = value[format!("{field}-data")].as_str().filter(|text| !text.is_empty()) {
        return STANDARD.decode(text).map(Some).map_err(|error| format!("{field}-data: {error}"));
    }
    match value[field].as_str().filter(|path| !path.is_empty()) {
        Some(path) => std::fs::read(folder.join(path)).map(Some).map_err(|error| format!("{field} {path}: {error}")),
        None => Ok(None),
    }
}

fn tls(cluster: &Value, user: &Value, folder: &Path) -> Result<Arc<ClientConfig>, String> {
    let failed = |error: &dyn std::fmt::Display| format!("TLS: {error}");
    let builder = match cluster["insecure-skip-tls-verify"].as_bool() {
        Some(true) => trust::client_without_verification().map_err(|error| failed(&error))?,
        _ => {
            // As Go's client: without an authority, those that the system trusts.
            let trusted = match data(cluster, "certificate-authority", folder)? {
                Some(bundle) => trust::bundle(&bundle).map_err(|error| failed(&error))?,
                None => trust::system(),
            };
            trust::client(trusted).map_err(|error| failed(&error))?
        }
    };
    let pair = (data(user, "client-certificate", folder)?, data(user, "client-key", folder)?);
    let (Some(certificate), Some(key)) = pair else { return Ok(Arc::new(builder.with_no_client_auth())) };
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&certificate).collect();
    let key = PrivateKeyDer::from_pem_slice(&key).map_err(|error| failed(&error))?;
    let config = builder.with_client_auth_cert(chain.map_err(|error| failed(&error))?, key);
    Ok(Arc::new(config.map_err(|error| failed(&error))?))
}

fn authorization(user: &Value, folder: &Path) -> Result<Option<HeaderValue>, String> {
    let token = match (user["token"].as_str(), user["tokenFile"].as_str()) {
        (Some(token), _) if !token.is_empty() => token.to_string(),
        (_, Some(path)) if !path.is_empty() => {
            std::fs::read_to_string(folder.join(path)).map_err(|error| format!("tokenFile {path}: {error}"))?
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
    HeaderValue::from_str(&text).map(Some).map_err(|_| "the token is not plain text".into())
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
            assert_eq!(place(&config, Path::new("/")).err().as_deref(), Some(expected));
        };
        check(json!({}), "it has no current-context");
        check(config("ftp://a", json!({})), "server: it must begin with https:// or http://");
        let mut unreadable = config("https://a", json!({}));
        unreadable["clusters"][0]["cluster"] = json!({"server": "https://a", "certificate-authority": "/no/such"});
        check(unreadable, "certificate-authority /no/such: No such file or directory (os error 2)");
    }
}
