//! ConfigMaps, Secrets, service accounts.

use base64::Engine;
use serde_json::Value;

use super::{Context, head, items, map, plain, tags, text};
use crate::failure::Result;
use crate::resource::select::Query;

pub fn config_map(object: &Value) -> String {
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

pub fn secret(object: &Value) -> String {
    let mut out = head(object) + &tags(object);
    out += &format!("\nType:\t{}\n\nData\n====\n", text(object, "/type"));
    for (key, value) in map(object, "/data") {
        // A token is what one looks here for.
        let token = text(object, "/type") == "kubernetes.io/service-account-token" && key == "token";
        out += &match token {
            true => {
                let bytes = base64::engine::general_purpose::STANDARD.decode(plain(&value)).unwrap_or_default();
                format!("{key}:\t{}\n", String::from_utf8_lossy(&bytes))
            }
            false => format!("{key}:\t{} bytes\n", decoded(&value)),
        };
    }
    out
}

pub async fn service_account(cx: &Context<'_>, object: &Value) -> Result<String> {
    let mut out = head(object) + &tags(object);
    let mut tokens: Vec<String> = Vec::new();
    let mapping = cx.session.mapping("secrets").await?;
    let query = Query { fields: "type=kubernetes.io/service-account-token".into(), chunk: 500, ..Query::default() };
    for secret in cx.session.list(&mapping, text(object, "/metadata/namespace"), &query).await.unwrap_or_default() {
        if secret["metadata"]["annotations"]["kubernetes.io/service-account.uid"] == object["metadata"]["uid"] {
            tokens.push(text(&secret, "/metadata/name").into());
        }
    }
    let names =
        |path: &str| items(object, path).iter().map(|entry| text(entry, "/name").to_string()).collect::<Vec<_>>();
    for (title, list) in [
        ("Image pull secrets", names("/imagePullSecrets")),
        ("Mountable secrets", names("/secrets")),
        ("Tokens", tokens),
    ] {
        if list.is_empty() {
            out += &format!("{title}:\t<none>\n");
        }
        for (at, name) in list.iter().enumerate() {
            out += &if at == 0 { format!("{title}:\t{name}\n") } else { format!("\t{name}\n") };
        }
    }
    Ok(out)
}
