//! The ConfigMap `extension-apiserver-authentication`, where aggregated API servers and kubelets learn whose client certificates and
//! which proxies to believe. As upstream, several servers add to one another, so that the CAs of all are there while one follows
//! another; a CA leaves when it has expired.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::{Value, json};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::authn::FrontProxy;
use crate::pki::Credentials;

pub(super) const NAME: &str = "extension-apiserver-authentication";
/// Clocks differ: a CA is kept for this long after its end, as upstream.
const EXPIRED_LEEWAY: Duration = Duration::from_secs(5 * 60);
const BUNDLES: [&str; 2] = ["client-ca-file", "requestheader-client-ca-file"];
const PEM_LINE: usize = 64;

/// What this server believes.
pub(super) fn object(credentials: &Credentials, proxy: &FrontProxy) -> Value {
    let mut data = serde_json::Map::new();
    if let Some(authority) = &credentials.client_ca {
        data.insert("client-ca-file".into(), authority.as_str().into());
    }
    if let Some(authority) = &credentials.front_proxy_ca {
        let list = |names: &[String]| json!(names).to_string();
        data.extend([
            ("requestheader-client-ca-file".into(), authority.as_str().into()),
            ("requestheader-allowed-names".into(), list(&proxy.allowed_names).into()),
            ("requestheader-username-headers".into(), list(&proxy.user_headers).into()),
            ("requestheader-group-headers".into(), list(&proxy.group_headers).into()),
            ("requestheader-extra-headers-prefix".into(), list(&proxy.extra_prefixes).into()),
            ("requestheader-uid-headers".into(), list(&proxy.uid_headers).into()),
        ]);
    }
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME, "namespace": "kube-system"}, "data": data,
    })
}

/// One entry of its data: what is there, and what this server adds. What cannot be read is replaced.
pub(super) fn combined(field: &str, current: &str, wanted: &str, now: Timestamp) -> String {
    let is_bundle = BUNDLES.contains(&field);
    let both = if is_bundle { bundle(current, wanted, now) } else { list(current, wanted) };
    both.unwrap_or_else(|| wanted.to_owned())
}

fn bundle(current: &str, wanted: &str, now: Timestamp) -> Option<String> {
    let mut kept: Vec<CertificateDer> = Vec::new();
    for text in [current, wanted] {
        for certificate in CertificateDer::pem_slice_iter(text.as_bytes()) {
            let certificate = certificate.ok()?;
            if !kept.contains(&certificate) && !has_expired(&certificate, now)? {
                kept.push(certificate);
            }
        }
    }
    Some(kept.iter().map(pem).collect())
}

fn has_expired(certificate: &CertificateDer, now: Timestamp) -> Option<bool> {
    let (_, read) = X509Certificate::from_der(certificate).ok()?;
    let end = Timestamp::from_second(read.validity().not_after.timestamp()).unwrap_or(Timestamp::MAX);
    Some(end <= now - EXPIRED_LEEWAY)
}

fn pem(certificate: &CertificateDer) -> String {
    let body = STANDARD.encode(certificate);
    let lines = body.as_bytes().chunks(PEM_LINE).map(|line| format!("{}\n", String::from_utf8_lossy(line)));
    format!("-----BEGIN CERTIFICATE-----\n{}-----END CERTIFICATE-----\n", lines.collect::<String>())
}

fn list(current: &str, wanted: &str) -> Option<String> {
    let read = |text: &str| serde_json::from_str::<Vec<String>>(text).ok();
    let (mut names, wanted) = (read(current)?, read(wanted)?);
    for name in wanted {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    Some(json!(names).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pki::Authority;

    #[test]
    fn servers_add_to_one_another_until_a_ca_has_expired() {
        let folder = tempfile::tempdir().unwrap();
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let ca = |name: &str| Authority::ensure(folder.path(), name, name, now).unwrap().certificate_pem.clone();
        let (one, two) = (ca("one"), ca("two"));
        let field = "client-ca-file";
        assert_eq!(combined(field, &one, &one, now), one);
        let both = format!("{one}{two}");
        assert_eq!(combined(field, &one, &two, now), both);
        assert_eq!(combined(field, &both, &one, now), both);
        assert_eq!(combined(field, "", &two, now), two);
        let far: Timestamp = "2100-01-01T00:00:00Z".parse().unwrap();
        assert_eq!(combined(field, &both, &both, far), "");
        let broken = "-----BEGIN CERTIFICATE-----\n?\n-----END CERTIFICATE-----\n";
        assert_eq!(combined(field, broken, &two, now), two);

        let names = "requestheader-allowed-names";
        assert_eq!(combined(names, r#"["a","b"]"#, r#"["b","c"]"#, now), r#"["a","b","c"]"#);
        assert_eq!(combined(names, "what", r#"["b"]"#, now), r#"["b"]"#);
    }
}
