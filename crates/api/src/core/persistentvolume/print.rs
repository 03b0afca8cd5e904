//! The columns of `kubectl get persistentvolumes`.

use jiff::Timestamp;
use machinery::kind::age;
use machinery::object::Meta;
use machinery::table::Cell;
use serde_json::Value;

use crate::core::print::{access_modes, or_unset, storage_class, text};

pub(super) fn row(volume: &Value, now: Timestamp) -> Vec<Cell> {
    let claim = match volume.pointer("/spec/claimRef") {
        Some(claim) if claim.is_object() => format!("{}/{}", text(claim, "/namespace"), text(claim, "/name")),
        _ => String::new(),
    };
    let capacity = match text(volume, "/spec/capacity/storage") {
        "" => "0",
        capacity => capacity,
    };
    let phase = if volume.is_deleting() { "Terminating" } else { text(volume, "/status/phase") };
    vec![
        volume.name().into(),
        capacity.into(),
        access_modes(volume.pointer("/spec/accessModes")).into(),
        text(volume, "/spec/persistentVolumeReclaimPolicy").into(),
        phase.into(),
        claim.into(),
        storage_class(volume).into(),
        or_unset(text(volume, "/spec/volumeAttributesClassName").into()).into(),
        text(volume, "/status/reason").into(),
        age(volume, now),
        or_unset(text(volume, "/spec/volumeMode").into()).into(),
    ]
}
