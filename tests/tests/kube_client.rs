//! The Rust client that knarr's own components use, against a real server over TLS.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube::api::{
    Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams,
};
use kube::core::GroupVersionKind;
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Client, ResourceExt, discovery};
use serde_json::json;
use testkit::Server;

async fn client(server: &Server) -> Client {
    // The provider is installed once for the whole test program.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let kubeconfig = kube::config::Kubeconfig::read_from(server.kubeconfig()).unwrap();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

fn config_map(name: &str, value: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name, "labels": {"set": "test"}}, "data": {"a": value}}))
        .unwrap()
}

fn code(error: &kube::Error) -> u16 {
    match error {
        kube::Error::Api(status) => status.code,
        other => panic!("not an answer of the server: {other}"),
    }
}

#[tokio::test]
async fn create_read_replace_delete() {
    let server = Server::start().unwrap();
    let api: Api<ConfigMap> = Api::default_namespaced(client(&server).await);
    let made = api.create(&PostParams::default(), &config_map("crud", "1")).await.unwrap();
    let error = api.create(&PostParams::default(), &config_map("crud", "1")).await.unwrap_err();
    assert_eq!(code(&error), 409);
    let mut read = api.get("crud").await.unwrap();
    assert_eq!(read, made);
    read.data = Some(BTreeMap::from([("a".into(), "2".into())]));
    let replaced = api.replace("crud", &PostParams::default(), &read).await.unwrap();
    assert_eq!(replaced.data.as_ref().unwrap()["a"], "2");
    let stale = api.replace("crud", &PostParams::default(), &made).await.unwrap_err();
    assert_eq!(code(&stale), 409);
    api.delete("crud", &DeleteParams::default()).await.unwrap();
    assert!(api.get_opt("crud").await.unwrap().is_none());
    let dry = PostParams { dry_run: true, ..Default::default() };
    api.create(&dry, &config_map("dry", "1")).await.unwrap();
    assert!(api.get_opt("dry").await.unwrap().is_none());
}

#[tokio::test]
async fn every_kind_of_patch() {
    let server = Server::start().unwrap();
    let api: Api<ConfigMap> = Api::default_namespaced(client(&server).await);
    api.create(&PostParams::default(), &config_map("patched", "1")).await.unwrap();
    let parameters = PatchParams::default();
    let merged = api.patch("patched", &parameters, &Patch::Merge(json!({"data": {"b": "2"}}))).await.unwrap();
    assert_eq!(merged.data.unwrap().len(), 2);
    let strategic = api.patch("patched", &parameters, &Patch::Strategic(json!({"data": {"a": null}}))).await.unwrap();
    assert_eq!(strategic.data.unwrap().into_keys().collect::<Vec<_>>(), ["b"]);

    let applied = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"b": "3"}});
    let mine = PatchParams::apply("mine");
    let conflict = api.patch("patched", &mine, &Patch::Apply(&applied)).await.unwrap_err();
    assert_eq!(code(&conflict), 409);
    let forced = api.patch("patched", &mine.clone().force(), &Patch::Apply(&applied)).await.unwrap();
    assert_eq!(forced.data.as_ref().unwrap()["b"], "3");
    assert!(forced.managed_fields().iter().any(|entry| entry.manager.as_deref() == Some("mine")));
    // Applying the same again changes nothing, not even the revision.
    let again = api.patch("patched", &mine, &Patch::Apply(&applied)).await.unwrap();
    assert_eq!(again.resource_version(), forced.resource_version());
    // What is no longer applied goes.
    let nothing = json!({"apiVersion": "v1", "kind": "ConfigMap"});
    let emptied = api.patch("patched", &mine, &Patch::Apply(&nothing)).await.unwrap();
    assert_eq!(emptied.data.unwrap_or_default().len(), 0);
}

