//! Validation of ClusterTrustBundle: its name carries its signer, and its certificates are those of authorities.

use std::collections::BTreeMap;

use machinery::field::{Errors, FieldError, Problem};
use machinery::names;
use machinery::node::Node;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::super::{pem, signer};
use crate::check;

const BUNDLE_BYTES_MAX: usize = 1024 * 1024;

pub(super) fn validate(bundle: &Node, errors: &mut Errors) {
    names_fit(bundle, errors);
    anchors(&bundle.at("spec").at("trustBundle"), errors);
}

/// Certificates that do not change are not read again: what parsers accept changes with time.
pub(super) fn validate_update(new: &Node, old: &Node, errors: &mut Errors) {
    names_fit(new, errors);
    let (spec, old) = (new.at("spec"), old.at("spec"));
    if spec.text("trustBundle") != old.text("trustBundle") {
        anchors(&spec.at("trustBundle"), errors);
    }
    check::immutable(&spec.at("signerName"), &old.at("signerName"), errors);
}

fn names_fit(bundle: &Node, errors: &mut Errors) {
    let signer = bundle.at("spec").at("signerName");
    let name = bundle.at("metadata").at("name");
    let problems = match signer.str() {
        "" if name.str().contains(':') => {
            vec![r#"ClusterTrustBundle without signer name must not have ":" in its name"#.to_owned()]
        }
        "" => names::dns_subdomain(name.str()),
        signer => {
            let prefix = format!("{}:", signer.replace('/', ":"));
            match name.str().strip_prefix(&prefix) {
                Some(rest) => names::dns_subdomain(rest),
                None => vec![format!("ClusterTrustBundle for signerName {signer} must be named with prefix {prefix}")],
            }
        }
    };
    check::rule(&name, problems, errors);
    if !signer.str().is_empty() {
        signer::name(&signer, errors);
    }
}

fn anchors(bundle: &Node, errors: &mut Errors) {
    if bundle.str().len() > BUNDLE_BYTES_MAX {
        errors.too_long(bundle, BUNDLE_BYTES_MAX);
        return;
    }
    let mut refuse =
        |detail: String| errors.push(FieldError::new(Problem::Invalid, &bundle.path, "\"<value omitted>\"", detail));
    let blocks = pem::blocks(bundle.str().as_bytes());
    let problems: Vec<String> = blocks
        .iter()
        .enumerate()
        .filter_map(|(index, block)| problem(block).map(|why| format!("entry {index} {why}")))
        .collect();
    if !problems.is_empty() {
        problems.into_iter().for_each(refuse);
        return;
    }
    if blocks.is_empty() {
        refuse("at least one trust anchor must be provided".into());
    }
    let mut places: BTreeMap<&[u8], Vec<String>> = BTreeMap::new();
    for (index, block) in blocks.iter().enumerate() {
        places.entry(&block.der).or_default().push(index.to_string());
    }
    for indices in places.values().filter(|indices| indices.len() > 1) {
        refuse(format!("duplicate trust anchor (indices [{}])", indices.join(" ")));
    }
}

fn problem(block: &pem::Block) -> Option<String> {
    if block.label != "CERTIFICATE" {
        return Some(format!("has bad block type: {}", block.label));
    }
    if block.headers {
        return Some("has PEM block headers".into());
    }
    let Ok((rest, certificate)) = X509Certificate::from_der(&block.der) else {
        return Some("does not parse as X.509".into());
    };
    if !rest.is_empty() {
        return Some("does not parse as X.509".into());
    }
    let is_authority = certificate.basic_constraints().is_ok_and(|found| found.is_some_and(|found| found.value.ca));
    if is_authority { None } else { Some("does not have the CA bit set".into()) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::testing::Rules;

    const AUTHORITY: &str = include_str!("testdata/authority.pem");
    const OTHER: &str = include_str!("testdata/other.pem");
    const LEAF: &str = include_str!("testdata/leaf.pem");

    fn rules() -> Rules {
        Rules::of(json!({
            "apiVersion": "certificates.k8s.io/v1beta1", "kind": "ClusterTrustBundle",
            "metadata": {"name": "example.com:mesh:roots"},
            "spec": {"signerName": "example.com/mesh", "trustBundle": format!("# both roots\n{AUTHORITY}{OTHER}")},
        }))
    }

    #[test]
    fn the_name_carries_the_signer() {
        rules().create(
            json!({"metadata": {"name": "roots"}}),
            &[r#"metadata.name: Invalid value: "roots": ClusterTrustBundle for signerName example.com/mesh must be named with prefix example.com:mesh:"#],
        );
        rules().create(
            json!({"spec": {"signerName": null}}),
            &[r#"metadata.name: Invalid value: "example.com:mesh:roots": ClusterTrustBundle without signer name must not have ":" in its name"#],
        );
        rules().create(json!({"metadata": {"name": "roots"}, "spec": {"signerName": null}}), &[]);
    }

    #[test]
    fn only_certificates_of_authorities_and_each_once() {
        let check = |bundle: &str, expected: &str| {
            let expected = format!("spec.trustBundle: Invalid value: \"<value omitted>\": {expected}");
            rules().create(json!({"spec": {"trustBundle": bundle}}), &[&expected]);
        };
        check("", "at least one trust anchor must be provided");
        check(LEAF, "entry 0 does not have the CA bit set");
        check(&format!("{AUTHORITY}{OTHER}{AUTHORITY}"), "duplicate trust anchor (indices [0 2])");
        check(&AUTHORITY.replace("CERTIFICATE", "X"), "entry 0 has bad block type: X");
        check(&AUTHORITY.replacen("-----\n", "-----\na: b\n\n", 1), "entry 0 has PEM block headers");
        check("-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n", "entry 0 does not parse as X.509");
    }

    #[test]
    fn the_signer_stays() {
        rules().update(
            json!({"metadata": {"name": "example.com:other:roots"}, "spec": {"signerName": "example.com/other"}}),
            &[r#"spec.signerName: Invalid value: "example.com/other": field is immutable"#],
        );
    }
}
