//! Validation of PodCertificateRequest: whose certificate it is to be, by whom, for how long, and for which key.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use machinery::field::{Errors, FieldError, Path, Problem};
use machinery::names;
use machinery::node::Node;

use super::super::signer;
use super::key;
use crate::check;

const UID_MAX: usize = 128;
const SECONDS_MIN: i64 = 3600;
const SECONDS_MAX: i64 = 91 * 24 * 3600;
/// Of signers of Kubernetes itself.
const KUBERNETES_SECONDS_MAX: i64 = 24 * 3600;
const REQUEST_BYTES_MAX: usize = 10 * 1024;
const ANNOTATIONS_BYTES_MAX: usize = 256 * 1024;

pub(super) fn validate(request: &Node, errors: &mut Errors) {
    let spec = request.at("spec");
    let signer_name = spec.at("signerName");
    signer::name(&signer_name, errors);
    user_annotations(&spec.at("unverifiedUserAnnotations"), errors);
    for (name, uid) in [("podName", "podUID"), ("serviceAccountName", "serviceAccountUID"), ("nodeName", "nodeUID")] {
        let name = spec.at(name);
        for problem in names::dns_subdomain(name.str()) {
            errors.invalid_value(&name.path, &name.str().into(), problem);
        }
        let uid = spec.at(uid);
        if uid.str().is_empty() {
            errors.invalid_value(&uid.path, &"".into(), "must not be empty");
        }
        if uid.str().len() > UID_MAX {
            errors.too_long(&uid, UID_MAX);
        }
    }
    let seconds = spec.at("maxExpirationSeconds");
    let Some(number) = seconds.int() else {
        errors.required(&seconds, "must be set");
        return;
    };
    let most = seconds_max(signer_name.str());
    if !(SECONDS_MIN..=most).contains(&number) {
        errors.invalid(&seconds, format!("must be in the range [{SECONDS_MIN}, {most}]"));
    }
    let is_set = |field: &'static str| !spec.text(field).is_empty();
    match (is_set("stubPKCS10Request"), is_set("pkixPublicKey"), is_set("proofOfPossession")) {
        (true, false, false) => stub(&spec.at("stubPKCS10Request"), errors),
        (false, true, true) => public_key(&spec, errors),
        _ => omitted(
            &spec.path,
            "exactly one of (stubPKCS10Request) or (pkixPublicKey, proofOfPossession) must be set",
            errors,
        ),
    }
}

/// Nothing of a request changes.
pub(super) fn validate_update(new: &Node, old: &Node, errors: &mut Errors) {
    check::immutable(&new.at("spec"), &old.at("spec"), errors);
}

/// How long a certificate of that signer may be valid.
pub(crate) fn seconds_max(signer: &str) -> i64 {
    let domain = signer.split('/').next().unwrap_or("");
    let of_kubernetes = domain == "kubernetes.io" || domain.ends_with(".kubernetes.io");
    if of_kubernetes { KUBERNETES_SECONDS_MAX } else { SECONDS_MAX }
}

/// What users tell the signer: keys with a domain, of whatever case.
pub(crate) fn user_annotations(annotations: &Node, errors: &mut Errors) {
    let mut bytes = 0;
    for (key, value) in annotations.entries() {
        bytes += key.len() + value.str().len();
        let key = key.to_lowercase();
        let problems = names::qualified_name(&key);
        if key.is_empty() {
            errors.required(annotations, "");
        } else if !problems.is_empty() {
            for problem in problems {
                errors.invalid_value(&annotations.path, &key.as_str().into(), problem);
            }
        } else if !key.contains('/') {
            let detail = "must be a domain-prefixed key (such as \"acme.io/foo\")";
            errors.invalid_value(&annotations.path, &key.as_str().into(), detail);
        }
    }
    if bytes > ANNOTATIONS_BYTES_MAX {
        errors.too_long(annotations, ANNOTATIONS_BYTES_MAX);
    }
}

/// An error that does not show the value: it would say nothing to who reads it.
pub(super) fn omitted(path: &Path, detail: &str, errors: &mut Errors) {
    errors.push(FieldError::new(Problem::Invalid, path, "", detail));
}

pub(super) fn bytes(at: &Node) -> Vec<u8> {
    STANDARD.decode(at.str()).unwrap_or_default()
}

fn stub(at: &Node, errors: &mut Errors) {
    let der = bytes(at);
    if der.len() > REQUEST_BYTES_MAX {
        errors.too_long(at, REQUEST_BYTES_MAX);
        return;
    }
    let Some(request) = key::request(&der) else {
        omitted(&at.path, "must be a valid PKCS#10 CSR", errors);
        return;
    };
    let curves = "elliptic public keys must use curve P256, P384, or P521";
    match key::kind(&request.certification_request_info.subject_pki, curves) {
        Err(key::Wrong { shown: Some(shown), detail }) => errors.invalid_value(&at.path, &shown.into(), detail),
        Err(key::Wrong { shown: None, detail }) => omitted(&at.path, detail, errors),
        // The library behind has no such curve, and what cannot be verified is not taken.
        Ok(key::KeyKind::P521) => omitted(&at.path, "knarr cannot verify signatures of P521 keys", errors),
        Ok(_) if request.verify_signature().is_err() => omitted(&at.path, "invalid signature", errors),
        Ok(_) => {}
    }
}

