//! How long the users of a claim may stay with its devices, and how they are sent away.

use std::sync::Arc;

use component_helpers::device_taints::tolerates;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{
    DeviceRequestAllocationResult, DeviceTaint, ResourceClaim, ResourceClaimConsumerReference, ResourceSlice,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::DeleteOptions;
use reconcile::{Event, Plan, Write};

use crate::common::disruption;

const REASON: &str = "DeviceTaintManagerEviction";

/// The pods that a claim is reserved for.
pub(super) fn users(claim: &ResourceClaim) -> impl Iterator<Item = &ResourceClaimConsumerReference> {
    let all = claim.status.iter().flat_map(|status| status.reserved_for.iter().flatten());
    all.filter(|user| user.resource == "pods" && user.api_group.as_deref().unwrap_or_default().is_empty())
}

fn devices(claim: &ResourceClaim) -> impl Iterator<Item = &DeviceRequestAllocationResult> {
    let allocation = claim.status.as_ref().and_then(|status| status.allocation.as_ref());
    allocation.and_then(|one| one.devices.as_ref()).into_iter().flat_map(|devices| devices.results.iter().flatten())
}

/// Whether some of its devices are of this driver and pool.
pub(super) fn has_devices_of(claim: &ResourceClaim, pool: (&str, &str)) -> bool {
    devices(claim).any(|device| (device.driver.as_str(), device.pool.as_str()) == pool)
}

/// When the users of a claim must have left; nothing where they may stay. The first taint that is not tolerated, or no longer, counts.
pub(super) fn leave_at(claim: &ResourceClaim, slices: &[Arc<ResourceSlice>], now: Timestamp) -> Option<Timestamp> {
    let all = devices(claim).flat_map(|device| {
        let tolerations = device.tolerations.as_deref().unwrap_or_default();
        taints(device, slices).filter_map(move |taint| {
            let since = taint.time_added.as_ref().map_or(now, |added| added.0);
            let Some(toleration) = tolerations.iter().find(|toleration| tolerates(toleration, taint)) else {
                return Some(since);
            };
            let seconds = SignedDuration::from_secs(toleration.toleration_seconds?.max(0));
            // A time beyond all times never comes.
            since.checked_add(seconds).ok()
        })
    });
    all.min()
}

/// The taints of an allocated device that send pods away, of the newest slices of its pool.
fn taints<'a>(
    device: &'a DeviceRequestAllocationResult,
    slices: &'a [Arc<ResourceSlice>],
) -> impl Iterator<Item = &'a DeviceTaint> {
    let of_pool =
        move |slice: &&'a Arc<ResourceSlice>| slice.spec.driver == device.driver && slice.spec.pool.name == device.pool;
    let newest = slices.iter().filter(of_pool).map(|slice| slice.spec.pool.generation).max();
    let newest = slices.iter().filter(of_pool).filter(move |slice| Some(slice.spec.pool.generation) == newest);
    let found =
        newest.flat_map(|slice| slice.spec.devices.iter().flatten()).filter(move |one| one.name == device.device);
    found.flat_map(|one| one.taints.iter().flatten()).filter(|taint| taint.effect == "NoExecute")
}

/// Says why, then deletes.
pub(super) fn evict(pods: &[Arc<Pod>], now: Timestamp) -> Plan {
    let why = ("DeletionByDeviceTaintManager", "Device Taint manager: deleting due to NoExecute taint");
    let mut plan = Plan::nothing();
    for pod in pods {
        plan.events.push(Event::normal(&**pod, REASON, "Marking for deletion".to_owned()));
        plan.writes.push(disruption::mark(pod, why, None, now));
        plan.writes.push(Write::delete(&**pod, DeleteOptions::default()));
    }
    plan
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const ADDED: &str = "2026-01-01T00:00:00Z";

    fn slice(generation: i64, taints: Value) -> Arc<ResourceSlice> {
        let pool = json!({"name": "p", "generation": generation, "resourceSliceCount": 1});
        let devices = json!([{"name": "x", "taints": taints}, {"name": "y"}]);
        let spec = json!({"driver": "d", "nodeName": "n", "pool": pool, "devices": devices});
        Arc::new(serde_json::from_value(json!({"metadata": {"name": "s"}, "spec": spec})).unwrap())
    }

    fn claim(device: &str, tolerations: Value) -> ResourceClaim {
        let result = json!({"request": "r", "driver": "d", "pool": "p", "device": device, "tolerations": tolerations});
        let reserved =
            json!([{"resource": "pods", "name": "a", "uid": "1"}, {"resource": "others", "name": "b", "uid": "2"}]);
        let status = json!({"allocation": {"devices": {"results": [result]}}, "reservedFor": reserved});
        serde_json::from_value(json!({"metadata": {"name": "c"}, "spec": {}, "status": status})).unwrap()
    }

    #[test]
    fn the_first_taint_that_is_not_tolerated_counts() {
        let bad = json!({"key": "bad", "effect": "NoExecute", "timeAdded": ADDED});
        let late = json!({"key": "late", "effect": "NoExecute", "timeAdded": "2026-01-01T01:00:00Z"});
        let schedule = json!({"key": "no", "effect": "NoSchedule", "timeAdded": ADDED});
        let now: Timestamp = "2026-02-01T00:00:00Z".parse().unwrap();
        let at = |device: &str, tolerations: Value, taints: Value| {
            leave_at(&claim(device, tolerations), &[slice(2, taints), slice(1, json!([bad]))], now)
                .map(|at| at.to_string())
        };
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(at("x", json!([]), json!([schedule])), None, "an old generation says nothing");
        assert_eq!(at("y", json!([]), json!([bad])), None, "another device");
        assert_eq!(at("x", json!([]), json!([late, bad])), text(ADDED));
        assert_eq!(at("x", json!([{"key": "bad", "operator": "Exists"}]), json!([bad])), None);
        let minute = json!([{"key": "bad", "operator": "Exists", "tolerationSeconds": 60}]);
        assert_eq!(at("x", minute.clone(), json!([bad])), text("2026-01-01T00:01:00Z"));
        assert_eq!(at("x", minute, json!([bad, late])), text("2026-01-01T00:01:00Z"));
        let undated = json!({"key": "bad", "effect": "NoExecute"});
        assert_eq!(at("x", json!([]), json!([undated])), text("2026-02-01T00:00:00Z"));
        assert_eq!(users(&claim("x", json!([]))).count(), 1);
        assert!(
            has_devices_of(&claim("x", json!([])), ("d", "p")) && !has_devices_of(&claim("x", json!([])), ("d", "q"))
        );
    }

    #[test]
    fn a_pod_is_told_why_before_it_goes() {
        let pod: Pod =
            serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "a", "uid": "1"}})).unwrap();
        let plan = evict(&[Arc::new(pod)], Timestamp::UNIX_EPOCH);
        let writes: Vec<String> = plan.writes.iter().map(ToString::to_string).collect();
        assert_eq!(writes, ["patch /api/v1/namespaces/a/pods/p/status", "delete /api/v1/namespaces/a/pods/p"]);
        assert_eq!(plan.writes[0].body()["status"]["conditions"][0]["reason"], "DeletionByDeviceTaintManager");
        assert_eq!(plan.events[0].message, "Marking for deletion");
    }
}
