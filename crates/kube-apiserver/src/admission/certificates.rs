//! CertificateApproval, CertificateSigning, CertificateSubjectRestriction and ClusterTrustBundleAttest: who may do
//! what with which signer, and one subject that no client may ask for.

use base64::Engine;
use machinery::status::Status;
use serde_json::Value;
use x509_parser::prelude::{FromDer, X509CertificationRequest};

use super::{Operation, Plugin, Request};
use crate::authz::MASTERS;

const GROUP: &str = "certificates.k8s.io";
const REQUESTS: &str = "certificatesigningrequests";
const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";

pub struct CertificateApproval;

#[async_trait::async_trait]
impl Plugin for CertificateApproval {
    fn name(&self) -> &'static str {
        "CertificateApproval"
    }

    async fn validate(&self, request: &Request<'_>, object: Option<&Value>) -> Result<(), Status> {
        if !request.is_for(GROUP, REQUESTS) || request.subresource != "approval" {
            return Ok(());
        }
        demand(
            request,
            "approve",
            signer(request.old),
            object,
            "user not permitted to approve requests with signerName",
        )
        .await
    }
}

pub struct CertificateSigning;

#[async_trait::async_trait]
impl Plugin for CertificateSigning {
    fn name(&self) -> &'static str {
        "CertificateSigning"
    }

    async fn validate(&self, request: &Request<'_>, object: Option<&Value>) -> Result<(), Status> {
        if !request.is_for(GROUP, REQUESTS) || request.subresource != "status" {
            return Ok(());
        }
        let part = |object: Option<&Value>, path: &str| object.and_then(|object| object.pointer(path)).cloned();
        let same = |path: &str| part(object, path) == part(request.old, path);
        if same("/status/certificate") && same("/status/conditions") {
            return Ok(());
        }
        demand(request, "sign", signer(request.old), object, "user not permitted to sign requests with signerName")
            .await
    }
}

pub struct ClusterTrustBundleAttest;

#[async_trait::async_trait]
impl Plugin for ClusterTrustBundleAttest {
    fn name(&self) -> &'static str {
        "ClusterTrustBundleAttest"
    }

    async fn validate(&self, request: &Request<'_>, object: Option<&Value>) -> Result<(), Status> {
        let writes = matches!(request.operation, Operation::Create | Operation::Update);
        let name = signer(object);
        if !writes || name.is_empty() || !request.is(GROUP, "clustertrustbundles") {
            return Ok(());
        }
        demand(request, "attest", name, object, "user not permitted to attest for signerName").await
    }
}

pub struct CertificateSubjectRestriction;

#[async_trait::async_trait]
impl Plugin for CertificateSubjectRestriction {
    fn name(&self) -> &'static str {
        "CertificateSubjectRestriction"
    }

    async fn validate(&self, request: &Request<'_>, object: Option<&Value>) -> Result<(), Status> {
        let Some(object) = object.filter(|_| request.operation == Operation::Create && request.is(GROUP, REQUESTS))
        else {
            return Ok(());
        };
        if signer(Some(object)) != CLIENT_SIGNER {
            return Ok(());
        }
        let refuse = |why: String| request.forbidden(Some(object), &why);
        let subject = subject(object).map_err(|why| refuse(format!("failed to parse CSR: {why}")))?;
        if subject.organizations.iter().any(|group| group == MASTERS) {
            return Err(refuse(format!("use of {CLIENT_SIGNER} signer with {MASTERS} group is not allowed")));
        }
        Ok(())
    }
}

fn signer(object: Option<&Value>) -> &str {
    object.and_then(|object| object.pointer("/spec/signerName")).and_then(Value::as_str).unwrap_or("")
}

async fn demand(
    request: &Request<'_>,
    verb: &str,
    signer: &str,
    object: Option<&Value>,
    why: &str,
) -> Result<(), Status> {
    if may(request, verb, signer).await { Ok(()) } else { Err(request.forbidden(object, format!("{why} {signer:?}"))) }
}

/// Whether the user has the right on the signer itself, or on all signers of its domain.
pub(super) async fn may(request: &Request<'_>, verb: &str, signer: &str) -> bool {
    let domain = format!("{}/*", signer.split('/').next().unwrap_or(""));
    for name in [signer, &domain] {
        if request.call.may(verb, GROUP, "signers", "", "", name).await {
            return true;
        }
    }
    false
}

/// Whom a certificate is asked for.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Subject {
    pub common_name: String,
    pub organizations: Vec<String>,
}

/// Why a request for a certificate cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SubjectError {
    #[error(transparent)]
    Base64(#[from] base64::DecodeError),
    #[error("PEM block type must be CERTIFICATE REQUEST")]
    Pem,
    #[error(transparent)]
    Request(#[from] x509_parser::nom::Err<x509_parser::error::X509Error>),
}

/// The subject in a CertificateSigningRequest.
pub fn subject(object: &Value) -> Result<Subject, SubjectError> {
    let text = object.pointer("/spec/request").and_then(Value::as_str).unwrap_or("");
    let pem = base64::engine::general_purpose::STANDARD.decode(text)?;
    let (_, pem) = x509_parser::pem::parse_x509_pem(&pem).map_err(|_| SubjectError::Pem)?;
    if pem.label != "CERTIFICATE REQUEST" {
        return Err(SubjectError::Pem);
    }
    let (_, parsed) = X509CertificationRequest::from_der(&pem.contents)?;
    let subject = &parsed.certification_request_info.subject;
    let texts = |attribute: &x509_parser::x509::AttributeTypeAndValue<'_>| attribute.as_str().map(String::from).ok();
    Ok(Subject {
        common_name: subject.iter_common_name().filter_map(texts).last().unwrap_or_default(),
        organizations: subject.iter_organization().filter_map(texts).collect(),
    })
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
    use serde_json::json;

    use super::*;

    #[test]
    fn the_subject_is_read() {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "system:node:n");
        params.distinguished_name.push(DnType::OrganizationName, MASTERS);
        let key = KeyPair::generate().expect("a key");
        let pem = params.serialize_request(&key).and_then(|request| request.pem()).expect("a request");
        let object = json!({"spec": {"request": base64::engine::general_purpose::STANDARD.encode(pem)}});
        let expected = Subject { common_name: "system:node:n".into(), organizations: vec![MASTERS.into()] };
        assert_eq!(subject(&object).unwrap(), expected);
        assert!(subject(&json!({"spec": {"request": "bm90aGluZw=="}})).is_err());
        assert!(subject(&json!({})).is_err());
    }
}