/// The older way to ask, which kubelets of v1.34 use.
fn public_key(spec: &Node, errors: &mut Errors) {
    let (at, proof) = (spec.at("pkixPublicKey"), spec.at("proofOfPossession"));
    let (der, signature) = (bytes(&at), bytes(&proof));
    for (field, value) in [(&at, &der), (&proof, &signature)] {
        if value.len() > REQUEST_BYTES_MAX {
            errors.too_long(field, REQUEST_BYTES_MAX);
            return;
        }
    }
    let Some(found) = key::public_key(&der) else {
        errors.invalid(&at, "must be a valid PKIX-serialized public key");
        return;
    };
    match key::kind(&found, "elliptic public keys must use curve P256 or P384") {
        Err(key::Wrong { shown: Some(shown), detail }) => errors.invalid_value(&at.path, &shown.into(), detail),
        Err(key::Wrong { shown: None, detail }) => errors.invalid(&at, detail),
        Ok(kind) => {
            if !key::proves(&found, kind, spec.text("podUID"), &signature) {
                omitted(&proof.path, "could not verify proof-of-possession signature", errors);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use rcgen::{
        CertificateParams, KeyPair, PKCS_ECDSA_P384_SHA384, PKCS_ED25519, PublicKeyData, SignatureAlgorithm, SigningKey,
    };
    use serde_json::{Value, json};

    use crate::testing::Rules;

    const UID: &str = "1f-2e";

    fn stub(algorithm: &'static SignatureAlgorithm) -> Vec<u8> {
        let key = KeyPair::generate_for(algorithm).expect("a key");
        CertificateParams::default().serialize_request(&key).expect("a request").der().to_vec()
    }

    fn rules() -> Rules {
        Rules::of(json!({
            "apiVersion": "certificates.k8s.io/v1beta1", "kind": "PodCertificateRequest",
            "metadata": {"name": "req-1", "namespace": "n"},
            "spec": {
                "signerName": "example.com/mesh", "podName": "p", "podUID": UID, "serviceAccountName": "default",
                "serviceAccountUID": "s", "nodeName": "n1", "nodeUID": "u", "stubPKCS10Request": STANDARD.encode(stub(&PKCS_ED25519)),
            },
        }))
    }

    #[track_caller]
    fn check(change: Value, expected: &[&str]) {
        rules().create(json!({"spec": change}), expected);
    }

    #[test]
    fn pod_account_and_node_are_named() {
        check(
            json!({"podUID": "", "nodeUID": "x".repeat(129)}),
            &[
                r#"spec.podUID: Invalid value: "": must not be empty"#,
                "spec.nodeUID: Too long: may not be more than 128 bytes",
            ],
        );
        check(
            json!({"maxExpirationSeconds": 60}),
            &["spec.maxExpirationSeconds: Invalid value: 60: must be in the range [3600, 7862400]"],
        );
        check(json!({"maxExpirationSeconds": 7_862_400}), &[]);
        check(
            json!({"signerName": "x.kubernetes.io/y", "maxExpirationSeconds": 86_401}),
            &["spec.maxExpirationSeconds: Invalid value: 86401: must be in the range [3600, 86400]"],
        );
        check(
            json!({"unverifiedUserAnnotations": {"Acme.io/Foo": "x", "bar": ""}}),
            &[
                r#"spec.unverifiedUserAnnotations: Invalid value: "bar": must be a domain-prefixed key (such as "acme.io/foo")"#,
            ],
        );
        rules().update(json!({"metadata": {"labels": {"a": "b"}}}), &[]);
        let old = rules().made(&Value::Null);
        let mut shown = old["spec"].clone();
        shown["podName"] = "other".into();
        let expected = format!("spec: Invalid value: {shown}: field is immutable");
        let change = json!({"spec": {"podName": "other"}});
        // Each of these rules makes a key of its own.
        let rules = Rules::of(old);
        rules.update(change, &[&expected]);
    }

    #[test]
    fn who_asks_has_the_key() {
        check(json!({"stubPKCS10Request": STANDARD.encode(stub(&PKCS_ECDSA_P384_SHA384))}), &[]);
        check(
            json!({"stubPKCS10Request": "AAAA"}),
            &["spec.stubPKCS10Request: Invalid value: must be a valid PKCS#10 CSR"],
        );
        let mut forged = stub(&PKCS_ED25519);
        *forged.last_mut().expect("bytes") ^= 1;
        check(
            json!({"stubPKCS10Request": STANDARD.encode(forged)}),
            &["spec.stubPKCS10Request: Invalid value: invalid signature"],
        );
        check(
            json!({"stubPKCS10Request": null}),
            &[
                "spec: Invalid value: exactly one of (stubPKCS10Request) or (pkixPublicKey, proofOfPossession) must be set",
            ],
        );
    }

    #[test]
    fn the_older_proof_signs_the_pods_uid() {
        let key = KeyPair::generate().expect("a key");
        let public = STANDARD.encode(key.subject_public_key_info());
        let asked = |uid: &str| {
            let proof = STANDARD.encode(key.sign(uid.as_bytes()).expect("a signature"));
            json!({"stubPKCS10Request": null, "pkixPublicKey": public, "proofOfPossession": proof})
        };
        check(asked(UID), &[]);
        check(
            asked("another"),
            &["spec.proofOfPossession: Invalid value: could not verify proof-of-possession signature"],
        );
    }
}
