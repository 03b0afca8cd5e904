//! What the API is told, and what it is asked.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::FakeApi;

use crate::backend::Backend;
use crate::client::ask;
use crate::world::{PATIENCE, World, any_port, config, ingress_path, rule};

async fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(tokio::time::Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn addresses(api: &FakeApi, name: &str) -> Vec<String> {
    let ingress = api.get(&ingress_path(name)).unwrap_or_default();
    let shown = ingress.pointer("/status/loadBalancer/ingress").and_then(Value::as_array).cloned().unwrap_or_default();
    shown.iter().filter_map(|one| Some(one.get("ip").or(one.get("hostname"))?.as_str()?.to_owned())).collect()
}

fn node(api: &FakeApi, name: &str, ready: bool, address: &str) {
    let path = format!("/api/v1/nodes/{name}");
    let mut node = api.get(&path).unwrap_or_else(|| json!({"metadata": {"name": name}}));
    let status = if ready { "True" } else { "Unknown" };
    node["status"] = json!({
        "addresses": [{"type": "InternalIP", "address": address}],
        "conditions": [{"type": "Ready", "status": status}],
    });
    api.put(&path, node);
}

#[tokio::test]
async fn there_is_a_class_and_it_stays_as_it_was_changed() {
    let path = "/apis/networking.k8s.io/v1/ingressclasses/knarr";
    let world = World::start().await;
    let class = world.api.get(path).expect("the class");
    assert_eq!(class["spec"]["controller"], "knarr.dev/ingress");
    assert_eq!(class["metadata"]["annotations"]["ingressclass.kubernetes.io/is-default-class"], "true");
    let api = world.api.clone();
    world.stop().await;
    let mut changed = class;
    changed["metadata"]["annotations"] = json!({});
    api.put(path, changed);
    let world = World::start_on(api, config()).await;
    assert_eq!(world.api.get(path).expect("the class")["metadata"]["annotations"], json!({}));
}

#[tokio::test]
async fn ingresses_show_the_nodes_where_they_can_be_reached() {
    let api = FakeApi::default();
    let on = |name: &str| ingress::Config { node_name: Some(name.into()), publish: vec![], ..config() };
    node(&api, "n1", true, "10.0.0.1");
    node(&api, "n2", true, "10.0.0.2");
    node(&api, "n3", true, "10.0.0.3");
    let first = World::start_on(api.clone(), on("n1")).await;
    let second = World::start_on(api.clone(), on("n2")).await;
    first.ingress("i", json!({}), json!({"rules": [rule("a.test", "/", "s")]}));
    let shown = |expected: &'static [&'static str]| {
        let api = api.clone();
        async move {
            let what = format!("the Ingress shows {expected:?}");
            until(&what, || (addresses(&api, "i") == expected).then_some(())).await;
        }
    };
    shown(&["10.0.0.1", "10.0.0.2"]).await;
    // When the first node is lost, the second one writes.
    node(&api, "n1", false, "10.0.0.1");
    shown(&["10.0.0.2"]).await;
    node(&api, "n1", true, "10.0.0.1");
    node(&api, "n2", true, "10.0.0.22");
    shown(&["10.0.0.1", "10.0.0.22"]).await;
    // What is right is not written again.
    tokio::time::sleep(Duration::from_millis(300)).await;
    api.take_requests();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(api.take_requests(), Vec::<String>::new());
    // Another controller's Ingress is left alone.
    let mut foreign = api.get(&ingress_path("i")).expect("the Ingress");
    foreign["spec"]["ingressClassName"] = "other".into();
    foreign["metadata"] = json!({"name": "foreign", "namespace": "default"});
    foreign["status"] = json!({});
    api.put(&ingress_path("foreign"), foreign);
    second.ingress("j", json!({}), json!({"rules": [rule("b.test", "/", "s")]}));
    until("the second Ingress shows addresses", || (addresses(&api, "j").len() == 2).then_some(())).await;
    assert_eq!(addresses(&api, "foreign"), Vec::<String>::new());
}

#[tokio::test]
async fn what_is_wrong_with_an_ingress_is_an_event() {
    let world = World::start().await;
    let mut spec = json!({"rules": [rule("a.test", "/", "missing")]});
    spec["tls"] = json!([{"hosts": ["a.test"], "secretName": "absent"}]);
    world.ingress("i", json!({}), spec);
    let api = world.api.clone();
    let events = || {
        let paths = api.paths().into_iter().filter(|path| path.starts_with("/api/v1/namespaces/default/events/"));
        let mut events: Vec<String> = paths
            .filter_map(|path| api.get(&path))
            .map(|event| {
                let text = |pointer: &str| event.pointer(pointer).and_then(Value::as_str).unwrap_or("").to_owned();
                format!("{} {} {} {}", text("/involvedObject/name"), text("/type"), text("/reason"), text("/message"))
            })
            .collect();
        events.sort();
        events
    };
    let said = until("two events", || Some(events()).filter(|events| events.len() == 2)).await;
    assert_eq!(
        said,
        [
            "i Warning Certificate secret \"default/absent\" not found",
            "i Warning ServiceNotFound service \"default/missing\" not found",
        ]
    );
    // The service comes, and is served at once.
    let backend = Backend::start("b").await;
    world.service("missing", &[&backend]);
    let reply = world.until("a.test", "/", |reply| reply.status != 503).await;
    assert_eq!(reply.status, 308, "the host has TLS");
}

#[tokio::test]
async fn a_port_that_is_taken_is_waited_for() {
    let taken = std::net::TcpListener::bind(any_port()).expect("a port");
    let address = taken.local_addr().expect("an address");
    let config = ingress::Config { http: address, ..config() };
    let mut bound = config.bound.subscribe();
    let starting = tokio::spawn(World::start_with(config));
    tokio::time::timeout(PATIENCE, bound.wait_for(|bound| bound.https.is_some()))
        .await
        .expect("in time")
        .expect("it runs");
    assert_eq!(bound.borrow().http, None);
    drop(taken);
    let world = tokio::time::timeout(PATIENCE, starting).await.expect("in time").expect("it runs");
    assert_eq!(world.http, address);
    assert_eq!(ask(world.http, "a.test", "/").await.status, 404);
}

#[tokio::test]
async fn requests_are_answered_while_the_api_is_away() {
    let api = FakeApi::default();
    let world = World::start_on(api.clone(), config()).await;
    let backend = Backend::start("b").await;
    world.simple(&[&backend]).await;
    // Everything that is asked of the API while requests come would be seen here.
    tokio::time::sleep(Duration::from_millis(200)).await;
    api.take_requests();
    for _ in 0..50 {
        assert_eq!(ask(world.http, "a.test", "/").await.status, 200);
    }
    assert_eq!(api.take_requests(), Vec::<String>::new());
}

#[tokio::test]
async fn an_ingress_that_goes_takes_its_routes_along() {
    let world = World::start().await;
    let backend = Backend::start("b").await;
    world.simple(&[&backend]).await;
    world.api.remove(&ingress_path("i"));
    world.until("a.test", "/", |reply| reply.status == 404).await;
    assert!(!world.metrics().await.contains("ingress=\"i\""), "and its numbers");
}
