//! `--egress-selector-config-file`: by which way the server reaches the cluster, the control plane and etcd. The cluster may be behind a
//! proxy that is asked by HTTP CONNECT, over TCP, TLS or a Unix socket; a file that wants more is refused with its line.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use machinery::field::{Errors, FieldError, Problem};
use machinery::node::Node;
use rustls::ClientConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};

use crate::configuration::{self, Document, Header, Shape};
use crate::outgoing::way::{Proxy, ProxyPlace, Way};

/// Both groups that upstream has had it in.
const HEADERS: [Header; 2] = [
    Header { kind: "EgressSelectorConfiguration", group: "apiserver.k8s.io", versions: &["v1beta1", "v1alpha1"] },
    Header { kind: "EgressSelectorConfiguration", group: "apiserver.config.k8s.io", versions: &["v1beta1"] },
];
const NAMES: [&str; 3] = ["cluster", "controlplane", "etcd"];
const PROTOCOLS: [&str; 3] = ["Direct", "HTTPConnect", "GRPC"];
const TEXT: Shape = Shape::Text;
const SHAPE: Shape = Shape::Object(&[
    ("apiVersion", TEXT),
    ("kind", TEXT),
    (
        "egressSelections",
        Shape::List(&Shape::Object(&[
            ("name", TEXT),
            (
                "connection",
                Shape::Object(&[
                    ("proxyProtocol", TEXT),
                    (
                        "transport",
                        Shape::Object(&[
                            (
                                "tcp",
                                Shape::Object(&[
                                    ("url", TEXT),
                                    (
                                        "tlsConfig",
                                        Shape::Object(&[("caBundle", TEXT), ("clientKey", TEXT), ("clientCert", TEXT)]),
                                    ),
                                ]),
                            ),
                            ("uds", Shape::Object(&[("udsName", TEXT)])),
                        ]),
                    ),
                ]),
            ),
        ])),
    ),
]);

#[derive(Debug, thiserror::Error)]
#[error("--egress-selector-config-file {path}: {source}")]
pub struct EgressError {
    path: PathBuf,
    source: configuration::Error,
}

/// Refuses what this server cannot do.
pub fn check(path: &Path) -> Result<(), EgressError> {
    read(path).map(drop)
}

/// The way to the cluster: to nodes, pods, aggregated API servers and webhooks behind Services.
pub(crate) fn read(path: &Path) -> Result<Way, EgressError> {
    let read = configuration::read(path).and_then(|text| parse(&text));
    read.map_err(|source| EgressError { path: path.to_owned(), source })
}

#[cfg(test)]
pub(crate) fn check_text(text: &str) -> Result<(), configuration::Error> {
    parse(text).map(drop)
}

fn parse(text: &str) -> Result<Way, configuration::Error> {
    let document = Document::decode(text)?;
    let [first, second] = HEADERS.map(|header| header.check(&document.value));
    first.or(second)?;
    document.check(&SHAPE, &document.value, "")?;
    let mut errors = Errors::default();
    let (mut seen, mut cluster): (Vec<String>, Way) = Default::default();
    for selection in Node::root(&document.value).each("egressSelections") {
        let (name, connection) = (selection.at("name"), selection.at("connection"));
        let canonical = name.str().to_lowercase();
        if seen.contains(&canonical) {
            errors.push(FieldError::new(Problem::Duplicate, &name.path, format!("{canonical:?}"), ""));
        } else if !NAMES.contains(&&*canonical) {
            errors.not_supported(&name, &NAMES);
        }
        let protocol = connection.at("proxyProtocol");
        match way(&connection, &mut errors) {
            Way::Proxy(_) if canonical != "cluster" => {
                errors.invalid(&protocol, "knarr reaches etcd and the control plane directly");
            }
            found if canonical == "cluster" => cluster = found,
            _ => {}
        }
        seen.push(canonical);
    }
    document.refuse(&errors)?;
    Ok(cluster)
}

