//! Volumes that are put together from other objects: `projected` and `downwardAPI`.

use std::collections::BTreeSet;

use machinery::field::{Errors, Path};
use machinery::names;
use machinery::node::Node;

use super::env::{self, Container};
use super::text::descending_non_reserved_path;
use super::volume_sources::{key_to_path, mode, required};
use crate::certificates::podcertificaterequest::validate as request;
use crate::certificates::signer;
use crate::common::selector;

const TOKEN_SECONDS_MIN: i64 = 600;
const TOKEN_SECONDS_MAX: i64 = 1 << 32;

/// One file of a downward volume. Upstream reports its errors at the volume.
pub(super) fn downward_file(errors: &mut Errors, file: &Node, path: &Path) {
    let file = Node::new(file.value, path.clone());
    required(errors, &file, &["path"]);
    descending_non_reserved_path(errors, &file.at("path"));
    match (file.has("fieldRef"), file.has("resourceFieldRef")) {
        (true, both) => {
            env::field_reference(errors, &file.at("fieldRef"), env::VOLUME_FIELDS);
            if both {
                let detail = "fieldRef and resourceFieldRef can not be specified simultaneously";
                errors.invalid_value(&file.path, &"resource".into(), detail);
            }
        }
        (false, true) => env::resource_reference(errors, &file.at("resourceFieldRef"), Container::Named),
        (false, false) => errors.required(&file, "one of fieldRef and resourceFieldRef is required"),
    }
    mode(errors, &file.at("mode"));
}

pub(super) fn projections(errors: &mut Errors, volume: &Node) {
    let mut paths = BTreeSet::new();
    for source in volume.each("sources") {
        let mut sources = 0;
        for kind in ["secret", "configMap"] {
            let projection = source.at(kind);
            if !projection.exists() {
                continue;
            }
            sources += 1;
            required(errors, &projection, &["name"]);
            for item in projection.each("items") {
                key_to_path(errors, &item);
                let path = item.text("path");
                if !path.is_empty() && !paths.insert(path) {
                    conflicting(errors, volume, projection.text("name"));
                }
            }
        }
        let downward = source.at("downwardAPI");
        if downward.exists() {
            sources += 1;
            for file in downward.each("items") {
                downward_file(errors, &file, &downward.path);
                let path = file.text("path");
                if !path.is_empty() && !paths.insert(path) {
                    conflicting(errors, volume, path);
                }
            }
        }
        if source.has("serviceAccountToken") {
            sources += 1;
            token(errors, volume, &source.at("serviceAccountToken"));
        }
        let bundle = source.at("clusterTrustBundle");
        if bundle.exists() {
            sources += 1;
            trust_bundle(errors, &bundle);
            if !paths.insert(bundle.text("path")) {
                conflicting(errors, volume, bundle.text("path"));
            }
        }
        let certificate = source.at("podCertificate");
        if certificate.exists() {
            sources += 1;
            pod_certificate(errors, volume, &certificate, &mut paths);
        }
        if sources > 1 {
            errors.forbidden(&source, "may not specify more than 1 volume type per source");
        }
    }
}

fn conflicting(errors: &mut Errors, volume: &Node, value: &str) {
    errors.invalid_value(&volume.path, &value.into(), "conflicting duplicate paths");
}

fn token(errors: &mut Errors, volume: &Node, token: &Node) {
    let seconds = token.at("expirationSeconds");
    if seconds.int().unwrap_or(0) < TOKEN_SECONDS_MIN {
        errors.invalid(&seconds, "may not specify a duration less than 10 minutes");
    }
    if seconds.int().unwrap_or(0) > TOKEN_SECONDS_MAX {
        errors.invalid(&seconds, "may not specify a duration larger than 2^32 seconds");
    }
    // Upstream reports the path at the volume.
    let path = Node::new(token.at("path").value, volume.path.child("path"));
    match path.str() {
        "" => errors.required(&path, ""),
        _ => descending_non_reserved_path(errors, &path),
    }
}

fn trust_bundle(errors: &mut Errors, bundle: &Node) {
    let (name, signer, labels) = (bundle.at("name"), bundle.at("signerName"), bundle.at("labelSelector"));
    match (name.exists(), signer.exists()) {
        (true, true) => errors.invalid(bundle, "only one of name and signerName may be used"),
        (true, false) => {
            if name.str().is_empty() {
                errors.required(&name, "must be a valid object name");
            }
            let last = name.str().rsplit(':').next().unwrap_or("");
            for problem in names::dns_subdomain(last) {
                errors.invalid(&name, format!("not a valid clustertrustbundlename: {problem}"));
            }
            if labels.exists() {
                errors.invalid(&labels, "labelSelector must be unset if name is specified");
            }
        }
        (false, true) => {
            if signer.str().is_empty() {
                errors.required(&signer, "must be a valid signer name");
            }
            selector::validate(&labels, errors);
        }
        (false, false) => errors.required(bundle, "either name or signerName must be specified"),
    }
    required(errors, bundle, &["path"]);
    descending_non_reserved_path(errors, &bundle.at("path"));
}

fn pod_certificate<'a>(errors: &mut Errors, volume: &Node, certificate: &Node<'a>, paths: &mut BTreeSet<&'a str>) {
    const KEY_TYPES: &[&str] = &["RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"];
    const SECONDS_MIN: i64 = 3600;
    signer::name(&certificate.at("signerName"), errors);
    request::user_annotations(&certificate.at("userAnnotations"), errors);
    let key_type = certificate.at("keyType");
    if !KEY_TYPES.contains(&key_type.str()) {
        errors.not_supported(&key_type, KEY_TYPES);
    }
    let seconds = certificate.at("maxExpirationSeconds");
    if let Some(number) = seconds.int() {
        let most = request::seconds_max(certificate.text("signerName"));
        if number < SECONDS_MIN {
            errors.invalid(&seconds, format!("if provided, maxExpirationSeconds must be >= {SECONDS_MIN}"));
        }
        if number > most {
            errors.invalid(&seconds, format!("if provided, maxExpirationSeconds must be <= {most}"));
        }
    }
    let mut any = false;
    for field in ["credentialBundlePath", "keyPath", "certificateChainPath"] {
        let path = certificate.at(field);
        if path.str().is_empty() {
            continue;
        }
        any = true;
        descending_non_reserved_path(errors, &path);
        if !paths.insert(path.str()) {
            conflicting(errors, volume, path.str());
        }
    }
    if !any {
        errors.required(certificate, "specify at least one of credentialBundlePath, keyPath, and certificateChainPath");
    }
}
