//! Resolves the address of a webhook from its clientConfig: a URL, or a Service whose ready endpoints are asked directly.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::ClientConfig;
use serde_json::Value;

use crate::aggregate::{PlacesError, Reference, places};
use crate::app::App;

/// Why a clientConfig leads nowhere.
#[derive(Debug, thiserror::Error)]
pub enum HookError {
    #[error("parse {url:?}: {error}")]
    Url { url: String, error: http::uri::InvalidUri },
    #[error("{0:?} names no host")]
    NoHost(String),
}

/// Why a caBundle cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    #[error("caBundle: {0}")]
    Base64(#[from] base64::DecodeError),
    #[error("caBundle: {0}")]
    Trust(#[from] trust::Error),
}

/// How to reach one webhook.
#[derive(Debug)]
pub struct Hook {
    service: Option<Reference>,
    /// Of a URL.
    host: String,
    port: u16,
    /// As it stands in the `Host` header and in messages.
    authority: String,
    path: String,
    /// The name in its certificate.
    server_name: String,
    bundle: String,
    tls: Result<Arc<ClientConfig>, Arc<BundleError>>,
}

impl Hook {
    /// From a clientConfig that validation has accepted.
    pub fn of(config: &Value) -> Result<Hook, HookError> {
        let bundle = config["caBundle"].as_str().unwrap_or("").to_string();
        let tls = client_config(&bundle).map_err(Arc::new);
        if let Some(service) = Reference::of_service(&config["service"]) {
            let server_name = format!("{}.{}.svc", service.name, service.namespace);
            let path = config["service"]["path"].as_str().filter(|path| !path.is_empty()).unwrap_or("/");
            return Ok(Hook {
                host: String::new(),
                port: service.port,
                authority: format!("{server_name}:{}", service.port),
                path: path.to_string(),
                server_name,
                service: Some(service),
                bundle,
                tls,
            });
        }
        let url = config["url"].as_str().unwrap_or("");
        let uri: http::Uri = url.parse().map_err(|error| HookError::Url { url: url.to_string(), error })?;
        let host = uri.host().ok_or_else(|| HookError::NoHost(url.to_string()))?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_string();
        let authority = uri.authority().map_or(String::new(), |authority| authority.to_string());
        let path = if uri.path().is_empty() { "/" } else { uri.path() };
        Ok(Hook {
            service: None,
            port: uri.port_u16().unwrap_or(443),
            authority,
            path: path.to_string(),
            server_name: host.clone(),
            host,
            bundle,
            tls,
        })
    }

    /// Whether it is in the cluster, behind a Service.
    pub fn is_service(&self) -> bool {
        self.service.is_some()
    }

    pub fn url(&self) -> String {
        format!("https://{}{}", self.authority, self.path)
    }

    pub fn path(&self) -> &str {
        &self.path
    }

    pub fn authority(&self) -> &str {
        &self.authority
    }

    pub fn server_name(&self) -> &str {
        &self.server_name
    }

    pub fn tls(&self) -> Result<Arc<ClientConfig>, Arc<BundleError>> {
        self.tls.clone()
    }

    /// Connections under one key are alike.
    pub fn key(&self, place: &(String, u16)) -> String {
        format!("{} {} {} {}", place.0, place.1, self.server_name, self.bundle)
    }

    /// Where it can be reached now; at least one.
    pub fn places(&self, app: &App) -> Result<Vec<(String, u16)>, PlacesError> {
        let Some(service) = &self.service else { return Ok(vec![(self.host.clone(), self.port)]) };
        places(app, service)
    }
}

/// Trusts the authorities of the bundle, or those of the system where there is none.
fn client_config(bundle: &str) -> Result<Arc<ClientConfig>, BundleError> {
    let trusted = if bundle.is_empty() { trust::system() } else { trust::bundle(&STANDARD.decode(bundle)?)? };
    Ok(Arc::new(trust::client(trusted)?.with_no_client_auth()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn urls_and_services_say_where_to_go() {
        let check = |config: Value, url: &str, name: &str| {
            let hook = Hook::of(&config).unwrap();
            assert_eq!((hook.url().as_str(), hook.server_name()), (url, name));
        };
        let service = json!({"namespace": "n", "name": "s", "path": "/mutate", "port": 9443});
        check(json!({"service": service}), "https://s.n.svc:9443/mutate", "s.n.svc");
        check(json!({"service": {"namespace": "n", "name": "s"}}), "https://s.n.svc:443/", "s.n.svc");
        check(json!({"url": "https://127.0.0.1:8443/x"}), "https://127.0.0.1:8443/x", "127.0.0.1");
        check(json!({"url": "https://[::1]:8443"}), "https://[::1]:8443/", "::1");
        check(json!({"url": "https://example.com/a/b"}), "https://example.com/a/b", "example.com");
        assert!(Hook::of(&json!({"url": "not a url"})).is_err());
    }
}
