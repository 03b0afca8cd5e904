//! Validation of PersistentVolume sources. Exactly one must be given.

use machinery::field::Errors;
use machinery::names;
use machinery::node::Node;
use serde_json::json;

use crate::core::check;
use crate::storage::driver_name;

type Rule = fn(source: &Node, volume_name: &str, errors: &mut Errors);

/// One kind of source: its field, the field as upstream's messages name it, and its rule.
pub(super) struct Source {
    pub field: &'static str,
    shown: &'static str,
    refused: &'static str,
    rule: Rule,
}

const fn source(field: &'static str, rule: Rule) -> Source {
    Source { field, shown: field, refused: field, rule }
}

/// In the order upstream looks at them: the first one found is checked, the others are refused.
pub(super) const SOURCES: &[Source] = &[
    source("hostPath", |node, _, errors| host_path(node, errors)),
    Source { shown: "persistentDisk", ..source("gcePersistentDisk", |node, _, errors| disk(node, "pdName", errors)) },
    source("awsElasticBlockStore", |node, _, errors| disk(node, "volumeID", errors)),
    source("glusterfs", |node, _, errors| glusterfs(node, errors)),
    source("flocker", |node, _, errors| flocker(node, errors)),
    source("nfs", |node, _, errors| nfs(node, errors)),
    source("rbd", |node, _, errors| {
        monitors(node, errors);
        required(node, &["image"], errors);
    }),
    source("quobyte", |node, _, errors| quobyte(node, errors)),
    Source { refused: "cephFS", ..source("cephfs", |node, _, errors| monitors(node, errors)) },
    source("iscsi", iscsi),
    source("cinder", |node, _, errors| {
        required(node, &["volumeID"], errors);
        secret(&node.at("secretRef"), errors);
    }),
    source("fc", |node, _, errors| fibre_channel(node, errors)),
    source("flexVolume", |node, _, errors| flex(node, errors)),
    source("azureFile", |node, _, errors| azure_file(node, errors)),
    source("vsphereVolume", |node, _, errors| required(node, &["volumePath"], errors)),
    source("photonPersistentDisk", |node, _, errors| required(node, &["pdID"], errors)),
    source("portworxVolume", |node, _, errors| required(node, &["volumeID"], errors)),
    source("azureDisk", |node, _, errors| azure_disk(node, errors)),
    source("scaleIO", |node, _, errors| required(node, &["gateway", "system", "volumeName"], errors)),
    source("local", |node, _, errors| path_without_backsteps(&node.at("path"), errors)),
    source("storageos", |node, _, errors| storageos(node, errors)),
    source("csi", |node, _, errors| csi(node, errors)),
];

/// Checks the one source of a volume's spec.
pub(super) fn validate(spec: &Node, volume_name: &str, node_affinity_given: bool, errors: &mut Errors) {
    let mut found = false;
    for source in SOURCES {
        let node = spec.at(source.field);
        if !node.exists() {
            continue;
        }
        if found && source.field != "flexVolume" {
            let refused = Node::new(node.value, spec.path.child(source.refused));
            errors.forbidden(&refused, "may not specify more than 1 volume type");
            continue;
        }
        found = true;
        (source.rule)(&Node::new(node.value, spec.path.child(source.shown)), volume_name, errors);
        if source.field == "local" && !node_affinity_given {
            errors.required(&spec.at("nodeAffinity"), "Local volume requires node affinity");
        }
    }
    if !found {
        errors.required(spec, "must specify a volume type");
    }
}