fn way(connection: &Node, errors: &mut Errors) -> Way {
    let (protocol, transport) = (connection.at("proxyProtocol"), connection.at("transport"));
    match protocol.str() {
        "Direct" if transport.exists() => {
            let why = "config must be absent for direct connect";
            errors.push(FieldError::new(Problem::Invalid, &transport.path, "\"direct\"", why));
        }
        "Direct" => {}
        "HTTPConnect" => return proxy(&transport, errors).map_or(Way::Direct, |proxy| Way::Proxy(Arc::new(proxy))),
        "GRPC" => errors.invalid(&protocol, "knarr speaks HTTPConnect with proxies, not GRPC"),
        _ => errors.not_supported(&protocol, &PROTOCOLS),
    }
    Way::Direct
}

fn proxy(transport: &Node, errors: &mut Errors) -> Option<Proxy> {
    let (tcp, uds) = (transport.at("tcp"), transport.at("uds"));
    match (tcp.exists(), uds.exists()) {
        _ if !transport.exists() => errors.required(transport, "transport must be set for HTTPConnect"),
        (true, true) => errors.invalid(&tcp, "TCP and UDS cannot both be set"),
        (false, false) => errors.required(&tcp, "One of TCP or UDS must be set"),
        (false, true) if uds.text("udsName").is_empty() => {
            errors.invalid_value(&uds.at("udsName").path, &"nil".into(), "must be present for UDS connections");
        }
        (false, true) => return Some(Proxy { place: ProxyPlace::Unix(uds.text("udsName").into()), tls: None }),
        (true, false) => return by_tcp(&tcp, errors),
    }
    None
}

fn by_tcp(tcp: &Node, errors: &mut Errors) -> Option<Proxy> {
    let (url, tls) = (tcp.at("url"), tcp.at("tlsConfig"));
    let uri: Option<http::Uri> = url.str().parse().ok();
    let host = uri.as_ref().and_then(http::Uri::host).map(|host| host.trim_matches(['[', ']']).to_owned());
    let port = uri.as_ref().and_then(http::Uri::port_u16);
    let place = |default: u16| Some(ProxyPlace::Tcp { host: host.clone()?, port: port.unwrap_or(default) });
    let (place, secured) = match uri.as_ref().and_then(http::Uri::scheme_str) {
        Some("http") => (place(80), false),
        Some("https") => (place(443), true),
        _ => (None, false),
    };
    let Some(place) = place else {
        errors.invalid(&url, "supported connection protocols are http:// and https://");
        return None;
    };
    if !secured {
        if tls.exists() {
            errors.invalid_value(&tls.path, &"nil".into(), "config must not be present when using HTTP");
        }
        return Some(Proxy { place, tls: None });
    }
    if !tls.exists() {
        errors.required(&tls, "TLSConfig must be present when using HTTPS");
        return None;
    }
    let config = client(&tls, errors)?;
    match ServerName::try_from(host.unwrap_or_default()) {
        Ok(name) => Some(Proxy { place, tls: Some((config, name)) }),
        Err(error) => {
            errors.invalid(&url, error.to_string());
            None
        }
    }
}

