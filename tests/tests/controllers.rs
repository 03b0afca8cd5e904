//! The controllers of a real server: what a user of the API can rely on without ever asking for it.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::{Client, Options, Server};

const SOON: Duration = Duration::from_secs(2);
const LATER: Duration = Duration::from_secs(20);

/// Waits for a state, looking again and again.
async fn until(what: &str, within: Duration, mut reached: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + within;
    while !reached().await {
        assert!(Instant::now() < deadline, "{what}: not within {within:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn code(client: &Client, path: &str) -> u16 {
    client.get(path).await.expect("the server answers").code
}

async fn gone(client: &Client, path: &str, within: Duration) {
    until(&format!("{path} is gone"), within, async || code(client, path).await == 404).await;
}

async fn create(client: &Client, path: &str, object: Value) -> Value {
    let reply = client.post(path, &object).await.expect("the server answers");
    assert_eq!(reply.code, 201, "{}", reply.text());
    reply.json()
}

async fn namespace(client: &Client, name: &str) {
    create(client, "/api/v1/namespaces", json!({"metadata": {"name": name}})).await;
}

async fn delete(client: &Client, path: &str, policy: &str) {
    let options = json!({"propagationPolicy": policy}).to_string();
    let reply = client.send("DELETE", path, "application/json", options).await.expect("the server answers");
    assert!(matches!(reply.code, 200 | 202), "{}", reply.text());
}

async fn patch(client: &Client, path: &str, patch: Value) {
    let reply = client.send("PATCH", path, "application/merge-patch+json", patch.to_string()).await;
    let reply = reply.expect("the server answers");
    assert_eq!(reply.code, 200, "{}", reply.text());
}

#[tokio::test]
async fn a_new_namespace_gets_its_account_and_authority() {
    let server = Server::start().unwrap();
    let client = server.client().unwrap();
    namespace(&client, "fresh").await;
    let (account, map) =
        ("/api/v1/namespaces/fresh/serviceaccounts/default", "/api/v1/namespaces/fresh/configmaps/kube-root-ca.crt");
    until("the account", SOON, async || code(&client, account).await == 200).await;
    until("the authority", SOON, async || code(&client, map).await == 200).await;
    let authority = std::fs::read_to_string(server.data_dir().join("tls/ca.crt")).unwrap();
    assert_eq!(client.get(map).await.unwrap().json()["data"]["ca.crt"], authority);

    // What somebody takes away or spoils comes back.
    delete(&client, account, "Background").await;
    patch(&client, map, json!({"data": {"ca.crt": "spoilt"}})).await;
    until("the account again", SOON, async || code(&client, account).await == 200).await;
    until("the authority again", SOON, async || {
        client.get(map).await.unwrap().json()["data"]["ca.crt"] == authority.as_str()
    })
    .await;
}

/// Fills a namespace; one object of many is held by a finalizer.
async fn fill(client: &Client, name: &str, count: usize) {
    namespace(client, name).await;
    for index in 0..count {
        let plural = ["configmaps", "secrets", "serviceaccounts", "resourcequotas"][index % 4];
        let mut object = json!({"metadata": {"name": format!("object-{index}")}});
        if index == 0 {
            object["metadata"]["finalizers"] = json!(["example.com/hold"]);
        }
        create(client, &format!("/api/v1/namespaces/{name}/{plural}"), object).await;
    }
}

#[tokio::test]
async fn a_full_namespace_ends_when_its_last_finalizer_goes() {
    let server = Server::start().unwrap();
    let client = server.client().unwrap();
    fill(&client, "full", 200).await;
    let path = "/api/v1/namespaces/full";
    delete(&client, path, "Background").await;
    let message = async |kind: &str| {
        let found = client.get(path).await.unwrap().json();
        let conditions = found["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let condition = conditions.into_iter().find(|condition| condition["type"] == kind);
        condition.map_or(Value::Null, |condition| condition["message"].clone())
    };
    until("one object remains", LATER, async || {
        message("NamespaceContentRemaining").await
            == "Some resources are remaining: configmaps. has 1 resource instances"
    })
    .await;
    let held = "Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances";
    assert_eq!(message("NamespaceFinalizersRemaining").await, held);
    patch(&client, &format!("{path}/configmaps/object-0"), json!({"metadata": {"finalizers": null}})).await;
    gone(&client, path, LATER).await;
}

#[tokio::test]
async fn a_restart_does_not_stop_the_end_of_a_namespace() {
    let mut server = Server::start().unwrap();
    let client = server.client().unwrap();
    fill(&client, "cut", 40).await;
    delete(&client, "/api/v1/namespaces/cut", "Background").await;
    server.restart().unwrap();
    patch(&client, "/api/v1/namespaces/cut/configmaps/object-0", json!({"metadata": {"finalizers": null}})).await;
    gone(&client, "/api/v1/namespaces/cut", LATER).await;
}

/// A Deployment, a ReplicaSet of it and two Pods of that, by their references alone.
struct Chain {
    deployment: String,
    set: String,
    pods: [String; 2],
}

async fn chain(client: &Client, namespace: &str) -> Chain {
    let apps = format!("/apis/apps/v1/namespaces/{namespace}");
    let pods = format!("/api/v1/namespaces/{namespace}/pods");
    let template = json!({"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let spec = json!({"selector": {"matchLabels": {"app": "x"}}, "template": template});
    let deployment = json!({"metadata": {"name": "web"}, "spec": spec});
    let deployment = create(client, &format!("{apps}/deployments"), deployment).await;
    let set = json!({"metadata": {"name": "web-1", "ownerReferences": [owned(&deployment, "apps/v1", "Deployment")]}, "spec": spec});
    let set = create(client, &format!("{apps}/replicasets"), set).await;
    for name in ["web-1-a", "web-1-b"] {
        let owner = owned(&set, "apps/v1", "ReplicaSet");
        let pod = json!({"metadata": {"name": name, "ownerReferences": [owner]}, "spec": template["spec"]});
        create(client, &pods, pod).await;
    }
    Chain {
        deployment: format!("{apps}/deployments/web"),
        set: format!("{apps}/replicasets/web-1"),
        pods: [format!("{pods}/web-1-a"), format!("{pods}/web-1-b")],
    }
}

fn owned(owner: &Value, api_version: &str, kind: &str) -> Value {
    let metadata = &owner["metadata"];
    json!({
        "apiVersion": api_version, "kind": kind, "name": metadata["name"], "uid": metadata["uid"],
        "controller": true, "blockOwnerDeletion": true,
    })
}

/// Nobody but the collectors acts on what the tests make.
fn collectors_only() -> Server {
    let controllers = "serviceaccount-controller,namespace-controller,garbage-collector-controller";
    Server::start_with(Options { arguments: vec!["--controllers".into(), controllers.into()], ..Options::default() })
        .unwrap()
}

async fn ready(client: &Client, name: &str) {
    namespace(client, name).await;
    let account = format!("/api/v1/namespaces/{name}/serviceaccounts/default");
    until("the account", SOON, async || code(client, &account).await == 200).await;
}

#[tokio::test]
async fn dependents_go_after_their_owner() {
    let server = collectors_only();
    let client = server.client().unwrap();
    ready(&client, "gc").await;
    let chain = chain(&client, "gc").await;
    delete(&client, &chain.deployment, "Background").await;
    assert_eq!(code(&client, &chain.deployment).await, 404);
    for path in [&chain.set, &chain.pods[0], &chain.pods[1]] {
        gone(&client, path, LATER).await;
    }
    // An owner that never was is as good as one that is gone.
    let owner = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "never", "uid": "0b7f4c1e-0000-4000-8000-000000000000"}]);
    let stray = json!({"metadata": {"name": "stray", "ownerReferences": owner}});
    create(&client, "/api/v1/namespaces/gc/configmaps", stray).await;
    gone(&client, "/api/v1/namespaces/gc/configmaps/stray", LATER).await;
}

#[tokio::test]
async fn a_foreground_deletion_goes_from_the_leaves_to_the_root() {
    let server = collectors_only();
    let client = server.client().unwrap();
    ready(&client, "gc").await;
    let chain = chain(&client, "gc").await;
    patch(&client, &chain.pods[0], json!({"metadata": {"finalizers": ["example.com/hold"]}})).await;
    delete(&client, &chain.deployment, "Foreground").await;
    gone(&client, &chain.pods[1], LATER).await;
    // One pod is held, and so are those above it.
    until("the set waits", LATER, async || {
        let set = client.get(&chain.set).await.unwrap().json();
        set["metadata"]["finalizers"] == json!(["foregroundDeletion"])
    })
    .await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    for path in [&chain.deployment, &chain.set, &chain.pods[0]] {
        let found = client.get(path).await.unwrap().json();
        assert!(found["metadata"]["deletionTimestamp"].is_string(), "{path}: {found}");
    }
    patch(&client, &chain.pods[0], json!({"metadata": {"finalizers": null}})).await;
    gone(&client, &chain.deployment, LATER).await;
    assert_eq!(code(&client, &chain.set).await, 404);
}

#[tokio::test]
async fn orphans_live_on_without_their_owner() {
    let server = collectors_only();
    let client = server.client().unwrap();
    ready(&client, "gc").await;
    let chain = chain(&client, "gc").await;
    delete(&client, &chain.set, "Orphan").await;
    gone(&client, &chain.set, LATER).await;
    for path in &chain.pods {
        let pod = client.get(path).await.unwrap();
        assert_eq!((pod.code, &pod.json()["metadata"]["ownerReferences"]), (200, &Value::Null));
    }
    assert_eq!(code(&client, &chain.deployment).await, 200);
}

#[tokio::test]
async fn controllers_are_allowed_what_their_entries_name() {
    let server = Server::start().unwrap();
    let client = server.client().unwrap();
    // Roles of controllers behind a gate come with the gate.
    let is_gated = |name: &str| kube_controller_manager::GATED.iter().any(|(gated, _)| *gated == name);
    for controller in kube_controller_manager::CONTROLLERS.iter().filter(|controller| !is_gated(controller.name)) {
        // One without an account of its own works as the controller manager itself.
        let name = match controller.account {
            "" => "system:kube-controller-manager".to_owned(),
            account => format!("system:controller:{account}"),
        };
        // A few have what they need only in the namespaces of the system.
        let mut rules = Vec::new();
        let places = ["clusterroles", "namespaces/kube-system/roles", "namespaces/kube-public/roles"];
        let mut roles: Vec<String> = places.iter().map(|place| format!("{place}/{name}")).collect();
        if controller.account == "certificate-controller" {
            // Names of nodes belong to machines in knarr's own clusters.
            roles.push("namespaces/kube-system/roles/knarr:node-keys".into());
        }
        for role in roles {
            let role = client.get(&format!("/apis/rbac.authorization.k8s.io/v1/{role}")).await.unwrap().json();
            rules.extend(role["rules"].as_array().cloned().unwrap_or_default());
        }
        let granted = |group: &str, resource: &str, verb: &str| {
            let has = |rule: &Value, field: &str, value: &str| {
                rule[field].as_array().is_some_and(|list| list.iter().any(|one| one == value || one == "*"))
            };
            rules.iter().any(|rule| {
                has(rule, "apiGroups", group) && has(rule, "resources", resource) && has(rule, "verbs", verb)
            })
        };
        for rule in controller.rules {
            for (group, resource) in
                rule.groups.iter().flat_map(|group| rule.resources.iter().map(move |one| (group, one)))
            {
                for verb in rule.verbs {
                    assert!(granted(group, resource, verb), "{}: {verb} {resource} in {group:?}", controller.name);
                }
            }
        }
    }
}

#[tokio::test]
async fn a_thousand_dependents_go_after_their_owner() {
    let server = collectors_only();
    let client = server.client().unwrap();
    ready(&client, "many").await;
    let maps = "/api/v1/namespaces/many/configmaps";
    let owner = create(&client, maps, json!({"metadata": {"name": "owner"}})).await;
    let reference = owned(&owner, "v1", "ConfigMap");
    let made: Vec<_> = (0..8)
        .map(|part| {
            let (client, reference) = (client.clone(), reference.clone());
            tokio::spawn(async move {
                for index in 0..125 {
                    let name = format!("dependent-{part}-{index}");
                    create(&client, maps, json!({"metadata": {"name": name, "ownerReferences": [reference]}})).await;
                }
            })
        })
        .collect();
    for part in made {
        part.await.unwrap();
    }
    delete(&client, &format!("{maps}/owner"), "Background").await;
    until("only the rest is left", LATER, async || {
        let list = client.get(maps).await.unwrap().json();
        list["items"]
            .as_array()
            .is_some_and(|items| items.iter().all(|item| item["metadata"]["ownerReferences"].is_null()))
    })
    .await;
}

/// A process that ends with the test.
struct Process(std::process::Child);

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only where it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn controllers_run_alone_and_outlive_the_server() {
    let options =
        Options { arguments: vec!["--disable".into(), "kube-controller-manager".into()], ..Options::default() };
    let mut server = Server::start_with(options).unwrap();
    let client = server.client().unwrap();
    namespace(&client, "before").await;
    let account = |name: &str| format!("/api/v1/namespaces/{name}/serviceaccounts/default");
    assert_eq!(code(&client, &account("before")).await, 404);
    let mut command = std::process::Command::new(testkit::server::binary().unwrap());
    command.args(["kube-controller-manager", "--secure-port=0", "--kubeconfig"]).arg(server.kubeconfig());
    let _controllers = Process(command.stderr(std::process::Stdio::null()).spawn().unwrap());
    until("the account", LATER, async || code(&client, &account("before")).await == 200).await;

    server.restart().unwrap();
    namespace(&client, "after").await;
    until("the account after a restart", LATER, async || code(&client, &account("after")).await == 200).await;
    delete(&client, "/api/v1/namespaces/after", "Background").await;
    gone(&client, "/api/v1/namespaces/after", LATER).await;
}

#[tokio::test]
async fn a_class_of_volume_attributes_goes_when_nobody_uses_it() {
    let server = Server::start().unwrap();
    let client = server.client().unwrap();
    let classes = "/apis/storage.k8s.io/v1/volumeattributesclasses";
    let claims = "/api/v1/namespaces/default/persistentvolumeclaims";
    create(&client, classes, json!({"metadata": {"name": "gold"}, "driverName": "d", "parameters": {"iops": "9"}}))
        .await;
    let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
        "volumeAttributesClassName": "gold", "storageClassName": "other"});
    create(&client, claims, json!({"metadata": {"name": "data"}, "spec": spec})).await;
    delete(&client, &format!("{classes}/gold"), "Background").await;
    let held = client.get(&format!("{classes}/gold")).await.unwrap().json();
    assert_eq!(held["metadata"]["finalizers"], json!(["kubernetes.io/vac-protection"]));
    delete(&client, &format!("{claims}/data"), "Background").await;
    gone(&client, &format!("{claims}/data"), LATER).await;
    gone(&client, &format!("{classes}/gold"), LATER).await;
}

#[tokio::test]
async fn an_aggregated_role_takes_in_new_rules() {
    let server = Server::start().unwrap();
    let client = server.client().unwrap();
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    let rule = json!({"apiGroups": ["example.com"], "resources": ["widgets"], "verbs": ["get"]});
    let label = json!({"rbac.authorization.k8s.io/aggregate-to-view": "true"});
    let role = json!({"metadata": {"name": "widgets", "labels": label}, "rules": [rule]});
    create(&client, roles, role).await;
    for name in ["view", "edit", "admin"] {
        let has = async || {
            let found = client.get(&format!("{roles}/{name}")).await.unwrap().json();
            found["rules"].as_array().is_some_and(|rules| rules.contains(&rule))
        };
        until(&format!("{name} has the rule"), SOON, has).await;
    }
    delete(&client, &format!("{roles}/widgets"), "Background").await;
    until("view has lost the rule", SOON, async || {
        let found = client.get(&format!("{roles}/view")).await.unwrap().json();
        !found["rules"].as_array().is_some_and(|rules| rules.contains(&rule))
    })
    .await;
}
