//! What the scheduler reads of a pod.

use serde_json::{Value, json};

use super::*;

fn read(spec: Value, labels: Value) -> PodInfo {
    let object = json!({"metadata": {"name": "p", "namespace": "home", "uid": "p", "labels": labels}, "spec": spec});
    PodInfo::new(Arc::new(serde_json::from_value(object).expect("a pod")))
}

fn other(namespace: &str, labels: Value) -> Pod {
    serde_json::from_value(json!({"metadata": {"name": "o", "namespace": namespace, "labels": labels}})).expect("a pod")
}

/// The only required affinity term of a pod.
fn term(term: Value, labels: Value) -> AffinityTerm {
    let mut term = term;
    term["topologyKey"] = "zone".into();
    let affinity = json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
    let mut info = read(json!({"containers": [], "affinity": affinity}), labels);
    info.affinity.remove(0)
}

fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
}

#[test]
fn terms_mean_their_own_namespace_unless_they_say_otherwise() {
    let web = json!({"matchLabels": {"app": "web"}});
    let pod = |namespace: &str| other(namespace, json!({"app": "web"}));
    let own = term(json!({"labelSelector": web}), json!({}));
    assert!(own.matches(&pod("home"), None) && !own.matches(&pod("away"), None));
    let named = term(json!({"labelSelector": web, "namespaces": ["away"]}), json!({}));
    assert!(named.matches(&pod("away"), None) && !named.matches(&pod("home"), None));
    // An empty selector of namespaces means all, also those that nobody knows.
    let all = term(json!({"labelSelector": web, "namespaceSelector": {}}), json!({}));
    assert!(all.matches(&pod("home"), None) && all.matches(&pod("away"), Some(&labels(&[]))));
    let team = json!({"matchLabels": {"team": "a"}});
    let selected = term(json!({"labelSelector": web, "namespaceSelector": team, "namespaces": ["named"]}), json!({}));
    assert!(selected.matches(&pod("x"), Some(&labels(&[("team", "a")]))));
    assert!(!selected.matches(&pod("x"), Some(&labels(&[("team", "b")]))) && !selected.matches(&pod("x"), None));
    assert!(selected.matches(&pod("named"), None), "or by name");
    assert!(!selected.matches(&pod("home"), None), "its own namespace is not meant any more");
}

#[test]
fn a_term_without_selector_speaks_of_nobody() {
    let none = term(json!({}), json!({}));
    assert!(!none.matches(&other("home", json!({"app": "web"})), None));
    let all = term(json!({"labelSelector": {}}), json!({}));
    assert!(all.matches(&other("home", json!({})), None));
}

#[test]
fn keys_of_labels_stand_for_the_pods_own_values() {
    let web = json!({"matchLabels": {"app": "web"}});
    let own = json!({"app": "web", "hash": "1"});
    let pod = |hash: &str| other("home", json!({"app": "web", "hash": hash}));
    let same = term(json!({"labelSelector": web, "matchLabelKeys": ["hash"]}), own.clone());
    assert!(same.matches(&pod("1"), None) && !same.matches(&pod("2"), None));
    let different = term(json!({"labelSelector": web, "mismatchLabelKeys": ["hash"]}), own.clone());
    assert!(!different.matches(&pod("1"), None) && different.matches(&pod("2"), None));
    let absent = term(json!({"labelSelector": web, "matchLabelKeys": ["none"]}), own);
    assert!(absent.matches(&pod("2"), None), "a key that the pod does not have means nothing");
}

#[test]
fn ports_of_the_host_are_those_of_containers_that_stay() {
    let port = |number: i32| json!({"containerPort": 1, "hostPort": number});
    let spec = json!({
        "containers": [{"name": "a", "ports": [port(80), {"containerPort": 5}, {"containerPort": 1, "hostPort": 53, "protocol": "UDP", "hostIP": "10.0.0.1"}]}],
        "initContainers": [{"name": "setup", "ports": [port(81)]}, {"name": "sidecar", "restartPolicy": "Always", "ports": [port(82)]}],
    });
    let told: Vec<String> = read(spec, json!({}))
        .host_ports
        .iter()
        .map(|port| format!("{} {}:{}", port.protocol, port.ip, port.port))
        .collect();
    assert_eq!(told, ["TCP 0.0.0.0:80", "UDP 10.0.0.1:53", "TCP 0.0.0.0:82"]);
}

#[test]
fn pods_that_wish_the_same_have_the_same_text() {
    let avoids = |app: &str| {
        let term = json!({"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": app}}});
        json!({"containers": [], "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}})
    };
    let wishes = |spec: Value| read(spec, json!({})).wishes;
    assert_eq!(wishes(avoids("web")), wishes(avoids("web")));
    assert_ne!(wishes(avoids("web")), wishes(avoids("db")));
    assert_eq!(wishes(json!({"containers": []})), None);
    assert_eq!(read(json!({"containers": []}), json!({})).scheduler_name(), "default-scheduler");
}
