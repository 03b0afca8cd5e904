//! What each kind of volume source must say.

use machinery::field::{Errors, Path};
use machinery::names;
use machinery::node::Node;
use machinery::quantity::Quantity;
use serde_json::{Map, Value};

use super::projected::{downward_file, projections};
use super::text::{descending_path, dns_label, no_backsteps, one_of, one_of_if_set};
use crate::core::persistentvolumeclaim;
use machinery::meta::{validate_annotations, validate_labels};

const FILE_MODE: &str = "must be a number between 0 and 0777 (octal), both inclusive";
const PARTITION: &str = "must be between 1 and 255, inclusive";
const LUN: &str = "must be between 0 and 255, inclusive";
const CSI_DRIVER_MAX: usize = 63;
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

pub(super) fn required(errors: &mut Errors, source: &Node, fields: &[&'static str]) {
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

pub(super) fn mode(errors: &mut Errors, at: &Node) {
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

pub(super) fn key_to_path(errors: &mut Errors, item: &Node) {
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
        errors.invalid(&lun, LUN);
    }
    if (source.flag("chapAuthDiscovery") || source.flag("chapAuthSession")) && !source.has("secretRef") {
        errors.required(&source.at("secretRef"), "");
    }
    if source.has("initiatorName") {
        iscsi_name(errors, &source.path.child("initiatorname"), source.text("initiatorName"));
    }
}

fn iscsi_name(errors: &mut Errors, path: &Path, name: &str) {
    let letters = |prefix: &str, count: usize| {
        let rest = name.strip_prefix(prefix).and_then(|rest| rest.get(1..)).unwrap_or("");
        rest.len() == count && rest.bytes().all(|byte| byte.is_ascii_alphanumeric())
    };
    let good = match name.get(..3) {
        Some("iqn") => is_iqn(name),
        Some("eui") => letters("eui", 16),
        Some("naa") => letters("naa", 32),
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
    let digits = |text: &str, count: usize| text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit());
    let host = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
    let target = |c: char| !c.is_whitespace() && !",;*&$|".contains(c);
    let parts = || {
        let (year, rest) = name.strip_prefix("iqn.")?.split_once('-')?;
        let (month, rest) = rest.split_once('.')?;
        let (authority, name) = rest.split_once(':')?;
        Some((year, month, authority, name))
    };
    parts().is_some_and(|(year, month, authority, name)| {
        digits(year, 4)
            && digits(month, 2)
            && !authority.is_empty()
            && authority.bytes().all(host)
            && !name.is_empty()
            && name.chars().all(target)
    })
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
            Some(number) if !(0..=255).contains(&number) => errors.invalid(&lun, LUN),
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
        return errors.required(driver, "");
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
    template_metadata(errors, &claim.at("metadata"));
    persistentvolumeclaim::validate::spec(&claim.at("spec"), errors);
}

/// Metadata that others are made from: labels and annotations alone.
pub(crate) fn template_metadata(errors: &mut Errors, meta: &Node) {
    validate_annotations(&meta.at("annotations"), errors);
    validate_labels(&meta.at("labels"), errors);
    for (field, _) in meta.entries() {
        if !["annotations", "labels"].contains(&field) {
            let node = Node::new(&Value::Null, meta.path.named(field));
            errors.forbidden(&node, "cannot be set");
        }
    }
}
