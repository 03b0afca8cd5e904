//! Which changes of a Pod are allowed: by an ordinary update, of its ephemeral containers, of its resources.

use machinery::field::Errors;
use machinery::node::Node;
use serde_json::{Value, json};

use super::qos;
use super::validate::metadata_and_spec;
use crate::common::diff::diff;
use crate::common::pod_spec::scheduling;

const MIRROR: &str = "kubernetes.io/config.mirror";
const APPARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";
const REFUSAL: &str = "pod updates may not change fields other than \
    `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only \
    additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was \
    previously negative)";

pub(super) fn validate_update(new: &Node, old: &Node, errors: &mut Errors) {
    metadata_and_spec(new, errors);
    annotation_updates(new, old, errors);
    let (spec, old_spec) = (new.at("spec"), old.at("spec"));
    for list in ["containers", "initContainers"] {
        if !images(&spec.at(list), &old_spec.at(list), errors) {
            return;
        }
    }
    if !deadline(&spec, &old_spec, errors) {
        return;
    }
    only_added_tolerations(&spec.at("tolerations"), &old_spec.at("tolerations"), errors);
    only_removed_gates(&spec.at("schedulingGates"), &old_spec.at("schedulingGates"), errors);
    if spec.value == old_spec.value {
        return;
    }
    let mut rest = with_allowed_changes_undone(spec.value, old_spec.value);
    if !old_spec.at("schedulingGates").is_empty() {
        gated(&mut rest, &spec, &old_spec, errors);
    }
    if rest != *old_spec.value {
        errors.forbidden(&spec, format!("{REFUSAL}\n{}", diff(old_spec.value, &rest)));
    }
}

/// The spec with everything that may change set back, so that what still differs may not.
fn with_allowed_changes_undone(spec: &Value, old: &Value) -> Value {
    let mut rest = spec.clone();
    for list in ["containers", "initContainers"] {
        let olds = old.get(list).and_then(Value::as_array);
        let news = rest.get_mut(list).and_then(Value::as_array_mut);
        for (new, old) in news.into_iter().flatten().zip(olds.into_iter().flatten()) {
            new["image"] = old["image"].clone();
        }
    }
    for field in ["activeDeadlineSeconds", "schedulingGates", "tolerations"] {
        copy(&mut rest, old, field);
    }
    let grace = |spec: &Value| spec["terminationGracePeriodSeconds"].as_i64();
    if grace(old).is_some_and(|seconds| seconds < 0) && grace(&rest) == Some(1) {
        copy(&mut rest, old, "terminationGracePeriodSeconds");
    }
    rest
}

fn copy(to: &mut Value, from: &Value, field: &str) {
    let Some(fields) = to.as_object_mut() else { return };
    match from.get(field) {
        Some(value) => _ = fields.insert(field.into(), value.clone()),
        None => _ = fields.remove(field),
    }
}

/// Annotations that say how a pod was started stay as they are.
fn annotation_updates(new: &Node, old: &Node, errors: &mut Errors) {
    let (annotations, olds) = (new.at("metadata").at("annotations"), old.at("metadata").at("annotations"));
    let word = |key: &str| match key {
        MIRROR => Some("mirror pod annotation"),
        _ if key.starts_with(APPARMOR) => Some("AppArmor annotations"),
        _ => None,
    };
    for (key, before) in olds.entries() {
        if let Some(word) = word(key).filter(|_| annotations.key(key).value != before.value) {
            errors.forbidden(&annotations.key(key), format!("may not remove or update {word}"));
        }
    }
    for (key, added) in annotations.entries() {
        if let Some(word) = word(key).filter(|_| !olds.has(key)) {
            errors.forbidden(&added, format!("may not add {word}"));
        }
    }
}

/// False where the number of containers changed, after which nothing else is worth saying.
fn images(new: &Node, old: &Node, errors: &mut Errors) -> bool {
    if new.len() != old.len() {
        errors.forbidden(new, "pod updates may not add or remove containers");
        return false;
    }
    for container in new.items() {
        let image = container.at("image");
        if image.str().is_empty() {
            errors.required(&image, "");
        }
        if image.str().trim().len() != image.str().len() {
            errors.invalid(&image, "must not have leading or trailing whitespace");
        }
    }
    true
}

/// A deadline may be set once and lowered.
fn deadline(new: &Node, old: &Node, errors: &mut Errors) -> bool {
    let (at, before) = (new.at("activeDeadlineSeconds"), old.number("activeDeadlineSeconds"));
    match (at.int(), before) {
        (Some(seconds), _) if !(0..=i64::from(i32::MAX)).contains(&seconds) => {
            errors.invalid(&at, "must be between 0 and 2147483647, inclusive");
            false
        }
        (Some(seconds), Some(before)) if before < seconds => {
            errors.invalid(&at, "must be less than or equal to previous value");
            false
        }
        (None, Some(_)) => {
            errors.invalid(&at, "must not update from a positive integer to nil value");
            true
        }
        _ => true,
    }
}

