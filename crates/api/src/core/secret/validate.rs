//! Validation of Secret: bad keys, too much data, what its type demands, changes of type or of an immutable one.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use machinery::codec::DecodeError;
use machinery::field::{Errors, Path};
use machinery::names;
use machinery::node::Node;
use machinery::object::Meta;
use serde_json::{Value, json};

use crate::core::check;

const SERVICE_ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";

pub(super) fn validate(secret: &Node, errors: &mut Errors) {
    let data = secret.at("data");
    let mut bytes = 0;
    for (key, value) in data.entries() {
        for sentence in names::config_map_key(key) {
            errors.invalid_value(&value.path, &json!(key), sentence);
        }
        bytes += check::decoded_len(value.str());
    }
    if bytes > check::DATA_BYTES_MAX {
        errors.too_long(&data, check::DATA_BYTES_MAX);
    }
    match secret.text("type") {
        "kubernetes.io/service-account-token" => {
            let path = Path::new("metadata").child("annotations").key(SERVICE_ACCOUNT_NAME);
            let account = json!(secret.value.annotation(SERVICE_ACCOUNT_NAME));
            check::required_text(&Node::new(&account, path), errors);
        }
        "kubernetes.io/dockercfg" => docker_config(&data.key(".dockercfg"), errors),
        "kubernetes.io/dockerconfigjson" => docker_config(&data.key(".dockerconfigjson"), errors),
        "kubernetes.io/basic-auth" if !data.has("username") && !data.has("password") => {
            errors.required(&data.key("username"), "");
            errors.required(&data.key("password"), "");
        }
        "kubernetes.io/ssh-auth" => check::required_text(&data.key("ssh-privatekey"), errors),
        "kubernetes.io/tls" => {
            for key in ["tls.crt", "tls.key"] {
                if !data.has(key) {
                    errors.required(&data.key(key), "");
                }
            }
        }
        _ => {}
    }
}

pub(super) fn validate_update(new: &Node, old: &Node, errors: &mut Errors) {
    check::immutable(&new.at("type"), &old.at("type"), errors);
    check::immutable_data(new, old, &["data"], errors);
    validate(new, errors);
}

/// The content must be a JSON object; what is wrong is said without showing it.
fn docker_config(content: &Node, errors: &mut Errors) {
    if !content.exists() {
        return errors.required(content, "");
    }
    let bytes = STANDARD.decode(content.str()).unwrap_or_default();
    if let Some(problem) = json_problem(&bytes) {
        errors.invalid_value(&content.path, &json!("<secret contents redacted>"), problem);
    }
}

/// What Go's decoder would say of text that is no JSON object.
fn json_problem(bytes: &[u8]) -> Option<String> {
    let what = match machinery::codec::decode_json(bytes).map(|decoded| decoded.value) {
        Ok(Value::Object(_) | Value::Null) => return None,
        Ok(Value::Array(_)) => "array",
        Ok(Value::String(_)) => "string",
        Ok(Value::Number(_)) => "number",
        Ok(Value::Bool(_)) => "bool",
        Err(DecodeError::Json(error)) => return Some(error.to_string()),
        Err(error) => return Some(error.to_string()),
    };
    Some(format!("json: cannot unmarshal {what} into Go value of type map[string]interface {{}}"))
}
