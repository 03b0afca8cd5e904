//! Deployments, StatefulSets, DaemonSets and their kin on a real control plane, as a user of kubectl sees them. The nodes are
//! made by hand, and a pretended kubelet makes pods ready, or never ready where the image is called broken.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::{Client, Kubectl, Server};

const LATER: Duration = Duration::from_secs(60);

/// A control plane with pretended nodes.
struct World {
    kubectl: Kubectl,
    kubelet: Option<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
    // Ends last.
    _server: Server,
}

impl World {
    fn start(nodes: &[&str]) -> World {
        let server = Server::start().unwrap();
        server.default_account("default").unwrap();
        let (client, stop) = (server.client().unwrap(), Arc::new(AtomicBool::new(false)));
        let (watched, world_client) = (stop.clone(), client);
        let kubelet = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            while !watched.load(Ordering::Relaxed) {
                // The server may be about to end.
                let _ = runtime.block_on(kubelet_turn(&world_client));
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        let world = World { kubectl: server.kubectl(), kubelet: Some(kubelet), stop, _server: server };
        nodes.iter().for_each(|node| world.node(node));
        world
    }

    fn node(&self, name: &str) {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}});
        self.kubectl.ok_with(&["create", "-f", "-"], &node.to_string());
    }

    fn apply(&self, object: &Value) {
        self.kubectl.ok_with(&["apply", "-f", "-"], &object.to_string());
    }

    fn ok(&self, line: &str) -> String {
        self.kubectl.ok(&line.split_whitespace().collect::<Vec<_>>())
    }

    fn get(&self, what: &str) -> Value {
        serde_json::from_str(&self.ok(&format!("get {what} -o json"))).unwrap()
    }

    /// Names of what there is, sorted.
    fn names(&self, what: &str) -> Vec<String> {
        let listed = self.ok(&format!("get {what} -o name --ignore-not-found"));
        let mut names: Vec<String> = listed.lines().map(|line| line.rsplit('/').next().unwrap().to_owned()).collect();
        names.sort();
        names
    }

    /// Waits for a state, looking again and again.
    fn until(&self, what: &str, mut reached: impl FnMut(&World) -> bool) {
        let deadline = Instant::now() + LATER;
        while !reached(self) {
            assert!(
                Instant::now() < deadline,
                "{what}: not within {LATER:?}\n{}",
                self.ok("get all,pvc,controllerrevisions")
            );
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn events(&self, about: &str) -> Vec<String> {
        let list = self.get("events");
        let ours = list["items"].as_array().unwrap().iter().filter(|event| event["involvedObject"]["name"] == about);
        ours.map(|event| format!("{} {}", event["reason"].as_str().unwrap(), event["message"].as_str().unwrap()))
            .collect()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.kubelet.take().map(JoinHandle::join);
    }
}

/// Nodes are well, pods that are placed run, pods that must end have ended, claims have volumes.
async fn kubelet_turn(client: &Client) -> anyhow::Result<()> {
    let now = k8s_openapi::jiff::Timestamp::now().to_string();
    let merge = |path: String, patch: Value| async move {
        client.send("PATCH", &path, "application/merge-patch+json", patch.to_string()).await
    };
    let items = |list: Value| list["items"].as_array().cloned().unwrap_or_default();
    for node in items(client.get("/api/v1/nodes").await?.json()) {
        let path = format!("/api/v1/nodes/{}", node["metadata"]["name"].as_str().unwrap_or_default());
        if node["status"]["conditions"].is_null() {
            let ready = json!({"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "pretended",
                "lastHeartbeatTime": now, "lastTransitionTime": now});
            let room = json!({"cpu": "64", "memory": "64Gi", "pods": "500"});
            let status = json!({"capacity": room, "allocatable": room, "conditions": [ready]});
            merge(format!("{path}/status"), json!({"status": status})).await?;
            // Nobody else says that a node without a kubelet is well.
            merge(path, json!({"spec": {"taints": null}})).await?;
        }
    }
    for pod in items(client.get("/api/v1/pods").await?.json()) {
        let metadata = &pod["metadata"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let path = format!("/api/v1/namespaces/{}/pods/{}", text(&metadata["namespace"]), text(&metadata["name"]));
        if !metadata["deletionTimestamp"].is_null() {
            let options = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": metadata["uid"]}});
            client.send("DELETE", &path, "application/json", options.to_string()).await?;
        } else if pod["status"]["phase"] == "Pending" && pod["spec"]["nodeName"].is_string() {
            let works = !text(&pod["spec"]["containers"][0]["image"]).contains("broken");
            let ready =
                json!({"type": "Ready", "status": if works { "True" } else { "False" }, "lastTransitionTime": now});
            merge(format!("{path}/status"), json!({"status": {"phase": "Running", "conditions": [ready]}})).await?;
        }
    }
    for claim in items(client.get("/api/v1/persistentvolumeclaims").await?.json()) {
        if claim["spec"]["volumeName"].is_null() && claim["metadata"]["deletionTimestamp"].is_null() {
            bind(client, &claim).await?;
        }
    }
    Ok(())
}

/// A volume for the claim, as a provisioner would make one.
async fn bind(client: &Client, claim: &Value) -> anyhow::Result<()> {
    let (namespace, name) = (claim["metadata"]["namespace"].as_str(), claim["metadata"]["name"].as_str());
    let (namespace, name) = (namespace.unwrap_or_default(), name.unwrap_or_default());
    let uid = &claim["metadata"]["uid"];
    let volume = format!("volume-{}", uid.as_str().unwrap_or_default());
    let reference = json!({"kind": "PersistentVolumeClaim", "namespace": namespace, "name": name, "uid": uid});
    let spec = json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/nowhere"},
        "storageClassName": "", "claimRef": reference});
    let object = json!({"metadata": {"name": volume}, "spec": spec});
    client.post("/api/v1/persistentvolumes", &object).await?;
    let path = format!("/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}");
    let annotations = json!({"pv.kubernetes.io/bind-completed": "yes"});
    let patch = json!({"metadata": {"annotations": annotations}, "spec": {"volumeName": volume}});
    client.send("PATCH", &path, "application/merge-patch+json", patch.to_string()).await?;
    let bound = json!({"status": {"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}}});
    client.send("PATCH", &format!("{path}/status"), "application/merge-patch+json", bound.to_string()).await?;
    Ok(())
}

fn workload(kind: &str, name: &str, mut spec: Value) -> Value {
    let labels = json!({"app": name});
    spec["template"] =
        json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "demo:1"}]}});
    spec["selector"] = if kind == "ReplicationController" { labels } else { json!({"matchLabels": labels}) };
    let version = if kind == "ReplicationController" { "v1" } else { "apps/v1" };
    json!({"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec})
}

#[test]
fn a_deployment_is_rolled_out_and_back() {
    let world = World::start(&["n1"]);
    world.apply(&workload("Deployment", "dep", json!({"replicas": 2})));
    let said = world.ok("rollout status deployment/dep --timeout=60s");
    assert!(said.ends_with("deployment \"dep\" successfully rolled out\n"), "{said}");
    let old = world.names("replicasets")[0].clone();

    // As observed at upstream: one pod of the new template beside the two old ones.
    world.ok("set image deployment/dep c=broken:2");
    world.until("the new pod is there", |world| {
        let status = world.get("deployment dep")["status"].clone();
        status["unavailableReplicas"] == 1 && status["updatedReplicas"] == 1 && status["observedGeneration"] == 2
    });
    let new = world.names("replicasets").into_iter().find(|name| *name != old).unwrap();
    let described = world.ok("describe deployment dep");
    for expected in [
        "Annotations:            deployment.kubernetes.io/revision: 2\n",
        "Replicas:               2 desired | 1 updated | 3 total | 2 available | 1 unavailable\n",
        "StrategyType:           RollingUpdate\n",
        "RollingUpdateStrategy:  25% max unavailable, 25% max surge\n",
        "  Available      True    MinimumReplicasAvailable\n  Progressing    True    ReplicaSetUpdated\n",
        &format!("OldReplicaSets:  {old} (2/2 replicas created)\nNewReplicaSet:   {new} (1/1 replicas created)\n"),
        &format!("Scaled up replica set {old} from 0 to 2\n"),
        &format!("Scaled up replica set {new} from 0 to 1\n"),
    ] {
        assert!(described.contains(expected), "{expected}\n{described}");
    }
    let row = world.ok("get deployment dep --no-headers");
    assert_eq!(row.split_whitespace().take(4).collect::<Vec<_>>(), ["dep", "2/2", "1", "2"]);

    world.ok("rollout undo deployment/dep");
    world.ok("rollout status deployment/dep --timeout=60s");
    assert_eq!(world.get("deployment dep")["spec"]["template"]["spec"]["containers"][0]["image"], "demo:1");
    let history = world.ok("rollout history deployment/dep");
    let revisions: Vec<&str> = history.lines().skip(2).filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(revisions, ["2", "3"]);

    // Paused, a new template waits; a new size does not.
    world.ok("rollout pause deployment/dep");
    world.ok("set image deployment/dep c=demo:3");
    world.ok("scale deployment/dep --replicas=3");
    world.until("three of the old template", |world| world.get("deployment dep")["status"]["readyReplicas"] == 3);
    assert_eq!(world.names("replicasets").len(), 2);
    world.ok("rollout resume deployment/dep");
    world.ok("rollout status deployment/dep --timeout=60s");
    let images = world.ok("get pods -l app=dep -o jsonpath={.items[*].spec.containers[0].image}");
    assert!(images.contains("demo:3"), "{images}");

    world.ok("rollout restart deployment/dep");
    world.ok("rollout status deployment/dep --timeout=60s");
    world.ok("scale deployment/dep --replicas=0");
    world.until("all pods have gone", |world| world.names("pods").is_empty());
    assert_eq!(world.ok("get deployment dep --no-headers").split_whitespace().nth(1), Some("0/0"));
}

#[test]
fn a_foreign_set_of_the_same_name_is_no_obstacle() {
    let world = World::start(&["n1"]);
    world.apply(&workload("Deployment", "dep", json!({"replicas": 1})));
    world.ok("rollout status deployment/dep --timeout=60s");
    let name = world.names("replicasets")[0].clone();
    world.ok("delete deployment dep --wait=true --cascade=foreground");
    let mut foreign = workload("ReplicaSet", &name, json!({"replicas": 0}));
    foreign["spec"]["selector"] = json!({"matchLabels": {"app": "foreign"}});
    foreign["spec"]["template"]["metadata"]["labels"] = json!({"app": "foreign"});
    world.apply(&foreign);
    world.apply(&workload("Deployment", "dep", json!({"replicas": 1})));
    world.ok("rollout status deployment/dep --timeout=60s");
    assert_eq!(world.get("deployment dep")["status"]["collisionCount"], 1);
    assert_eq!(world.names("replicasets").len(), 2);
}

#[test]
fn a_stateful_set_keeps_its_order_and_its_claims() {
    let world = World::start(&["n1", "n2"]);
    let claim = json!({"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "",
        "resources": {"requests": {"storage": "1Mi"}}}});
    let spec = json!({"replicas": 3, "serviceName": "web", "volumeClaimTemplates": [claim],
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete", "whenScaled": "Retain"}});
    world.apply(&workload("StatefulSet", "web", spec));
    let said = world.ok("rollout status statefulset/web --timeout=60s");
    assert!(said.contains("partitioned roll out complete") || said.contains("rolling update complete"), "{said}");
    assert_eq!(world.names("pods"), ["web-0", "web-1", "web-2"]);
    assert_eq!(world.names("pvc"), ["data-web-0", "data-web-1", "data-web-2"]);
    // Each was made when the one before it was ready.
    let pod = |ordinal: usize| world.get(&format!("pod web-{ordinal}"));
    for ordinal in 1..3 {
        let before = pod(ordinal - 1)["status"]["conditions"].as_array().cloned().unwrap();
        let ready = before.iter().find(|condition| condition["type"] == "Ready").unwrap();
        let ready = ready["lastTransitionTime"].as_str().unwrap().to_owned();
        assert!(pod(ordinal)["metadata"]["creationTimestamp"].as_str().unwrap() >= &ready[..19]);
    }
    let events = world.events("web");
    assert!(
        events.contains(&"SuccessfulCreate Create Pod web-0 in StatefulSet web successful".to_owned()),
        "{events:?}"
    );
    let created = "SuccessfulCreate Create Claim data-web-0 Pod web-0 in StatefulSet web success".to_owned();
    assert!(events.contains(&created), "{events:?}");
    let status = world.get("statefulset web")["status"].clone();
    let revision = status["currentRevision"].clone();
    let expected = json!({"availableReplicas": 3, "collisionCount": 0, "currentReplicas": 3, "currentRevision": revision,
        "observedGeneration": 1, "readyReplicas": 3, "replicas": 3, "updateRevision": revision, "updatedReplicas": 3});
    assert_eq!(status, expected);

    world.ok("set image statefulset/web c=demo:2");
    world.ok("rollout status statefulset/web --timeout=60s");
    let revisions = world.ok("rollout history statefulset/web");
    assert_eq!(revisions.lines().skip(2).filter(|line| !line.is_empty()).count(), 2, "{revisions}");
    world.ok("rollout undo statefulset/web");
    world.ok("rollout status statefulset/web --timeout=60s");
    assert_eq!(pod(0)["spec"]["containers"][0]["image"], "demo:1");
    assert_eq!(pod(0)["metadata"]["labels"]["controller-revision-hash"], revision);

    world.ok("scale statefulset/web --replicas=1");
    world.until("only the first is left", |world| world.names("pods") == ["web-0"]);
    assert_eq!(world.names("pvc").len(), 3);
    world.ok("delete statefulset web");
    // A claim may be held for a while by its protection; that it is to end is what counts.
    world.until("the claims go with the set", |world| {
        let claims = world.get("pvc")["items"].as_array().cloned().unwrap_or_default();
        claims.iter().all(|claim| !claim["metadata"]["deletionTimestamp"].is_null())
    });
    world.until("the pods have gone", |world| world.names("pods").is_empty());
}

#[test]
fn a_daemon_set_follows_the_nodes() {
    let world = World::start(&["n1", "n2"]);
    world.apply(&workload("DaemonSet", "ds", json!({})));
    let said = world.ok("rollout status daemonset/ds --timeout=60s");
    assert!(said.ends_with("daemon set \"ds\" successfully rolled out\n"), "{said}");
    let nodes = |world: &World| {
        let list = world.get("pods")["items"].as_array().cloned().unwrap_or_default();
        let living = list.iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_null());
        let mut nodes: Vec<String> =
            living.map(|pod| pod["spec"]["nodeName"].as_str().unwrap_or("none").to_owned()).collect();
        nodes.sort();
        nodes
    };
    assert_eq!(nodes(&world), ["n1", "n2"]);
    let expected = json!({"currentNumberScheduled": 2, "desiredNumberScheduled": 2, "numberAvailable": 2,
        "numberMisscheduled": 0, "numberReady": 2, "observedGeneration": 1, "updatedNumberScheduled": 2});
    assert_eq!(world.get("daemonset ds")["status"], expected);
    let pod = world.names("pods")[0].clone();
    let events = world.events("ds");
    assert!(events.contains(&format!("SuccessfulCreate Created pod: {pod}")), "{events:?}");

    world.node("n3");
    world.until("the new node has one", |world| nodes(world) == ["n1", "n2", "n3"]);
    // A cordoned node keeps its pod, and gets it back.
    world.ok("cordon n2");
    let on_n2 =
        world.get("pods")["items"].as_array().unwrap().iter().find(|pod| pod["spec"]["nodeName"] == "n2").cloned();
    world.ok(&format!("delete pod {}", on_n2.unwrap()["metadata"]["name"].as_str().unwrap()));
    world.until("the cordoned node has one again", |world| nodes(world) == ["n1", "n2", "n3"]);
    // A taint that nothing tolerates sends it away, and its end brings it back.
    world.ok("taint node n3 only=others:NoExecute");
    world.until("the tainted node has none", |world| nodes(world) == ["n1", "n2"]);
    world.ok("taint node n3 only-");
    world.until("the node has one again", |world| nodes(world) == ["n1", "n2", "n3"]);

    world.ok("set image daemonset/ds c=demo:2");
    world.ok("rollout status daemonset/ds --timeout=60s");
    world.ok("rollout undo daemonset/ds");
    world.ok("rollout status daemonset/ds --timeout=60s");
    let history = world.ok("rollout history daemonset/ds");
    let revisions: Vec<&str> = history.lines().skip(2).filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(revisions, ["2", "3"]);
    world.ok("rollout restart daemonset/ds");
    world.ok("rollout status daemonset/ds --timeout=60s");
    assert_eq!(nodes(&world), ["n1", "n2", "n3"]);
}

#[test]
fn pods_go_with_their_owner_or_stay_without_one() {
    let world = World::start(&["n1"]);
    let kinds = ["Deployment", "ReplicaSet", "StatefulSet", "ReplicationController", "DaemonSet"];
    for kind in kinds {
        let name = kind.to_lowercase();
        let object = match kind {
            "DaemonSet" => workload(kind, &name, json!({})),
            "StatefulSet" => workload(kind, &name, json!({"replicas": 1, "serviceName": "s"})),
            _ => workload(kind, &name, json!({"replicas": 1})),
        };
        let selected = format!("pods -l app={name}");
        let ready = |world: &World| {
            let pods = world.get(&selected)["items"].as_array().cloned().unwrap_or_default();
            pods.len() == 1 && pods[0]["status"]["phase"] == "Running"
        };
        for cascade in ["background", "foreground"] {
            world.apply(&object);
            world.until(&format!("{kind} has its pod"), ready);
            world.ok(&format!("delete {kind} {name} --cascade={cascade} --timeout=60s"));
            if cascade == "foreground" {
                assert_eq!(world.names(&selected), Vec::<String>::new(), "{kind}: its pods go first");
            }
            world.until(&format!("the pods of {kind} go, {cascade}"), |world| world.names(&selected).is_empty());
        }
        world.apply(&object);
        world.until(&format!("{kind} has its pod"), ready);
        let before = world.names(&selected);
        world.ok(&format!("delete {kind} {name} --cascade=orphan --timeout=60s"));
        assert_eq!(world.names(&selected), before, "{kind}: its pods stay");
        // Made again, it takes them in: nothing is made twice.
        world.apply(&object);
        world.until(&format!("{kind} takes in what it left"), |world| {
            let status = world.get(&format!("{kind} {name}"))["status"].clone();
            status["readyReplicas"] == 1 || status["numberReady"] == 1
        });
        assert_eq!(world.names(&selected), before, "{kind}: the same pods");
        world.ok(&format!("delete {kind} {name} --timeout=60s"));
        world.until("all has gone", |world| world.names(&selected).is_empty());
    }
    world.until("no revision is left", |world| world.names("controllerrevisions,replicasets").is_empty());
}
