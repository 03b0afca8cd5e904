//! What is asked of the cloud, what is written, and what is told.

use serde_json::Value;

use super::*;
use crate::fake::FakeBalancers;

fn service(change: Value) -> Service {
    let mut object = json!({
        "metadata": {"name": "web", "namespace": "a", "uid": "1", "resourceVersion": "7", "finalizers": [FINALIZER]},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]},
        "status": {"loadBalancer": {}},
    });
    for part in ["metadata", "spec", "status"] {
        for (key, value) in change[part].as_object().into_iter().flatten() {
            object[part][key] = value.clone();
        }
    }
    serde_json::from_value(object).unwrap()
}

fn nodes() -> Vec<Arc<Node>> {
    let node = |name: &str, labels: Value, taint: &str| {
        let spec = json!({"taints": [{"key": taint, "effect": "NoSchedule"}]});
        Arc::new(serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}, "spec": spec})).unwrap())
    };
    vec![
        node("n1", json!({}), "x"),
        node("n2", json!({}), "x"),
        node("excluded", json!({EXCLUDED: ""}), "x"),
        node("new", json!({}), TAINTS[0]),
    ]
}

fn slice(node: &str, ready: bool) -> Arc<EndpointSlice> {
    let labels = json!({"kubernetes.io/service-name": "web"});
    let endpoint = json!({"addresses": ["10.0.0.1"], "nodeName": node, "conditions": {"ready": ready}});
    let slice = json!({"metadata": {"labels": labels}, "addressType": "IPv4", "endpoints": [endpoint]});
    Arc::new(serde_json::from_value(slice).unwrap())
}

/// What was asked, written and told.
async fn check(fails: bool, change: Value, slices: &[Arc<EndpointSlice>], expected: [&[&str]; 3]) {
    let balancers = FakeBalancers { fails, ..FakeBalancers::default() };
    let plan = plan(&balancers, &service(change.clone()), &[], &nodes(), slices).await;
    let writes: Vec<String> = plan
        .writes
        .iter()
        .map(|write| {
            let body = write.body();
            format!(
                "{} {}",
                body["metadata"]["finalizers"],
                body.pointer("/status/loadBalancer/ingress/0/ip").unwrap_or(&Value::Null)
            )
        })
        .collect();
    let told: Vec<&str> = plan.events.iter().map(|event| event.reason).collect();
    let asked = balancers.asked.into_inner();
    assert_eq!(asked, expected[0], "{change}");
    assert_eq!(writes, expected[1], "{change}");
    assert_eq!(told, expected[2], "{change}");
    assert_eq!(plan.again.is_some(), fails);
}

#[tokio::test]
async fn a_service_is_marked_balanced_and_told() {
    let unmarked = json!({"metadata": {"finalizers": []}});
    let mark: &str = "[\"service.kubernetes.io/load-balancer-cleanup\"] null";
    check(false, unmarked, &[], [&[], &[mark], &["EnsuringLoadBalancer"]]).await;
    check(false, json!({}), &[], [&["ensure n1,n2"], &["null \"192.0.2.1\""], &["EnsuredLoadBalancer"]]).await;
    let balanced = |ip: &str| json!({"status": {"loadBalancer": {"ingress": [{"ip": ip}]}}});
    check(false, balanced("192.0.2.1"), &[], [&["ensure n1,n2"], &[], &[]]).await;
    check(false, balanced("192.0.2.9"), &[], [&["ensure n1,n2"], &["null \"192.0.2.1\""], &["UpdatedLoadBalancer"]])
        .await;
    check(true, json!({}), &[], [&["ensure n1,n2"], &[], &["SyncLoadBalancerFailed"]]).await;
}

#[tokio::test]
async fn local_traffic_goes_to_nodes_with_endpoints() {
    let local = json!({"spec": {"externalTrafficPolicy": "Local"}});
    let slices = [slice("n1", false), slice("n2", true)];
    check(false, local, &slices, [&["ensure n2"], &["null \"192.0.2.1\""], &["EnsuredLoadBalancer"]]).await;
}

#[tokio::test]
async fn a_service_that_ends_or_changes_loses_it() {
    let ending = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    let other = json!({"spec": {"type": "ClusterIP"}});
    let told: &[&str] = &["DeletingLoadBalancer", "DeletedLoadBalancer"];
    check(false, ending.clone(), &[], [&["delete"], &["[] null"], told]).await;
    check(false, other, &[], [&["delete"], &["[] null"], told]).await;
    check(true, ending, &[], [&["delete"], &[], &["DeletingLoadBalancer", "SyncLoadBalancerFailed"]]).await;
    let foreign = json!({"spec": {"loadBalancerClass": "else.example/x"}, "metadata": {"finalizers": []}});
    check(false, foreign, &[], [&[], &[], &[]]).await;
}

#[tokio::test]
async fn what_is_refused_is_withdrawn_where_the_cloud_says_so() {
    let balanced = json!({"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}});
    for (change, withdraws, expected) in
        [(balanced.clone(), true, Some(json!([]))), (balanced, false, None), (json!({}), true, None)]
    {
        let balancers = FakeBalancers { fails: true, withdraws, ..FakeBalancers::default() };
        let plan = plan(&balancers, &service(change), &[], &nodes(), &[]).await;
        let written = plan.writes.first().map(|write| write.body()["status"]["loadBalancer"]["ingress"].clone());
        assert_eq!(written, expected);
    }
}
