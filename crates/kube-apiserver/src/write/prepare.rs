//! What the server sets, keeps or takes from the old object before a write is validated.

use api::common::pod_spec::gated::drop_disabled;
use component_base::features::Gates;
use machinery::kind::Write;
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

/// What a kind records of who writes it and when.
pub(super) fn sign(call: &Call, resource: &Resource, object: &mut Value, old: Option<&Value>, part: Part) {
    let Some(sign) = resource.stored.sign else { return };
    let (user, now) = (&call.user, call.app.clock.stamp());
    let write = Write {
        old,
        subresource: part.subresource(),
        now: &now,
        user: &user.name,
        uid: &user.uid,
        groups: &user.groups,
        extra: &user.extra,
        source: call.source,
    };
    sign(object, &write);
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
            for &field in kind.status_keeps_metadata {
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
