//! `registries.yaml`, as k3s reads it: mirrors, credentials and private authorities.
//!
//! Decides which endpoints are asked for a repository, in which order, under which name and with which credentials.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;

use super::Credentials;
use super::reference::Reference;

const ANY: &str = "*";
const DOCKER_HUB: &str = "docker.io";
const DOCKER_HUB_HOST: &str = "registry-1.docker.io";

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Registries {
    /// By registry, `*` for every registry that is not named.
    mirrors: BTreeMap<String, Mirror>,
    /// By host (with port) of an endpoint.
    configs: BTreeMap<String, HostConfig>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Mirror {
    endpoint: Vec<String>,
    /// Regular expressions over the repository, and what takes the place of what they match.
    rewrite: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct HostConfig {
    auth: Option<Auth>,
    tls: Option<Tls>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Auth {
    username: String,
    password: String,
    /// `username:password` in base64.
    auth: String,
    #[serde(alias = "identitytoken")]
    identity_token: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub struct Tls {
    pub ca_file: Option<PathBuf>,
    pub cert_file: Option<PathBuf>,
    pub key_file: Option<PathBuf>,
    pub insecure_skip_verify: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum RegistriesError {
    #[error("registries.yaml: {0}")]
    Syntax(String),
    #[error("registries.yaml: endpoint {endpoint:?} of mirror {registry:?} is not a URL")]
    Endpoint { registry: String, endpoint: String },
    #[error("registries.yaml: rewrite {expression:?} of mirror {registry:?}: {message}")]
    Rewrite { registry: String, expression: String, message: String },
    #[error("registries.yaml: auth of {0:?} is not the base64 of user:password")]
    Auth(String),
}

/// A place that is asked for an image.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    /// `https://host:port/v2`, without a slash at the end.
    pub base: String,
    pub host: String,
    pub repository: String,
    /// The registry that a mirror is asked on behalf of.
    pub on_behalf_of: Option<String>,
    pub credentials: Option<Credentials>,
    pub tls: Tls,
}

impl Registries {
    pub fn parse(yaml: &str) -> Result<Registries, RegistriesError> {
        let syntax = |message: String| RegistriesError::Syntax(message);
        let decoded = machinery::codec::decode_yaml(yaml.as_bytes()).map_err(|error| syntax(error.to_string()))?;
        if decoded.value.is_null() {
            return Ok(Registries::default());
        }
        let registries: Registries =
            serde_json::from_value(without_nulls(decoded.value)).map_err(|error| syntax(error.to_string()))?;
        registries.check()?;
        Ok(registries)
    }

    fn check(&self) -> Result<(), RegistriesError> {
        for (registry, mirror) in &self.mirrors {
            if let Some(endpoint) = mirror.endpoint.iter().find(|endpoint| split_endpoint(endpoint).is_none()) {
                return Err(RegistriesError::Endpoint { registry: registry.clone(), endpoint: endpoint.clone() });
            }
            for expression in mirror.rewrite.keys() {
                regex::Regex::new(expression).map_err(|error| RegistriesError::Rewrite {
                    registry: registry.clone(),
                    expression: expression.clone(),
                    message: error.to_string(),
                })?;
            }
        }
        for (host, config) in &self.configs {
            let auth = config.auth.as_ref().map_or("", |auth| &auth.auth);
            if !auth.is_empty() && decode_auth(auth).is_none() {
                return Err(RegistriesError::Auth(host.clone()));
            }
        }
        Ok(())
    }

    /// Mirrors in their order, then the registry itself. What a pod's secrets hold is shown to the registry alone, never
    /// to a mirror: a mirror has its credentials in this file.
    pub(crate) fn endpoints(&self, reference: &Reference, credentials: Option<&Credentials>) -> Vec<Endpoint> {
        let mut endpoints = Vec::new();
        let mirror = self.mirrors.get(&reference.registry).or_else(|| self.mirrors.get(ANY));
        let origin_host = match reference.registry.as_str() {
            DOCKER_HUB => DOCKER_HUB_HOST,
            other => other,
        };
        let origin_base = format!("{}://{origin_host}/v2", if is_loopback(origin_host) { "http" } else { "https" });
        for endpoint in mirror.iter().flat_map(|mirror| &mirror.endpoint) {
            let Some((base, host)) = split_endpoint(endpoint) else { continue };
            let is_origin = host == origin_host;
            let own = self.credentials(&host).or_else(|| credentials.filter(|_| is_origin).cloned());
            endpoints.push(Endpoint {
                repository: mirror.map_or_else(|| reference.repository.clone(), |m| m.rewritten(&reference.repository)),
                on_behalf_of: Some(reference.registry.clone()).filter(|_| !is_origin),
                credentials: own,
                tls: self.tls(&host),
                base,
                host,
            });
        }
        if !endpoints.iter().any(|e| e.base == origin_base && e.repository == reference.repository) {
            endpoints.push(Endpoint {
                base: origin_base,
                host: origin_host.to_owned(),
                repository: reference.repository.clone(),
                on_behalf_of: None,
                credentials: credentials
                    .cloned()
                    .or_else(|| self.credentials(origin_host))
                    .or_else(|| self.credentials(&reference.registry)),
                tls: self.tls(origin_host),
            });
        }
        endpoints
    }

    fn host(&self, host: &str) -> Option<&HostConfig> {
        self.configs.get(host).or_else(|| self.configs.get(ANY))
    }

    fn tls(&self, host: &str) -> Tls {
        self.host(host).and_then(|config| config.tls.clone()).unwrap_or_default()
    }

    fn credentials(&self, host: &str) -> Option<Credentials> {
        let auth = self.host(host)?.auth.as_ref()?;
        let (username, password) = match decode_auth(&auth.auth) {
            Some(pair) if auth.username.is_empty() => pair,
            _ => (auth.username.clone(), auth.password.clone()),
        };
        if auth.identity_token.is_empty() {
            Some(Credentials { username, password, registry_token: String::new() })
        } else {
            Some(Credentials { username: String::new(), password: auth.identity_token.clone(), ..Default::default() })
        }
    }
}

impl Mirror {
    /// The first expression that matches decides.
    fn rewritten(&self, repository: &str) -> String {
        self.rewrite
            .iter()
            .filter_map(|(expression, replacement)| Some((regex::Regex::new(expression).ok()?, replacement)))
            .find(|(expression, _)| expression.is_match(repository))
            .map_or_else(
                || repository.to_owned(),
                |(expression, to)| expression.replace_all(repository, to).into_owned(),
            )
    }
}

/// Plain HTTP is spoken with registries on this very machine, as containerd does.
pub(crate) fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name == "localhost" || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// `https://host/v2` and `host`. A path other than `/v2` is taken as it is.
fn split_endpoint(endpoint: &str) -> Option<(String, String)> {
    let (scheme, rest) = match endpoint.split_once("://") {
        Some((scheme @ ("http" | "https"), rest)) => (scheme, rest),
        Some(_) => return None,
        None if is_loopback(endpoint.split('/').next()?) => ("http", endpoint),
        None => ("https", endpoint),
    };
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let path = path.trim_matches('/');
    let path = if path.is_empty() { "v2" } else { path };
    let host_is_good = !host.is_empty() && !host.contains(['@', ' ', '?', '#']);
    host_is_good.then(|| (format!("{scheme}://{host}/{path}"), host.to_owned()))
}

fn decode_auth(auth: &str) -> Option<(String, String)> {
    use base64::Engine as _;
    let text = String::from_utf8(base64::engine::general_purpose::STANDARD.decode(auth.trim()).ok()?).ok()?;
    let (username, password) = text.split_once(':')?;
    Some((username.to_owned(), password.trim_end_matches('\0').to_owned()))
}

/// `docker.io:` with nothing behind it means the defaults.
fn without_nulls(value: serde_json::Value) -> serde_json::Value {
    use serde_json::Value;
    match value {
        Value::Object(map) => {
            let keep_empty = |value: Value| if value.is_null() { Value::Object(Default::default()) } else { value };
            let map = map.into_iter().filter_map(|(key, value)| match (key.as_str(), &value) {
                ("endpoint" | "rewrite" | "auth" | "tls" | "mirrors" | "configs", Value::Null) => None,
                (
                    "username" | "password" | "ca_file" | "cert_file" | "key_file" | "insecure_skip_verify",
                    Value::Null,
                ) => None,
                ("identity_token" | "identitytoken", Value::Null) => None,
                _ => Some((key, keep_empty(without_nulls(value)))),
            });
            Value::Object(map.collect())
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoints(yaml: &str, image: &str) -> Vec<String> {
        let reference = Reference::parse(image).unwrap();
        let given = Credentials { username: "pod".to_owned(), ..Default::default() };
        Registries::parse(yaml)
            .unwrap()
            .endpoints(&reference, Some(&given))
            .into_iter()
            .map(|e| {
                let user = e.credentials.map(|c| c.username).unwrap_or_default();
                format!("{}/{} {} {user}", e.base, e.repository, e.on_behalf_of.unwrap_or_default())
            })
            .collect()
    }

    #[test]
    fn without_a_file_the_registry_itself_is_asked() {
        assert_eq!(endpoints("", "nginx"), ["https://registry-1.docker.io/v2/library/nginx  pod"]);
        assert_eq!(endpoints("{}", "localhost:5000/a"), ["http://localhost:5000/v2/a  pod"]);
        assert_eq!(endpoints("mirrors:\n", "[::1]:5000/a"), ["http://[::1]:5000/v2/a  pod"]);
        assert_eq!(endpoints("mirrors:\n  docker.io:\n", "quay.io/a/b"), ["https://quay.io/v2/a/b  pod"]);
    }

    #[test]
    fn mirrors_come_first_and_never_see_the_secrets_of_pods() {
        let yaml = r#"
mirrors:
  docker.io:
    endpoint:
      - "https://mirror.example:8443"
      - "http://plain.example/proxy/hub/"
    rewrite:
      "^library/(.*)": "official/$1"
  "*":
    endpoint: ["any.example"]
configs:
  "mirror.example:8443":
    auth:
      auth: dXNlcjpwYXNz
    tls:
      ca_file: /etc/ca.pem
      insecure_skip_verify: true
"#;
        assert_eq!(
            endpoints(yaml, "nginx"),
            [
                "https://mirror.example:8443/v2/official/nginx docker.io user",
                "http://plain.example/proxy/hub/official/nginx docker.io ",
                "https://registry-1.docker.io/v2/library/nginx  pod",
            ]
        );
        assert_eq!(endpoints(yaml, "quay.io/a"), ["https://any.example/v2/a quay.io ", "https://quay.io/v2/a  pod"]);
        let registries = Registries::parse(yaml).unwrap();
        let tls = registries.tls("mirror.example:8443");
        assert_eq!((tls.ca_file, tls.insecure_skip_verify), (Some("/etc/ca.pem".into()), true));
    }

    #[test]
    fn mistakes_are_named() {
        let check = |yaml: &str, expected: &str| {
            let message = Registries::parse(yaml).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        };
        check("mirrors: {a: {endpoint: ['ftp://x']}}", "endpoint \"ftp://x\" of mirror \"a\" is not a URL");
        check("mirrors: {a: {rewrite: {'(': x}}}", "rewrite \"(\" of mirror \"a\"");
        check("configs: {a: {auth: {auth: '%'}}}", "auth of \"a\"");
        check("mirrors: [", "registries.yaml: ");
    }
}
