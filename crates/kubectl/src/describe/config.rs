//! ConfigMaps, Secrets, service accounts.

use base64::Engine;
use serde_json::Value;

use super::{head, items, map, plain, tags, text};

pub(crate) fn config_map(object: &Value) -> String {
    let mut out = head(object) + &tags(object);
    out += "\nData\n====\n";
    for (key, value) in map(object, "/data") {
        out += &format!("{key}:\n----\n{}\n\n", plain(&value));
    }
    out += "\nBinaryData\n====\n";
    for (key, value) in map(object, "/binaryData") {
        out += &format!("{key}: {} bytes\n", decoded(&value));
    }
    out + "\n"
}

fn decoded(value: &Value) -> usize {
    base64::engine::general_purpose::STANDARD.decode(plain(value)).map(|bytes| bytes.len()).unwrap_or(0)
}

pub(crate) fn secret(object: &Value) -> String {
    let mut out = head(object) + &tags(object);
    out += &format!("\nType:\t{}\n\nData\n====\n", text(object, "/type"));
    for (key, value) in map(object, "/data") {
        // A token is what one looks here for.
        let token = text(object, "/type") == "kubernetes.io/service-account-token" && key == "token";
        out += &if token {
            let bytes = base64::engine::general_purpose::STANDARD.decode(plain(&value)).unwrap_or_default();
            format!("{key}:\t{}\n", String::from_utf8_lossy(&bytes))
        } else {
            format!("{key}:\t{} bytes\n", decoded(&value))
        };
    }
    out
}

pub(crate) fn service_account(object: &Value) -> String {
    let mut out = head(object) + &tags(object);
    let secrets = items(object, "/imagePullSecrets");
    if secrets.is_empty() {
        out += "Image pull secrets:\t<none>\n";
    }
    let titles = std::iter::once("Image pull secrets:").chain(std::iter::repeat("                   "));
    for (title, secret) in titles.zip(secrets) {
        out += &format!("{title}\t{}\n", text(secret, "/name"));
    }
    out
}
