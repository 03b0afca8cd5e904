//! Objects are watched while pods need them, and not longer.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use super::*;
use crate::fake_api::FakeApi;

const CONFIG: &str = "/api/v1/namespaces/default/configmaps/config";

fn pod(uid: &str, config_map: &str) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": "web", "namespace": "default", "uid": uid},
        "spec": {"containers": [{"name": "c"}], "volumes": [{"name": "v", "configMap": {"name": config_map}}]},
    }))
    .unwrap()
}

async fn eventually(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..500 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{what} did not come");
}

#[tokio::test]
async fn a_change_wakes_the_pods_that_use_it() {
    let api = FakeApi::new();
    api.set(CONFIG, json!({"data": {"key": "1"}}));
    let objects = Objects::new(api.client());
    let mut changes = objects.changes();
    objects.register(&pod("a", "config"));
    assert_eq!(objects.config_map("default", "config").await.unwrap().data.as_ref().unwrap()["key"], "1");
    eventually("the watch", || api.watches() == 1).await;
    objects.register(&pod("b", "config"));
    assert_eq!(api.watches(), 1, "two pods share one watch");
    api.set(CONFIG, json!({"data": {"key": "2"}}));
    let mut woken = [changes.recv().await.unwrap(), changes.recv().await.unwrap()];
    woken.sort();
    assert_eq!(woken, ["a", "b"]);
    assert_eq!(objects.config_map("default", "config").await.unwrap().data.as_ref().unwrap()["key"], "2");
    objects.forget("a");
    assert_eq!(api.watches(), 1);
    objects.forget("b");
    eventually("the end of the watch", || api.watches() == 0).await;
    let named = api.requests().iter().all(|request| request.contains("fieldSelector=metadata.name%3Dconfig"));
    assert!(named, "{:?}", api.requests());
}

#[tokio::test]
async fn what_is_missing_is_told_apart_and_found_later() {
    let api = FakeApi::new();
    let objects = Objects::new(api.client());
    let mut changes = objects.changes();
    objects.register(&pod("a", "config"));
    let error = objects.config_map("default", "config").await.unwrap_err();
    assert!(error.is_not_found());
    assert_eq!(error.to_string(), "configmap \"config\" not found");
    assert_eq!(objects.secret("default", "s").await.unwrap_err().to_string(), "secret \"s\" not found");
    api.set(CONFIG, json!({"data": {"key": "1"}}));
    assert_eq!(changes.recv().await.unwrap(), "a");
    assert!(objects.config_map("default", "config").await.is_ok());
    api.delete(CONFIG);
    assert_eq!(changes.recv().await.unwrap(), "a");
    assert!(objects.config_map("default", "config").await.unwrap_err().is_not_found());
    objects.register(&pod("a", "other"));
    eventually("the old watch's end", || api.watches() == 1).await;
}

#[tokio::test]
async fn immutable_objects_are_watched_no_more() {
    let api = FakeApi::new();
    api.set(CONFIG, json!({"data": {"key": "1"}, "immutable": true}));
    let objects = Objects::new(api.client());
    objects.register(&pod("a", "config"));
    assert!(objects.config_map("default", "config").await.is_ok());
    eventually("the end of the watch", || api.watches() == 0).await;
    let before = api.requests().len();
    assert!(objects.config_map("default", "config").await.is_ok());
    assert_eq!(api.requests().len(), before);
}

#[tokio::test]
async fn services_of_all_namespaces_are_followed() {
    let api = FakeApi::new();
    api.set("/api/v1/namespaces/default/services/kubernetes", json!({"spec": {"clusterIP": "10.96.0.1"}}));
    let objects = Objects::new(api.client());
    assert_eq!(objects.services().await.unwrap().len(), 1);
    eventually("the watch", || api.watches() == 1).await;
    api.set("/api/v1/namespaces/obs/services/dep", json!({"spec": {"clusterIP": "10.96.0.2"}}));
    for _ in 0..500 {
        if objects.services().await.unwrap().len() == 2 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the new service was not seen");
}

#[tokio::test]
async fn the_own_node_is_asked_for_only_until_it_is_watched() {
    let api = FakeApi::new();
    const NODE: &str = "/api/v1/nodes/node-1";
    api.set(NODE, json!({"status": {"allocatable": {"cpu": "2"}}}));
    let objects = Objects::new(api.client());
    let seen = watch::Sender::new(Seen::Unknown);
    objects.follow_node(seen.subscribe());
    assert_eq!(objects.allocatable("node-1").await.unwrap()["cpu"].0, "2");
    assert_eq!(api.requests().len(), 1, "{:?}", api.requests());
    let shown: Node = serde_json::from_value(json!({
        "metadata": {"name": "node-1"}, "status": {"allocatable": {"cpu": "3"}},
    }))
    .unwrap();
    seen.send_replace(Seen::Here(Arc::new(shown)));
    for _ in 0..3 {
        assert_eq!(objects.allocatable("node-1").await.unwrap()["cpu"].0, "3");
        assert!(objects.node("node-1").await.is_ok());
    }
    assert_eq!(api.requests().len(), 1, "{:?}", api.requests());
}
