//! Admission as a whole: a real server on an embedded store, written to the way the verbs write.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use kube_apiserver::app::App;
use kube_apiserver::authn::User;
use kube_apiserver::call::Call;
use kube_apiserver::verbs::delete;
use kube_apiserver::write::{self, Owner, Part};
use machinery::object::Meta;
use machinery::status::Status;
use serde_json::{Value, json};
use store::Store;
use store::embedded::{Config as StoreConfig, EmbeddedStore};
use tokio_util::sync::CancellationToken;

struct Cluster {
    folder: tempfile::TempDir,
    store: Arc<EmbeddedStore>,
    shutdown: CancellationToken,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

impl Cluster {
    fn new() -> Cluster {
        // Another test of this process may have done it first.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let folder = tempfile::tempdir().expect("a folder for the test");
        let store = EmbeddedStore::open(StoreConfig::new(folder.path().join("store"))).expect("an empty store opens");
        Cluster { folder, store, shutdown: CancellationToken::new() }
    }

    async fn server(&self, name: &str) -> Server {
        let config = kube_apiserver::Config {
            data_dir: self.folder.path().join(name),
            bind_address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            https_port: 0,
            advertise_address: None,
            service_cidr: "10.43.0.0/16".parse().expect("a network"),
            tls_sans: Vec::new(),
            host_name: "test".into(),
            token_auth_file: None,
            event_ttl: Duration::from_secs(60),
        };
        let store: Arc<dyn Store> = self.store.clone();
        let running = kube_apiserver::start(config, store, self.shutdown.clone()).await.expect("the server starts");
        Server { app: running.app.clone() }
    }
}

#[derive(Clone)]
struct Server {
    app: Arc<App>,
}

impl Server {
    fn call(&self, object: &Value, user: Option<User>) -> Call {
        let call = Call::internal(&self.app, object).expect("a kind that is served");
        Call { user: user.unwrap_or(call.user.clone()), ..call }
    }

    async fn create(&self, object: Value) -> Result<Value, Status> {
        self.create_as(None, object, false).await.map(|(object, _)| object)
    }

    /// The stored object, and the warnings on the way.
    async fn create_as(
        &self,
        user: Option<User>,
        object: Value,
        dry_run: bool,
    ) -> Result<(Value, Vec<String>), Status> {
        let call = self.call(&object, user);
        let (resource, namespace) = (call.resource.clone(), object.namespace().to_string());
        let stored =
            write::create(&call, &resource, &namespace, object, &Owner::Update("test".into()), dry_run).await?;
        let warnings = call.warnings.lock().clone();
        Ok((serde_json::from_slice(&stored.value).expect("what is stored is JSON"), warnings))
    }

    async fn update(
        &self,
        user: Option<User>,
        object: &Value,
        change: impl Fn(&mut Value),
    ) -> Result<Vec<String>, Status> {
        let call = self.call(object, user);
        let resource = call.resource.clone();
        let edit = |current: &Value| {
            let mut next = current.clone();
            change(&mut next);
            Ok(next)
        };
        let owner = Owner::Update("test".into());
        write::update(&call, &resource, object.namespace(), object.name(), Part::Main, &owner, false, edit).await?;
        let warnings = call.warnings.lock().clone();
        Ok(warnings)
    }

    async fn delete(&self, object: &Value) -> Result<(), Status> {
        let call = self.call(object, None);
        delete::one(&call, object.namespace(), object.name(), &delete::Options::default()).await.map(|_| ())
    }

    /// A namespace with the account that a controller would make.
    async fn namespace(&self, name: &str) -> Value {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        let created = self.create(namespace).await.expect("a namespace");
        let account =
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": name}});
        self.create(account).await.expect("an account");
        created
    }

    async fn used(&self, namespace: &str, quota: &str) -> Value {
        self.app.cache.fresh().await.expect("the store answers");
        self.app
            .views
            .one("resourcequotas", namespace, quota)
            .map_or(Value::Null, |quota| quota["status"]["used"].clone())
    }
}

fn pod(namespace: &str, name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace},
        "spec": {"containers": [{"name": "c", "image": "busybox"}]}})
}

fn config_map(namespace: &str, name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}})
}

fn quota(namespace: &str, name: &str, hard: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": name, "namespace": namespace}, "spec": {"hard": hard}})
}

