//! `/flagz`: with which settings this server runs, under upstream's names of flags; and `/statusz` beside it.

use std::path::Path;

use component_base::metrics::process;
pub use component_helpers::zpages::Flags;
use component_helpers::zpages::Zpages;
use http::HeaderMap;
use http::header::{ACCEPT, HeaderValue, WARNING};
use jiff::Timestamp;
use machinery::duration;

use crate::Config;
use crate::respond::{self, Reply};

/// As upstream's servers name themselves here.
const COMPONENT: &str = "apiserver";

/// What the server was told and what it decided itself.
fn flags(config: &Config) -> Flags {
    let options = &config.options;
    let mut flags = Flags::new();
    let mut set = |name: &str, value: String| drop(flags.insert(name.to_owned(), value));
    let modes: Vec<&str> = options.authorization.modes.iter().map(|mode| mode.name()).collect();
    let (on, off) = crate::admission::on_and_off(options);
    set("allow-privileged", options.allow_privileged.to_string());
    set("anonymous-auth", options.anonymous.to_string());
    set("api-audiences", options.audiences.join(","));
    set("authentication-config", path(options.authentication.file.as_deref()));
    let asked = options.authentication.webhook.as_ref().map(|webhook| webhook.config_file.as_path());
    set("authentication-token-webhook-config-file", path(asked));
    set("authorization-config", path(options.authorization.file.as_deref()));
    set("authorization-mode", modes.join(","));
    set("authorization-policy-file", path(options.authorization.policy_file.as_deref()));
    let asked = options.authorization.webhook.as_ref().map(|webhook| webhook.config_file.as_path());
    set("authorization-webhook-config-file", path(asked));
    let issuer = options.authentication.oidc.as_ref().map(|oidc| oidc.issuer_url.clone());
    set("oidc-issuer-url", issuer.unwrap_or_default());
    set("external-hostname", options.external_hostname.clone().unwrap_or_default());
    set("bind-address", config.bind_address.to_string());
    set("disable-admission-plugins", off.join(","));
    set("enable-admission-plugins", on.join(","));
    set("enable-bootstrap-token-auth", options.bootstrap_tokens.to_string());
    set("enable-priority-and-fairness", config.flow.enabled.to_string());
    let encryption = &options.encryption;
    let own = encryption.own_file.as_deref().filter(|path| path.exists());
    set("encryption-provider-config", path(encryption.file.as_deref().or(own)));
    set("feature-gates", options.runtime.gates().written());
    set("runtime-config", options.runtime.written());
    set("encryption-provider-config-automatic-reload", encryption.reload.to_string());
    set("event-ttl", duration::written_positive(config.event_ttl));
    set("kubelet-preferred-address-types", options.kubelet_address_types.join(","));
    set("max-mutating-requests-inflight", config.flow.writing_max.to_string());
    set("max-requests-inflight", config.flow.reading_max.to_string());
    // There is no profiler in this program.
    set("profiling", "false".into());
    set("request-timeout", duration::written_positive(crate::serve::REQUEST_TIMEOUT));
    set("secure-port", config.https_port.to_string());
    set("service-account-extend-token-expiration", options.extend_tokens.to_string());
    set("service-account-issuer", options.issuers.join(","));
    set("service-account-signing-endpoint", path(options.signing_endpoint.as_deref()));
    set("service-account-jwks-uri", options.jwks_uri.clone().unwrap_or_default());
    set(
        "service-account-max-token-expiration",
        duration::written_positive(options.token_expiration_max.unwrap_or_default()),
    );
    // A token is believed only while its account, and its pod where it has one, are there.
    set("service-account-lookup", "true".into());
    set("service-cluster-ip-range", config.service_cidr.to_string());
    set("service-node-port-range", format!("{}-{}", config.node_ports.start(), config.node_ports.end()));
    set("storage-media-type", options.storage_media.name().into());
    set("tls-cipher-suites", options.tls.spoken().join(","));
    set("tls-min-version", options.tls.version_name().into());
    set("cors-allowed-origins", options.edge.cors_allowed_origins.join(","));
    set("goaway-chance", options.edge.goaway_chance.to_string());
    set("shutdown-delay-duration", duration::written_positive(options.shutdown_delay));
    set("shutdown-send-retry-after", options.shutdown_send_retry_after.to_string());
    set("strict-transport-security-directives", options.edge.strict_transport_security.join(","));
    set("tracing-config-file", path(options.tracing_file.as_deref()));
    set("token-auth-file", path(config.token_auth_file.as_deref()));
    audit(config, &mut set);
    // What the server has decided itself is what is in use.
    for (name, value) in &config.flags {
        flags.entry(name.clone()).or_insert_with(|| value.clone());
    }
    flags
}

