//! Names of signers, in CertificateSigningRequest and ClusterTrustBundle.

use machinery::field::Errors;
use machinery::names;
use machinery::node::Node;

const SIGNER_MAX: usize = 571;

/// `example.com/signer-name`.
pub(super) fn name(signer: &Node, errors: &mut Errors) {
    let name = signer.str();
    if name.is_empty() {
        errors.required(signer, "");
        return;
    }
    let segments: Vec<&str> = name.split('/').collect();
    let [domain, path] = segments.as_slice() else {
        errors.invalid(signer, "must be a fully qualified domain and path of the form 'example.com/signer-name'");
        return;
    };
    if domain.is_empty() || path.is_empty() {
        errors.invalid(signer, "must be a fully qualified domain and path of the form 'example.com/signer-name'");
        return;
    }
    if name.len() > SIGNER_MAX {
        errors.too_long(signer, SIGNER_MAX);
        return;
    }
    for problem in names::dns_subdomain(domain) {
        errors.invalid_value(&signer.path, &(*domain).into(), format!("validating label {domain:?}: {problem}"));
    }
    if domain.split('.').count() < 2 {
        errors.invalid_value(
            &signer.path,
            &(*domain).into(),
            "should be a domain with at least two segments separated by dots",
        );
    }
    for problem in names::dns_subdomain(path) {
        errors.invalid_value(&signer.path, &(*path).into(), format!("validating label {path:?}: {problem}"));
    }
}
