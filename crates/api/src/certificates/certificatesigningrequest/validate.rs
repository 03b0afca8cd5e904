//! Validation of CertificateSigningRequest, on create and on writes to `approval` and `status`.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use machinery::field::{Errors, FieldError, Problem};
use machinery::node::Node;
use serde_json::Value;

use super::super::{pem, signer};
use crate::check;

const LEGACY_SIGNER: &str = "kubernetes.io/legacy-unknown";
const EXPIRATION_SECONDS_MIN: i64 = 600;
/// The conditions that decide a request; once set they stay.
const DECISIONS: [&str; 3] = ["Approved", "Denied", "Failed"];
const USAGES: &[&str] = &[
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

pub(super) fn validate(object: &Node, errors: &mut Errors) {
    let spec = object.at("spec");
    let request = spec.at("request");
    if let Err(problem) = pem::request(&STANDARD.decode(request.str()).unwrap_or_default()) {
        errors.invalid_value(&request.path, &shown_request(request.value), problem.to_string());
    }
    usages(&spec.at("usages"), errors);
    let name = spec.at("signerName");
    match name.str() {
        LEGACY_SIGNER => errors.invalid(&name, "the legacy signerName is not allowed via this API version"),
        _ => signer::name(&name, errors),
    }
    let expiration = spec.at("expirationSeconds");
    if expiration.int().is_some_and(|seconds| seconds < EXPIRATION_SECONDS_MIN) {
        errors.invalid(&expiration, "may not specify a duration less than 600 seconds (10 minutes)");
    }
    status_rules(object, None, errors);
}

/// What no status may say, whoever writes it. A certificate that was stored before is not looked at again.
fn status_rules(object: &Node, old: Option<&Node>, errors: &mut Errors) {
    let status = object.at("status");
    conditions(&status.at("conditions"), errors);
    let certificate = status.at("certificate");
    let problem = |text: &str| {
        let bytes = STANDARD.decode(text).unwrap_or_default();
        if text.is_empty() { None } else { pem::certificates(&bytes).err() }
    };
    let stays = old.map(|old| old.at("status").text("certificate"));
    let stays = stays.is_some_and(|before| before == certificate.str() || problem(before).is_some());
    if let Some(problem) = problem(certificate.str()).filter(|_| !stays) {
        let detail = problem.to_string();
        errors.push(FieldError::new(Problem::Invalid, &certificate.path, "\"<certificate data>\"", detail));
    }
}

/// A missing request is an empty list of bytes to upstream.
fn shown_request(value: &Value) -> Value {
    if value.is_null() { "".into() } else { value.clone() }
}

/// A write to the main resource changes neither decisions nor the certificate.
pub(super) fn validate_update(new: &Node, old: &Node, errors: &mut Errors) {
    validate(new, errors);
    changes(new, old, Allowed { decisions: false, certificate: false }, errors);
}

/// A write to `approval`: approvers decide, they do not issue.
pub fn validate_approval(new: &Node, old: &Node, errors: &mut Errors) {
    status_rules(new, Some(old), errors);
    changes(new, old, Allowed { decisions: true, certificate: false }, errors);
}

/// A write to `status`: signers issue, they do not decide.
pub fn validate_status(new: &Node, old: &Node, errors: &mut Errors) {
    status_rules(new, Some(old), errors);
    changes(new, old, Allowed { decisions: false, certificate: true }, errors);
}

/// What a write may change beside the conditions that are free.
struct Allowed {
    decisions: bool,
    certificate: bool,
}

fn changes(new: &Node, old: &Node, allowed: Allowed, errors: &mut Errors) {
    let (new, old) = (new.at("status"), old.at("status"));
    let list = new.at("conditions");
    for kind in DECISIONS {
        if of_type(&list, kind).len() < of_type(&old.at("conditions"), kind).len() {
            errors.forbidden(&list, format!("updates may not remove a condition of type {kind:?}"));
        }
    }
    if !allowed.decisions {
        for kind in ["Approved", "Denied"] {
            let (after, before) = (of_type(&list, kind), of_type(&old.at("conditions"), kind));
            if after.len() > before.len() {
                errors.forbidden(&list, format!("updates may not add a condition of type {kind:?}"));
            } else if after.len() == before.len() && after != before {
                errors.forbidden(&list, format!("updates may not modify a condition of type {kind:?}"));
            }
        }
    }
    let certificate = new.at("certificate");
    if certificate.str() != old.text("certificate") {
        if !allowed.certificate {
            errors.forbidden(&certificate, "updates may not set certificate content");
        } else if !old.text("certificate").is_empty() {
            errors.forbidden(&certificate, "updates may not modify existing certificate content");
        }
    }
}

fn of_type<'a>(conditions: &Node<'a>, kind: &str) -> Vec<&'a Value> {
    conditions.items().filter(|condition| condition.text("type") == kind).map(|condition| condition.value).collect()
}

