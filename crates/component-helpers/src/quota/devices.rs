//! What a ResourceClaim takes of a quota: devices by their class, and extended resources that classes stand for.

use std::collections::BTreeMap;
use std::sync::Arc;

use machinery::object::Meta;
use serde_json::Value;

use super::pod_resources::{Amounts, add};
use super::usage::number;

/// `gpu.deviceclass.resource.k8s.io/devices` are devices of the class `gpu`.
const PER_CLASS: &str = ".deviceclass.resource.k8s.io/devices";
/// The extended resource that every class gives.
pub(super) const IMPLICIT: &str = "deviceclass.resource.kubernetes.io/";
/// On claims that the scheduler made for a pod's extended resources.
const FOR_EXTENDED: &str = "resource.kubernetes.io/extended-resource-claim";
/// A claim that asks for all devices gets so many at most.
const ALL_DEVICES: i64 = 32;

pub(super) fn is_per_class(name: &str) -> bool {
    name.ends_with(PER_CLASS)
}

/// The classes of devices, and the extended resources that they stand for.
#[derive(Default)]
pub struct Classes {
    by_name: BTreeMap<String, Option<String>>,
}

impl Classes {
    pub fn new(classes: impl IntoIterator<Item = (String, Option<String>)>) -> Classes {
        Classes { by_name: classes.into_iter().collect() }
    }

    /// Whether claims count for an extended resource, such as `requests.example.com/gpu`.
    pub(super) fn give(&self, name: &str) -> bool {
        let Some(resource) = name.strip_prefix("requests.") else { return false };
        match resource.strip_prefix(IMPLICIT) {
            Some(class) => self.by_name.contains_key(class),
            None => self.by_name.values().flatten().any(|given| given == resource),
        }
    }

    /// Adds the extended resources that a claim's devices stand for, without what its pod counts for already.
    pub fn add_extended(&self, taken: &mut Amounts, of_pod: &Amounts) {
        let mut extended = Amounts::new();
        for (name, amount) in taken.iter() {
            let Some(class) = name.strip_suffix(PER_CLASS).filter(|class| !class.is_empty()) else { continue };
            extended.insert(format!("requests.{IMPLICIT}{class}"), *amount);
            if let Some(Some(resource)) = self.by_name.get(class) {
                extended.insert(format!("requests.{resource}"), *amount);
            }
        }
        for (name, amount) in extended {
            let left = of_pod.get(&name).map_or(amount, |counted| amount - *counted);
            if left.sign() > 0 {
                taken.insert(name, left);
            }
        }
    }
}

/// The devices that a claim may get, at the worst.
pub(super) fn add_claim(taken: &mut Amounts, claim: &Value) {
    for request in claim.pointer("/spec/devices/requests").and_then(Value::as_array).into_iter().flatten() {
        let mut most = Amounts::new();
        let alternatives = request["firstAvailable"].as_array().filter(|list| !list.is_empty());
        let exactly = request.get("exactly").filter(|_| alternatives.is_none());
        for wanted in alternatives.into_iter().flatten().chain(exactly) {
            let count = match wanted["allocationMode"].as_str() {
                Some("ExactCount") => wanted["count"].as_i64().unwrap_or(0),
                Some("All") => ALL_DEVICES,
                _ => 0,
            };
            let name = format!("{}{PER_CLASS}", wanted["deviceClassName"].as_str().unwrap_or_default());
            let entry = most.entry(name).or_insert_with(|| number(0));
            *entry = number(count).max(*entry);
        }
        add(taken, &most);
    }
}

/// The pod that a claim for extended resources was made for. Such a claim counts for nothing that the pod counts for. Of several
/// claims of one pod only the one that it names is its, or the oldest where it names none.
pub fn pod_of(
    claim: &Value,
    pod: impl FnOnce(&str) -> Option<Value>,
    claims: impl FnOnce() -> Vec<Arc<Value>>,
) -> Option<Value> {
    let owner = owner(claim)?;
    let pod = pod(owner["name"].as_str()?).filter(|pod| owner["uid"].as_str() == Some(pod.uid()))?;
    let named = pod.pointer("/status/extendedResourceClaimStatus");
    if let Some(named) = named.filter(|named| !named.is_null()) {
        return (named["resourceClaimName"].as_str() == Some(claim.name())).then_some(pod);
    }
    let age = |claim: &Value| {
        (claim.meta("creationTimestamp").and_then(Value::as_str).map(str::to_owned), claim.name().to_owned())
    };
    let is_older = |other: &Arc<Value>| {
        let same_pod = self::owner(other).is_some_and(|other| other["uid"] == owner["uid"]);
        same_pod && age(other) < age(claim)
    };
    (!claims().iter().any(is_older)).then_some(pod)
}

