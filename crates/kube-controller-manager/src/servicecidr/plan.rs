//! Decides conditions and finalizer of a ServiceCIDR.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use jiff::Timestamp;
use k8s_openapi::api::networking::v1::{IPAddress, ServiceCIDR};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use reconcile::{Key, Plan, Write};
use serde_json::json;

use crate::common::conditions::transition;
use crate::common::finalizers::{added, has, removed};

pub(super) const FINALIZER: &str = "networking.k8s.io/service-cidr-finalizer";
const READY: &str = "Ready";
/// Until then every server has seen that the range is to go, and gives no more addresses of it.
const GRACE_SECONDS: i64 = 10;

pub(super) fn plan(range: &ServiceCIDR, needed: impl FnOnce() -> bool, now: Timestamp) -> Plan {
    let Some(ends) = &range.metadata.deletion_timestamp else {
        if !has(range, FINALIZER) {
            return Plan::one(added(range, FINALIZER));
        }
        return if ready(range).is_some_and(|condition| condition.status == "True") {
            Plan::nothing()
        } else {
            Plan::one(says(range, "True", "", "Kubernetes Service CIDR is ready", now))
        };
    };
    if !has(range, FINALIZER) {
        return Plan::nothing();
    }
    if needed() {
        let message =
            "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR";
        return if ready(range).is_some_and(|condition| condition.message == message) {
            Plan::nothing()
        } else {
            Plan::one(says(range, "False", "Terminating", message, now))
        };
    }
    match ends.0.as_second() + GRACE_SECONDS - now.as_second() {
        left if left > 0 => Plan::after(Duration::from_secs(left.unsigned_abs())),
        _ => Plan::one(removed(range, FINALIZER)),
    }
}

/// Whether an address of the range is in use that no other range holds which stays.
pub(super) fn is_needed(range: &ServiceCIDR, others: &[Arc<ServiceCIDR>], addresses: &[Arc<IPAddress>]) -> bool {
    let own = networks(range);
    let stays = others.iter().filter(|other| other.metadata.deletion_timestamp.is_none());
    let others: Vec<IpNet> = stays.flat_map(|other| networks(other)).collect();
    // What lies in another as a whole needs no look at addresses.
    let lost: Vec<IpNet> = own.into_iter().filter(|own| !others.iter().any(|other| other.contains(own))).collect();
    let is_lost = |address: IpAddr| {
        lost.iter().any(|range| range.contains(&address)) && !others.iter().any(|other| other.contains(&address))
    };
    // Nothing but addresses is looked at where nothing would be lost.
    !lost.is_empty()
        && addresses
            .iter()
            .any(|address| address.metadata.name.as_deref().and_then(|name| name.parse().ok()).is_some_and(is_lost))
}

fn networks(range: &ServiceCIDR) -> Vec<IpNet> {
    let texts = range.spec.iter().flat_map(|spec| spec.cidrs.iter().flatten());
    texts.filter_map(|text| text.parse().ok()).collect()
}

fn ready(range: &ServiceCIDR) -> Option<&Condition> {
    let mut conditions = range.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.find(|condition| condition.type_ == READY)
}

fn says(range: &ServiceCIDR, status: &str, reason: &str, message: &str, now: Timestamp) -> Write {
    let before = ready(range).map(|condition| (condition.status.as_str(), Some(&condition.last_transition_time)));
    let mut conditions = range.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
    conditions.retain(|condition| condition.type_ != READY);
    conditions.push(Condition {
        type_: READY.into(),
        status: status.into(),
        reason: reason.into(),
        message: message.into(),
        last_transition_time: transition(before, status, now),
        observed_generation: None,
    });
    let metadata = json!({"uid": range.metadata.uid, "resourceVersion": range.metadata.resource_version});
    let patch = json!({"metadata": metadata, "status": {"conditions": conditions}});
    Write::merge_patch_sub::<ServiceCIDR>(&Key::of(&range.metadata), "status", patch).accept(&["NotFound"])
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn range(name: &str, cidr: &str, ends: Option<&str>, finalizers: &[&str], message: &str) -> Arc<ServiceCIDR> {
        let mut object = json!({"metadata": {"name": name, "finalizers": finalizers}, "spec": {"cidrs": [cidr]}});
        if let Some(ends) = ends {
            object["metadata"]["deletionTimestamp"] = ends.into();
        }
        if !message.is_empty() {
            let status = if message == "ready" { "True" } else { "False" };
            object["status"]["conditions"] = json!([{
                "type": READY, "status": status, "reason": "", "message": message, "lastTransitionTime": "2026-01-01T00:00:00Z",
            }]);
        }
        Arc::new(serde_json::from_value(object).expect("a range"))
    }

    #[test]
    fn a_range_is_ready_and_goes_when_nobody_needs_it() {
        let now: Timestamp = "2026-01-01T01:00:00Z".parse().expect("a time");
        let check = |ends: Option<&str>, finalizers: &[&str], said: &str, needed: bool, expected: Value| {
            let plan = plan(&range("a", "10.0.0.0/24", ends, finalizers, said), || needed, now);
            let body = plan.writes.first().map_or(Value::Null, |write| write.body().clone());
            let found = json!([
                body["metadata"]["finalizers"].as_array().map(Vec::len),
                body["status"]["conditions"][0]["status"],
                body["status"]["conditions"][0]["reason"],
                plan.again.map(|again| again.as_secs()),
            ]);
            assert_eq!(found, expected, "{ends:?} {finalizers:?} {said} {needed}");
        };
        let (long_ago, lately) = (Some("2026-01-01T00:00:00Z"), Some("2026-01-01T00:59:57Z"));
        check(None, &[], "", false, json!([1, null, null, null]));
        check(None, &[FINALIZER], "", false, json!([null, "True", "", null]));
        check(None, &[FINALIZER], "ready", true, json!([null, null, null, null]));
        check(long_ago, &[FINALIZER], "ready", true, json!([null, "False", "Terminating", null]));
        check(lately, &[FINALIZER], "ready", false, json!([null, null, null, 7]));
        check(long_ago, &[FINALIZER, "other"], "", false, json!([1, null, null, null]));
        check(long_ago, &["other"], "ready", false, json!([null, null, null, null]));
    }

    #[test]
    fn addresses_need_a_range_that_no_other_replaces() {
        let address = |name: &str| {
            let object =
                json!({"metadata": {"name": name}, "spec": {"parentRef": {"name": "s", "resource": "services"}}});
            Arc::new(serde_json::from_value::<IPAddress>(object).expect("an address"))
        };
        let own = range("a", "10.0.0.0/24", None, &[], "");
        let check = |others: &[(&str, Option<&str>)], addresses: &[&str], expected: bool| {
            let ranges: Vec<_> = others.iter().map(|(cidr, ends)| range("b", cidr, *ends, &[], "")).collect();
            let addresses: Vec<_> = addresses.iter().map(|name| address(name)).collect();
            assert_eq!(is_needed(&own, &ranges, &addresses), expected, "{others:?}");
        };
        check(&[], &[], false);
        check(&[], &["10.0.1.7", "fd00::7"], false);
        check(&[], &["10.0.0.7"], true);
        check(&[("10.0.0.0/16", None)], &["10.0.0.7"], false);
        check(&[("10.0.0.0/16", Some("2026-01-01T00:00:00Z"))], &["10.0.0.7"], true);
        check(&[("10.0.0.0/28", None)], &["10.0.0.7"], false);
        check(&[("10.0.0.0/28", None)], &["10.0.0.7", "10.0.0.200"], true);
    }
}
