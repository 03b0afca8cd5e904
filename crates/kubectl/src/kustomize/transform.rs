//! What a kustomization changes: patches, namespace, names, labels, annotations, images, replicas.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::{Resource, custom, fields, operations, pairs, texts};
use crate::failure::{Failure, Result};

pub(crate) fn all(folder: &Path, kustomization: &Value, config: &Value, resources: &mut Vec<Resource>) -> Result<()> {
    patches(folder, kustomization, resources)?;
    let text = |key: &str| kustomization[key].as_str().unwrap_or_default();
    for resource in resources.iter_mut() {
        namespace(&mut resource.object, text("namespace"));
        if (!text("namePrefix").is_empty() || !text("nameSuffix").is_empty()) && is_renamed(&resource.object) {
            let name = resource.object["metadata"]["name"].as_str().unwrap_or_default();
            resource.object["metadata"]["name"] = format!("{}{name}{}", text("namePrefix"), text("nameSuffix")).into();
        }
        let common = pairs(&kustomization["commonLabels"]);
        if !common.is_empty() {
            labels(&mut resource.object, &common, true, true);
        }
        for entry in kustomization["labels"].as_array().into_iter().flatten() {
            labels(
                &mut resource.object,
                &pairs(&entry["pairs"]),
                entry["includeSelectors"] == true,
                entry["includeTemplates"] == true,
            );
        }
        annotations(&mut resource.object, &pairs(&kustomization["commonAnnotations"]));
        for image in kustomization["images"].as_array().into_iter().flatten() {
            images(&mut resource.object, image);
        }
        configured(&mut resource.object, kustomization, config);
        for replica in kustomization["replicas"].as_array().into_iter().flatten() {
            let named = replica["name"] == resource.first_name.as_str()
                || replica["name"] == resource.object["metadata"]["name"];
            let kind = resource.object["kind"].as_str().unwrap_or_default();
            if named && ["Deployment", "ReplicaSet", "StatefulSet", "ReplicationController"].contains(&kind) {
                resource.object["spec"]["replicas"] = replica["count"].clone();
            }
        }
    }
    Ok(())
}

/// Names that other things than kustomizations rely on stay.
pub(super) fn is_renamed(object: &Value) -> bool {
    !["Namespace", "CustomResourceDefinition", "APIService"].contains(&object["kind"].as_str().unwrap_or_default())
}

/// The fields that `configurations` add to what a transformer changes.
fn configured(object: &mut Value, kustomization: &Value, config: &Value) {
    let text = |key: &str| kustomization[key].as_str().unwrap_or_default();
    for (key, before, behind) in [("namePrefix", text("namePrefix"), ""), ("nameSuffix", "", text("nameSuffix"))] {
        fields::each(object, &fields::list(config, key), |value| {
            if let Value::String(name) = value {
                *name = format!("{before}{name}{behind}");
            }
        });
    }
    let mut all_labels = pairs(&kustomization["commonLabels"]);
    for entry in kustomization["labels"].as_array().into_iter().flatten() {
        if entry["includeSelectors"] == true {
            all_labels.extend(pairs(&entry["pairs"]));
        }
        fields::each(object, &fields::list(entry, "fields"), |value| fields::merge(value, &pairs(&entry["pairs"])));
    }
    for (key, added) in
        [("commonLabels", all_labels), ("commonAnnotations", pairs(&kustomization["commonAnnotations"]))]
    {
        if !added.is_empty() {
            fields::each(object, &fields::list(config, key), |value| fields::merge(value, &added));
        }
    }
    if !text("namespace").is_empty() {
        fields::each(object, &fields::list(config, "namespace"), |value| *value = text("namespace").into());
    }
    for image in kustomization["images"].as_array().into_iter().flatten() {
        fields::each(object, &fields::list(config, "images"), |value| {
            if let Some(image) = value.as_str().and_then(|old| changed(old, image)) {
                *value = image.into();
            }
        });
    }
    for replica in kustomization["replicas"].as_array().into_iter().flatten() {
        if replica["name"] == object["metadata"]["name"] {
            fields::each(object, &fields::list(config, "replicas"), |value| *value = replica["count"].clone());
        }
    }
}