fn required(node: &Node, fields: &[&'static str], errors: &mut Errors) {
    for field in fields {
        check::required_text(&node.at(field), errors);
    }
}

fn host_path(node: &Node, errors: &mut Errors) {
    const TYPES: [&str; 8] =
        ["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];
    let path = node.at("path");
    path_without_backsteps(&path, errors);
    if !path.str().is_empty() {
        check::one_of(&node.at("type"), &TYPES, errors);
    }
}

fn path_without_backsteps(path: &Node, errors: &mut Errors) {
    check::required_text(path, errors);
    if path.str().split('/').any(|part| part == "..") {
        check::invalid_text(path, "must not contain '..'", errors);
    }
}

fn disk(node: &Node, id: &'static str, errors: &mut Errors) {
    required(node, &[id], errors);
    let partition = node.at("partition");
    if partition.int().is_some_and(|number| !(0..=255).contains(&number)) {
        errors.invalid(&partition, "must be between 0 and 255, inclusive");
    }
}

fn glusterfs(node: &Node, errors: &mut Errors) {
    required(node, &["endpoints", "path"], errors);
    let namespace = node.at("endpointsNamespace");
    if namespace.exists() {
        match namespace.str() {
            "" => check::invalid_text(
                &namespace,
                "if the endpointnamespace is set, it must be a valid namespace name",
                errors,
            ),
            text => check::text(&namespace, names::dns_label(text), errors),
        }
    }
}

fn flocker(node: &Node, errors: &mut Errors) {
    let (name, uuid) = (node.at("datasetName"), node.at("datasetUUID"));
    match (name.str().is_empty(), uuid.str().is_empty()) {
        (true, true) => errors.required(node, "one of datasetName and datasetUUID is required"),
        (false, false) => errors.invalid_value(
            &node.path,
            &json!("resource"),
            "datasetName and datasetUUID can not be specified simultaneously",
        ),
        _ => {}
    }
    if name.str().contains('/') {
        check::invalid_text(&name, "must not contain '/'", errors);
    }
}

fn nfs(node: &Node, errors: &mut Errors) {
    required(node, &["server", "path"], errors);
    if !node.text("path").starts_with('/') {
        check::invalid_text(&node.at("path"), "must be an absolute path", errors);
    }
}

fn monitors(node: &Node, errors: &mut Errors) {
    if node.at("monitors").is_empty() {
        errors.required(&node.at("monitors"), "");
    }
}

fn quobyte(node: &Node, errors: &mut Errors) {
    const PAIRS: &str = "must be a host:port pair or multiple pairs separated by commas";
    let registry = node.at("registry");
    if registry.str().is_empty() {
        errors.required(&registry, PAIRS);
    } else if node.text("tenant").len() >= 65 {
        errors.required(&node.at("tenant"), "must be a UUID and may not exceed a length of 64 characters");
    } else {
        let is_pair =
            |pair: &str| pair.rsplit_once(':').is_some_and(|(host, _)| !host.contains(':') || host.starts_with('['));
        for _ in registry.str().split(',').filter(|pair| !is_pair(pair)) {
            check::invalid_text(&registry, PAIRS, errors);
        }
    }
    required(node, &["volume"], errors);
}

fn iscsi(node: &Node, volume_name: &str, errors: &mut Errors) {
    const FORMAT: &str = "must be valid format";
    required(node, &["targetPortal"], errors);
    let iqn = node.at("iqn");
    if iqn.str().is_empty() {
        errors.required(&iqn, "");
    } else if !is_initiator(iqn.str()) {
        check::invalid_text(&iqn, FORMAT, errors);
    }
    let lun = node.at("lun");
    if lun.int().is_some_and(|number| !(0..=255).contains(&number)) {
        errors.invalid(&lun, "must be between 0 and 255, inclusive");
    }
    let reference = node.at("secretRef");
    if (node.flag("chapAuthDiscovery") || node.flag("chapAuthSession")) && !reference.exists() {
        errors.required(&reference, "");
    }
    if reference.exists() {
        check::required_text(&reference.at("name"), errors);
    }
    let initiator = node.at("initiatorName");
    if initiator.exists() {
        let initiator = Node::new(initiator.value, node.path.child("initiatorname"));
        if !is_initiator(initiator.str()) {
            check::invalid_text(&initiator, FORMAT, errors);
        }
        let portal = node.text("targetPortal");
        if volume_name.len() + 1 + portal.len() > 64 {
            let detail = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if \
                          iscsi.initiatorName is specified.";
            errors.invalid_value(&node.path.child("targetportal"), &json!(portal), detail);
        }
    }
}

/// `iqn.2015-02.example.com:name`, `eui.` and 16 or `naa.` and 32 letters and digits.
fn is_initiator(text: &str) -> bool {
    let word =
        |rest: &str, length: usize| rest.len() == length && rest.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if let Some(rest) = text.strip_prefix("iqn.") {
        let Some((authority, name)) = rest.split_once(':') else { return false };
        let mut parts = authority.splitn(2, '.');
        let (date, host) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""));
        let bytes = date.as_bytes();
        let digits = |range: std::ops::Range<usize>| bytes[range].iter().all(u8::is_ascii_digit);
        return bytes.len() == 7
            && bytes[4] == b'-'
            && digits(0..4)
            && digits(5..7)
            && !host.is_empty()
            && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte))
            && !name.is_empty()
            && !name.contains(|letter: char| ",;*&$|".contains(letter) || letter.is_whitespace());
    }
    match text.split_at_checked(4) {
        Some((prefix, rest)) if prefix.starts_with("eui") => word(rest, 16),
        Some((prefix, rest)) if prefix.starts_with("naa") => word(rest, 32),
        _ => false,
    }
}

