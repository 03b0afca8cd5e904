//! Slices from small texts: one line per pod.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::{Value, json};

use super::plan;

/// `name address node flags`, where the flags are `ready`, `ending`, `ended`.
fn pod(line: &str) -> Arc<Pod> {
    let [name, address, node, flags] = line.split_whitespace().collect::<Vec<_>>()[..] else { panic!("{line}") };
    let has = |flag: &str| flags.split(',').any(|one| one == flag);
    let mut object = json!({
        "metadata": {"name": name, "namespace": "a", "uid": name, "labels": {"app": "web"}},
        "spec": {"nodeName": node, "containers": [{"name": "c", "ports": [{"name": "http", "containerPort": 8080}]}]},
        "status": {"phase": if has("ended") { "Failed" } else { "Running" }, "podIP": address, "podIPs": [{"ip": address}],
            "conditions": [{"type": "Ready", "status": if has("ready") { "True" } else { "False" }}]},
    });
    if has("ending") {
        object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    }
    Arc::new(serde_json::from_value(object).expect("a pod"))
}

fn service(more: Value) -> Service {
    let mut object = json!({
        "metadata": {"name": "web", "namespace": "a", "uid": "svc", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"clusterIP": "10.0.0.1", "ipFamilies": ["IPv4"], "selector": {"app": "web"},
            "ports": [{"name": "http", "port": 80, "targetPort": "http", "protocol": "TCP"}]},
    });
    for (key, value) in more.as_object().expect("fields of the spec") {
        object["spec"][key] = value.clone();
    }
    serde_json::from_value(object).expect("a service")
}

fn node_of(name: &str) -> Option<Arc<Node>> {
    let object = json!({"metadata": {"name": name, "labels": {"topology.kubernetes.io/zone": format!("z-{name}")}}});
    (name != "gone").then(|| Arc::new(serde_json::from_value(object).expect("a node")))
}

/// Each write in a line: verb, ports, and per endpoint address, conditions (r, s, t) and hints.
fn shown(service: &Service, pods: &str, slices: &[Arc<EndpointSlice>]) -> Vec<String> {
    let pods: Vec<Arc<Pod>> = pods.split(';').map(str::trim).filter(|line| !line.is_empty()).map(pod).collect();
    let plan = plan(service, &pods, slices, node_of, None, 100);
    let show = |write: &reconcile::Write| {
        let verb = write.to_string().split(' ').next().unwrap_or_default().to_owned();
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let ports: Vec<String> = list(&write.body()["ports"]).iter().map(|port| port["port"].to_string()).collect();
        let endpoints = list(&write.body()["endpoints"]);
        let endpoints = endpoints.iter().map(|endpoint| {
            let flag = |name: &str| endpoint["conditions"][name] == true;
            let flags: String = [("ready", 'r'), ("serving", 's'), ("terminating", 't')]
                .into_iter()
                .filter(|(name, _)| flag(name))
                .map(|(_, letter)| letter)
                .collect();
            let mut text = format!("{}/{flags}", endpoint["addresses"][0].as_str().unwrap_or("?"));
            for hint in ["forZones", "forNodes"] {
                if let Some(name) = endpoint["hints"][hint][0]["name"].as_str() {
                    text += &format!("~{name}");
                }
            }
            text
        });
        format!("{verb} [{}] {}", ports.join(","), endpoints.collect::<Vec<_>>().join(" "))
    };
    plan.writes.iter().map(show).collect()
}

#[test]
fn endpoints_say_how_their_pods_are() {
    let pods = "a 10.1.0.1 n1 ready; b 10.1.0.2 n1 -; c 10.1.0.3 n2 ready,ending; d 10.1.0.4 n2 ended; e fd00::1 n1 ready; f 10.1.0.6 gone ready";
    assert_eq!(shown(&service(json!({})), pods, &[]), ["create [8080] 10.1.0.1/rs 10.1.0.2/ 10.1.0.3/st"]);
    assert_eq!(
        shown(&service(json!({"publishNotReadyAddresses": true})), pods, &[]),
        ["create [8080] 10.1.0.1/rs 10.1.0.2/r 10.1.0.3/rst 10.1.0.6/rs"]
    );
    assert_eq!(shown(&service(json!({"ipFamilies": ["IPv6", "IPv4"]})), pods, &[])[0], "create [8080] fd00::1/rs");
    assert_eq!(
        shown(&service(json!({"trafficDistribution": "PreferSameZone"})), pods, &[]),
        ["create [8080] 10.1.0.1/rs~z-n1 10.1.0.2/ 10.1.0.3/st"]
    );
    assert_eq!(
        shown(&service(json!({"trafficDistribution": "PreferSameNode"})), "a 10.1.0.1 n1 ready", &[]),
        ["create [8080] 10.1.0.1/rs~z-n1~n1"]
    );
}

#[test]
fn a_service_without_pods_has_one_empty_slice() {
    assert_eq!(shown(&service(json!({})), "", &[]), ["create [] "]);
}

fn slice(ports: Value, endpoints: Value) -> Arc<EndpointSlice> {
    let object = json!({
        "metadata": {"name": "web-x", "namespace": "a", "uid": "slice", "labels": {
            "kubernetes.io/service-name": "web", "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"}},
        "addressType": "IPv4", "ports": ports, "endpoints": endpoints,
    });
    Arc::new(serde_json::from_value(object).expect("a slice"))
}

#[test]
fn slices_that_are_right_are_left_alone_and_others_are_used_again() {
    let ports = json!([{"name": "http", "port": 8080, "protocol": "TCP"}]);
    let endpoint = json!({"addresses": ["10.1.0.1"], "nodeName": "n1", "zone": "z-n1",
        "conditions": {"ready": true, "serving": true, "terminating": false},
        "targetRef": {"kind": "Pod", "namespace": "a", "name": "a", "uid": "a"}});
    let right = slice(ports.clone(), json!([endpoint]));
    let service = service(json!({}));
    assert!(shown(&service, "a 10.1.0.1 n1 ready", std::slice::from_ref(&right)).is_empty());
    assert_eq!(shown(&service, "a 10.1.0.1 n1 -", std::slice::from_ref(&right)), ["update [8080] 10.1.0.1/"]);
    assert_eq!(shown(&service, "", &[right]), ["update [] "]);
    let empty = slice(json!([]), json!([]));
    assert!(shown(&service, "", std::slice::from_ref(&empty)).is_empty());
    assert_eq!(shown(&service, "a 10.1.0.1 n1 ready", &[empty]), ["update [8080] 10.1.0.1/rs"]);
}

#[test]
fn a_hundred_endpoints_fit_one_slice() {
    let pods: Vec<String> =
        (0..250).map(|number| format!("p{number} 10.1.{}.{} n1 ready", number / 100, number % 100)).collect();
    let sizes: Vec<usize> =
        shown(&service(json!({})), &pods.join(";"), &[]).iter().map(|line| line.split(' ').count() - 2).collect();
    assert_eq!(sizes, [100, 100, 50]);
}
