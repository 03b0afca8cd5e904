//! Names of signers, in the kinds of certificates and in volumes of pods.

use machinery::field::Errors;
use machinery::names;
use machinery::node::Node;

const SIGNER_MAX: usize = 571;
const DOMAIN_MAX: usize = 253;

/// `example.com/signer-name`.
pub(crate) fn name(signer: &Node, errors: &mut Errors) {
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
    if domain.len() > DOMAIN_MAX {
        errors.too_long(signer, DOMAIN_MAX);
    }
    labels(signer, domain, names::dns_label, errors);
    if !domain.contains('.') {
        let detail = "should be a domain with at least two segments separated by dots";
        errors.invalid_value(&signer.path, &(*domain).into(), detail);
    }
    labels(signer, path, names::dns_subdomain, errors);
    if name.len() > SIGNER_MAX {
        errors.too_long(signer, SIGNER_MAX);
    }
}

/// The first part between dots that breaks the rule tells; more would only repeat it.
fn labels(signer: &Node, segment: &str, rule: fn(&str) -> Vec<String>, errors: &mut Errors) {
    let bad = segment.split('.').map(|label| (label, rule(label))).find(|(_, problems)| !problems.is_empty());
    let Some((label, problems)) = bad else { return };
    for problem in problems {
        errors.invalid_value(&signer.path, &segment.into(), format!("validating label {label:?}: {problem}"));
    }
}
