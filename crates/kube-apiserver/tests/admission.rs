//! Admission as a whole: a real server on an embedded store, asked without a socket between.

#[path = "support/config.rs"]
mod config;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use http::Request;
use http_body_util::{BodyExt, Full};
use kube_apiserver::authn::User;
use kube_apiserver::local::App;
use kube_apiserver::local::Loopback;
use machinery::object::Meta;
use serde_json::{Value, json};
use store::embedded::{Config as StoreConfig, EmbeddedStore};
use store::{Revision, Store};
use tokio_util::sync::CancellationToken;
use tower::Service;

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
        let config = config::config(self.folder.path().join(name));
        let store: Arc<dyn Store> = self.store.clone();
        let running = kube_apiserver::start(config, store, self.shutdown.clone()).await.expect("the server starts");
        Server { app: running.app.clone() }
    }
}

#[derive(Clone)]
struct Server {
    app: Arc<App>,
}

/// An object as it was answered, and the warnings beside it.
type Answer = Result<(Value, Vec<String>), Refusal>;

#[derive(Debug)]
struct Refusal {
    code: u16,
    message: String,
    causes: usize,
}

fn collection(object: &Value) -> String {
    let api_version = object["apiVersion"].as_str().expect("it has a version");
    let root = if api_version == "v1" { "/api" } else { "/apis" };
    let plural = format!("{}s", object["kind"].as_str().expect("it has a kind").to_lowercase());
    match object.namespace() {
        "" => format!("{root}/{api_version}/{plural}"),
        namespace => format!("{root}/{api_version}/namespaces/{namespace}/{plural}"),
    }
}

fn place(object: &Value) -> String {
    format!("{}/{}", collection(object), object.name())
}

/// `299 - "text"`, in which quotes are escaped.
fn warning(header: &str) -> String {
    let text = header.strip_prefix("299 - \"").and_then(|text| text.strip_suffix('"'));
    text.expect("a warning without an agent").replace("\\\"", "\"")
}

impl Server {
    async fn send(&self, user: Option<User>, method: &str, path: &str, body: Option<&Value>) -> Answer {
        let mut way = match user {
            Some(user) => Loopback::user(self.app.clone(), user, None, "test"),
            None => Loopback::administrator(self.app.clone(), "test"),
        };
        let body = body.map_or(Bytes::new(), |body| body.to_string().into());
        let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
        let reply = way.call(request.body(Full::new(body)).expect("a request")).await.expect("it cannot fail");
        let code = reply.status().as_u16();
        let warnings = reply.headers().get_all("warning").iter();
        let warnings = warnings.map(|header| warning(header.to_str().expect("a text"))).collect();
        let bytes = reply.into_body().collect().await.expect("a whole body").to_bytes();
        let object: Value = serde_json::from_slice(&bytes).expect("an answer in JSON");
        if code < 300 {
            return Ok((object, warnings));
        }
        let causes = object["details"]["causes"].as_array().map_or(0, Vec::len);
        Err(Refusal { code, message: object["message"].as_str().unwrap_or("").into(), causes })
    }

    async fn create(&self, object: Value) -> Result<Value, Refusal> {
        self.create_as(None, object).await.map(|(object, _)| object)
    }

    async fn create_as(&self, user: Option<User>, object: Value) -> Answer {
        self.send(user, "POST", &collection(&object), Some(&object)).await
    }

    async fn update(
        &self,
        user: Option<User>,
        object: &Value,
        change: impl Fn(&mut Value),
    ) -> Result<Vec<String>, Refusal> {
        let (mut next, _) = self.send(None, "GET", &place(object), None).await?;
        change(&mut next);
        self.send(user, "PUT", &place(object), Some(&next)).await.map(|(_, warnings)| warnings)
    }