fn usages(list: &Node, errors: &mut Errors) {
    if list.is_empty() {
        errors.required(list, "");
    }
    for usage in list.items() {
        check::one_of(&usage, USAGES, errors);
    }
    let mut seen: Vec<&str> = Vec::new();
    for usage in list.items() {
        if seen.contains(&usage.str()) {
            errors.duplicate(&usage);
        }
        seen.push(usage.str());
    }
}

fn conditions(list: &Node, errors: &mut Errors) {
    let mut seen: Vec<&str> = Vec::new();
    for condition in list.items() {
        let (kind, status) = (condition.at("type"), condition.at("status"));
        check::required(&kind, "", errors);
        let allowed: &[&str] = if DECISIONS.contains(&kind.str()) { &["True"] } else { &["False", "True", "Unknown"] };
        match status.str() {
            "" => errors.required(&status, ""),
            _ => check::one_of(&status, allowed, errors),
        }
        let opposite = match kind.str() {
            "Approved" => "Denied",
            "Denied" => "Approved",
            _ => "",
        };
        if !opposite.is_empty() && seen.contains(&opposite) {
            let detail = "Approved and Denied conditions are mutually exclusive";
            errors.invalid_value(&list.path, kind.value, detail);
        }
        if seen.contains(&kind.str()) {
            errors.duplicate(&kind);
        }
        seen.push(kind.str());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    type Rule = fn(&Node, &Node, &mut Errors);

    fn check(rule: Rule, new: Value, old: Value, expected: &[&str]) {
        let mut errors = Errors::default();
        rule(&Node::root(&json!({"status": new})), &Node::root(&json!({"status": old})), &mut errors);
        let found: Vec<String> = errors.0.iter().map(|error| format!("{}: {}", error.field, error.message())).collect();
        assert_eq!(found, expected);
    }

    fn condition(kind: &str) -> Value {
        json!({"type": kind, "status": "True"})
    }

    #[test]
    fn approvers_decide_and_signers_issue() {
        let approved = json!({"conditions": [condition("Approved")]});
        check(validate_approval, approved.clone(), json!({}), &[]);
        let add = "status.conditions: Forbidden: updates may not add a condition of type \"Approved\"";
        check(validate_status, approved.clone(), json!({}), &[add]);
        let remove = "status.conditions: Forbidden: updates may not remove a condition of type \"Approved\"";
        check(validate_approval, json!({}), approved, &[remove]);
        let both = json!({"conditions": [condition("Approved"), condition("Denied")]});
        let exclusive =
            "status.conditions: Invalid value: \"Denied\": Approved and Denied conditions are mutually exclusive";
        check(validate_approval, both, json!({}), &[exclusive]);
    }

    #[test]
    fn a_certificate_is_pem_and_is_issued_once() {
        let issued = |text: &str| json!({"certificate": STANDARD.encode(text)});
        let good = "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n";
        check(validate_status, issued(good), json!({}), &[]);
        let set = "status.certificate: Forbidden: updates may not set certificate content";
        check(validate_approval, issued(good), json!({}), &[set]);
        let empty = "status.certificate: Invalid value: \"<certificate data>\": must contain at least one CERTIFICATE PEM block";
        check(validate_status, issued("x"), json!({}), &[empty]);
        let again = "status.certificate: Forbidden: updates may not modify existing certificate content";
        check(validate_status, issued(good), issued("other"), &[again]);
    }
}
