//! The decisions of the controller, from small objects.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimTemplate};
use reconcile::Plan;
use serde_json::{Value, json};

use super::claim::{Decision, decide};
use super::{FINALIZER, POD_CLAIM_NAME, pod};

fn pod(more: Value) -> Pod {
    let mut pod = json!({"metadata": {"name": "p", "namespace": "a", "uid": "1"}, "spec": {"containers": [], "resourceClaims": [
        {"name": "gpu", "resourceClaimTemplateName": "t"}, {"name": "nic", "resourceClaimName": "shared"}]}});
    merge(&mut pod, more);
    serde_json::from_value(pod).unwrap()
}

fn claim(more: Value) -> ResourceClaim {
    let mut claim = json!({"metadata": {"name": "p-gpu-x", "namespace": "a", "uid": "9", "annotations": {POD_CLAIM_NAME: "gpu"},
        "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "1", "controller": true}]}, "spec": {}});
    merge(&mut claim, more);
    serde_json::from_value(claim).unwrap()
}

fn merge(base: &mut Value, more: Value) {
    match (base, more) {
        (Value::Object(base), Value::Object(more)) => {
            more.into_iter().for_each(|(key, value)| merge(base.entry(key).or_insert(Value::Null), value));
        }
        (base, more) => *base = more,
    }
}

fn template() -> Option<Arc<ResourceClaimTemplate>> {
    let spec = json!({"metadata": {"labels": {"k": "v"}}, "spec": {"devices": {"requests": [{"name": "r"}]}}});
    serde_json::from_value(json!({"metadata": {"name": "t", "namespace": "a"}, "spec": spec})).ok().map(Arc::new)
}

fn planned(pod: &Pod, owned: &[ResourceClaim], template: Option<Arc<ResourceClaimTemplate>>) -> Plan {
    let owned: Vec<Arc<ResourceClaim>> = owned.iter().cloned().map(Arc::new).collect();
    pod::plan(
        pod,
        &owned,
        |_| template.clone(),
        |name| owned.iter().find(|one| one.metadata.name.as_deref() == Some(name)).cloned(),
    )
}

#[test]
fn a_template_becomes_a_claim_and_the_pod_learns_its_name() {
    let plan = planned(&pod(json!({})), &[], template());
    let made = plan.writes[0].body();
    assert_eq!(plan.writes[0].to_string(), "create /apis/resource.k8s.io/v1/namespaces/a/resourceclaims");
    assert_eq!((&made["metadata"]["generateName"], &made["metadata"]["labels"]["k"]), (&json!("p-gpu-"), &json!("v")));
    assert_eq!(made["metadata"]["ownerReferences"][0]["uid"], "1");
    assert_eq!(made["spec"]["devices"]["requests"][0]["name"], "r");

    let plan = planned(&pod(json!({})), &[claim(json!({}))], template());
    assert_eq!(plan.writes.len(), 1);
    let said = json!([{"name": "gpu", "resourceClaimName": "p-gpu-x"}]);
    assert_eq!(plan.writes[0].body()["status"]["resourceClaimStatuses"], said);
    let told = pod(json!({"status": {"resourceClaimStatuses": said}}));
    assert!(planned(&told, &[claim(json!({}))], template()).writes.is_empty());

    let plan = planned(&pod(json!({})), &[], None);
    let message =
        "PodResourceClaim gpu: resource claim template \"t\": resourceclaimtemplate.resource.k8s.io \"t\" not found";
    assert_eq!((plan.writes.len(), plan.events[0].message.as_str()), (0, message));
    assert!(planned(&pod(json!({"status": {"phase": "Succeeded"}})), &[], template()).writes.is_empty());
}

#[test]
fn a_pod_that_came_to_its_node_without_a_scheduler_gets_its_reservation() {
    let said = json!({"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "p-gpu-x"}]});
    let placed = pod(json!({"spec": {"nodeName": "n1"}, "status": said}));
    let allocated = claim(json!({"status": {"allocation": {}}}));
    let plan = planned(&placed, &[allocated], template());
    assert_eq!(plan.writes[0].body()["status"]["reservedFor"], json!([{"resource": "pods", "name": "p", "uid": "1"}]));
    assert!(planned(&placed, &[claim(json!({}))], template()).writes.is_empty(), "nothing is allocated");
}

#[test]
fn a_claim_is_free_when_its_pods_are_done() {
    let reserved = json!({"metadata": {"finalizers": [FINALIZER]}, "status": {"allocation": {},
        "reservedFor": [{"resource": "pods", "name": "p", "uid": "1"}]}});
    let used = claim(reserved.clone());
    assert_eq!(decide(&used, &[pod(json!({}))]), Decision::Nothing);
    let done = pod(json!({"status": {"phase": "Failed"}}));
    for pods in [&[done.clone()][..], &[]] {
        let Decision::Free(free) = decide(&used, pods) else { panic!("it is free") };
        assert_eq!(free.status, Some(Default::default()));
    }
    // Another pod, or something that is no pod, still uses it.
    let mut shared = reserved.clone();
    shared["status"]["reservedFor"] =
        json!([{"resource": "pods", "name": "p", "uid": "1"}, {"resource": "others", "name": "o", "uid": "2"}]);
    let Decision::Status(shared) = decide(&claim(shared), &[]) else { panic!("it stays allocated") };
    let status = shared.status.unwrap();
    assert_eq!((status.allocation.is_some(), status.reserved_for.unwrap().len()), (true, 1));
    // Made for the pod, it goes when the pod is done; when the pod is gone, others see to that.
    assert_eq!(decide(&claim(json!({})), &[done]), Decision::Delete);
    assert_eq!(decide(&claim(json!({})), &[]), Decision::Nothing);
    let ending = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": [FINALIZER]}});
    assert_eq!(decide(&claim(ending), &[]), Decision::Release);
}

#[test]
fn the_claim_for_extended_resources_is_held_too() {
    let mapping = json!({"containerName": "c", "resourceName": "x.io/gpu", "requestName": "container-0-request-0"});
    let status = json!({"extendedResourceClaimStatus": {"resourceClaimName": "p-extended-resources-x", "requestMappings": [mapping]}});
    let mut pod = pod(json!({"spec": {"nodeName": "n1"}, "status": status}));
    let held: Vec<String> = pod::held_claims(&pod).collect();
    assert_eq!(held, ["shared", "p-extended-resources-x"]);
    pod.spec.as_mut().unwrap().resource_claims = None;
    assert!(pod::wants_claims(&pod), "its claim is looked at when it ends");
    let made = claim(json!({"metadata": {"name": "p-extended-resources-x"}, "status": {"allocation": {}}}));
    assert!(planned(&pod, &[made], None).writes.is_empty(), "only a scheduler gives it devices");
    pod.status = None;
    assert!(!pod::wants_claims(&pod));
}

#[test]
fn a_long_name_keeps_something_of_pod_and_claim() {
    let check = |length: usize, expected: &str| {
        let plan = planned(&pod(json!({"metadata": {"name": "p".repeat(length)}})), &[], template());
        assert_eq!(plan.writes[0].body()["metadata"]["generateName"], json!(expected));
    };
    check(53, &format!("{}-gpu-", "p".repeat(53)));
    check(96, &format!("{}-g-", "p".repeat(54)));
}
