//! What a certificate signing request asks for, and whether its signer may give it.

use std::net::IpAddr;

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::FromDer;

pub(super) const CLIENT: &str = "kubernetes.io/kube-apiserver-client";
pub(super) const KUBELET_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
pub(super) const KUBELET_SERVING: &str = "kubernetes.io/kubelet-serving";
pub(super) const LEGACY: &str = "kubernetes.io/legacy-unknown";

/// A request taken apart.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Parsed {
    pub common_name: String,
    pub organizations: Vec<String>,
    pub dns_names: Vec<String>,
    pub addresses: Vec<IpAddr>,
    /// Mail addresses and URIs, which no node has.
    pub other_names: usize,
    /// As written in the request.
    pub subject: Vec<u8>,
    pub key: Vec<u8>,
    /// The value of the extension with the alternative names.
    pub names: Option<Vec<u8>>,
}

/// What is no request; the requester reads it.
#[derive(Debug, thiserror::Error)]
pub(super) enum ParseError {
    #[error(transparent)]
    Pem(#[from] x509_parser::nom::Err<x509_parser::error::PEMError>),
    #[error("PEM block type must be CERTIFICATE REQUEST")]
    Block,
    #[error(transparent)]
    Request(#[from] x509_parser::nom::Err<x509_parser::error::X509Error>),
    #[error("the request is not signed with its own key: {0}")]
    Signature(#[source] x509_parser::error::X509Error),
}

pub(super) fn parse(pem: &[u8]) -> Result<Parsed, ParseError> {
    let (_, block) = x509_parser::pem::parse_x509_pem(pem)?;
    if block.label != "CERTIFICATE REQUEST" {
        return Err(ParseError::Block);
    }
    let (_, request) = X509CertificationRequest::from_der(&block.contents)?;
    request.verify_signature().map_err(ParseError::Signature)?;
    let info = &request.certification_request_info;
    let texts = |values: Vec<&x509_parser::x509::AttributeTypeAndValue<'_>>| -> Vec<String> {
        values.into_iter().filter_map(|value| value.as_str().ok()).map(str::to_owned).collect()
    };
    let mut parsed = Parsed {
        common_name: texts(info.subject.iter_common_name().collect()).pop().unwrap_or_default(),
        organizations: texts(info.subject.iter_organization().collect()),
        subject: info.subject.as_raw().to_vec(),
        key: info.subject_pki.raw.to_vec(),
        ..Parsed::default()
    };
    let extensions = info.iter_attributes().filter_map(|attribute| match attribute.parsed_attribute() {
        x509_parser::cri_attributes::ParsedCriAttribute::ExtensionRequest(requested) => Some(&requested.extensions),
        _ => None,
    });
    for extension in extensions.flatten() {
        let ParsedExtension::SubjectAlternativeName(names) = extension.parsed_extension() else { continue };
        parsed.names = Some(extension.value.to_vec());
        for name in &names.general_names {
            match name {
                GeneralName::DNSName(name) => parsed.dns_names.push((*name).to_owned()),
                GeneralName::IPAddress(bytes) => match address(bytes) {
                    Some(address) => parsed.addresses.push(address),
                    None => parsed.other_names += 1,
                },
                _ => parsed.other_names += 1,
            }
        }
    }
    Ok(parsed)
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
}

/// Why the signer refuses, if it does.
pub(super) fn refusal(signer: &str, usages: &[String], request: &Parsed) -> Option<&'static str> {
    match signer {
        KUBELET_CLIENT => node_client(usages, request),
        KUBELET_SERVING => node_serving(usages, request),
        CLIENT => {
            let allowed = ["client auth", "digital signature", "key encipherment"];
            are(usages, &["client auth"], &allowed).then_some(()).map_or(
                Some("usages did not match [client auth], optionally [digital signature key encipherment]"),
                |()| None,
            )
        }
        _ => None,
    }
}

/// What the client certificate of a kubelet must be like.
pub(super) fn node_client(usages: &[String], request: &Parsed) -> Option<&'static str> {
    let named = !request.dns_names.is_empty() || !request.addresses.is_empty() || request.other_names > 0;
    let allowed = ["client auth", "digital signature", "key encipherment"];
    match () {
        () if request.organizations != ["system:nodes"] => Some("subject organization is not system:nodes"),
        () if named => Some("DNS, IP, email and URI subjectAltNames are not allowed"),
        () if !are(usages, &["client auth", "digital signature"], &allowed) => {
            Some("usages did not match [client auth digital signature], optionally [key encipherment]")
        }
        () if !request.common_name.starts_with("system:node:") => {
            Some("subject common name does not begin with system:node: prefix")
        }
        () => None,
    }
}

fn node_serving(usages: &[String], request: &Parsed) -> Option<&'static str> {
    let allowed = ["server auth", "digital signature", "key encipherment"];
    match () {
        () if request.organizations != ["system:nodes"] => Some("subject organization is not system:nodes"),
        () if request.dns_names.is_empty() && request.addresses.is_empty() => {
            Some("DNS or IP subjectAltName is required")
        }
        () if request.other_names > 0 => Some("email and URI subjectAltNames are not allowed"),
        () if !are(usages, &["server auth", "digital signature"], &allowed) => {
            Some("usages did not match [digital signature server auth], optionally [key encipherment]")
        }
        () if !request.common_name.starts_with("system:node:") => {
            Some("subject common name does not begin with system:node: prefix")
        }
        () => None,
    }
}

fn are(usages: &[String], required: &[&str], allowed: &[&str]) -> bool {
    required.iter().all(|usage| usages.iter().any(|one| one == usage))
        && usages.iter().all(|usage| allowed.contains(&usage.as_str()))
}

pub(super) fn has_condition(request: &CertificateSigningRequest, kind: &str) -> bool {
    conditions(request).any(|condition| condition.type_ == kind)
}

pub(super) fn conditions(
    request: &CertificateSigningRequest,
) -> impl Iterator<Item = &k8s_openapi::api::certificates::v1::CertificateSigningRequestCondition> {
    request.status.iter().flat_map(|status| status.conditions.iter().flatten())
}

pub(super) fn is_issued(request: &CertificateSigningRequest) -> bool {
    request.status.as_ref().and_then(|status| status.certificate.as_ref()).is_some_and(|bytes| !bytes.0.is_empty())
}
