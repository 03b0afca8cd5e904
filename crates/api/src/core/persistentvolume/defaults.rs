//! Defaults of PersistentVolume, those of its source included.

use machinery::object::{child_mut, set_default};
use serde_json::{Value, json};

pub(super) fn defaults(volume: &mut Value) {
    child_mut(volume, "spec");
    let spec = &mut volume["spec"];
    set_default(spec, "persistentVolumeReclaimPolicy", "Retain");
    set_default(spec, "volumeMode", "Filesystem");
    for (source, fields) in sources() {
        if let Some(source) = spec.get_mut(source).filter(|source| source.is_object()) {
            for (field, default) in fields {
                set_default(source, field, default);
            }
        }
    }
    child_mut(volume, "status");
    set_default(&mut volume["status"], "phase", "Pending");
}

fn sources() -> Vec<(&'static str, Vec<(&'static str, Value)>)> {
    vec![
        ("hostPath", vec![("type", json!(""))]),
        ("iscsi", vec![("iscsiInterface", json!("default"))]),
        ("rbd", vec![("pool", json!("rbd")), ("user", json!("admin")), ("keyring", json!("/etc/ceph/keyring"))]),
        (
            "azureDisk",
            vec![
                ("cachingMode", json!("ReadWrite")),
                ("kind", json!("Shared")),
                ("fsType", json!("ext4")),
                ("readOnly", json!(false)),
            ],
        ),
        ("scaleIO", vec![("storageMode", json!("ThinProvisioned")), ("fsType", json!("xfs"))]),
    ]
}
