//! Which devices a claim has. What drivers said of a device goes when the claim loses it.

use serde_json::{Value, json};

/// A device, or a share of one, as upstream's messages show it.
pub(super) fn share(device: &Value) -> String {
    const FIELDS: [(&str, &str); 4] =
        [("Driver", "driver"), ("Pool", "pool"), ("Device", "device"), ("ShareID", "shareID")];
    let shown = FIELDS.map(|(name, field)| format!("{name:?}:{}", json!(device[field].as_str().unwrap_or(""))));
    format!("{{{}}}", shown.join(","))
}

/// Clients that take an allocation away need not know of `status.devices`.
pub(super) fn prepare_status(new: &mut Value, old: &Value) {
    let results = |claim: &Value| -> Vec<String> {
        let results = claim.pointer("/status/allocation/devices/results").and_then(Value::as_array);
        results.into_iter().flatten().map(share).collect()
    };
    let kept = results(new);
    let lost: Vec<String> = results(old).into_iter().filter(|device| !kept.contains(device)).collect();
    let Some(status) = new.get_mut("status").and_then(Value::as_object_mut) else { return };
    let Some(devices) = status.get_mut("devices").and_then(Value::as_array_mut) else { return };
    devices.retain(|device| !lost.contains(&share(device)));
    if devices.is_empty() {
        status.remove("devices");
    }
}