    async fn delete(&self, object: &Value) -> Result<(), Refusal> {
        self.send(None, "DELETE", &place(object), None).await.map(|_| ())
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

    async fn used(&self, namespace: &str, name: &str) -> Value {
        let found = self.send(None, "GET", &place(&quota(namespace, name, Value::Null)), None).await;
        found.expect("a quota").0["status"]["used"].clone()
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

fn refused<T>(outcome: Result<T, Refusal>) -> (u16, String) {
    match outcome {
        Ok(_) => (200, String::new()),
        Err(refusal) => (refusal.code, refusal.message),
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
    assert_eq!((late.code, late.causes), (403, 1));
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
    // Reading it, the other server waits until it has seen it.
    servers[1].used("crowd", "q").await;
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
    let dry_run = format!("{}?dryRun=All", collection(&config_map("room", "")));
    server.send(None, "POST", &dry_run, Some(&config_map("room", "try"))).await.expect("room for a dry run");
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

/// The most objects under that prefix at any revision since then.
async fn most_at_once(store: &EmbeddedStore, since: Revision, prefix: &str) -> usize {
    let until = store.revision().await.expect("the store answers");
    let mut changes = store.watch_from(since).await.expect("the history is there");
    let (mut live, mut most) = (0, 0);
    loop {
        for event in changes.next().await.expect("it goes on").expect("no error") {
            if event.key.starts_with(prefix) {
                live = live + usize::from(event.previous.is_none()) - usize::from(event.value.is_none());
                most = most.max(live);
            }
            if event.revision >= until {
                return most;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quota_holds_while_objects_come_and_go() {
    const ROOM: usize = 5;
    const WRITERS: usize = 24;
    const ROUNDS: usize = 8;
    let cluster = Cluster::new();
    let servers = [cluster.server("a").await, cluster.server("b").await];
    servers[0].namespace("churn").await;
    servers[0].create(quota("churn", "q", json!({"configmaps": ROOM.to_string()}))).await.expect("a quota");
    // Reading it, the other server waits until it has seen it.
    servers[1].used("churn", "q").await;
    let since = cluster.store.revision().await.expect("the store answers");
    // All on one server first, then on both.
    for spread in [1, 2] {
        let writers = (0..WRITERS).map(|index| {
            let server = servers[index % spread].clone();
            tokio::spawn(async move {
                let mut created = 0;
                for round in 0..ROUNDS {
                    let map = config_map("churn", &format!("m{index}-{round}"));
                    if server.create(map.clone()).await.is_ok() {
                        created += 1;
                        server.delete(&map).await.expect("what was created can be deleted");
                    }
                }
                created
            })
        });
        let mut created = 0;
        for writer in writers.collect::<Vec<_>>() {
            created += writer.await.expect("no writer panics");
        }
        // With one server room comes back at once; with several it may take until the others' writes have settled.
        assert!(spread == 2 || created > ROOM, "{created}");
        let most = most_at_once(&cluster.store, since, "/registry/configmaps/churn/").await;
        assert!(most <= ROOM, "{most} objects at once, spread over {spread}");
    }
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

/// A pod that gets a deadline is of the scope Terminating from then on, and the next one finds the quota full at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_that_changes_its_scope_is_counted_by_the_new_one() {
    let cluster = Cluster::new();
    let server = cluster.server("a").await;
    server.namespace("scopes").await;
    let mut terminating = quota("scopes", "terminating", json!({"pods": "1"}));
    terminating["spec"]["scopes"] = json!(["Terminating"]);
    server.create(terminating).await.expect("a quota");
    server.create(quota("scopes", "all", json!({"pods": "5"}))).await.expect("a quota of all pods");
    let first = server.create(pod("scopes", "x")).await.expect("a pod that does not end by itself");
    server.update(None, &first, |pod| pod["spec"]["activeDeadlineSeconds"] = json!(60)).await.expect("a deadline");
    assert_eq!(server.used("scopes", "terminating").await, json!({"pods": "1"}));
    assert_eq!(server.used("scopes", "all").await, json!({"pods": "1"}));
    let mut second = pod("scopes", "y");
    second["spec"]["activeDeadlineSeconds"] = json!(60);
    let sentence =
        "pods \"y\" is forbidden: exceeded quota: terminating, requested: pods=1, used: pods=1, limited: pods=1";
    assert_eq!(refused(server.create(second).await), (403, sentence.into()));
}

/// What admission and validation say comes before the store says that an object has been stored before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revision_of_a_new_object_is_refused_last() {
    let cluster = Cluster::new();
    let server = cluster.server("a").await;
    server.namespace("again").await;
    let mut again = config_map("again", "c");
    again["metadata"]["resourceVersion"] = json!("7");
    let sentence = "resourceVersion should not be set on objects to be created";
    assert_eq!(refused(server.create(again.clone()).await), (400, sentence.into()));
    server.create(quota("again", "none", json!({"configmaps": "0"}))).await.expect("a quota");
    let (code, why) = refused(server.create(again).await);
    assert!(code == 403 && why.contains("exceeded quota"), "{code} {why}");
}

fn node_user(name: &str) -> User {
    let groups = vec!["system:nodes".into(), "system:authenticated".into()];
    User { name: format!("system:node:{name}"), groups, ..User::default() }
}

fn person(name: &str) -> User {
    User { name: name.into(), groups: vec!["system:authenticated".into()], ..User::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubelets_write_about_their_own_node() {
    let cluster = Cluster::new();
    let server = cluster.server("a").await;
    let node = |name: &str, labels: Value| json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}});
    let other = refused(server.create_as(Some(node_user("n")), node("m", json!({}))).await);
    assert_eq!(other, (403, "nodes \"m\" is forbidden: node \"n\" is not allowed to modify node \"m\"".into()));
    let zone = json!({"topology.kubernetes.io/zone": "z"});
    let (own, _) = server.create_as(Some(node_user("n")), node("n", zone)).await.expect("its own node");
    assert_eq!(own["spec"]["taints"], json!([{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]));
    let untaint = |node: &mut Value| node["spec"]["taints"] = json!([]);
    let steered = refused(server.update(Some(node_user("n")), &own, untaint).await);
    assert_eq!(steered, (403, "nodes \"n\" is forbidden: node \"n\" is not allowed to modify taints".into()));

    server.namespace("work").await;
    let mut placed = pod("work", "p");
    placed["spec"]["nodeName"] = "n".into();
    let created = server.create(placed.clone()).await.expect("a pod on the node");
    assert_eq!(created.label("topology.kubernetes.io/zone"), Some("z"));
    placed["metadata"]["name"] = "q".into();
    let not_mirrored = refused(server.create_as(Some(node_user("n")), placed).await);
    let sentence = "pods \"q\" is forbidden: pod does not have \"kubernetes.io/config.mirror\" annotation, node \"n\" can only create mirror pods";
    assert_eq!(not_mirrored, (403, sentence.into()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn namespaces_say_what_their_pods_may_do() {
    let cluster = Cluster::new();
    let server = cluster.server("a").await;
    let namespace = server.namespace("safe").await;
    let mut hosted = pod("safe", "old");
    hosted["spec"]["hostNetwork"] = true.into();
    server.create(hosted.clone()).await.expect("nothing is demanded yet");
    let label = |key: &'static str, value: &'static str| {
        move |namespace: &mut Value| {
            namespace["metadata"]["labels"][format!("pod-security.kubernetes.io/{key}")] = value.into()
        }
    };
    let bad = refused(server.update(None, &namespace, label("enforce", "x")).await);
    let sentence = "Namespace \"safe\" is invalid: metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: \"x\": must be one of privileged, baseline, restricted";
    assert_eq!(bad, (422, sentence.into()));
    let warnings = server.update(None, &namespace, label("enforce", "baseline")).await.expect("a good label");
    let line = "existing pods in namespace \"safe\" violate the new PodSecurity enforce level \"baseline:latest\"";
    assert_eq!(warnings, [line, "old: host namespaces"]);
    hosted["metadata"]["name"] = "new".into();
    let kept_out = refused(server.create(hosted.clone()).await);
    let sentence =
        "pods \"new\" is forbidden: violates PodSecurity \"baseline:latest\": host namespaces (hostNetwork=true)";
    assert_eq!(kept_out, (403, sentence.into()));
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "namespace": "safe"}, "spec": {
        "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": hosted["spec"].clone()},
    }});
    let (_, warnings) = server.create_as(None, deployment).await.expect("workloads are only warned of");
    assert_eq!(warnings, ["would violate PodSecurity \"baseline:latest\": host namespaces (hostNetwork=true)"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_grants_what_they_do_not_hold() {
    let cluster = Cluster::new();
    let server = cluster.server("a").await;
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "r"},
        "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]});
    // She may write roles, so that admission has the last word.
    let writer = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "writer"},
        "rules": [{"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"], "verbs": ["create"]}]});
    server.create(writer).await.expect("a role");
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "eve"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "writer"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "eve"}]});
    server.create(binding).await.expect("a binding");
    // The authorizer follows the bindings: until it has seen hers she is refused for another reason.
    let mut refused = server.create_as(Some(person("eve")), role.clone()).await.expect_err("eve holds nothing");
    for _ in 0..100 {
        if !refused.message.contains("cannot create resource") {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        refused = server.create_as(Some(person("eve")), role.clone()).await.expect_err("eve holds nothing");
    }
    assert_eq!(refused.code, 403);
    assert!(
        refused.message.contains("is attempting to grant RBAC permissions not currently held"),
        "{}",
        refused.message
    );
    server.create(role).await.expect("an administrator may");
}