#[tokio::test]
async fn lists_in_pages_and_by_selector() {
    let server = Server::start().unwrap();
    let api: Api<Secret> = Api::default_namespaced(client(&server).await);
    for number in 0..10 {
        let labels = json!({"even": (number % 2 == 0).to_string()});
        let secret = json!({"metadata": {"name": format!("s{number}"), "labels": labels}});
        api.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
    }
    let (mut names, mut token, mut pages) = (Vec::new(), None, 0);
    loop {
        let mut parameters = ListParams::default().limit(4);
        parameters.continue_token = token;
        let page = api.list(&parameters).await.unwrap();
        pages += 1;
        names.extend(page.items.iter().map(ResourceExt::name_any));
        // A page is of one revision, whatever happens between.
        api.delete("s9", &DeleteParams::default()).await.ok();
        token = page.metadata.continue_.filter(|token| !token.is_empty());
        if token.is_none() {
            break;
        }
    }
    assert_eq!((names.len(), pages), (10, 3), "{names:?}");
    let even = api.list(&ListParams::default().labels("even=true")).await.unwrap();
    assert_eq!(even.items.len(), 5);
    let one = api.list(&ListParams::default().fields("metadata.name=s3")).await.unwrap();
    assert_eq!(one.items.len(), 1);
    let metadata = api.list_metadata(&ListParams::default()).await.unwrap();
    assert_eq!(metadata.items.len(), 9);
}

#[tokio::test]
async fn objects_of_kinds_found_by_discovery() {
    let server = Server::start().unwrap();
    let client = client(&server).await;
    let found = discovery::Discovery::new(client.clone()).run().await.unwrap();
    let (resource, capabilities) = found.resolve_gvk(&GroupVersionKind::gvk("apps", "v1", "Deployment")).unwrap();
    assert!(capabilities.supports_operation(discovery::verbs::PATCH));
    let api: Api<DynamicObject> = Api::default_namespaced_with(client, &resource);
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let spec = json!({"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": template});
    let object = DynamicObject::new("dynamic", &resource).data(json!({"spec": spec}));
    api.create(&PostParams::default(), &object).await.unwrap();
    let read = api.get("dynamic").await.unwrap();
    assert_eq!(read.data["spec"]["revisionHistoryLimit"], 10);
    let scale = api.get_scale("dynamic").await.unwrap();
    // A zero is left out of a Scale, as upstream.
    assert_eq!(scale.spec.unwrap_or_default().replicas.unwrap_or(0), 0);
}

#[tokio::test]
async fn a_watch_tells_changes_in_order_and_bookmarks() {
    let server = Server::start().unwrap();
    let api: Api<ConfigMap> = Api::default_namespaced(client(&server).await);
    let start = api.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    api.create(&PostParams::default(), &config_map("seen", "1")).await.unwrap();
    api.patch("seen", &PatchParams::default(), &Patch::Merge(json!({"data": {"a": "2"}}))).await.unwrap();
    api.delete("seen", &DeleteParams::default()).await.unwrap();
    let parameters = WatchParams::default().labels("set=test").timeout(20);
    let events = api.watch(&parameters, &start).await.unwrap();
    let events: Vec<_> = events.take(3).try_collect().await.unwrap();
    let kinds = events.iter().map(|event| match event {
        WatchEvent::Added(_) => "added",
        WatchEvent::Modified(_) => "modified",
        WatchEvent::Deleted(_) => "deleted",
        WatchEvent::Bookmark(_) => "bookmark",
        WatchEvent::Error(_) => "error",
    });
    let kinds: Vec<&str> = kinds.collect();
    assert_eq!(kinds, ["added", "modified", "deleted"]);
}

/// A cache that survives the server: it resumes its watch and misses nothing that was written after the restart.
#[tokio::test]
async fn a_reflector_goes_on_after_the_server_was_killed() {
    let mut server = Server::start().unwrap();
    let client = client(&server).await;
    let api: Api<ConfigMap> = Api::default_namespaced(client.clone());
    api.create(&PostParams::default(), &config_map("before", "1")).await.unwrap();
    let (store, writer) = reflector::store();
    let config = watcher::Config::default().labels("set=test");
    let stream = watcher(api.clone(), config).default_backoff().reflect(writer);
    let running = tokio::spawn(stream.for_each(|_| async {}));
    store.wait_until_ready().await.unwrap();
    assert_eq!(store.state().len(), 1);

    server.restart().unwrap();
    // The first requests may still find connections of the killed server.
    let mut made = api.create(&PostParams::default(), &config_map("after", "1")).await;
    for _ in 0..50 {
        match &made {
            Ok(_) => break,
            Err(kube::Error::Api(status)) if status.code == 409 => break,
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
        made = api.create(&PostParams::default(), &config_map("after", "1")).await;
    }
    let namespaces: Api<Namespace> = Api::all(client);
    assert_eq!(namespaces.get("default").await.unwrap().name_any(), "default");
    let seen = async {
        while store.state().len() != 2 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), seen).await.expect("the cache sees what was made after the restart");
    running.abort();
}
