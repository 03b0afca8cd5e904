//! Strategy of PersistentVolume: what the server sets and protects.

use machinery::kind::Write;
use machinery::object::child_mut;
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

/// When a volume entered its phase is for the server to say.
pub(super) fn sign(volume: &mut Value, write: &Write) {
    if phase_changed(volume, write.old) {
        child_mut(volume, "status").insert("lastPhaseTransitionTime".into(), write.now.into());
    }
}

/// Whether the volume enters a phase with this write, which is when upstream stamps `lastPhaseTransitionTime`.
fn phase_changed(new: &Value, old: Option<&Value>) -> bool {
    old.is_none_or(|old| text(new, "/status/phase") != text(old, "/status/phase"))
}
