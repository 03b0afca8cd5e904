//! Registry credentials in pull secrets: which of them are for an image.

use base64::Engine;
use cri::v1;
use k8s_openapi::api::core::v1::Secret;
use serde_json::{Map, Value};

/// The credentials in a secret that fit an image, the most specific first.
pub(super) fn matching(secret: &Secret, image: &str) -> Vec<v1::AuthConfig> {
    matching_entries(&entries(secret), image)
}

/// The same of entries as they stand in a `config.json`.
pub(super) fn matching_entries(entries: &Map<String, Value>, image: &str) -> Vec<v1::AuthConfig> {
    let name = full_name(image);
    let mut fitting: Vec<(&String, &Value)> = entries.iter().filter(|(key, _)| fits(key, &name)).collect();
    fitting.sort_by(|(a, _), (b, _)| trimmed(b).len().cmp(&trimmed(a).len()).then(b.cmp(a)));
    fitting.into_iter().filter_map(|(key, entry)| credential(key, entry)).collect()
}

/// What credentials come down to, for comparing them without keeping them.
pub(super) fn hash(auth: &v1::AuthConfig) -> String {
    let parts = [&auth.username, &auth.password, &auth.identity_token, &auth.registry_token, &auth.server_address];
    // Lengths between the parts, so that no part runs into the next.
    let text: String = parts.iter().map(|part| format!("{}:{part}", part.len())).collect();
    super::pulled::hash(text.as_bytes())
}

fn entries(secret: &Secret) -> Map<String, Value> {
    let data = |key: &str| secret.data.as_ref().and_then(|data| data.get(key));
    let parse = |bytes: &[u8]| serde_json::from_slice::<Map<String, Value>>(bytes).ok();
    let found = if let Some(bytes) = data(".dockerconfigjson") {
        parse(&bytes.0).and_then(|config| config.get("auths").and_then(Value::as_object).cloned())
    } else {
        data(".dockercfg").and_then(|bytes| parse(&bytes.0))
    };
    found.unwrap_or_default()
}

/// With the registry that a short name means.
fn full_name(image: &str) -> String {
    let first = image.split('/').next().unwrap_or_default();
    let has_host = image.contains('/') && (first.contains(['.', ':']) || first == "localhost");
    if has_host { image.to_owned() } else { format!("index.docker.io/{image}") }
}

fn trimmed(key: &str) -> &str {
    let key = key.strip_prefix("https://").or_else(|| key.strip_prefix("http://")).unwrap_or(key);
    let key = key.trim_end_matches('/');
    key.strip_suffix("/v1").or_else(|| key.strip_suffix("/v2")).unwrap_or(key)
}

/// `*` stands for one part of the host name; the path is a prefix.
fn fits(key: &str, image: &str) -> bool {
    let key = trimmed(key);
    let (key_host, key_path) = key.split_once('/').unwrap_or((key, ""));
    let (host, path) = image.split_once('/').unwrap_or((image, ""));
    let (key_host, key_port) = key_host.split_once(':').unwrap_or((key_host, ""));
    let (host, port) = host.split_once(':').unwrap_or((host, ""));
    let docker = |host: &str| matches!(host, "docker.io" | "index.docker.io" | "registry-1.docker.io");
    let hosts = (docker(key_host) && docker(host)) || {
        let keys: Vec<&str> = key_host.split('.').collect();
        let parts: Vec<&str> = host.split('.').collect();
        keys.len() == parts.len() && keys.iter().zip(&parts).all(|(key, part)| glob(key, part))
    };
    hosts && key_port == port && path.starts_with(key_path)
}

fn glob(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((before, after)) => {
            let Some(rest) = text.strip_prefix(before) else { return false };
            (0..=rest.len()).any(|cut| rest.is_char_boundary(cut) && glob(after, &rest[cut..]))
        }
    }
}

fn credential(key: &str, entry: &Value) -> Option<v1::AuthConfig> {
    let text = |name: &str| entry.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut auth = v1::AuthConfig {
        username: text("username"),
        password: text("password"),
        identity_token: text("identitytoken"),
        registry_token: text("registrytoken"),
        server_address: key.to_owned(),
        ..Default::default()
    };
    let joined = text("auth");
    if !joined.is_empty() {
        // Both alphabets and missing padding are seen in the wild.
        let clean = joined.trim().trim_end_matches('=');
        let decoded = base64::engine::general_purpose::STANDARD_NO_PAD
            .decode(clean)
            .or_else(|_| base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(clean))
            .ok()?;
        let pair = String::from_utf8(decoded).ok()?;
        let (username, password) = pair.split_once(':')?;
        auth.username = username.to_owned();
        auth.password = password.trim_end_matches('\0').to_owned();
    }
    let any = !auth.username.is_empty() || !auth.identity_token.is_empty() || !auth.registry_token.is_empty();
    any.then_some(auth)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;

    use super::*;

    fn secret(key: &str, json: &str) -> Secret {
        let data = [(key.to_owned(), ByteString(json.as_bytes().to_vec()))].into();
        Secret { data: Some(data), ..Default::default() }
    }

    fn users(secret: &Secret, image: &str) -> Vec<String> {
        matching(secret, image).into_iter().map(|auth| format!("{}:{}", auth.username, auth.password)).collect()
    }

    #[test]
    fn the_most_specific_comes_first() {
        let secret = secret(
            ".dockerconfigjson",
            r#"{"auths": {
                "https://r.example/v1/": {"auth": "YTpi"},
                "r.example/team": {"username": "t", "password": "p"},
                "*.wild.example:5000": {"username": "w", "password": "p"},
                "https://index.docker.io/v1/": {"username": "hub", "password": "p"}
            }}"#,
        );
        assert_eq!(users(&secret, "r.example/team/app:1"), ["t:p", "a:b"]);
        assert_eq!(users(&secret, "r.example/other:1"), ["a:b"]);
        assert_eq!(users(&secret, "x.wild.example:5000/app"), ["w:p"]);
        assert_eq!(users(&secret, "x.y.wild.example:5000/app"), [""; 0]);
        assert_eq!(users(&secret, "x.wild.example/app"), [""; 0]);
        assert_eq!(users(&secret, "busybox"), ["hub:p"]);
        assert_eq!(users(&secret, "docker.io/library/busybox"), ["hub:p"]);
    }

    #[test]
    fn the_old_form_is_read_too() {
        let secret = secret(".dockercfg", r#"{"r.example": {"username": "u", "password": "p"}}"#);
        assert_eq!(users(&secret, "r.example/a"), ["u:p"]);
        assert_eq!(users(&secret, "s.example/a"), [""; 0]);
    }
}