pub(crate) fn namespace(object: &mut Value, namespace: &str) {
    if namespace.is_empty() {
        return;
    }
    let (version, kind) = (
        object["apiVersion"].as_str().unwrap_or_default().to_string(),
        object["kind"].as_str().unwrap_or_default().to_string(),
    );
    let (group, version) = version.split_once('/').unwrap_or(("", &version));
    let known = api::KINDS.iter().find(|known| known.group == group && known.version == version && known.kind == kind);
    // Kinds that are not known here are taken to live in namespaces.
    if known.is_none_or(|known| known.namespaced()) {
        object["metadata"]["namespace"] = namespace.into();
    }
    if kind == "Namespace" {
        object["metadata"]["name"] = namespace.into();
    }
    if ["RoleBinding", "ClusterRoleBinding"].contains(&kind.as_str()) {
        for subject in object.get_mut("subjects").and_then(Value::as_array_mut).into_iter().flatten() {
            let default =
                subject["kind"] == "ServiceAccount" && (subject["namespace"].is_null() || subject["name"] == "default");
            if default {
                subject["namespace"] = namespace.into();
            }
        }
    }
}

/// Where pods are made of: the place of their metadata.
fn template(object: &mut Value) -> Option<&mut Value> {
    let path = match object["kind"].as_str().unwrap_or_default() {
        "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet" | "Job" | "ReplicationController" => "/spec/template",
        "CronJob" => "/spec/jobTemplate/spec/template",
        _ => return None,
    };
    object.pointer_mut(path)
}

fn merge(place: &mut Value, added: &Map<String, Value>) {
    for (key, value) in added {
        place[key.as_str()] = value.clone();
    }
}

fn labels(object: &mut Value, added: &Map<String, Value>, selectors: bool, templates: bool) {
    if added.is_empty() {
        return;
    }
    merge(&mut object["metadata"]["labels"], added);
    if (selectors || templates)
        && let Some(template) = template(object)
    {
        merge(&mut template["metadata"]["labels"], added);
    }
    if !selectors {
        return;
    }
    match object["kind"].as_str().unwrap_or_default() {
        "Service" if object["spec"]["selector"].is_object() => merge(&mut object["spec"]["selector"], added),
        "ReplicationController" => merge(&mut object["spec"]["selector"], added),
        "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet" => {
            merge(&mut object["spec"]["selector"]["matchLabels"], added)
        }
        "PodDisruptionBudget" if object["spec"]["selector"].is_object() => {
            merge(&mut object["spec"]["selector"]["matchLabels"], added)
        }
        "NetworkPolicy" if object["spec"]["podSelector"]["matchLabels"].is_object() => {
            merge(&mut object["spec"]["podSelector"]["matchLabels"], added)
        }
        _ => {}
    }
}

fn annotations(object: &mut Value, added: &Map<String, Value>) {
    if added.is_empty() {
        return;
    }
    merge(&mut object["metadata"]["annotations"], added);
    if let Some(template) = template(object) {
        merge(&mut template["metadata"]["annotations"], added);
    }
}