fn only_added_tolerations(new: &Node, old: &Node, errors: &mut Errors) {
    let without_seconds = |toleration: &Node| {
        let mut value = toleration.value.clone();
        value.as_object_mut().map(|fields| fields.remove("tolerationSeconds"));
        value
    };
    for toleration in old.items() {
        let kept = without_seconds(&toleration);
        if !new.items().any(|other| without_seconds(&other) == kept) {
            return errors.forbidden(new, "existing toleration can not be modified except its tolerationSeconds");
        }
    }
    scheduling::tolerations(errors, new);
}

fn only_removed_gates(new: &Node, old: &Node, errors: &mut Errors) {
    for gate in new.items() {
        let name = gate.text("name");
        if !old.items().any(|other| other.text("name") == name) {
            let detail = format!("only deletion is allowed, but found new scheduling gate '{name}'");
            errors.forbidden(&gate.at("name"), detail);
        }
    }
}

/// A pod that may not be scheduled yet may still narrow down where.
fn gated(rest: &mut Value, spec: &Node, old: &Node, errors: &mut Errors) {
    let (selector, before) = (spec.at("nodeSelector"), old.at("nodeSelector"));
    if selector.value != before.value {
        let kept = before.value.as_object().into_iter().flatten();
        for (key, value) in kept {
            if selector.value.get(key) != Some(value) {
                errors
                    .invalid(&selector, "only additions to spec.nodeSelector are allowed (no mutations or deletions)");
                break;
            }
        }
        copy(rest, old.value, "nodeSelector");
    }
    let affinity = |spec: &Node| spec.at("affinity").at("nodeAffinity").value.clone();
    let (new_affinity, old_affinity) = (affinity(spec), affinity(old));
    if new_affinity == old_affinity {
        return;
    }
    narrowed(&spec.at("affinity").at("nodeAffinity"), &old_affinity, errors);
    let only_node = rest["affinity"]
        .as_object()
        .is_none_or(|fields| fields.iter().all(|(field, value)| field == "nodeAffinity" || value.is_null()));
    if !old.has("affinity") && only_node {
        copy(rest, old.value, "affinity");
    } else {
        if !rest["affinity"].is_object() {
            rest["affinity"] = json!({});
        }
        let before = json!({ "nodeAffinity": old_affinity });
        if old_affinity.is_null() {
            _ = rest["affinity"].as_object_mut().map(|fields| fields.remove("nodeAffinity"))
        } else {
            copy(&mut rest["affinity"], &before, "nodeAffinity")
        }
    }
}

fn narrowed(new: &Node, old: &Value, errors: &mut Errors) {
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    let before = old[REQUIRED]["nodeSelectorTerms"].as_array();
    let Some(before) = before else { return };
    let terms = new.at(REQUIRED).at("nodeSelectorTerms");
    if terms.len() != before.len() {
        return errors.invalid(&terms, "no additions/deletions to non-empty NodeSelectorTerms list are allowed");
    }
    for (term, before) in terms.items().zip(before) {
        for list in ["matchExpressions", "matchFields"] {
            let olds = before[list].as_array().cloned().unwrap_or_default();
            let news = term.at(list);
            let same_start = news.len() >= olds.len() && news.items().zip(&olds).all(|(new, old)| new.value == old);
            // A term that says nothing matches nothing, and may not begin to match something.
            let was_empty = before["matchExpressions"].is_null() && before["matchFields"].is_null();
            if !same_start || (was_empty && !news.is_empty()) {
                errors.invalid(&term, "only additions are allowed (no mutations or deletions)");
                break;
            }
        }
    }
}

/// The rules of a write to `ephemeralcontainers`: those that are there stay as they are.
pub fn validate_ephemeral_containers_update(new: &Node, old: &Node, errors: &mut Errors) {
    if old.at("metadata").at("annotations").has(MIRROR) {
        return errors.forbidden(new, "static pods do not support ephemeral containers");
    }
    metadata_and_spec(new, errors);
    annotation_updates(new, old, errors);
    let list = new.at("spec").at("ephemeralContainers");
    for container in old.at("spec").each("ephemeralContainers") {
        let name = container.text("name");
        match list.items().find(|other| other.text("name") == name) {
            None => errors.forbidden(&list, format!("existing ephemeral containers {name:?} may not be removed\n")),
            Some(other) if other.value != container.value => {
                let changes = diff(container.value, other.value);
                let detail = format!("existing ephemeral containers {name:?} may not be changed\n{changes}");
                errors.forbidden(&list, detail);
            }
            Some(_) => {}
        }
    }
}

