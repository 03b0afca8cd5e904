//! What the server sets, keeps or takes from the old object before a write is validated.

use api::common::pod_spec::gated::drop_disabled;
use component_base::features::Gates;
use machinery::object::Meta;
use serde_json::Value;

use super::Part;
use crate::call::Call;
use crate::names;
use crate::resources::Resource;

/// What the server alone sets on a new object.
pub(super) fn begin(call: &Call, resource: &Resource, object: &mut Value) {
    let now = call.app.clock.stamp();
    let generation = resource.stored.generation;
    let meta = object.meta_mut();
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "generation"] {
        meta.remove(field);
    }
    meta.insert("uid".into(), names::uid().into());
    meta.insert("creationTimestamp".into(), now.into());
    if generation {
        meta.insert("generation".into(), 1.into());
    }
}

/// When a volume entered its phase is for the server to say.
pub(super) fn stamp_phase(call: &Call, resource: &Resource, object: &mut Value, old: Option<&Value>) {
    let volume = resource.kind.group.is_empty() && resource.kind.plural == "persistentvolumes";
    if volume && api::core::persistentvolume::strategy::phase_changed(object, old) {
        let status = machinery::object::child_mut(object, "status");
        status.insert("lastPhaseTransitionTime".into(), call.app.clock.stamp().into());
    }
}

/// When a condition of a signing request was written is for the server to say, where its writer does not.
pub(super) fn stamp_conditions(call: &Call, resource: &Resource, object: &mut Value, old: &Value, part: Part) {
    if part == Part::Status && is_signing_request(resource) {
        api::certificates::certificatesigningrequest::stamp_conditions(object, old, &call.app.clock.stamp());
    }
}

pub(super) fn is_signing_request(resource: &Resource) -> bool {
    resource.kind.group == "certificates.k8s.io" && resource.kind.plural == "certificatesigningrequests"
}

const KUBELET_SERVING: &str = "kubernetes.io/kubelet-serving";
/// The controller that approves looks for it.
const SOURCE_ADDRESS: &str = "knarr.dev/source-address";

/// A signing request says who made it; only the server knows.
pub(super) fn sign_with_user(call: &Call, object: &mut Value) {
    let user = &call.user;
    let mut extra = serde_json::json!(user.extra);
    let spec = machinery::object::child_mut(object, "spec");
    // What a node says of its own addresses proves nothing; where it asks from does.
    if spec.get("signerName").and_then(Value::as_str) == Some(KUBELET_SERVING)
        && let Some(source) = call.source
    {
        extra[SOURCE_ADDRESS] = serde_json::json!([source.to_string()]);
    }
    for (field, value) in [
        ("username", Value::from(user.name.as_str())),
        ("uid", user.uid.as_str().into()),
        ("groups", user.groups.clone().into()),
        ("extra", extra),
    ] {
        let empty = match &value {
            Value::String(text) => text.is_empty(),
            Value::Array(list) => list.is_empty(),
            Value::Object(map) => map.is_empty(),
            _ => false,
        };
        if empty {
            spec.remove(field)
        } else {
            spec.insert(field.into(), value)
        };
    }
}

/// A writer that leaves these out means to keep them; one that changes them is refused by validation.
pub(crate) fn keep_identity(new: &mut Value, old: &Value) {
    let meta = new.meta_mut();
    meta.remove("selfLink");
    for field in [
        "name",
        "namespace",
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "resourceVersion",
    ] {
        match old.meta(field) {
            Some(value) if meta.get(field).is_none_or(Value::is_null) => {
                meta.insert(field.into(), value.clone());
            }
            _ => {}
        }
    }
}

pub(super) fn prepare(resource: &Resource, gates: &Gates, new: &mut Value, old: &Value, part: Part) {
    let kind = &*resource.stored;
    // Generation is the server's alone.
    match old.meta("generation") {
        Some(generation) => new.meta_mut().insert("generation".into(), generation.clone()),
        None => new.meta_mut().remove("generation"),
    };
    match part {
        Part::Main => {
            if kind.subresources.iter().any(|sub| sub.name == "status") {
                copy(new, old, "status");
            }
            (kind.prepare_update)(new, old);
        }
        Part::Status => {
            let fields: Vec<String> =
                [&*new, old].iter().flat_map(|o| o.as_object()).flat_map(|o| o.keys().cloned()).collect();
            for field in fields.iter().filter(|field| !matches!(field.as_str(), "metadata" | "status")) {
                copy(new, old, field);
            }
            // The status of a Service is all that its load balancer's controller may write, its own finalizer included.
            let is_service = kind.group.is_empty() && kind.kind == "Service";
            let kept: &[&str] = if is_service { &["ownerReferences"] } else { &["ownerReferences", "finalizers"] };
            for &field in kept {
                match old.meta(field) {
                    Some(value) => new.meta_mut().insert(field.into(), value.clone()),
                    None => new.meta_mut().remove(field),
                };
            }
            (kind.prepare_status)(new, old);
        }
        Part::Sub(_) => {}
    }
    drop_disabled(kind, new, Some(old), |gate| gates.is_on(gate));
    let counts = !matches!(part, Part::Status | Part::Sub("binding"));
    let has_status = resource.custom.is_none() || kind.subresources.iter().any(|sub| sub.name == "status");
    if kind.generation && counts && content_differs(new, old, has_status) {
        let generation = old.meta("generation").and_then(Value::as_i64).unwrap_or(0) + 1;
        new.meta_mut().insert("generation".into(), generation.into());
    }
}

fn copy(new: &mut Value, old: &Value, field: &str) {
    let Some(map) = new.as_object_mut() else { return };
    // Mostly it is the same, and to look costs a fraction of a copy.
    if map.get(field) == old.get(field) {
        return;
    }
    match old.get(field) {
        Some(value) => map.insert(field.into(), value.clone()),
        None => map.remove(field),
    };
}

/// Whether anything but metadata differs; a status of its own does not count.
fn content_differs(new: &Value, old: &Value, has_status: bool) -> bool {
    fn fields(object: &Value, has_status: bool) -> impl Iterator<Item = (&String, &Value)> {
        let fields = object.as_object().into_iter().flatten();
        fields.filter(move |(field, _)| *field != "metadata" && !(has_status && *field == "status"))
    }
    !fields(new, has_status).eq(fields(old, has_status))
}
