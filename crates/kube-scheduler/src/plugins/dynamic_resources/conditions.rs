//! Devices that are made ready only after they are chosen: whether those of a claim are, and how long a pod waits for them. Data in,
//! data out.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::resource::v1::{AllocatedDeviceStatus, DeviceRequestAllocationResult, ResourceClaim};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

/// How long a pod waits for its devices when nobody configures anything.
pub const BINDING_TIMEOUT: Duration = Duration::from_secs(600);

/// Why devices do not become ready; users read it in the message of the pod.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotReady {
    #[error("device binding failed: claim={claim}, reason={reason}, message={message:?}")]
    Failed { claim: String, reason: String, message: String },
    #[error("device binding timeout: claim={claim}")]
    TimedOut { claim: String },
    #[error("resourceclaim {0:?} not found")]
    Gone(String),
}

impl NotReady {
    /// As the metrics call it.
    pub(crate) fn status(&self) -> &'static str {
        match self {
            NotReady::Failed { .. } => "failure",
            NotReady::TimedOut { .. } => "timeout",
            NotReady::Gone(_) => "error",
        }
    }
}

/// The devices that a claim has.
pub(super) fn results(claim: &ResourceClaim) -> &[DeviceRequestAllocationResult] {
    let allocation = claim.status.as_ref().and_then(|status| status.allocation.as_ref());
    let devices = allocation.and_then(|allocation| allocation.devices.as_ref());
    devices.and_then(|devices| devices.results.as_deref()).unwrap_or_default()
}

/// Whether a device must be made ready before its pod may start.
pub(super) fn is_conditional(result: &DeviceRequestAllocationResult) -> bool {
    result.binding_conditions.as_ref().is_some_and(|conditions| !conditions.is_empty())
}

pub(super) fn has_conditions(claim: &ResourceClaim) -> bool {
    results(claim).iter().any(is_conditional)
}

/// Whether all conditions of all devices are true; fails where one says that this will never be.
pub(super) fn is_ready(claim: &ResourceClaim) -> Result<bool, NotReady> {
    if claim.status.as_ref().is_none_or(|status| status.allocation.is_none()) {
        return Ok(false);
    }
    for result in results(claim).iter().filter(|result| is_conditional(result)) {
        let Some(device) = status_of(claim, result) else { return Ok(false) };
        let holds = |name: &String| condition(device, name).filter(|one| one.status == "True");
        let mut failures = result.binding_failure_conditions.iter().flatten();
        if let Some(failure) = failures.find_map(holds) {
            return Err(NotReady::Failed {
                claim: name(claim),
                reason: failure.reason.clone(),
                message: failure.message.clone(),
            });
        }
        if !result.binding_conditions.iter().flatten().all(|one| holds(one).is_some()) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// When the devices of a claim should have been ready; nothing where nobody waits for them.
pub(super) fn deadline(claim: &ResourceClaim, timeout: Duration) -> Option<Timestamp> {
    let allocation = claim.status.as_ref()?.allocation.as_ref()?;
    let since = allocation.allocation_timestamp.as_ref().filter(|_| has_conditions(claim))?;
    Some(since.0.checked_add(timeout).unwrap_or(Timestamp::MAX))
}

/// Whether the claim is of no use as it is: its devices failed, or did not become ready in time.
pub(super) fn has_failed(claim: &ResourceClaim, now: Timestamp, timeout: Duration) -> bool {
    match is_ready(claim) {
        Ok(true) => false,
        Ok(false) => deadline(claim, timeout).is_some_and(|deadline| deadline < now),
        Err(_) => true,
    }
}

pub(super) fn name(claim: &ResourceClaim) -> String {
    claim.metadata.name.clone().unwrap_or_default()
}

fn status_of<'a>(
    claim: &'a ResourceClaim,
    result: &DeviceRequestAllocationResult,
) -> Option<&'a AllocatedDeviceStatus> {
    let mut devices = claim.status.as_ref()?.devices.iter().flatten();
    devices.find(|one| one.device == result.device && one.driver == result.driver && one.pool == result.pool)
}

