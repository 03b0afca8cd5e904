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
    let namespace = text(object, "/metadata/namespace");
    let mut there: Vec<String> = Vec::new();
    if let Ok(list) =
        cx.session.send(&crate::session::Call::get(format!("/api/v1/namespaces/{namespace}/secrets"))).await
    {
        there = items(&list, "/items").iter().map(|secret| text(secret, "/metadata/name").to_string()).collect();
    }
    let marked = |name: &str| match there.iter().any(|known| known == name) {
        true => name.to_string(),
        false => format!("{name} (not found)"),
    };
    let names = |path: &str| items(object, path).iter().map(|entry| marked(text(entry, "/name"))).collect::<Vec<_>>();
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

/// A request for a certificate: who asks for what, and what was decided.
pub fn signing_request(object: &Value) -> String {
    let mut out = format!("Name:\t{}\n", text(object, "/metadata/name")) + &super::tags(object);
    out += &format!("CreationTimestamp:\t{}\n", super::time(text(object, "/metadata/creationTimestamp")));
    out += &format!("Requesting User:\t{}\n", text(object, "/spec/username"));
    out += &format!("Signer:\t{}\n", text(object, "/spec/signerName"));
    if object["spec"]["expirationSeconds"].is_number() {
        let seconds = super::number(object, "/spec/expirationSeconds");
        out += &format!("Requested Duration:\t{}h{}m{}s\n", seconds / 3600, seconds / 60 % 60, seconds % 60);
    }
    let has = |kind: &str| items(object, "/status/conditions").iter().any(|condition| condition["type"] == kind);
    let mut status = if has("Denied") {
        "Denied"
    } else if has("Approved") {
        "Approved"
    } else {
        "Pending"
    }
    .to_string();
    if has("Failed") {
        status += ",Failed";
    }
    if !text(object, "/status/certificate").is_empty() {
        status += ",Issued";
    }
    out += &format!("Status:\t{status}\n");
    // What the request itself says is inside of its encoding; the name is what people look for.
    let subject = common_name(text(object, "/spec/request")).unwrap_or_default();
    out + &format!("Subject:\n\tCommon Name:\t{subject}\n\tSerial Number:\t\n")
}

/// The common name of a request in PEM, in base64: the text behind its object identifier, 2.5.4.3.
fn common_name(request: &str) -> Option<String> {
    use base64::Engine;
    let engine = base64::engine::general_purpose::STANDARD;
    let pem = String::from_utf8(engine.decode(request).ok()?).ok()?;
    let body: String = pem.lines().filter(|line| !line.starts_with("-----")).collect();
    let der = engine.decode(body).ok()?;
    let at = der.windows(5).position(|bytes| bytes == [0x06, 0x03, 0x55, 0x04, 0x03])? + 5;
    let length = usize::from(*der.get(at + 1)?);
    String::from_utf8(der.get(at + 2..at + 2 + length)?.to_vec()).ok()
}
