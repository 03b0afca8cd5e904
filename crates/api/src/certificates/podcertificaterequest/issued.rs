//! Validation of what a signer answers: a request is issued, denied or failed once, and what is issued is for the key that asked.

use jiff::{SignedDuration, Timestamp};
use machinery::field::Errors;
use machinery::node::Node;
use serde_json::Value;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;

use super::super::pem;
use super::validate::{bytes, omitted};
use super::{DECISIONS, key};
use crate::check;

const CHAIN_BYTES_MAX: usize = 100 * 1024;
const LIFETIME_MIN: SignedDuration = SignedDuration::from_hours(1);
/// How far from both ends of a certificate's life it may be asked for anew.
const REFRESH_MARGIN: SignedDuration = SignedDuration::from_mins(10);

pub(super) fn validate_status(new: &Node, old: &Node, errors: &mut Errors) {
    let (status, before) = (new.at("status"), old.at("status"));
    let mut decisions = 0;
    for condition in status.each("conditions") {
        let kind = condition.at("type");
        if !DECISIONS.contains(&kind.str()) {
            check::one_of_texts(&kind, &DECISIONS, errors);
            continue;
        }
        decisions += 1;
        if decisions > 1 {
            errors.invalid(&kind, r#"There may be at most one condition with type "Issued", "Denied", or "Failed""#);
        }
        check::one_of_texts(&condition.at("status"), &["True"], errors);
    }
    check::conditions(&status.at("conditions"), errors);
    if !errors.is_empty() {
        return;
    }
    if DECISIONS.iter().any(|decision| is(&before, decision)) {
        if !check::same(status.value, before.value) {
            omitted(&status.path, "immutable after PodCertificateRequest is issued, denied, or failed", errors);
        }
    } else if is(&status, "Denied") || is(&status, "Failed") {
        let fields = status.value.as_object().into_iter().flatten();
        let mut others = fields.filter(|(field, value)| *field != "conditions" && !value.is_null() && *value != "");
        if others.next().is_some() {
            let detail = "non-condition status fields must be empty when denying or failing the PodCertificateRequest";
            omitted(&status.path, detail, errors);
        }
    } else if is(&status, "Issued") {
        issued(&status, &old.at("spec"), errors);
    } else if !check::same(status.value, before.value) {
        let detail = r#"status is immutable unless transitioning to "Issued", "Denied", or "Failed""#;
        omitted(&status.path, detail, errors);
    }
}

fn is(status: &Node, decision: &str) -> bool {
    status.each("conditions").any(|one| one.text("type") == decision && one.text("status") == "True")
}

fn issued(status: &Node, spec: &Node, errors: &mut Errors) {
    let chain = status.at("certificateChain");
    if chain.str().len() > CHAIN_BYTES_MAX {
        errors.too_long(&chain, CHAIN_BYTES_MAX);
        return;
    }
    let refuse = |errors: &mut Errors, why: &str| errors.invalid_value(&chain.path, &chain.str().into(), why);
    let blocks = pem::blocks(chain.str().as_bytes());
    let Some((first, rest)) = blocks.split_first() else {
        return refuse(errors, "issued certificate chain must contain at least one certificate");
    };
    if first.label != "CERTIFICATE" {
        return refuse(errors, "issued certificate chain must consist entirely of CERTIFICATE PEM blocks");
    }
    let Some(leaf) = certificate(&first.der) else {
        return refuse(errors, "leaf certificate does not parse as valid X.509");
    };
    names(&chain, &leaf, errors);
    if !errors.is_empty() {
        return;
    }
    match wanted_key(spec, errors) {
        Some(wanted) if wanted == leaf.public_key().raw => {}
        Some(_) => return refuse(errors, "leaf certificate was not issued to the requested public key"),
        None => return,
    }
    times(status, spec, &leaf, errors);
    if !errors.is_empty() {
        return;
    }
    for block in rest {
        if block.label != "CERTIFICATE" {
            // Upstream's spelling.
            return refuse(errors, "issued certificate chain must consist entirely of CERTFICATE PEM blocks");
        }
        if certificate(&block.der).is_none() {
            return refuse(errors, "intermediate certificate does not parse as valid X.509");
        }
    }
}

fn certificate(der: &[u8]) -> Option<X509Certificate<'_>> {
    X509Certificate::from_der(der).ok().filter(|(rest, _)| rest.is_empty()).map(|(_, certificate)| certificate)
}