/// A reference to a secret, where there is one: both parts are needed.
fn secret(reference: &Node, errors: &mut Errors) {
    if reference.exists() {
        required(reference, &["name", "namespace"], errors);
    }
}

fn fibre_channel(node: &Node, errors: &mut Errors) {
    let (targets, ids, lun) = (node.at("targetWWNs"), node.at("wwids"), node.at("lun"));
    match (targets.is_empty(), ids.is_empty()) {
        (true, true) => errors.required(&targets, "must specify either targetWWNs or wwids, but not both"),
        (false, false) => errors.invalid(&targets, "targetWWNs and wwids can not be specified simultaneously"),
        _ => {}
    }
    if !targets.is_empty() {
        match lun.int() {
            None => errors.required(&lun, "lun is required if targetWWNs is specified"),
            Some(0..=255) => {}
            Some(_) => errors.invalid(&lun, "must be between 0 and 255, inclusive"),
        }
    }
}

fn flex(node: &Node, errors: &mut Errors) {
    required(node, &["driver"], errors);
    for (key, option) in node.at("options").entries() {
        let namespace = key.split('/').next().unwrap_or(key).to_lowercase();
        let reserved = |domain: &str| namespace == domain || namespace.ends_with(&format!(".{domain}"));
        if reserved("kubernetes.io") || reserved("k8s.io") {
            errors.invalid_value(&option.path, &json!(key), "kubernetes.io and k8s.io namespaces are reserved");
        }
    }
}

fn azure_file(node: &Node, errors: &mut Errors) {
    required(node, &["secretName", "shareName"], errors);
    let namespace = node.at("secretNamespace");
    if namespace.exists() {
        check::required_text(&namespace, errors);
    }
}

fn azure_disk(node: &Node, errors: &mut Errors) {
    const MANAGED: &str =
        "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}";
    const BLOB: &str = "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd";
    required(node, &["diskName", "diskURI"], errors);
    let (mode, kind, uri) = (node.at("cachingMode"), node.at("kind"), node.at("diskURI"));
    if mode.exists() {
        check::one_of(&mode, &["None", "ReadOnly", "ReadWrite"], errors);
    }
    if kind.exists() {
        check::one_of(&kind, &["Dedicated", "Managed", "Shared"], errors);
        let (prefix, example) = match kind.str() {
            "Managed" => ("/subscriptions/", MANAGED),
            _ => ("https://", BLOB),
        };
        if !uri.str().starts_with(prefix) {
            check::not_supported(&uri, uri.str(), &[example], errors);
        }
    }
}

fn storageos(node: &Node, errors: &mut Errors) {
    let (name, namespace) = (node.at("volumeName"), node.at("volumeNamespace"));
    match name.str() {
        "" => errors.required(&name, ""),
        text => check::text(&name, names::dns_label(text), errors),
    }
    if !namespace.str().is_empty() {
        check::text(&namespace, names::dns_label(namespace.str()), errors);
    }
    secret(&node.at("secretRef"), errors);
}

fn csi(node: &Node, errors: &mut Errors) {
    driver_name(&node.at("driver"), errors);
    required(node, &["volumeHandle"], errors);
    for field in
        ["controllerPublishSecretRef", "controllerExpandSecretRef", "nodePublishSecretRef", "nodeExpandSecretRef"]
    {
        let reference = node.at(field);
        if !reference.exists() {
            continue;
        }
        let (name, namespace) = (reference.at("name"), reference.at("namespace"));
        match name.str() {
            "" => errors.required(&name, ""),
            text => check::text(&name, names::dns_subdomain(text), errors),
        }
        match namespace.str() {
            "" => errors.required(&namespace, ""),
            text => check::text(&namespace, names::dns_label(text), errors),
        }
    }
}
