//! Requests are made with real keys, and what is signed is checked against the authority.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, KeyPair, SanType};
use serde_json::json;
use x509_parser::prelude::FromDer;

use super::authority::{SigningAuthorities, SigningAuthority};
use super::{approver, cleaner, signer};

const SERVING: &str = "digital signature,key encipherment,server auth";
const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

fn now() -> Timestamp {
    "2026-06-01T00:00:00Z".parse().unwrap()
}

fn authority() -> SigningAuthority {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec![]).unwrap();
    params.distinguished_name.push(DnType::CommonName, "cluster-ca");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    SigningAuthority {
        certificate_pem: params.self_signed(&key).unwrap().pem(),
        key: crate::PrivateKey(key.serialize_pem()),
    }
}

/// A request for that subject, with a DNS name where one is given, in the given state.
fn request(
    signer: &str,
    name: &str,
    organization: &str,
    dns: Option<&str>,
    usages: &str,
    state: &str,
) -> CertificateSigningRequest {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec![]).unwrap();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, organization);
    params.distinguished_name.push(DnType::CommonName, name);
    params.subject_alt_names.extend(dns.map(|name| SanType::DnsName(name.try_into().unwrap())));
    let pem = params.serialize_request(&key).unwrap().pem().unwrap();
    let usages: Vec<&str> = usages.split(',').collect();
    let conditions: Vec<_> = state
        .split_whitespace()
        .map(|kind| json!({"type": kind, "status": "True", "lastUpdateTime": now().to_string()}))
        .collect();
    let mut object: CertificateSigningRequest = serde_json::from_value(json!({
        "metadata": {"name": "r", "uid": "1", "creationTimestamp": now().to_string()},
        "spec": {"request": "", "signerName": signer, "usages": usages, "username": name, "expirationSeconds": 7200},
        "status": {"conditions": conditions},
    }))
    .unwrap();
    object.spec.request = ByteString(pem.into_bytes());
    object
}

const NODE: &str = "system:node:n1";
const CLIENT_USAGES: &str = "client auth,digital signature,key encipherment";
const SERVER_USAGES: &str = "server auth,digital signature";

#[test]
fn approved_requests_are_signed() {
    let authority = authority();
    let request =
        request("kubernetes.io/kubelet-serving", NODE, "system:nodes", Some("n1.example"), SERVER_USAGES, "Approved");
    let plan = signer::plan(&SigningAuthorities::all(authority.clone()), YEAR, &request, now()).unwrap();
    assert_eq!(plan.writes[0].to_string(), "update /apis/certificates.k8s.io/v1/certificatesigningrequests/r/status");
    let signed: CertificateSigningRequest = serde_json::from_value(plan.writes[0].body().clone()).unwrap();
    let pem = signed.status.unwrap().certificate.unwrap().0;
    let (_, block) = x509_parser::pem::parse_x509_pem(&pem).unwrap();
    let (rest, certificate) = x509_parser::certificate::X509Certificate::from_der(&block.contents).unwrap();
    assert!(rest.is_empty());
    let (_, ca) = x509_parser::pem::parse_x509_pem(authority.certificate_pem.as_bytes()).unwrap();
    let ca = ca.parse_x509().unwrap();
    certificate.verify_signature(Some(ca.public_key())).unwrap();
    assert_eq!(certificate.issuer(), ca.subject());
    assert_eq!(certificate.subject().to_string(), "O=system:nodes, CN=system:node:n1");
    assert_eq!(certificate.validity().not_before.timestamp(), now().as_second() - 300);
    assert_eq!(certificate.validity().not_after.timestamp(), now().as_second() + 7200);
    let usage = certificate.extended_key_usage().unwrap().unwrap().value;
    assert!(usage.server_auth && !usage.client_auth);
    let usage = certificate.key_usage().unwrap().unwrap().value;
    assert!(usage.digital_signature() && !usage.key_encipherment());
    assert!(!certificate.basic_constraints().unwrap().unwrap().value.ca);
    let names = certificate.subject_alternative_name().unwrap().unwrap();
    assert_eq!(names.value.general_names[0].to_string(), "DNSName(n1.example)");
}

#[test]
fn what_a_signer_may_not_give_fails() {
    let authority = authority();
    let check = |signer: &str, name: &str, organization: &str, dns: Option<&str>, usages: &str, expected: &str| {
        let signer = format!("kubernetes.io/{signer}");
        let request = request(&signer, name, organization, dns, usages, "Approved");
        let plan = signer::plan(&SigningAuthorities::all(authority.clone()), YEAR, &request, now()).unwrap();
        let status = &plan.writes[0].body()["status"];
        let said = if status["certificate"].is_string() {
            "signed"
        } else {
            assert_eq!(status["conditions"][1]["reason"], "SignerValidationFailure");
            status["conditions"][1]["message"].as_str().unwrap()
        };
        assert!(said.contains(expected), "{signer} {name}: {said}");
    };
    let kubelet = "kube-apiserver-client-kubelet";
    check(kubelet, NODE, "system:nodes", None, CLIENT_USAGES, "signed");
    check(kubelet, NODE, "system:masters", None, CLIENT_USAGES, "organization");
    check(kubelet, "admin", "system:nodes", None, CLIENT_USAGES, "common name");
    check(kubelet, NODE, "system:nodes", Some("a.example"), CLIENT_USAGES, "subjectAltNames are not allowed");
    check(kubelet, NODE, "system:nodes", None, SERVER_USAGES, "usages");
    check("kubelet-serving", NODE, "system:nodes", None, SERVER_USAGES, "is required");
    check("kube-apiserver-client", "jane", "devs", None, CLIENT_USAGES, "signed");
    check("kube-apiserver-client", "jane", "devs", None, "client auth,cert sign", "usages");
    check("legacy-unknown", "jane", "devs", None, "cert sign", "signed");
}