fn names(chain: &Node, leaf: &X509Certificate<'_>, errors: &mut Errors) {
    let mut refuse = |name: &str, why: &str| errors.invalid_value(&chain.path, &name.into(), why);
    let found = leaf.subject_alternative_name().ok().flatten();
    for name in found.iter().flat_map(|extension| &extension.value.general_names) {
        match name {
            GeneralName::DNSName(name) => {
                if name.is_empty() {
                    refuse(name, "leaf certificate should not contain empty DNSName");
                }
                if name.contains("..") {
                    refuse(name, "leaf certificate's DNSName should not contain '..'");
                }
                if name.starts_with('.') || name.ends_with('.') {
                    refuse(name, "leaf certificate's DNSName should not start or end with '.'");
                }
            }
            GeneralName::RFC822Name(address) if !is_address(address) => {
                refuse(address, "leaf certificate should not contain invalid EmailAddress");
            }
            _ => {}
        }
    }
}

/// `user@host`, of letters that need no quotes.
fn is_address(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".!#$%&'*+-/=?^_`{|}~".contains(&byte) || !byte.is_ascii();
    let atoms = |part: &str| part.split('.').all(|atom| !atom.is_empty() && atom.bytes().all(plain));
    text.rsplit_once('@').is_some_and(|(user, host)| atoms(user) && atoms(host))
}

/// The key that the request is for, as DER.
fn wanted_key(spec: &Node, errors: &mut Errors) -> Option<Vec<u8>> {
    let stub = spec.at("stubPKCS10Request");
    if !stub.str().is_empty() {
        let der = bytes(&stub);
        let found = key::request(&der).map(|request| request.certification_request_info.subject_pki.raw.to_vec());
        if found.is_none() {
            omitted(&stub.path, "must be a valid PKCS#10 CSR", errors);
        }
        return found;
    }
    let public = spec.at("pkixPublicKey");
    let der = bytes(&public);
    let found = key::public_key(&der).map(|key| key.raw.to_vec());
    if found.is_none() {
        omitted(&public.path, "must be a valid PKIX-serialized public key", errors);
    }
    found
}

