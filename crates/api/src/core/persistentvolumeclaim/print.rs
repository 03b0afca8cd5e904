//! The columns of `kubectl get persistentvolumeclaims`.

use jiff::Timestamp;
use machinery::kind::age;
use machinery::object::Meta;
use machinery::table::Cell;
use serde_json::Value;

use crate::core::print::{access_modes, or_unset, storage_class, text};

pub(super) fn row(claim: &Value, now: Timestamp) -> Vec<Cell> {
    let volume = text(claim, "/spec/volumeName");
    let (capacity, modes) = match (volume, text(claim, "/status/capacity/storage")) {
        ("", _) => ("", String::new()),
        (_, "") => ("0", access_modes(claim.pointer("/status/accessModes"))),
        (_, capacity) => (capacity, access_modes(claim.pointer("/status/accessModes"))),
    };
    let phase = if claim.is_deleting() { "Terminating" } else { text(claim, "/status/phase") };
    vec![
        claim.name().into(),
        phase.into(),
        volume.into(),
        capacity.into(),
        modes.into(),
        storage_class(claim).into(),
        or_unset(text(claim, "/spec/volumeAttributesClassName").into()).into(),
        age(claim, now),
        or_unset(text(claim, "/spec/volumeMode").into()).into(),
    ]
}