#[test]
fn signers_may_have_authorities_of_their_own() {
    let authorities = SigningAuthorities { kubelet_serving: Some(authority()), ..SigningAuthorities::default() };
    let signs = |authorities: &SigningAuthorities, name: &str| {
        let request =
            request(&format!("kubernetes.io/{name}"), "system:node:a", "system:nodes", Some("a"), SERVING, "Approved");
        !signer::plan(authorities, YEAR, &request, now()).unwrap().writes.is_empty()
    };
    assert!(signs(&authorities, "kubelet-serving"));
    for other in ["kubelet-client", "kube-apiserver-client", "legacy-unknown"] {
        assert!(!signs(&authorities, other), "{other}");
    }
    let both = SigningAuthorities { common: Some(authority()), ..authorities };
    assert_ne!(
        both.of("kubernetes.io/kubelet-serving").unwrap().certificate_pem,
        both.of("kubernetes.io/legacy-unknown").unwrap().certificate_pem
    );
    assert!(both.of("example.com/mine").is_none());
}

#[test]
fn only_approved_requests_of_our_signers_are_looked_at() {
    let authority = authority();
    let writes = |signer: &str, state: &str| {
        let request = request(signer, "jane", "devs", None, CLIENT_USAGES, state);
        signer::plan(&SigningAuthorities::all(authority.clone()), YEAR, &request, now()).unwrap().writes.len()
    };
    let client = "kubernetes.io/kube-apiserver-client";
    assert_eq!(writes(client, "Approved"), 1);
    assert_eq!(writes(client, ""), 0);
    assert_eq!(writes(client, "Approved Denied"), 0);
    assert_eq!(writes(client, "Approved Failed"), 0);
    assert_eq!(writes("example.com/mine", "Approved"), 0);
}

#[test]
fn kubelets_are_recognized() {
    let kubelet = "kubernetes.io/kube-apiserver-client-kubelet";
    let found = |object: &CertificateSigningRequest| -> Vec<&str> {
        approver::recognize(object).iter().map(|one| one.subresource).collect()
    };
    let mut object = request(kubelet, NODE, "system:nodes", None, CLIENT_USAGES, "");
    assert_eq!(found(&object), ["selfnodeclient", "nodeclient"]);
    object.spec.username = Some("system:bootstrap:abcdef".into());
    assert_eq!(found(&object), ["nodeclient"]);
    let write = approver::approve(&object, approver::recognize(&object)[0], now());
    assert_eq!(write.body()["status"]["conditions"][0]["reason"], "AutoApproved");
    assert!(write.to_string().ends_with("/approval"));
    let serving =
        |dns: &str| request("kubernetes.io/kubelet-serving", NODE, "system:nodes", Some(dns), SERVER_USAGES, "");
    assert_eq!(found(&serving("n1")), ["selfnodeserver"]);
    for host in ["n2", "localhost", "kubernetes", "kubernetes.default.svc"] {
        assert!(found(&serving(host)).is_empty(), "{host}");
    }
    assert!(found(&request(kubelet, NODE, "system:nodes", None, CLIENT_USAGES, "Denied")).is_empty());
    assert!(found(&request(kubelet, NODE, "system:masters", None, CLIENT_USAGES, "")).is_empty());
}

#[test]
fn old_requests_go() {
    let check = |state: &str, hours: i64, goes: bool| {
        let request = request("kubernetes.io/legacy-unknown", "jane", "devs", None, CLIENT_USAGES, state);
        let plan = cleaner::plan(&request, now() + SignedDuration::from_hours(hours));
        assert_eq!((!plan.writes.is_empty(), plan.again.is_none()), (goes, goes), "{state} {hours}");
    };
    check("", 23, false);
    check("", 24, true);
    check("Approved", 0, false);
    check("Approved", 1, true);
    check("Denied", 1, true);
    check("Failed", 1, true);
}

/// Whoever changes a request on its way, by whatever trick of encoding, changes nothing of what is read from it.
#[test]
fn a_request_that_was_changed_is_not_read() {
    use base64::Engine;
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["n1".to_owned()]).unwrap();
    params.distinguished_name.push(DnType::CommonName, "system:node:n1");
    params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
    params.subject_alt_names.push(SanType::IpAddress([10, 0, 0, 1].into()));
    let der = params.serialize_request(&key).unwrap().der().to_vec();
    let pem = |der: &[u8]| {
        let text = base64::engine::general_purpose::STANDARD.encode(der);
        format!("-----BEGIN CERTIFICATE REQUEST-----\n{text}\n-----END CERTIFICATE REQUEST-----\n").into_bytes()
    };
    let right = super::request::parse(&pem(&der)).expect("an example");
    assert_eq!((right.common_name.as_str(), right.addresses.len()), ("system:node:n1", 1));
    let words: [&[u8]; 6] = [
        b"\x30\x82",
        b"\x0c\x0esystem:masters",
        b"\x04\x04\x0a\x00\x00\x02",
        b"\x06\x03\x55\x04\x03",
        b"\x87\x04",
        b"\x30\x00",
    ];
    fuzz::bytes("csr", &[der], &words, |input| {
        if let Ok(read) = super::request::parse(&pem(input)) {
            assert_eq!(read, right);
        }
    });
}