fn times(status: &Node, spec: &Node, leaf: &X509Certificate<'_>, errors: &mut Errors) {
    let consistent = "must be present and consistent with the issued certificate";
    let mut read = |field: &'static str, why: &str| {
        let at = status.at(field);
        let time: Option<Timestamp> = at.str().parse().ok();
        if time.is_none() {
            errors.required(&at, why);
        }
        time
    };
    let not_before = read("notBefore", consistent);
    let not_after = read("notAfter", consistent);
    let refresh = read("beginRefreshAt", "must be present and in the range [notbefore+10min, notafter-10min]");
    let (Some(not_before), Some(not_after), Some(refresh)) = (not_before, not_after, refresh) else { return };
    let seconds =
        |time: &x509_parser::time::ASN1Time| Timestamp::from_second(time.timestamp()).unwrap_or(Timestamp::MIN);
    let validity = leaf.validity();
    if not_before != seconds(&validity.not_before) {
        let why = "must be set to the NotBefore time encoded in the leaf certificate";
        return errors.invalid(&status.at("notBefore"), why);
    }
    if not_after != seconds(&validity.not_after) {
        let why = "must be set to the NotAfter time encoded in the leaf certificate";
        return errors.invalid(&status.at("notAfter"), why);
    }
    let lifetime = not_after.duration_since(not_before);
    let chain = status.at("certificateChain").path;
    // Upstream shows nanoseconds.
    let shown = Value::from(i64::try_from(lifetime.as_nanos()).unwrap_or(i64::MAX));
    if lifetime < LIFETIME_MIN {
        return errors.invalid_value(&chain, &shown, "leaf certificate lifetime must be >= 1 hour");
    }
    let most = spec.number("maxExpirationSeconds").unwrap_or(0);
    if lifetime.as_secs() > most {
        let why = format!("leaf certificate lifetime must be <= spec.maxExpirationSeconds ({most})");
        return errors.invalid_value(&chain, &shown, why);
    }
    let begin = status.at("beginRefreshAt");
    if refresh < not_before + REFRESH_MARGIN {
        errors.invalid(&begin, "must be at least 10 minutes after status.notBefore");
    } else if refresh > not_after - REFRESH_MARGIN {
        errors.invalid(&begin, "must be at least 10 minutes before status.notAfter");
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use rcgen::{CertificateParams, KeyPair};
    use serde_json::json;

    use super::*;
    use crate::testing::Rules;

    struct Asked {
        rules: Rules,
        chain: String,
    }

    /// A request, and the certificate that a signer made for it: of one day, from the start of 2026.
    fn asked() -> Asked {
        let key = KeyPair::generate().expect("a key");
        let stub = CertificateParams::default().serialize_request(&key).expect("a request").der().to_vec();
        let mut params = CertificateParams::new(vec!["web.example.com".to_owned()]).expect("names");
        params.not_before = rcgen::date_time_ymd(2026, 1, 1);
        params.not_after = rcgen::date_time_ymd(2026, 1, 2);
        let chain = params.self_signed(&key).expect("a certificate").pem();
        let rules = Rules::of(json!({
            "apiVersion": "certificates.k8s.io/v1beta1", "kind": "PodCertificateRequest",
            "metadata": {"name": "req-1", "namespace": "n"},
            "spec": {
                "signerName": "example.com/mesh", "podName": "p", "podUID": "1", "serviceAccountName": "default",
                "serviceAccountUID": "s", "nodeName": "n1", "nodeUID": "u", "stubPKCS10Request": STANDARD.encode(stub),
            },
        }));
        Asked { rules, chain }
    }

    fn condition(kind: &str, status: &str) -> Value {
        json!({"type": kind, "status": status, "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"})
    }

    fn answer(chain: &str) -> Value {
        json!({
            "conditions": [condition("Issued", "True")], "certificateChain": chain, "notBefore": "2026-01-01T00:00:00Z",
            "notAfter": "2026-01-02T00:00:00Z", "beginRefreshAt": "2026-01-01T12:00:00Z",
        })
    }

    #[track_caller]
    fn check(change: Value, expected: &[&str]) {
        let asked = asked();
        let mut status = answer(&asked.chain);
        crate::testing::merge(&mut status, &change);
        asked.rules.status(json!({}), status, expected);
    }

    #[test]
    fn a_certificate_is_for_the_key_and_the_times_that_it_says() {
        check(Value::Null, &[]);
        check(
            json!({"notBefore": "2026-01-01T00:00:01Z"}),
            &[
                r#"status.notBefore: Invalid value: "2026-01-01T00:00:01Z": must be set to the NotBefore time encoded in the leaf certificate"#,
            ],
        );
        check(
            json!({"beginRefreshAt": "2026-01-01T00:09:59Z"}),
            &[
                r#"status.beginRefreshAt: Invalid value: "2026-01-01T00:09:59Z": must be at least 10 minutes after status.notBefore"#,
            ],
        );
        check(
            json!({"beginRefreshAt": "2026-01-01T23:50:01Z"}),
            &[
                r#"status.beginRefreshAt: Invalid value: "2026-01-01T23:50:01Z": must be at least 10 minutes before status.notAfter"#,
            ],
        );
        check(
            json!({"notAfter": null}),
            &["status.notAfter: Required value: must be present and consistent with the issued certificate"],
        );
        let others = asked().chain;
        let shown = Value::from(&*others).to_string();
        let why = "leaf certificate was not issued to the requested public key";
        check(
            json!({"certificateChain": others}),
            &[&format!("status.certificateChain: Invalid value: {shown}: {why}")],
        );
        check(
            json!({"certificateChain": "none"}),
            &[
                r#"status.certificateChain: Invalid value: "none": issued certificate chain must contain at least one certificate"#,
            ],
        );
    }

    #[test]
    fn a_request_is_decided_once() {
        let asked = asked();
        let issued = answer(&asked.chain);
        let mut later = issued.clone();
        later["beginRefreshAt"] = "2026-01-01T13:00:00Z".into();
        asked.rules.status(
            issued.clone(),
            later,
            &["status: Invalid value: immutable after PodCertificateRequest is issued, denied, or failed"],
        );
        asked.rules.status(
            json!({}),
            json!({"certificateChain": "x"}),
            &[r#"status: Invalid value: status is immutable unless transitioning to "Issued", "Denied", or "Failed""#],
        );
        let mut denied = issued;
        denied["conditions"] = json!([condition("Denied", "True")]);
        let why = "non-condition status fields must be empty when denying or failing the PodCertificateRequest";
        asked.rules.status(json!({}), denied, &[&format!("status: Invalid value: {why}")]);
        asked.rules.status(json!({}), json!({"conditions": [condition("Denied", "True")]}), &[]);
        asked.rules.status(
            json!({}),
            json!({"conditions": [condition("Failed", "False"), condition("Other", "True")]}),
            &[
                r#"status.conditions[0].status: Unsupported value: "False": supported values: "True""#,
                r#"status.conditions[1].type: Unsupported value: "Other": supported values: "Issued", "Denied", "Failed""#,
            ],
        );
    }

    #[test]
    fn addresses_of_mail() {
        for good in ["a@b", "a.b+c@example.com"] {
            assert!(is_address(good), "{good}");
        }
        for wrong in ["", "a", "@b", "a@", "a b@c", "a..b@c"] {
            assert!(!is_address(wrong), "{wrong}");
        }
    }
}
