//! Strategy of CertificateSigningRequest: what the server sets and protects.

use machinery::kind::Write;
use machinery::object::child_mut;
use serde_json::{Value, json};

use crate::status;

const KUBELET_SERVING: &str = "kubernetes.io/kubelet-serving";
/// The controller that approves looks for it.
const SOURCE_ADDRESS: &str = "knarr.dev/source-address";

pub(super) fn prepare_create(object: &mut Value) {
    status::set(object, json!({}));
}

/// The request never changes.
pub(super) fn prepare_update(new: &mut Value, old: &Value) {
    keep(new, old, "spec");
}

/// A write to `approval` changes metadata and conditions only, of whatever type.
pub fn prepare_approval(new: &mut Value, old: &Value, now: &str) {
    stamp_conditions(new, old, now);
    keep(new, old, "spec");
    let conditions = new.pointer_mut("/status/conditions").map(Value::take).filter(|list| !list.is_null());
    keep(new, old, "status");
    let status = child_mut(new, "status");
    match conditions {
        Some(conditions) => status.insert("conditions".into(), conditions),
        None => status.remove("conditions"),
    };
}

/// A write to `status` leaves decisions as they are, so that one sent back in other words is no change.
pub(super) fn prepare_status(new: &mut Value, old: &Value) {
    keep(new, old, "spec");
    for decision in ["Approved", "Denied"] {
        let is_decision = |condition: &&Value| condition["type"] == decision;
        let before: Vec<Value> = conditions(old).iter().filter(is_decision).cloned().collect();
        if conditions(new).iter().filter(is_decision).count() != before.len() {
            continue;
        }
        let Some(list) = new.pointer_mut("/status/conditions").and_then(Value::as_array_mut) else { continue };
        let after = list.iter_mut().filter(|condition| condition["type"] == decision);
        after.zip(before).for_each(|(after, before)| *after = before);
    }
}

/// Who asks, and when conditions were written where their writer does not say so.
pub(super) fn sign(request: &mut Value, write: &Write) {
    match write.old {
        None => sign_with_user(request, write),
        Some(old) if write.subresource == "status" => stamp_conditions(request, old, write.now),
        Some(_) => {}
    }
}

fn sign_with_user(request: &mut Value, write: &Write) {
    let mut extra = json!(write.extra);
    let spec = child_mut(request, "spec");
    // What a node says of its own addresses proves nothing; where it asks from does.
    if spec.get("signerName").and_then(Value::as_str) == Some(KUBELET_SERVING)
        && let Some(source) = write.source
    {
        extra[SOURCE_ADDRESS] = json!([source.to_string()]);
    }
    for (field, value) in [
        ("username", Value::from(write.user)),
        ("uid", write.uid.into()),
        ("groups", write.groups.into()),
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

/// When a condition was written, and when it became what it is, unless its writer says so.
fn stamp_conditions(new: &mut Value, old: &Value, now: &str) {
    let Some(list) = new.pointer_mut("/status/conditions").and_then(Value::as_array_mut) else { return };
    for condition in list.iter_mut().filter(|condition| condition.is_object()) {
        if condition["lastUpdateTime"].is_null() {
            condition["lastUpdateTime"] = now.into();
        }
        if condition["lastTransitionTime"].is_null() {
            let same = |before: &&Value| {
                before["type"] == condition["type"]
                    && before["status"] == condition["status"]
                    && !before["lastTransitionTime"].is_null()
            };
            let since = conditions(old).iter().find(same).map(|before| before["lastTransitionTime"].clone());
            condition["lastTransitionTime"] = since.unwrap_or_else(|| now.into());
        }
    }
}

fn conditions(object: &Value) -> &[Value] {
    object.pointer("/status/conditions").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn keep(new: &mut Value, old: &Value, field: &str) {
    let Some(map) = new.as_object_mut() else { return };
    match old.get(field) {
        Some(value) => map.insert(field.into(), value.clone()),
        None => map.remove(field),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: &str = "2026-01-02T03:04:05Z";

    fn condition(kind: &str, time: &str) -> Value {
        json!({"type": kind, "status": "True", "lastUpdateTime": time, "lastTransitionTime": time})
    }

    #[test]
    fn approval_takes_conditions_of_any_type_and_nothing_else_of_the_status() {
        let old = json!({"spec": {"a": 1}, "status": {"certificate": "Y2VydA=="}});
        let mut new = json!({
            "metadata": {"annotations": {"a": "b"}},
            "spec": {"a": 2},
            "status": {"certificate": "other", "conditions": [{"type": "ApprovalPatch", "status": "True"}]},
        });
        prepare_approval(&mut new, &old, NOW);
        let expected = json!({
            "metadata": {"annotations": {"a": "b"}},
            "spec": {"a": 1},
            "status": {"certificate": "Y2VydA==", "conditions": [condition("ApprovalPatch", NOW)]},
        });
        assert_eq!(new, expected);
    }

    #[test]
    fn a_condition_that_stays_keeps_the_time_it_became_so() {
        let before = "2025-01-01T00:00:00Z";
        let old = json!({"status": {"conditions": [condition("Approved", before)]}});
        let mut new = json!({"status": {"conditions": [{"type": "Approved", "status": "True"}]}});
        stamp_conditions(&mut new, &old, NOW);
        let stamped = &new["status"]["conditions"][0];
        assert_eq!((&stamped["lastUpdateTime"], &stamped["lastTransitionTime"]), (&json!(NOW), &json!(before)));
    }

    #[test]
    fn status_keeps_decisions_as_they_are() {
        let old = json!({"status": {"conditions": [condition("Approved", NOW)]}});
        let sent =
            json!([{"type": "Approved", "status": "True", "reason": "mine"}, {"type": "Other", "status": "True"}]);
        let mut new = json!({"status": {"conditions": sent}});
        prepare_status(&mut new, &old);
        let expected = json!([condition("Approved", NOW), {"type": "Other", "status": "True"}]);
        assert_eq!(new["status"]["conditions"], expected);
    }
}