fn condition<'a>(device: &'a AllocatedDeviceStatus, name: &str) -> Option<&'a Condition> {
    device.conditions.iter().flatten().find(|one| one.type_ == name)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A claim of two devices: the first must be attached and checked, the second is ready at once.
    fn claim(devices: Value) -> ResourceClaim {
        let first = json!({"request": "r", "driver": "d", "pool": "p", "device": "a", "bindingConditions": ["Attached", "Checked"],
            "bindingFailureConditions": ["Broken", "Lost"]});
        let second = json!({"request": "s", "driver": "d", "pool": "p", "device": "b"});
        let allocation =
            json!({"allocationTimestamp": "2026-01-01T00:00:00Z", "devices": {"results": [second, first]}});
        let claim =
            json!({"metadata": {"name": "c"}, "spec": {}, "status": {"allocation": allocation, "devices": devices}});
        serde_json::from_value(claim).expect("a claim")
    }

    /// `Attached Checked- Broken`: those with a hyphen are false.
    fn device(name: &str, conditions: &str) -> Value {
        let conditions = conditions.split_whitespace().map(|word| {
            let status = if word.ends_with('-') { "False" } else { "True" };
            json!({"type": word.trim_end_matches('-'), "status": status, "reason": "Because", "message": "so \"it\" is",
                "lastTransitionTime": "2026-01-01T00:00:00Z"})
        });
        let conditions: Vec<Value> = conditions.collect();
        json!({"driver": "d", "pool": "p", "device": name, "conditions": conditions})
    }

    #[test]
    fn devices_are_ready_when_all_conditions_are_true() {
        let failed = "device binding failed: claim=c, reason=Because, message=\"so \\\"it\\\" is\"";
        for (what, devices, expected) in [
            ("the driver has said nothing", json!([]), Ok(false)),
            ("of another device", json!([device("b", "Attached Checked")]), Ok(false)),
            ("one of two", json!([device("a", "Attached Checked-")]), Ok(false)),
            ("one is missing", json!([device("a", "Checked")]), Ok(false)),
            ("both", json!([device("b", ""), device("a", "Attached Checked Broken-")]), Ok(true)),
            ("it failed", json!([device("a", "Attached Broken")]), Err(failed)),
            ("it failed though it is ready", json!([device("a", "Attached Checked Lost")]), Err(failed)),
        ] {
            let found = is_ready(&claim(devices)).map_err(|error| error.to_string());
            assert_eq!(found, expected.map_err(str::to_owned), "{what}");
        }
        let bare: ResourceClaim = serde_json::from_value(json!({"metadata": {"name": "c"}, "spec": {}})).unwrap();
        assert_eq!(is_ready(&bare), Ok(false), "it lost its devices");
        let mut simple = claim(json!([]));
        let status = simple.status.as_mut().and_then(|status| status.allocation.as_mut()).expect("allocated");
        status.devices.as_mut().and_then(|devices| devices.results.as_mut()).expect("devices").pop();
        assert_eq!((is_ready(&simple), has_conditions(&simple)), (Ok(true), false), "no device has conditions");
        assert_eq!(deadline(&simple, BINDING_TIMEOUT), None);
    }

    #[test]
    fn a_claim_is_given_up_after_its_time() {
        let at = |text: &str| text.parse::<Timestamp>().expect("a time");
        let pending = claim(json!([]));
        assert!(!has_failed(&pending, at("2026-01-01T00:10:00Z"), BINDING_TIMEOUT));
        assert!(has_failed(&pending, at("2026-01-01T00:10:01Z"), BINDING_TIMEOUT));
        assert!(has_failed(&pending, at("2026-01-01T00:00:31Z"), Duration::from_secs(30)));
        let ready = claim(json!([device("a", "Attached Checked")]));
        assert!(!has_failed(&ready, at("2026-01-02T00:00:00Z"), BINDING_TIMEOUT), "what is ready stays");
        assert!(has_failed(&claim(json!([device("a", "Lost")])), at("2026-01-01T00:00:00Z"), BINDING_TIMEOUT));
    }
}