fn refused<T>(outcome: Result<T, Status>) -> (u16, String) {
    match outcome {
        Ok(_) => (200, String::new()),
        Err(status) => (status.code, status.message),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn namespaces_and_accounts_must_exist() {
    let cluster = Cluster::new();
    let server = cluster.server("a").await;
    let missing = refused(server.create(config_map("nons", "x")).await);
    assert_eq!(missing, (404, "namespaces \"nons\" not found".into()));
    let default = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}});
    let kept = refused(server.delete(&default).await);
    assert_eq!(kept, (403, "namespaces \"default\" is forbidden: this namespace may not be deleted".into()));

    let namespace = server.namespace("gold").await;
    let created = server.create(pod("gold", "p")).await.expect("a pod");
    assert_eq!(created["spec"]["priority"], 0);
    assert_eq!(created["spec"]["tolerations"].as_array().map(Vec::len), Some(2));
    assert_eq!(created["spec"]["volumes"].as_array().map(Vec::len), Some(1));
    let mut other = pod("gold", "q");
    other["spec"]["serviceAccountName"] = "x".into();
    let unknown = refused(server.create(other).await);
    let sentence = "pods \"q\" is forbidden: error looking up service account gold/x: serviceaccount \"x\" not found";
    assert_eq!(unknown, (403, sentence.into()));

    server.delete(&namespace).await.expect("a namespace can go");
    let late = server.create(config_map("gold", "late")).await.expect_err("nothing new");
    assert_eq!((late.code, late.details.map_or(0, |details| details.causes.len())), (403, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quota_holds_against_many_writers_on_two_servers() {
    const ROOM: usize = 20;
    const WRITERS: usize = 60;
    let cluster = Cluster::new();
    let servers = [cluster.server("a").await, cluster.server("b").await];
    servers[0].namespace("crowd").await;
    servers[0]
        .create(quota("crowd", "q", json!({"count/configmaps": ROOM.to_string(), "secrets": "1"})))
        .await
        .expect("a quota");
    servers[1].app.cache.fresh().await.expect("the store answers");
    let writers = (0..WRITERS).map(|index| {
        let server = servers[index % 2].clone();
        tokio::spawn(async move { server.create(config_map("crowd", &format!("m{index}"))).await })
    });
    let mut created = 0;
    for writer in writers.collect::<Vec<_>>() {
        match writer.await.expect("no writer panics") {
            Ok(_) => created += 1,
            Err(status) => {
                let wanted = format!(
                    "exceeded quota: q, requested: count/configmaps=1, used: count/configmaps={ROOM}, limited: count/configmaps={ROOM}"
                );
                assert!(status.code == 403 && status.message.ends_with(&wanted), "{}", status.message);
            }
        }
    }
    assert_eq!(created, ROOM);
    assert_eq!(servers[0].used("crowd", "q").await, json!({"count/configmaps": ROOM.to_string(), "secrets": "0"}));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deletes_and_failed_writes_give_room_back() {
    let cluster = Cluster::new();
    let server = cluster.server("a").await;
    server.namespace("room").await;
    server.create(config_map("room", "before")).await.expect("no quota yet");
    server.create(quota("room", "q", json!({"configmaps": "3"}))).await.expect("a quota");
    server.create_as(None, config_map("room", "try"), true).await.expect("room for a dry run");
    server.create(config_map("room", "one")).await.expect("room for the second");
    // A dry run and a write that fails take nothing.
    let twice = refused(server.create(config_map("room", "one")).await);
    assert_eq!(twice, (409, "configmaps \"one\" already exists".into()));
    assert_eq!(server.used("room", "q").await, json!({"configmaps": "2"}));
    let two = server.create(config_map("room", "two")).await.expect("room for the third");
    let full = refused(server.create(config_map("room", "three")).await);
    let sentence = "configmaps \"three\" is forbidden: exceeded quota: q, requested: configmaps=1, used: configmaps=3, limited: configmaps=3";
    assert_eq!(full, (403, sentence.into()));
    server.delete(&two).await.expect("gone");
    server.create(config_map("room", "three")).await.expect("room again");
    assert_eq!(server.used("room", "q").await, json!({"configmaps": "3"}));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quotas_of_pods_count_what_containers_ask_for() {
    let cluster = Cluster::new();
    let server = cluster.server("a").await;
    server.namespace("pods").await;
    server
        .create(quota("pods", "q", json!({"pods": "5", "requests.cpu": "1", "limits.cpu": "2"})))
        .await
        .expect("a quota");
    let silent = refused(server.create(pod("pods", "x")).await);
    let sentence = "pods \"x\" is forbidden: failed quota: q: must specify limits.cpu for: c; requests.cpu for: c";
    assert_eq!(silent, (403, sentence.into()));
    let range = json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "r", "namespace": "pods"},
        "spec": {"limits": [{"type": "Container", "default": {"cpu": "800m"}, "defaultRequest": {"cpu": "600m"}}]}});
    server.create(range).await.expect("a range");
    server.create(pod("pods", "x")).await.expect("defaults are filled in");
    assert_eq!(server.used("pods", "q").await, json!({"limits.cpu": "800m", "pods": "1", "requests.cpu": "600m"}));
    let full = refused(server.create(pod("pods", "y")).await);
    let sentence = "pods \"y\" is forbidden: exceeded quota: q, requested: requests.cpu=600m, used: requests.cpu=600m, limited: requests.cpu=1";
    assert_eq!(full, (403, sentence.into()));
}
