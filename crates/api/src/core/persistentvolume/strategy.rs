//! Strategy of PersistentVolume: what the server sets and protects.
//! `status.lastPhaseTransitionTime` needs a clock, so the server stamps it where `phase_changed` says so.

use serde_json::{Value, json};

use crate::core::print::text;

pub(super) fn prepare_create(volume: &mut Value) {
    volume["status"] = json!({"phase": "Pending"});
}

pub(super) fn prepare_update(new: &mut Value, old: &Value) {
    new["status"] = old.get("status").cloned().unwrap_or_default();
}

pub(super) fn prepare_status(new: &mut Value, old: &Value) {
    let given = new.pointer("/status/lastPhaseTransitionTime").is_some();
    if !phase_changed(new, Some(old)) && !given {
        let before = old.pointer("/status/lastPhaseTransitionTime").cloned();
        if let (Some(time), Some(status)) = (before, new.get_mut("status").and_then(Value::as_object_mut)) {
            status.insert("lastPhaseTransitionTime".into(), time);
        }
    }
}

/// Whether the volume enters a phase with this write, which is when upstream stamps `lastPhaseTransitionTime`.
pub fn phase_changed(new: &Value, old: Option<&Value>) -> bool {
    old.is_none_or(|old| text(new, "/status/phase") != text(old, "/status/phase"))
}
