//! `--egress-selector-config-file`: by which way the server reaches nodes, its neighbours and etcd. It reaches all of them directly, so a
//! file that says so is taken, and one that wants a proxy is refused with its line.

use std::path::{Path, PathBuf};

use machinery::field::{Errors, FieldError, Problem};
use machinery::node::Node;

use crate::configuration::{self, Document, Header, Shape};

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
    let checked = configuration::read(path).and_then(|text| check_text(&text));
    checked.map_err(|source| EgressError { path: path.to_owned(), source })
}

pub(crate) fn check_text(text: &str) -> Result<(), configuration::Error> {
    let document = Document::decode(text)?;
    let [first, second] = HEADERS.map(|header| header.check(&document.value));
    first.or(second)?;
    document.check(&SHAPE, &document.value, "")?;
    let mut errors = Errors::default();
    let mut seen: Vec<String> = Vec::new();
    for selection in Node::root(&document.value).each("egressSelections") {
        let (name, connection) = (selection.at("name"), selection.at("connection"));
        let canonical = name.str().to_lowercase();
        if seen.contains(&canonical) {
            errors.push(FieldError::new(Problem::Duplicate, &name.path, format!("{canonical:?}"), ""));
        } else if !NAMES.contains(&&*canonical) {
            errors.not_supported(&name, &NAMES);
        }
        seen.push(canonical);
        let (protocol, transport) = (connection.at("proxyProtocol"), connection.at("transport"));
        match protocol.str() {
            "Direct" if transport.exists() => {
                let why = "config must be absent for direct connect";
                errors.push(FieldError::new(Problem::Invalid, &transport.path, "\"direct\"", why));
            }
            "Direct" => {}
            "HTTPConnect" | "GRPC" => errors.invalid(&protocol, "knarr reaches nodes, neighbours and etcd directly"),
            _ => errors.not_supported(&protocol, &PROTOCOLS),
        }
    }
    document.refuse(&errors)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(rest: &str) -> String {
        let header = "apiVersion: apiserver.k8s.io/v1beta1\nkind: EgressSelectorConfiguration\n";
        check_text(&format!("{header}{rest}")).err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn only_direct_ways_are_taken() {
        let direct = "egressSelections:\n- name: cluster\n  connection:\n    proxyProtocol: Direct\n";
        assert_eq!(checked(direct), "");
        assert_eq!(checked(&direct.replace("cluster", "ControlPlane")), "");
        assert_eq!(checked(""), "");
        let wrong = |text: &str, expected: &str| {
            let error = checked(text);
            assert!(error.contains(expected), "{text}: {error}");
        };
        let proxy = direct.replace("Direct", "HTTPConnect\n    transport: {tcp: {url: 'https://127.0.0.1:8131'}}");
        wrong(
            &proxy,
            "line 6: egressSelections[0].connection.proxyProtocol: Invalid value: \"HTTPConnect\": knarr reaches",
        );
        let konnectivity = direct.replace("Direct", "GRPC\n    transport: {uds: {udsName: /run/konnectivity.sock}}");
        wrong(&konnectivity, "knarr reaches nodes, neighbours and etcd directly");
        wrong(&direct.replace("Direct", "Socks"), "Unsupported value: \"Socks\"");
        wrong(&direct.replace("cluster", "nodes"), "line 4: egressSelections[0].name: Unsupported value: \"nodes\"");
        wrong(&format!("{direct}- name: cluster\n  connection: {{proxyProtocol: Direct}}\n"), "Duplicate value");
        wrong(&direct.replace("Direct", "Direct\n    transport: {}"), "config must be absent for direct connect");
        wrong(&direct.replace("connection", "connections"), "line 5: unknown field");
        assert!(check_text("apiVersion: v1\nkind: Pod\n").is_err());
    }
}
