//! What a quota's status says: its limits, and how much of them is used.

use std::sync::Arc;

use component_helpers::quota::devices::{Classes, pod_of};
use component_helpers::quota::pod_resources::{Amounts, add};
use component_helpers::quota::{scopes, usage};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, ResourceQuota, ResourceQuotaStatus};
use k8s_openapi::api::resource::v1::ResourceClaim;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Written;
use machinery::quantity::Quantity;
use reconcile::{Kind, Plan, Write};
use serde_json::{Value, json};

/// Kinds that are cached.
const WEIGHED: &[(&str, &str)] = &[
    ("", "pods"),
    ("", "services"),
    ("", "persistentvolumeclaims"),
    ("", "replicationcontrollers"),
    ("resource.k8s.io", "resourceclaims"),
];

/// The names that the quota limits, none of them used.
pub(super) fn nothing_used(quota: &ResourceQuota) -> Amounts {
    hard_names(quota).map(|name| (name.clone(), usage::number(0))).collect()
}

fn hard_names(quota: &ResourceQuota) -> impl Iterator<Item = &String> {
    quota.spec.iter().flat_map(|spec| spec.hard.iter().flatten()).map(|(name, _)| name)
}

fn matching(group: &str, plural: &str, names: &[&String], classes: &Classes) -> Vec<String> {
    let hard: serde_json::Map<String, Value> = names.iter().map(|name| (name.to_string(), json!("0"))).collect();
    usage::matching_names(group, plural, &Value::Object(hard), classes)
}

/// The cached kinds that the quota limits.
pub(super) fn weighed(quota: &ResourceQuota, classes: &Classes) -> Vec<&'static str> {
    let names: Vec<&String> = hard_names(quota).collect();
    let weighed = WEIGHED.iter().filter(|(group, plural)| !matching(group, plural, &names, classes).is_empty());
    weighed.map(|(_, plural)| *plural).collect()
}

/// The names that are about kinds which are not cached.
pub(super) fn others(quota: &ResourceQuota) -> Vec<&String> {
    let names = hard_names(quota);
    let is_other = |name: &&String| {
        WEIGHED.iter().all(|(group, plural)| matching(group, plural, &[name], &Classes::default()).is_empty())
    };
    names.filter(is_other).collect()
}

pub(super) fn names_of(group: &str, plural: &str, names: &[&String]) -> Vec<String> {
    matching(group, plural, names, &Classes::default())
}

/// The same for ResourceClaims, which count by classes and not for what their pods count for.
pub(super) fn add_device_claims(
    used: &mut Amounts,
    quota: &Value,
    classes: &Classes,
    claims: &[Arc<ResourceClaim>],
    pod: impl Fn(&str) -> Option<Arc<Pod>>,
    now: Timestamp,
) {
    if !scopes::matches(quota, "resource.k8s.io", "resourceclaims", &Value::Null) {
        return;
    }
    let values = claims.iter().filter_map(|claim| serde_json::to_value(&**claim).ok());
    let values: Vec<Arc<Value>> = values.map(Arc::new).collect();
    for claim in &values {
        let mut taken = usage::of_object("resource.k8s.io", "resourceclaims", claim, now);
        let pod = pod_of(claim, |name| serde_json::to_value(&*pod(name)?).ok(), || values.clone());
        let of_pod = pod.map(|pod| usage::of_object("", "pods", &pod, now)).unwrap_or_default();
        classes.add_extended(&mut taken, &of_pod);
        taken.retain(|name, _| used.contains_key(name));
        add(used, &taken);
    }
}

/// Adds what each object takes, where it is in the quota's scopes.
pub(super) fn add_all<K: Kind>(used: &mut Amounts, quota: &Value, plural: &str, objects: &[Arc<K>], now: Timestamp) {
    for object in objects {
        let Ok(value) = serde_json::to_value(&**object) else { continue };
        if scopes::matches(quota, "", plural, &value) {
            let mut taken = usage::of_object("", plural, &value, now);
            taken.retain(|name, _| used.contains_key(name));
            add(used, &taken);
        }
    }
}

/// Adds so many objects that are all alike.
pub(super) fn add_number(used: &mut Amounts, quota: &Value, group: &str, plural: &str, names: &[String], number: i64) {
    if scopes::matches(quota, group, plural, &Value::Null) {
        let taken: Amounts = names.iter().map(|name| (name.clone(), usage::number(number))).collect();
        add(used, &taken);
    }
}

/// Whether less is used than the status says.
pub(super) fn gives_back(quota: &ResourceQuota, used: &Amounts) -> bool {
    let said = quota.status.iter().flat_map(|status| status.used.iter().flatten());
    said.filter_map(|(name, amount)| Some((used.get(name)?, Quantity::parse(&amount.0).ok()?)))
        .any(|(now, before)| *now < before)
}