/// Every `image` of every container, wherever in the object.
pub(crate) fn images(value: &mut Value, change: &Value) {
    match value {
        Value::Object(map) => {
            for (key, inner) in map.iter_mut() {
                if ["containers", "initContainers"].contains(&key.as_str()) {
                    for container in inner.as_array_mut().into_iter().flatten() {
                        if let Some(image) = container["image"].as_str().and_then(|image| changed(image, change)) {
                            container["image"] = image.into();
                        }
                    }
                } else {
                    images(inner, change);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| images(item, change)),
        _ => {}
    }
}

pub(crate) fn changed(image: &str, change: &Value) -> Option<String> {
    let (name, digest) = image.split_once('@').map_or((image, None), |(name, digest)| (name, Some(digest)));
    // A colon before the last slash belongs to the registry's port.
    let (name, tag) = match name.rsplit_once(':').filter(|(_, tag)| !tag.contains('/')) {
        Some((name, tag)) => (name, Some(tag)),
        None => (name, None),
    };
    if change["name"] != name {
        return None;
    }
    let new = change["newName"].as_str().unwrap_or(name);
    Some(match (change["digest"].as_str(), change["newTag"].as_str(), digest, tag) {
        (Some(new_digest), Some(new_tag), ..) => format!("{new}:{new_tag}@{new_digest}"),
        (Some(new_digest), ..) => format!("{new}@{new_digest}"),
        (None, Some(new_tag), ..) => format!("{new}:{new_tag}"),
        (None, None, Some(digest), _) => format!("{new}@{digest}"),
        (None, None, None, Some(tag)) => format!("{new}:{tag}"),
        _ => new.to_string(),
    })
}

pub(crate) fn patches(folder: &Path, kustomization: &Value, resources: &mut Vec<Resource>) -> Result<()> {
    let read = |path: &str| -> Result<String> {
        let bytes = super::read_inside(folder, path).map_err(|failure| {
            Failure::message(format!(
                "trouble configuring builtin PatchTransformer with config: `\npath: {path}\n`: failed to get the patch file from path({path}): {}",
                failure.text()
            ))
        })?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    let schema = match kustomization["openapi"]["path"].as_str() {
        None => Value::Null,
        Some(path) => {
            machinery::codec::decode_yaml(&super::read_inside(folder, path)?)
                .map_err(|error| Failure::message(format!("{path}: {error}")))?
                .value
        }
    };
    let mut all: Vec<(String, Value, Value)> = Vec::new();
    for text in texts(kustomization, "patchesStrategicMerge") {
        all.push((if folder.join(&text).is_file() { read(&text)? } else { text }, Value::Null, Value::Null));
    }
    for key in ["patches", "patchesJson6902"] {
        for entry in kustomization[key].as_array().into_iter().flatten() {
            let text = match (entry["patch"].as_str(), entry["path"].as_str()) {
                (Some(patch), _) => patch.to_string(),
                (None, Some(path)) => read(path)?,
                _ => return Err(Failure::message("must specify one of patch and path in patches")),
            };
            operations::check(key, entry, &text)?;
            all.push((text, entry["target"].clone(), entry["options"].clone()));
        }
    }
    for (text, target, options) in all {
        for (_, patch) in crate::resource::files::documents("patch", text.as_bytes())? {
            apply(resources, &patch, &target, &options, &schema)?;
        }
    }
    Ok(())
}

fn apply(resources: &mut Vec<Resource>, patch: &Value, target: &Value, options: &Value, schema: &Value) -> Result<()> {
    let target = match (target.is_object(), patch.is_array()) {
        (true, _) => target.clone(),
        (false, true) => return Err(Failure::message("must specify a target for JSON patch")),
        (false, false) => own_target(patch),
    };
    let mut deleted = Vec::new();
    let mut found = false;
    for (at, resource) in resources.iter_mut().enumerate() {
        if !selected(resource, &target)? {
            continue;
        }
        found = true;
        if patch["$patch"] == "delete" {
            deleted.push(at);
        } else {
            patch_one(&mut resource.object, patch, options, schema)?;
        }
    }
    if !found && !patch.is_array() && target["name"].is_string() {
        return Err(no_match(patch, &target));
    }
    for at in deleted.into_iter().rev() {
        resources.remove(at);
    }
    Ok(())
}

/// A patch that is an object names its target itself.
fn own_target(patch: &Value) -> Value {
    let (group, version) = group_and_version(patch);
    let mut target = json!({"kind": exact(&patch["kind"]), "name": exact(&patch["metadata"]["name"]), "group": group, "version": version});
    if patch["metadata"]["namespace"].is_string() {
        target["namespace"] = exact(&patch["metadata"]["namespace"]);
    }
    target
}

fn group_and_version(object: &Value) -> (&str, &str) {
    let version = object["apiVersion"].as_str().unwrap_or_default();
    version.split_once('/').unwrap_or(("", version))
}

fn patch_one(object: &mut Value, patch: &Value, options: &Value, schema: &Value) -> Result<()> {
    if patch.is_array() {
        return operations::apply(object, patch);
    }
    let before = object.clone();
    let (group, version) = group_and_version(&before);
    let kind = &before["kind"];
    if let Some(ty) = api::schema::type_named(group, version, kind.as_str().unwrap_or_default()) {
        machinery::patch::strategic::apply(ty, object, patch).map_err(Failure::of)?;
    } else if let Some(definition) = custom::definition(schema, group, version, kind) {
        custom::merge(object, patch, definition, schema);
    } else {
        machinery::patch::merge::apply(object, patch).map_err(Failure::of)?;
    }
    custom::patched_first(object, patch);
    // The patch names its target by the name in the file; what it has become stays.
    if options["allowNameChange"] != true {
        object["metadata"]["name"] = before["metadata"]["name"].clone();
    }
    if options["allowKindChange"] != true {
        object["kind"] = kind.clone();
        object["apiVersion"] = before["apiVersion"].clone();
    }
    Ok(())
}

fn no_match(patch: &Value, target: &Value) -> Failure {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    let group = target["group"].as_str().filter(|group| !group.is_empty()).unwrap_or("[noGrp]");
    let (kind, version, name) = (text(&patch["kind"]), text(&target["version"]), text(&patch["metadata"]["name"]));
    let id = format!("{kind}.{version}.{group}/{name}.[noNs]");
    Failure::message(format!(
        "no resource matches strategic merge patch \"{id}\": no matches for Id {id}; failed to find unique target for patch {id}"
    ))
}

fn exact(value: &Value) -> Value {
    regex::escape(value.as_str().unwrap_or_default()).into()
}

/// Names and kinds of a target are patterns of whole words.
pub(super) fn selected(resource: &Resource, target: &Value) -> Result<bool> {
    let object = &resource.object;
    let version = object["apiVersion"].as_str().unwrap_or_default();
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let matches = |key: &str, texts: &[&str]| -> Result<bool> {
        let Some(pattern) = target[key].as_str().filter(|pattern| !pattern.is_empty()) else { return Ok(true) };
        let pattern = regex::Regex::new(&format!("^(?:{pattern})$")).map_err(Failure::of)?;
        Ok(texts.iter().any(|text| pattern.is_match(text)))
    };
    let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
    if !(matches("group", &[group])?
        && matches("version", &[version])?
        && matches("kind", &[text("/kind")])?
        && matches("name", &[text("/metadata/name"), &resource.first_name])?
        && matches("namespace", &[text("/metadata/namespace")])?)
    {
        return Ok(false);
    }
    for (key, path) in [("labelSelector", "/metadata/labels"), ("annotationSelector", "/metadata/annotations")] {
        let Some(selector) = target[key].as_str() else { continue };
        let selector = machinery::selector::LabelSelector::parse(selector).map_err(Failure::of)?;
        let map = object.pointer(path).unwrap_or(&Value::Null);
        if !selector.matches(|name| map.get(name).and_then(Value::as_str)) {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_change_by_name() {
        let check = |image: &str, change: Value, expected: Option<&str>| {
            assert_eq!(changed(image, &change).as_deref(), expected, "{image}")
        };
        check("nginx:1", json!({"name": "nginx", "newTag": "2"}), Some("nginx:2"));
        check("host:5000/nginx", json!({"name": "host:5000/nginx", "newName": "other"}), Some("other"));
        check("nginx:1", json!({"name": "nginx", "newName": "other"}), Some("other:1"));
        check("nginx@sha256:a", json!({"name": "nginx", "digest": "sha256:b"}), Some("nginx@sha256:b"));
        check("apache", json!({"name": "nginx", "newTag": "2"}), None);
    }
}
