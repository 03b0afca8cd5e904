//! Rules of ConfigMaps and Secrets in upstream's words.

use serde_json::{Value, json};

use crate::testing::Rules;

const KEY: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or \
                   'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";

#[test]
fn config_maps() {
    let rules =
        Rules::of(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "b"}}));
    rules.create(json!({"data": {"x/y": "z"}}), &[&format!("data[x/y]: Invalid value: \"x/y\": {KEY}")]);
    rules.create(
        json!({"binaryData": {"a": "YQ=="}}),
        &["data[a]: Invalid value: \"a\": duplicate of key present in binaryData"],
    );
    rules.create(json!({"data": {"big": "x".repeat(1 << 20)}}), &["[]: Too long: may not be more than 1048576 bytes"]);
    rules.update(json!({"data": {"a": "c"}, "immutable": true}), &[]);
    let fixed = json!({"immutable": true});
    let refusal = "Forbidden: field is immutable when `immutable` is set";
    rules.update_from(&fixed, json!({"data": {"a": "c"}}), &[&format!("data: {refusal}")]);
    rules.update_from(
        &fixed,
        json!({"immutable": null, "binaryData": {"b": "YQ=="}}),
        &[&format!("immutable: {refusal}"), &format!("binaryData: {refusal}")],
    );
    rules.update_from(&fixed, json!({"metadata": {"labels": {"a": "b"}}}), &[]);
}

fn secret(kind: &str, data: Value) -> Value {
    json!({"type": kind, "data": data})
}

#[test]
fn secrets() {
    let rules = Rules::of(json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}));
    assert_eq!(rules.made(&Value::Null)["type"], "Opaque");
    rules.create(secret("kubernetes.io/tls", json!({"tls.crt": "YQ=="})), &["data[tls.key]: Required value"]);
    rules.create(
        secret("kubernetes.io/basic-auth", json!({})),
        &["data[username]: Required value", "data[password]: Required value"],
    );
    rules.create(secret("kubernetes.io/basic-auth", json!({"password": "YQ=="})), &[]);
    rules.create(
        secret("kubernetes.io/ssh-auth", json!({"ssh-privatekey": ""})),
        &["data[ssh-privatekey]: Required value"],
    );
    rules.create(
        secret("kubernetes.io/service-account-token", json!({})),
        &["metadata.annotations[kubernetes.io/service-account.name]: Required value"],
    );
    rules.create(secret("kubernetes.io/dockerconfigjson", json!({})), &["data[.dockerconfigjson]: Required value"]);
    rules.create(secret("example.com/own", json!({"anything": "YQ=="})), &[]);
    rules.update(json!({"type": "example.com/own"}), &["type: Invalid value: \"example.com/own\": field is immutable"]);
}