/// The pod that controls a claim for extended resources.
fn owner(claim: &Value) -> Option<&Value> {
    claim.annotation(FOR_EXTENDED).filter(|value| *value == "true")?;
    let mut owners = claim.meta("ownerReferences")?.as_array()?.iter();
    owners
        .find(|owner| owner["controller"] == true)
        .filter(|owner| owner["kind"] == "Pod" && owner["apiVersion"] == "v1")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn claim(requests: Value) -> Value {
        json!({"metadata": {"name": "c"}, "spec": {"devices": {"requests": requests}}})
    }

    fn exactly(class: &str, count: i64) -> Value {
        json!({"deviceClassName": class, "allocationMode": "ExactCount", "count": count})
    }

    fn shown(taken: &Amounts) -> String {
        taken.iter().map(|(name, amount)| format!("{name}={amount}")).collect::<Vec<_>>().join(",")
    }

    #[test]
    fn claims_count_for_the_worst() {
        let check = |requests: Value, expected: &str| {
            let mut taken = Amounts::new();
            add_claim(&mut taken, &claim(requests));
            assert_eq!(shown(&taken).replace(PER_CLASS, ""), expected);
        };
        check(json!([{"exactly": exactly("gpu", 2)}, {"exactly": exactly("gpu", 1)}]), "gpu=3");
        check(json!([{"exactly": {"deviceClassName": "gpu", "allocationMode": "All"}}]), "gpu=32");
        check(json!([{"exactly": {"deviceClassName": "gpu", "allocationMode": "Later"}}]), "gpu=0");
        let first = json!([exactly("large", 1), exactly("small", 2), exactly("small", 4)]);
        check(json!([{"firstAvailable": first}, {"exactly": exactly("small", 1)}]), "large=1,small=5");
    }

    #[test]
    fn classes_stand_for_resources_that_pods_may_have_counted() {
        let classes = Classes::new([("gpu".to_owned(), Some("example.com/gpu".to_owned())), ("nic".to_owned(), None)]);
        for (name, given) in [
            ("requests.example.com/gpu", true),
            ("requests.example.com/other", false),
            ("requests.deviceclass.resource.kubernetes.io/nic", true),
            ("requests.deviceclass.resource.kubernetes.io/none", false),
            ("example.com/gpu", false),
        ] {
            assert_eq!(classes.give(name), given, "{name}");
        }
        let taken = |of_pod: &Amounts| {
            let mut taken = Amounts::new();
            add_claim(&mut taken, &claim(json!([{"exactly": exactly("gpu", 2)}])));
            classes.add_extended(&mut taken, of_pod);
            shown(&taken)
        };
        assert_eq!(
            taken(&Amounts::new()),
            "gpu.deviceclass.resource.k8s.io/devices=2,requests.deviceclass.resource.kubernetes.io/gpu=2,requests.example.com/gpu=2"
        );
        let of_pod = Amounts::from([("requests.example.com/gpu".to_owned(), number(2))]);
        assert_eq!(
            taken(&of_pod),
            "gpu.deviceclass.resource.k8s.io/devices=2,requests.deviceclass.resource.kubernetes.io/gpu=2"
        );
    }

    #[test]
    fn a_claim_for_extended_resources_is_its_pods() {
        let made = |name: &str, at: &str| {
            let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": true});
            json!({"metadata": {"name": name, "creationTimestamp": at, "annotations": {FOR_EXTENDED: "true"}, "ownerReferences": [owner]}})
        };
        let pod = |uid: &str, named: Value| json!({"metadata": {"name": "p", "uid": uid}, "status": {"extendedResourceClaimStatus": named}});
        let older = || vec![Arc::new(made("a", "2026-01-01T00:00:00Z")), Arc::new(made("b", "2026-01-01T00:00:01Z"))];
        let check = |claim: Value, pod: Value, expected: bool| {
            assert_eq!(pod_of(&claim, |_| Some(pod.clone()), older).is_some(), expected, "{claim} {pod}");
        };
        let (first, second) = (made("a", "2026-01-01T00:00:00Z"), made("b", "2026-01-01T00:00:01Z"));
        check(first.clone(), pod("u", Value::Null), true);
        check(second.clone(), pod("u", Value::Null), false);
        check(second, pod("u", json!({"resourceClaimName": "b"})), true);
        check(first.clone(), pod("u", json!({"resourceClaimName": "b"})), false);
        check(first.clone(), pod("another", Value::Null), false);
        let mut users = first;
        users["metadata"]["annotations"] = json!({});
        check(users, pod("u", Value::Null), false);
    }
}
