//! The text of a kubeconfig with everything inside, so that it can be copied to another machine.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// One cluster, one user, one context, all named `default`.
pub fn kubeconfig(server_url: &str, ca_pem: &str, certificate_pem: &str, key_pem: &str) -> String {
    let [ca, certificate, key] = [ca_pem, certificate_pem, key_pem].map(|pem| STANDARD.encode(pem));
    // A JSON text is a YAML text too, and this one is quoted whatever the address holds.
    let server = serde_json::Value::from(server_url);
    format!(
        "apiVersion: v1
kind: Config
clusters:
- name: default
  cluster:
    certificate-authority-data: {ca}
    server: {server}
users:
- name: default
  user:
    client-certificate-data: {certificate}
    client-key-data: {key}
contexts:
- name: default
  context:
    cluster: default
    user: default
current-context: default
"
    )
}
