//! Volume mounts and block devices of a container.

use std::collections::{BTreeMap, BTreeSet};

use machinery::field::Errors;
use machinery::node::Node;

use super::Volumes;
use super::text::{descending_path, has_backsteps};

pub(super) fn mounts(errors: &mut Errors, container: &Node, volumes: &Volumes) {
    let list = container.at("volumeMounts");
    let devices = paths(&container.at("volumeDevices"), "devicePath");
    let mut seen = BTreeSet::new();
    for mount in list.items() {
        let (name, path) = (mount.at("name"), mount.at("mountPath"));
        if name.str().is_empty() {
            errors.required(&name, "");
        }
        if !volumes.contains_key(name.str()) {
            super::text::push(errors, machinery::field::Problem::NotFound, &name.path, &name.str().into(), "");
        }
        if path.str().is_empty() {
            errors.required(&path, "");
        }
        if !seen.insert(path.str()) {
            errors.invalid(&path, "must be unique");
        }
        if devices.contains_key(name.str()) {
            errors.invalid(&name, "must not already exist in volumeDevices");
        }
        if devices.values().any(|device| *device == path.str()) {
            errors.invalid(&path, "must not already exist as a path in volumeDevices");
        }
        sub_paths(errors, &list, &mount);
        propagation(errors, &list, &mount, container);
        recursive_read_only(errors, &list, &mount);
    }
}

/// Upstream reports bad sub paths at the list.
fn sub_paths(errors: &mut Errors, list: &Node, mount: &Node) {
    let (sub_path, expression) = (mount.at("subPath"), mount.at("subPathExpr"));
    if !sub_path.str().is_empty() {
        descending_path(errors, &list.path.child("subPath"), sub_path.value);
    }
    if !expression.str().is_empty() {
        if !sub_path.str().is_empty() {
            errors.invalid(&expression, "subPathExpr and subPath are mutually exclusive");
        }
        descending_path(errors, &list.path.child("subPathExpr"), expression.value);
    }
}

fn propagation(errors: &mut Errors, list: &Node, mount: &Node, container: &Node) {
    let mode = mount.at("mountPropagation");
    if !mode.exists() {
        return;
    }
    let at = Node::new(mode.value, list.path.child("mountPropagation"));
    let supported = ["Bidirectional", "HostToContainer", "None"];
    if !supported.contains(&mode.str()) {
        errors.not_supported(&at, &supported);
    }
    if mode.str() == "Bidirectional" && !container.at("securityContext").flag("privileged") {
        errors.forbidden(&at, "Bidirectional mount propagation is available only to privileged containers");
    }
}

fn recursive_read_only(errors: &mut Errors, list: &Node, mount: &Node) {
    let mode = mount.at("recursiveReadOnly");
    let at = Node::new(mode.value, list.path.child("recursiveReadOnly"));
    match mode.str() {
        _ if !mode.exists() => {}
        "Disabled" => {}
        "Enabled" | "IfPossible" => {
            if !mount.flag("readOnly") {
                errors.forbidden(&at, "may only be specified when readOnly is true");
            }
            if !["", "None"].contains(&mount.text("mountPropagation")) {
                errors.forbidden(&at, "may only be specified when mountPropagation is None or not specified");
            }
        }
        _ => errors.not_supported(&at, &["Disabled", "Enabled", "IfPossible"]),
    }
}

pub(super) fn devices(errors: &mut Errors, container: &Node, volumes: &Volumes) {
    let mounts = paths(&container.at("volumeMounts"), "mountPath");
    let (mut seen_paths, mut seen_names) = (BTreeSet::new(), BTreeSet::new());
    for device in container.each("volumeDevices") {
        let (name, path) = (device.at("name"), device.at("devicePath"));
        let volume = volumes.get(name.str());
        if name.str().is_empty() {
            errors.required(&name, "");
        }
        if seen_names.contains(name.str()) {
            errors.invalid(&name, "must be unique");
        }
        match volume {
            Some(volume) if !volume.has("persistentVolumeClaim") && !volume.has("ephemeral") => errors
                .invalid(&name, "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"),
            Some(_) => {}
            None => errors.not_found(&name),
        }
        if path.str().is_empty() {
            errors.required(&path, "");
        }
        if seen_paths.contains(path.str()) {
            errors.invalid(&path, "must be unique");
        }
        if has_backsteps(path.str()) {
            errors.invalid(&path, "can not contain backsteps ('..')");
        } else {
            seen_paths.insert(path.str());
        }
        if mounts.contains_key(name.str()) {
            errors.invalid(&name, "must not already exist in volumeMounts");
        }
        if mounts.values().any(|mount| *mount == path.str()) {
            errors.invalid(&path, "must not already exist as a path in volumeMounts");
        }
        if !name.str().is_empty() {
            seen_names.insert(name.str());
        }
    }
}

/// From a volume's name to the path where a container sees it.
fn paths<'a>(list: &Node<'a>, field: &str) -> BTreeMap<&'a str, &'a str> {
    list.items().map(|item| (item.text("name"), item.text(field))).collect()
}