pub(super) fn plan(quota: &ResourceQuota, used: &Amounts) -> Plan {
    let hard = quota.spec.as_ref().and_then(|spec| spec.hard.clone());
    let used = used.iter().map(|(name, amount)| (name.clone(), Written(amount.canonical()))).collect();
    let new = ResourceQuotaStatus { hard, used: Some(used) };
    let quantities = |status: &ResourceQuotaStatus| {
        let parsed = |list: &Option<std::collections::BTreeMap<String, Written>>| -> Vec<(String, Option<Quantity>)> {
            let entries = list.iter().flatten();
            entries.map(|(name, amount)| (name.clone(), Quantity::parse(&amount.0).ok())).collect()
        };
        (parsed(&status.hard), parsed(&status.used))
    };
    // `1` and `1000m` are the same; writing one over the other would never end.
    if quota.status.as_ref().is_some_and(|old| quantities(old) == quantities(&new)) {
        return Plan::nothing();
    }
    let mut quota = quota.clone();
    quota.status = Some(new);
    Plan::one(Write::update_sub(&quota, "status").accept(&["NotFound"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quota(hard: Value, used: Value) -> ResourceQuota {
        let object = json!({"metadata": {"name": "q", "namespace": "a"},
            "spec": {"hard": hard}, "status": {"hard": hard, "used": used}});
        serde_json::from_value(object).expect("a quota")
    }

    fn pod(phase: &str) -> Arc<Pod> {
        let resources = json!({"requests": {"cpu": "500m"}});
        let object = json!({"metadata": {"name": "p", "namespace": "a"}, "status": {"phase": phase},
            "spec": {"containers": [{"name": "c", "resources": resources}]}});
        Arc::new(serde_json::from_value(object).expect("a pod"))
    }

    #[test]
    fn what_is_there_is_counted() {
        let check = |phases: &[&str], used: Value, expected: &str, gives: bool| {
            let quota = quota(json!({"pods": "9", "requests.cpu": "9", "count/pods": "9"}), used);
            let pods: Vec<Arc<Pod>> = phases.iter().map(|phase| pod(phase)).collect();
            let mut amounts = nothing_used(&quota);
            let value = serde_json::to_value(&quota).expect("is written");
            add_all(&mut amounts, &value, "pods", &pods, Timestamp::UNIX_EPOCH);
            let plan = plan(&quota, &amounts);
            let written = plan.writes.first().map(|write| write.body()["status"]["used"].to_string());
            assert_eq!(written.unwrap_or_default(), expected, "{phases:?}");
            assert_eq!(gives_back(&quota, &amounts), gives, "{phases:?}");
        };
        let used = |count: &str, pods: &str, cpu: &str| json!({"count/pods": count, "pods": pods, "requests.cpu": cpu});
        check(&[], used("0", "0", "0"), "", false);
        check(&["Running", "Running"], used("2", "2", "1000m"), "", false);
        let both = r#"{"count/pods":"2","pods":"1","requests.cpu":"500m"}"#;
        check(&["Running", "Succeeded"], used("2", "2", "1"), both, true);
        check(&["Running", "Succeeded"], used("0", "0", "0"), both, false);
    }

    #[test]
    fn names_say_what_must_be_listed() {
        let quota = quota(json!({"pods": "1", "count/deployments.apps": "1", "secrets": "1"}), json!({}));
        assert_eq!(weighed(&quota, &Classes::default()), ["pods"]);
        assert_eq!(others(&quota), ["count/deployments.apps", "secrets"]);
        assert_eq!(names_of("apps", "deployments", &others(&quota)), ["count/deployments.apps"]);
    }

    #[test]
    fn devices_count_by_class() {
        let hard = json!({"gpu.deviceclass.resource.k8s.io/devices": "9", "requests.example.com/gpu": "9", "count/resourceclaims.resource.k8s.io": "9"});
        let quota = quota(hard, json!({}));
        let classes = Classes::new([("gpu".to_owned(), Some("example.com/gpu".to_owned()))]);
        assert_eq!(weighed(&quota, &classes), ["pods", "resourceclaims"]);
        assert!(others(&quota).is_empty());
        let claim = |name: &str, metadata: Value| -> Arc<ResourceClaim> {
            let exactly = json!({"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 2});
            let mut claim = json!({"metadata": {"name": name, "namespace": "a"},
                "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}});
            machinery::object::child_mut(&mut claim, "metadata")
                .extend(metadata.as_object().cloned().unwrap_or_default());
            Arc::new(serde_json::from_value(claim).expect("a claim"))
        };
        let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": true});
        let of_pod = json!({"ownerReferences": [owner], "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"}});
        let claims = [claim("by-user", json!({})), claim("by-scheduler", of_pod)];
        let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "a", "uid": "u"},
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"example.com/gpu": "2"}}}]}}))
        .expect("a pod");
        let mut used = nothing_used(&quota);
        let value = serde_json::to_value(&quota).expect("is written");
        let pod = Arc::new(pod);
        add_all(&mut used, &value, "pods", std::slice::from_ref(&pod), Timestamp::UNIX_EPOCH);
        add_device_claims(&mut used, &value, &classes, &claims, |_| Some(pod.clone()), Timestamp::UNIX_EPOCH);
        let shown: Vec<String> = used.iter().map(|(name, amount)| format!("{name}={amount}")).collect();
        let expected = [
            "count/resourceclaims.resource.k8s.io=2",
            "gpu.deviceclass.resource.k8s.io/devices=4",
            "requests.example.com/gpu=4",
        ];
        assert_eq!(shown, expected, "two of a user, and two of a pod that are counted once");
    }
}