/// What is shown to the proxy, and whom it must be certified by: the system's authorities where nothing else is said.
fn client(tls: &Node, errors: &mut Errors) -> Option<Arc<ClientConfig>> {
    let mut file = |field: &'static str, missing: &str, absent: &str| {
        let at = tls.at(field);
        if at.str().is_empty() {
            if !absent.is_empty() {
                errors.invalid_value(&at.path, &"nil".into(), absent);
            }
            return None;
        }
        let read = std::fs::read(at.str());
        if read.is_err() {
            errors.invalid(&at, missing);
        }
        read.ok()
    };
    let bundle = file("caBundle", "TLS config ca bundle does not exist", "");
    let certificate = file("clientCert", "TLS client cert does not exist", "Using TLS requires clientCert");
    let key = file("clientKey", "TLS client key does not exist", "Using TLS requires requires clientKey");
    let (certificate, key) = (certificate?, key?);
    let unusable = |error: &dyn std::fmt::Display| format!("cannot be used: {error}");
    let trusted = match bundle.as_deref().map(trust::bundle) {
        None => trust::system(),
        Some(Ok(trusted)) => trusted,
        Some(Err(error)) => {
            errors.invalid(&tls.at("caBundle"), unusable(&error));
            return None;
        }
    };
    let builder = trust::client(trusted).map_err(|error| errors.invalid(&tls.at("caBundle"), unusable(&error))).ok()?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&certificate).collect();
    let chain = chain.map_err(|error| errors.invalid(&tls.at("clientCert"), unusable(&error))).ok()?;
    let key = PrivateKeyDer::from_pem_slice(&key);
    let key = key.map_err(|error| errors.invalid(&tls.at("clientKey"), unusable(&error))).ok()?;
    let config = builder.with_client_auth_cert(chain, key);
    config.map_err(|error| errors.invalid(&tls.at("clientCert"), unusable(&error))).ok().map(Arc::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(rest: &str) -> String {
        let header = "apiVersion: apiserver.k8s.io/v1beta1\nkind: EgressSelectorConfiguration\n";
        check_text(&format!("{header}{rest}")).err().map(|error| error.to_string()).unwrap_or_default()
    }

    const DIRECT: &str = "egressSelections:\n- name: cluster\n  connection:\n    proxyProtocol: Direct\n";

    #[track_caller]
    fn wrong(text: &str, expected: &str) {
        let error = checked(text);
        assert!(error.contains(expected), "{text}: {error}");
    }

    #[test]
    fn direct_ways_are_taken() {
        assert_eq!(checked(DIRECT), "");
        assert_eq!(checked(&DIRECT.replace("cluster", "ControlPlane")), "");
        assert_eq!(checked(""), "");
        wrong(&DIRECT.replace("Direct", "Socks"), "Unsupported value: \"Socks\"");
        wrong(&DIRECT.replace("cluster", "nodes"), "line 4: egressSelections[0].name: Unsupported value: \"nodes\"");
        wrong(&format!("{DIRECT}- name: cluster\n  connection: {{proxyProtocol: Direct}}\n"), "Duplicate value");
        wrong(&DIRECT.replace("Direct", "Direct\n    transport: {}"), "config must be absent for direct connect");
        wrong(&DIRECT.replace("connection", "connections"), "line 5: unknown field");
        assert!(check_text("apiVersion: v1\nkind: Pod\n").is_err());
    }

    #[test]
    fn the_cluster_may_be_behind_a_proxy() {
        let header = "apiVersion: apiserver.k8s.io/v1beta1\nkind: EgressSelectorConfiguration\n";
        let through = |transport: &str| DIRECT.replace("Direct", &format!("HTTPConnect\n    transport: {transport}"));
        let place = |transport: &str| match parse(&format!("{header}{}", through(transport))) {
            Ok(Way::Proxy(proxy)) => format!("{:?}", proxy.place),
            other => panic!("{other:?}"),
        };
        assert_eq!(place("{tcp: {url: 'http://[::1]:8131'}}"), "Tcp { host: \"::1\", port: 8131 }");
        assert_eq!(place("{uds: {udsName: /run/proxy.sock}}"), "Unix(\"/run/proxy.sock\")");
        wrong(&DIRECT.replace("Direct", "HTTPConnect"), "Required value: transport must be set for HTTPConnect");
        wrong(&through("{}"), "Required value: One of TCP or UDS must be set");
        wrong(&through("{uds: {udsName: ''}}"), "must be present for UDS connections");
        wrong(&through("{tcp: {url: 'ftp://x'}}"), "supported connection protocols are http:// and https://");
        wrong(&through("{tcp: {url: 'https://x'}}"), "Required value: TLSConfig must be present when using HTTPS");
        let tls = "{tcp: {url: 'https://x', tlsConfig: {clientCert: /nowhere, caBundle: /nowhere}}}";
        wrong(&through(tls), "tlsConfig.clientCert: Invalid value: \"/nowhere\": TLS client cert does not exist");
        wrong(&through(tls), "tlsConfig.clientKey: Invalid value: \"nil\": Using TLS requires requires clientKey");
        wrong(&through("{tcp: {url: 'http://x', tlsConfig: {}}}"), "config must not be present when using HTTP");
        let etcd = through("{uds: {udsName: /x}}").replace("cluster", "etcd");
        wrong(
            &etcd,
            "line 6: egressSelections[0].connection.proxyProtocol: Invalid value: \"HTTPConnect\": knarr reaches etcd",
        );
        let konnectivity = DIRECT.replace("Direct", "GRPC\n    transport: {uds: {udsName: /run/konnectivity.sock}}");
        wrong(&konnectivity, "knarr speaks HTTPConnect with proxies, not GRPC");
    }
}
