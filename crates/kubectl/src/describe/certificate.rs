//! Requests for certificates: who asks for what, and what was decided.

use base64::Engine;
use serde_json::Value;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::FromDer;
use x509_parser::x509::X509Name;

use super::{in_line, items, map, number, text, time};
use crate::failure::{Failure, Result};

pub(super) fn signing_request(object: &Value) -> Result<String> {
    let mut out = format!("Name:\t{}\n", text(object, "/metadata/name"));
    out += &format!("Labels:\t{}\n", in_line(&map(object, "/metadata/labels")));
    out += &format!("Annotations:\t{}\n", in_line(&map(object, "/metadata/annotations")));
    out += &format!("CreationTimestamp:\t{}\n", time(text(object, "/metadata/creationTimestamp")));
    out += &format!("Requesting User:\t{}\n", text(object, "/spec/username"));
    if !text(object, "/spec/signerName").is_empty() {
        out += &format!("Signer:\t{}\n", text(object, "/spec/signerName"));
    }
    if object["spec"]["expirationSeconds"].is_number() {
        let seconds = number(object, "/spec/expirationSeconds");
        out += &format!("Requested Duration:\t{}\n", machinery::kind::human_duration(seconds));
    }
    out += &format!("Status:\t{}\n", status(object));
    let der = der(text(object, "/spec/request"))
        .ok_or_else(|| Failure::message("Error parsing CSR: PEM block type must be CERTIFICATE REQUEST"))?;
    let (_, request) = X509CertificationRequest::from_der(&der)
        .map_err(|error| Failure::message(format!("Error parsing CSR: {error}")))?;
    Ok(out + &asked(&request))
}

fn status(object: &Value) -> String {
    let has = |kind: &str| items(object, "/status/conditions").iter().any(|condition| condition["type"] == kind);
    let mut status = String::from(match (has("Denied"), has("Approved")) {
        (true, _) => "Denied",
        (false, true) => "Approved",
        (false, false) => "Pending",
    });
    if has("Failed") {
        status += ",Failed";
    }
    if !text(object, "/status/certificate").is_empty() {
        status += ",Issued";
    }
    status
}

/// The bytes inside of a request in PEM, in base64.
fn der(request: &str) -> Option<Vec<u8>> {
    let engine = base64::engine::general_purpose::STANDARD;
    let pem = String::from_utf8(engine.decode(request).ok()?).ok()?;
    let (_, body) = pem.split_once("-----BEGIN CERTIFICATE REQUEST-----")?;
    let (body, _) = body.split_once("-----END")?;
    engine.decode(body.split_whitespace().collect::<String>()).ok()
}

/// What the request itself says.
fn asked(request: &X509CertificationRequest) -> String {
    let subject = &request.certification_request_info.subject;
    let last = |oid: &str| values(subject, oid).into_iter().next_back().unwrap_or_default();
    let mut out = format!("Subject:\n\tCommon Name:\t{}\n\tSerial Number:\t{}\n", last("2.5.4.3"), last("2.5.4.5"));
    for (title, oid) in [
        ("Organization", "2.5.4.10"),
        ("Organizational Unit", "2.5.4.11"),
        ("Country", "2.5.4.6"),
        ("Locality", "2.5.4.7"),
        ("Province", "2.5.4.8"),
        ("StreetAddress", "2.5.4.9"),
        ("PostalCode", "2.5.4.17"),
    ] {
        out += &listed(title, &values(subject, oid));
    }
    let names: Vec<&GeneralName> = request
        .requested_extensions()
        .into_iter()
        .flatten()
        .filter_map(|extension| match extension {
            ParsedExtension::SubjectAlternativeName(names) => Some(&names.general_names),
            _ => None,
        })
        .flatten()
        .collect();
    if !names.is_empty() {
        out += "Subject Alternative Names:\n";
        let of =
            |pick: fn(&GeneralName) -> Option<String>| names.iter().filter_map(|name| pick(name)).collect::<Vec<_>>();
        out += &listed("DNS Names", &of(|name| matches!(name, GeneralName::DNSName(_)).then(|| bare(name))));
        out += &listed("Email Addresses", &of(|name| matches!(name, GeneralName::RFC822Name(_)).then(|| bare(name))));
        out += &listed("URIs", &of(|name| matches!(name, GeneralName::URI(_)).then(|| bare(name))));
        out += &listed("IP Addresses", &of(address));
    }
    out
}

fn values(subject: &X509Name, oid: &str) -> Vec<String> {
    let attributes = subject.iter_attributes().filter(|attribute| attribute.attr_type().to_id_string() == oid);
    attributes.filter_map(|attribute| attribute.as_str().ok().map(str::to_string)).collect()
}

fn bare(name: &GeneralName) -> String {
    match name {
        GeneralName::DNSName(text) | GeneralName::RFC822Name(text) | GeneralName::URI(text) => text.to_string(),
        _ => String::new(),
    }
}

fn address(name: &GeneralName) -> Option<String> {
    let GeneralName::IPAddress(bytes) = name else { return None };
    let v4 = <[u8; 4]>::try_from(*bytes).map(|bytes| std::net::Ipv4Addr::from(bytes).to_string());
    v4.or_else(|_| <[u8; 16]>::try_from(*bytes).map(|bytes| std::net::Ipv6Addr::from(bytes).to_string())).ok()
}

fn listed(title: &str, values: &[String]) -> String {
    if values.is_empty() { String::new() } else { format!("\t{title}:\t{}\n", values.join("\n\t\t")) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn decisions_are_told_in_one_word() {
        let check = |conditions: &[&str], certificate: &str, text: &str| {
            let conditions: Vec<Value> = conditions.iter().map(|kind| json!({"type": kind})).collect();
            let object = json!({"status": {"conditions": conditions, "certificate": certificate}});
            assert_eq!(status(&object), text);
        };
        check(&[], "", "Pending");
        check(&["Approved"], "", "Approved");
        check(&["Approved"], "x", "Approved,Issued");
        check(&["Approved", "Failed"], "", "Approved,Failed");
        check(&["Denied", "Approved"], "", "Denied");
    }

    #[test]
    fn a_request_must_be_one() {
        let engine = base64::engine::general_purpose::STANDARD;
        assert_eq!(der(&engine.encode("nothing")), None);
        let pem = "-----BEGIN CERTIFICATE REQUEST-----\naGk=\n-----END CERTIFICATE REQUEST-----\n";
        assert_eq!(der(&engine.encode(pem)), Some(b"hi".to_vec()));
        let failure = signing_request(&json!({"spec": {"request": ""}})).unwrap_err();
        assert!(failure.text().starts_with("Error parsing CSR: "));
        assert_eq!(listed("DNS Names", &["a".into(), "b".into()]), "\tDNS Names:\ta\n\t\tb\n");
        assert_eq!(address(&GeneralName::IPAddress(&[10, 0, 0, 1])).as_deref(), Some("10.0.0.1"));
    }
}