/// The rules of a write to `resize`: requests and limits of processor and memory, and nothing else.
pub fn validate_resize_update(new: &Node, old: &Node, errors: &mut Errors) {
    let (spec, old_spec) = (new.at("spec"), old.at("spec"));
    if old.at("metadata").at("annotations").has(MIRROR) {
        return errors.forbidden(new, "static pods cannot be resized");
    }
    if old_spec.at("os").text("name") == "windows" {
        return errors.forbidden(new, "windows pods cannot be resized");
    }
    metadata_and_spec(new, errors);
    let before = match old.at("status").text("qosClass") {
        "" => qos::class(old_spec.value),
        class => class,
    };
    if before != qos::class(spec.value) {
        let class = Value::from(new.at("status").text("qosClass"));
        errors.invalid_value(&spec.path, &class, "Pod QOS Class may not change as a result of resizing");
    }
    let running = old.at("status").each("containerStatuses").find(|status| status.at("state").has("running"));
    if running.is_some_and(|status| !status.has("resources")) {
        errors.forbidden(&spec, "Pod running on node without support for resize");
    }
    if !same_containers(&spec, &old_spec, errors) {
        return;
    }
    let mut rest = spec.value.clone();
    for list in ["initContainers", "containers"] {
        for (container, before) in spec.each(list).zip(old_spec.each(list)) {
            container_resize(&container, &before, errors);
        }
    }
    for list in ["containers", "initContainers"] {
        let count = spec.at(list).len().min(old_spec.at(list).len());
        for index in 0..count {
            let before = &old_spec.value[list][index];
            let container = &mut rest[list][index];
            let modified = container != before;
            undo_resize(container, before);
            if list == "containers" {
                if container != before {
                    errors.forbidden(&spec, "only cpu and memory resources are mutable");
                }
                continue;
            }
            let own = Node::new(&Value::Null, spec.path.child("initContainers").index(index));
            if container != before {
                errors.forbidden(&own, "only cpu and memory resources for init or sidecar containers are mutable");
            }
            if modified && container["restartPolicy"] != "Always" && restarts_on_resize(container) {
                errors.forbidden(
                    &own,
                    "non-sidecar init containers with a resize policy of RestartContainer cannot be resized",
                );
            }
        }
    }
    if errors.is_empty() && rest != *old_spec.value {
        errors.forbidden(&spec, "only cpu and memory resources are mutable");
    }
}

fn restarts_on_resize(container: &Value) -> bool {
    let mut policies = container["resizePolicy"].as_array().into_iter().flatten();
    policies.any(|policy| policy["restartPolicy"] == "RestartContainer")
}

/// False where containers came, went or changed places.
fn same_containers(spec: &Node, old: &Node, errors: &mut Errors) -> bool {
    let before = errors.0.len();
    for list in ["containers", "initContainers"] {
        let (news, olds) = (spec.at(list), old.at(list));
        if news.len() != olds.len() {
            errors.forbidden(&news, format!("{list} may not be added or removed on resize"));
            continue;
        }
        for (container, old) in news.items().zip(olds.items()) {
            if container.text("name") != old.text("name") {
                errors.forbidden(&container.at("name"), format!("{list} may not be renamed or reordered on resize"));
            }
        }
    }
    errors.0.len() == before
}

fn container_resize(new: &Node, old: &Node, errors: &mut Errors) {
    let (resources, before) = (new.at("resources"), old.at("resources"));
    for field in ["requests", "limits"] {
        let (list, olds) = (resources.at(field), before.at(field));
        if olds.entries().any(|(name, _)| !list.has(name)) {
            errors.forbidden(&list, format!("resource {field} cannot be removed"));
        }
    }
}

/// Sets processor and memory back to what they were.
fn undo_resize(container: &mut Value, before: &Value) {
    for list in ["limits", "requests"] {
        for name in ["cpu", "memory"] {
            let old = before.pointer(&format!("/resources/{list}/{name}")).cloned();
            let Some(resources) = container["resources"].as_object_mut() else { continue };
            match old {
                Some(amount) => {
                    resources.entry(list).or_insert_with(|| json!({}))[name] = amount;
                }
                None => _ = resources.get_mut(list).and_then(Value::as_object_mut).map(|list| list.remove(name)),
            }
        }
        let empty =
            container.pointer(&format!("/resources/{list}")).and_then(Value::as_object).is_some_and(|l| l.is_empty());
        if empty && before.pointer(&format!("/resources/{list}")).is_none() {
            container["resources"].as_object_mut().map(|resources| resources.remove(list));
        }
    }
}