fn audit(config: &Config, set: &mut impl FnMut(&str, String)) {
    let audit = &config.audit;
    set("audit-log-path", path(audit.log_path.as_deref()));
    set("audit-policy-file", path(audit.policy_file.as_deref()));
    set("audit-webhook-config-file", path(audit.webhook_config_file.as_deref()));
    set("audit-log-maxage", audit.rotation.days_max.to_string());
    set("audit-log-maxbackup", audit.rotation.files_max.to_string());
    set("audit-log-maxsize", audit.rotation.megabytes_max.to_string());
}

/// The files of a server that makes its certificates itself.
pub fn own_files(tls: &Path, verifies_kubelets: bool) -> Flags {
    let files = [
        ("client-ca-file", "ca.crt"),
        ("kubelet-client-certificate", "apiserver-kubelet-client.crt"),
        ("kubelet-client-key", "apiserver-kubelet-client.key"),
        ("proxy-client-cert-file", "front-proxy-client.crt"),
        ("proxy-client-key-file", "front-proxy-client.key"),
        ("requestheader-client-ca-file", "front-proxy-ca.crt"),
        ("service-account-key-file", "sa.pub"),
        ("service-account-signing-key-file", "sa.key"),
        ("tls-cert-file", "apiserver.crt"),
        ("tls-private-key-file", "apiserver.key"),
    ];
    let verified = verifies_kubelets.then_some(("kubelet-certificate-authority", "ca.crt"));
    let named = |(flag, file): (&str, &str)| (flag.to_owned(), tls.join(file).display().to_string());
    files.into_iter().chain(verified).map(named).collect()
}

fn path(path: Option<&Path>) -> String {
    path.map(|path| path.display().to_string()).unwrap_or_default()
}

/// `/statusz` and `/flagz` for a client; nothing for other paths.
pub fn answer(pages: &Zpages, path: &str, headers: &HeaderMap, now: Timestamp) -> Option<Reply> {
    let accept = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect::<Vec<_>>().join(",");
    let page = pages.answer(path, &accept, now)?;
    let mut reply = respond::bytes_reply(page.code, page.content_type, page.body);
    if let Some(warning) = page.warning {
        reply.headers_mut().insert(WARNING, HeaderValue::from_static(warning));
    }
    Some(reply)
}

/// What this server says of itself, beside these paths.
pub fn zpages(config: &Config) -> Zpages {
    let pages = Zpages::new(COMPONENT, crate::VERSION, process::start_time(), flags(config));
    pages.beside(crate::discovery::FIXED_PATHS)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn deprecated_versions_are_answered_with_a_warning() {
        let pages = Zpages::new(COMPONENT, crate::VERSION, Timestamp::UNIX_EPOCH, Flags::new());
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, "application/json;as=Flagz;g=config.k8s.io;v=v1alpha1".parse().unwrap());
        let reply = answer(&pages, "/flagz", &headers, Timestamp::UNIX_EPOCH).unwrap();
        assert!(reply.headers()[WARNING].to_str().unwrap().contains("deprecated"));
        assert!(answer(&pages, "/flags", &headers, Timestamp::UNIX_EPOCH).is_none());
    }

    #[test]
    fn times_are_written_as_in_go() {
        for (seconds, expected) in [(5, "5s"), (60, "1m0s"), (3600, "1h0m0s"), (5400, "1h30m0s")] {
            assert_eq!(duration::written_positive(Duration::from_secs(seconds)), expected);
        }
    }
}
