//! What each kind of volume source must say.

use std::collections::BTreeSet;

use crate::common::selector;
use machinery::field::{Errors, Path};
use machinery::names;
use machinery::node::Node;
use machinery::quantity::Quantity;
use serde_json::{Map, Value};

use super::env::{self, Container};
use super::text::{descending_path, dns_label, no_backsteps, one_of, one_of_if_set};
use machinery::meta::{validate_annotations, validate_labels};

const FILE_MODE: &str = "must be a number between 0 and 0777 (octal), both inclusive";
const PARTITION: &str = "must be between 0 and 255, inclusive";
const CSI_DRIVER_MAX: usize = 63;
const TOKEN_SECONDS_MIN: i64 = 600;
const TOKEN_SECONDS_MAX: i64 = 1 << 32;
const HOST_PATH_TYPES: &[&str] =
    &["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];

/// Checks one source of a pod's volume; `kind` is the name of its field.
pub fn validate(errors: &mut Errors, kind: &str, source: &Node) {
    match kind {
        "emptyDir" => empty_dir(errors, source),
        "hostPath" => host_path(errors, source),
        "gitRepo" => {
            required(errors, source, &["repository"]);
            descending_path(errors, &source.path.child("directory"), source.at("directory").value);
        }
        "gcePersistentDisk" => {
            let source = Node::new(source.value, parent_child(source, "persistentDisk"));
            required(errors, &source, &["pdName"]);
            partition(errors, &source);
        }
        "awsElasticBlockStore" => {
            required(errors, source, &["volumeID"]);
            partition(errors, source);
        }
        "secret" => {
            required(errors, source, &["secretName"]);
            files(errors, source);
        }
        "configMap" => {
            required(errors, source, &["name"]);
            files(errors, source);
        }
        "nfs" => nfs(errors, source),
        "iscsi" => iscsi(errors, source),
        "glusterfs" => required(errors, source, &["endpoints", "path"]),
        "flocker" => flocker(errors, source),
        "persistentVolumeClaim" => required(errors, source, &["claimName"]),
        "rbd" => {
            required_list(errors, source, "monitors");
            required(errors, source, &["image"]);
        }
        "cinder" => {
            required(errors, source, &["volumeID"]);
            secret_name(errors, source);
        }
        "cephfs" => required_list(errors, source, "monitors"),
        "quobyte" => quobyte(errors, source),
        "downwardAPI" => {
            mode(errors, &source.at("defaultMode"));
            source.each("items").for_each(|file| downward_file(errors, &file, &source.path));
        }
        "fc" => fibre_channel(errors, source),
        "flexVolume" => flex(errors, source),
        "azureFile" => required(errors, source, &["secretName", "shareName"]),
        "vsphereVolume" => required(errors, source, &["volumePath"]),
        "photonPersistentDisk" => required(errors, source, &["pdID"]),
        "portworxVolume" => required(errors, source, &["volumeID"]),
        "azureDisk" => azure_disk(errors, source),
        "storageos" => storageos(errors, source),
        "projected" => {
            mode(errors, &source.at("defaultMode"));
            projections(errors, source);
        }
        "scaleIO" => required(errors, source, &["gateway", "system", "volumeName"]),
        "csi" => csi(errors, source),
        "ephemeral" => ephemeral(errors, source),
        "image" => {
            required(errors, source, &["reference"]);
            one_of(errors, &source.at("pullPolicy"), &["Always", "IfNotPresent", "Never"]);
        }
        _ => {}
    }
}

fn required(errors: &mut Errors, source: &Node, fields: &[&'static str]) {
    for field in fields {
        if source.text(field).is_empty() {
            errors.required(&source.at(field), "");
        }
    }
}

fn required_list(errors: &mut Errors, source: &Node, field: &'static str) {
    if source.at(field).is_empty() {
        errors.required(&source.at(field), "");
    }
}

/// The path of a sibling of this source, where upstream names another field.
fn parent_child(source: &Node, field: &'static str) -> Path {
    let text = source.path.to_string();
    let parent = text.rsplit_once('.').map_or("", |(parent, _)| parent);
    Path::root().named(parent).child(field)
}

fn mode(errors: &mut Errors, at: &Node) {
    if at.int().is_some_and(|mode| !(0..=0o777).contains(&mode)) {
        errors.invalid(at, FILE_MODE);
    }
}

fn partition(errors: &mut Errors, source: &Node) {
    let at = source.at("partition");
    if at.int().is_some_and(|number| !(0..=255).contains(&number)) {
        errors.invalid(&at, PARTITION);
    }
}

fn secret_name(errors: &mut Errors, source: &Node) {
    let secret = source.at("secretRef");
    if secret.exists() && secret.text("name").is_empty() {
        errors.required(&secret.at("name"), "");
    }
}

fn empty_dir(errors: &mut Errors, source: &Node) {
    let limit = source.at("sizeLimit");
    if Quantity::from_value(limit.value).is_ok_and(|limit| limit.sign() < 0) {
        errors.forbidden(&limit, "SizeLimit field must be a valid resource quantity");
    }
}

/// Also the rule of a persistent volume's host path.
pub fn host_path(errors: &mut Errors, source: &Node) {
    let path = source.at("path");
    if path.str().is_empty() {
        return errors.required(&path, "");
    }
    no_backsteps(errors, &path.path, path.value);
    one_of_if_set(errors, &source.at("type"), HOST_PATH_TYPES);
}

fn files(errors: &mut Errors, source: &Node) {
    mode(errors, &source.at("defaultMode"));
    source.each("items").for_each(|item| key_to_path(errors, &item));
}

fn key_to_path(errors: &mut Errors, item: &Node) {
    required(errors, item, &["key", "path"]);
    super::text::descending_non_reserved_path(errors, &item.at("path"));
    mode(errors, &item.at("mode"));
}

pub fn nfs(errors: &mut Errors, source: &Node) {
    required(errors, source, &["server", "path"]);
    if !source.text("path").starts_with('/') {
        let path = source.text("path").into();
        errors.invalid_value(&source.path.child("path"), &path, "must be an absolute path");
    }
}

fn iscsi(errors: &mut Errors, source: &Node) {
    required(errors, source, &["targetPortal"]);
    let name = source.at("iqn");
    match name.str() {
        "" => errors.required(&name, ""),
        text => iscsi_name(errors, &name.path, text),
    }
    let lun = source.at("lun");
    if lun.int().is_some_and(|lun| !(0..=255).contains(&lun)) {
        errors.invalid(&lun, PARTITION);
    }
    if (source.flag("chapAuthDiscovery") || source.flag("chapAuthSession")) && !source.has("secretRef") {
        errors.required(&source.at("secretRef"), "");
    }
    if source.has("initiatorName") {
        iscsi_name(errors, &source.path.child("initiatorname"), source.text("initiatorName"));
    }
}

fn iscsi_name(errors: &mut Errors, path: &Path, name: &str) {
    let hexadecimal = |text: &str, lengths: &[usize]| {
        lengths.contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    let good = match name.get(..3) {
        Some("iqn") => is_iqn(name),
        Some("eui") => name.strip_prefix("eui.").is_some_and(|text| hexadecimal(text, &[16])),
        Some("naa") => name.strip_prefix("naa.").is_some_and(|text| hexadecimal(text, &[16, 32])),
        _ => {
            let detail = "must be valid format starting with iqn, eui, or naa";
            return errors.invalid_value(path, &name.into(), detail);
        }
    };
    if !good {
        errors.invalid_value(path, &name.into(), "must be valid format");
    }
}

/// `iqn.2001-04.com.example:storage`
fn is_iqn(name: &str) -> bool {
    let Some(rest) = name.strip_prefix("iqn.") else { return false };
    let digits = |text: Option<&str>| text.is_some_and(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    let word = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
    let naming = rest.get(8..).unwrap_or("");
    let host = naming.split(':').next().unwrap_or("");
    digits(rest.get(..4))
        && rest.get(4..5) == Some("-")
        && digits(rest.get(5..7))
        && rest.get(7..8) == Some(".")
        && !host.is_empty()
        && host.bytes().all(word)
}

fn flocker(errors: &mut Errors, source: &Node) {
    let (name, identity) = (source.at("datasetName"), source.at("datasetUUID"));
    match (name.str().is_empty(), identity.str().is_empty()) {
        (true, true) => errors.required(source, "one of datasetName and datasetUUID is required"),
        (false, false) => {
            let detail = "datasetName and datasetUUID can not be specified simultaneously";
            errors.invalid_value(&source.path, &"resource".into(), detail);
        }
        _ => {}
    }
    if name.str().contains('/') {
        errors.invalid(&name, "must not contain '/'");
    }
}

fn quobyte(errors: &mut Errors, source: &Node) {
    let registry = source.at("registry");
    let detail = "must be a host:port pair or multiple pairs separated by commas";
    if registry.str().is_empty() {
        errors.required(&registry, detail);
    } else if source.text("tenant").len() >= 65 {
        errors.required(&source.at("tenant"), "must be a UUID and may not exceed a length of 64 characters");
    } else {
        for pair in registry.str().split(',') {
            if pair.rsplit_once(':').is_none() {
                errors.invalid(&registry, detail);
            }
        }
    }
    required(errors, source, &["volume"]);
}

fn fibre_channel(errors: &mut Errors, source: &Node) {
    let (targets, ids) = (source.at("targetWWNs"), source.at("wwids"));
    if targets.is_empty() && ids.is_empty() {
        errors.required(&targets, "must specify either targetWWNs or wwids, but not both");
    }
    if !targets.is_empty() && !ids.is_empty() {
        errors.invalid(&targets, "targetWWNs and wwids can not be specified simultaneously");
    }
    if !targets.is_empty() {
        let lun = source.at("lun");
        match lun.int() {
            None => errors.required(&lun, "lun is required if targetWWNs is specified"),
            Some(number) if !(0..=255).contains(&number) => errors.invalid(&lun, PARTITION),
            Some(_) => {}
        }
    }
}

fn flex(errors: &mut Errors, source: &Node) {
    required(errors, source, &["driver"]);
    for key in source.at("options").value.as_object().into_iter().flat_map(Map::keys) {
        let namespace = format!(".{}", key.split('/').next().unwrap_or("").to_lowercase());
        if namespace.ends_with(".kubernetes.io") || namespace.ends_with(".k8s.io") {
            let path = source.path.child("options").key(key);
            errors.invalid_value(&path, &key.as_str().into(), "kubernetes.io and k8s.io namespaces are reserved");
        }
    }
}

fn azure_disk(errors: &mut Errors, source: &Node) {
    required(errors, source, &["diskName", "diskURI"]);
    one_of_if_set(errors, &source.at("cachingMode"), &["None", "ReadOnly", "ReadWrite"]);
    one_of_if_set(errors, &source.at("kind"), &["Dedicated", "Managed", "Shared"]);
    let address = source.at("diskURI");
    let (prefix, form) = match source.text("kind") {
        "" => return,
        "Managed" => (
            "/subscriptions/",
            "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}",
        ),
        _ => ("https://", "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"),
    };
    if !address.str().starts_with(prefix) {
        errors.not_supported(&address, &[form]);
    }
}

fn storageos(errors: &mut Errors, source: &Node) {
    let (name, namespace) = (source.at("volumeName"), source.at("volumeNamespace"));
    match name.str() {
        "" => errors.required(&name, ""),
        _ => dns_label(errors, &name),
    }
    if !namespace.str().is_empty() {
        dns_label(errors, &namespace);
    }
    secret_name(errors, source);
}

/// The name of a CSI driver, wherever one is named.
pub fn csi_driver(errors: &mut Errors, driver: &Node) {
    if driver.str().is_empty() {
        errors.required(driver, "");
    }
    if driver.str().len() > CSI_DRIVER_MAX {
        errors.too_long(driver, CSI_DRIVER_MAX);
    }
    for problem in names::dns_subdomain(&driver.str().to_lowercase()) {
        errors.invalid_value(&driver.path, &driver.str().into(), problem);
    }
}

fn csi(errors: &mut Errors, source: &Node) {
    csi_driver(errors, &source.at("driver"));
    let secret = source.at("nodePublishSecretRef");
    if secret.exists() {
        match secret.text("name") {
            "" => errors.required(&secret.at("name"), ""),
            // Upstream reports this one level up.
            name => names::dns_subdomain(name)
                .into_iter()
                .for_each(|problem| errors.invalid_value(&source.path.child("name"), &name.into(), problem)),
        }
    }
}

fn ephemeral(errors: &mut Errors, source: &Node) {
    let claim = source.at("volumeClaimTemplate");
    if !claim.exists() {
        return errors.required(&claim, "");
    }
    let meta = claim.at("metadata");
    validate_annotations(&meta.at("annotations"), errors);
    validate_labels(&meta.at("labels"), errors);
    for (field, _) in meta.entries() {
        if !["annotations", "labels"].contains(&field) {
            let node = Node::new(&Value::Null, meta.path.named(field));
            errors.forbidden(&node, "cannot be set");
        }
    }
    super::claim::spec(errors, &claim.at("spec"));
}

/// One file of a downward volume. Upstream reports its errors at the volume.
fn downward_file(errors: &mut Errors, file: &Node, path: &Path) {
    let file = Node::new(file.value, path.clone());
    required(errors, &file, &["path"]);
    super::text::descending_non_reserved_path(errors, &file.at("path"));
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

fn projections(errors: &mut Errors, volume: &Node) {
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
        _ => super::text::descending_non_reserved_path(errors, &path),
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
    super::text::descending_non_reserved_path(errors, &bundle.at("path"));
}

fn pod_certificate<'a>(errors: &mut Errors, volume: &Node, certificate: &Node<'a>, paths: &mut BTreeSet<&'a str>) {
    const KEY_TYPES: &[&str] = &["ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519", "RSA3072", "RSA4096"];
    const SECONDS: std::ops::RangeInclusive<i64> = 3600..=7_862_400;
    required(errors, certificate, &["signerName"]);
    let key_type = certificate.at("keyType");
    if !KEY_TYPES.contains(&key_type.str()) {
        errors.not_supported(&key_type, KEY_TYPES);
    }
    let seconds = certificate.at("maxExpirationSeconds");
    if seconds.int().is_some_and(|number| !SECONDS.contains(&number)) {
        let detail = match seconds.int().unwrap_or(0) < *SECONDS.start() {
            true => format!("if provided, maxExpirationSeconds must be >= {}", SECONDS.start()),
            false => format!("if provided, maxExpirationSeconds must be <= {}", SECONDS.end()),
        };
        errors.invalid(&seconds, detail);
    }
    let mut any = false;
    for field in ["credentialBundlePath", "keyPath", "certificateChainPath"] {
        let path = certificate.at(field);
        if path.str().is_empty() {
            continue;
        }
        any = true;
        super::text::descending_non_reserved_path(errors, &path);
        if !paths.insert(path.str()) {
            conflicting(errors, volume, path.str());
        }
    }
    if !any {
        errors.required(certificate, "specify at least one of credentialBundlePath, keyPath, and certificateChainPath");
    }
}
