//! Scheduling through the API: a real control plane, nodes that exist only as objects, and what users read of the outcome.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::{Client, Options, Server};

const SOON: Duration = Duration::from_secs(15);
const PODS: &str = "/api/v1/namespaces/default/pods";
const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";

/// A server whose nodes are the test's own.
struct Cluster {
    server: Server,
    client: Client,
}

impl Cluster {
    async fn start(arguments: &[&str]) -> Cluster {
        let arguments = arguments.iter().map(|argument| argument.to_string()).collect();
        let server = Server::start_with(Options { arguments, ..Options::default() }).unwrap();
        server.default_account("default").unwrap();
        let client = server.client().unwrap();
        Cluster { server, client }
    }

    async fn create(&self, path: &str, object: Value) -> Value {
        let reply = self.client.post(path, &object).await.expect("the server answers");
        assert_eq!(reply.code, 201, "{}", reply.text());
        reply.json()
    }

    async fn get(&self, path: &str) -> Value {
        self.client.get(path).await.expect("the server answers").json()
    }

    async fn node(&self, name: &str, labels: Value, taints: Value) {
        let mut all = json!({"kubernetes.io/hostname": name});
        for (key, value) in labels.as_object().into_iter().flatten() {
            all[key] = value.clone();
        }
        let node = json!({"metadata": {"name": name, "labels": all}, "spec": {"taints": taints}});
        self.create("/api/v1/nodes", node).await;
        let amounts = json!({"cpu": "2", "memory": "4Gi", "pods": "10"});
        let status = json!({"status": {"capacity": amounts, "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True"}]}});
        let path = format!("/api/v1/nodes/{name}/status");
        let reply = self.client.send("PATCH", &path, "application/merge-patch+json", status.to_string()).await.unwrap();
        assert_eq!(reply.code, 200, "{}", reply.text());
        // A new node is tainted until somebody says that it is ready; here that is the test.
        let spec = json!({"spec": {"taints": taints}});
        let path = format!("/api/v1/nodes/{name}");
        let reply = self.client.send("PATCH", &path, "application/merge-patch+json", spec.to_string()).await.unwrap();
        assert_eq!(reply.code, 200, "{}", reply.text());
    }

    async fn pod(&self, name: &str, labels: Value, cpu: &str, more: Value) -> Value {
        let mut spec = json!({"terminationGracePeriodSeconds": 0,
            "containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu}}}]});
        for (key, value) in more.as_object().into_iter().flatten() {
            spec[key] = value.clone();
        }
        self.create(PODS, json!({"metadata": {"name": name, "labels": labels}, "spec": spec})).await
    }

    /// The node that the pod gets.
    async fn placed(&self, name: &str) -> String {
        let path = format!("{PODS}/{name}");
        let deadline = Instant::now() + SOON;
        loop {
            let pod = self.get(&path).await;
            if let Some(node) = pod["spec"]["nodeName"].as_str() {
                return node.to_owned();
            }
            assert!(Instant::now() < deadline, "{name} has no node: {}", pod["status"]);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// What the pod's condition says of why it has no node.
    async fn refused(&self, name: &str, expected: &str) {
        let path = format!("{PODS}/{name}");
        let mut said = Value::Null;
        let deadline = Instant::now() + SOON;
        while Instant::now() < deadline {
            let pod = self.get(&path).await;
            assert_eq!(pod["spec"]["nodeName"], Value::Null, "{name} has a node");
            let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let found = conditions.iter().find(|condition| condition["type"] == "PodScheduled");
            said = found.cloned().unwrap_or_default();
            if said["message"] == expected {
                assert_eq!((&said["status"], &said["reason"]), (&json!("False"), &json!("Unschedulable")));
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("{name} says {said}, not {expected}");
    }

    /// Waits for an Event about an object.
    async fn told(&self, name: &str, reason: &str, message: &str) {
        let path = format!("/api/v1/namespaces/default/events?fieldSelector=involvedObject.name={name}");
        let mut said = Value::Null;
        let deadline = Instant::now() + SOON;
        while Instant::now() < deadline {
            said = self.get(&path).await["items"].clone();
            let events = said.as_array().into_iter().flatten();
            if events.into_iter().any(|event| event["reason"] == reason && event["message"] == message) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let said: Vec<String> = said
            .as_array()
            .into_iter()
            .flatten()
            .map(|event| format!("{} {}", event["reason"], event["message"]))
            .collect();
        panic!("{name} was told {said:#?}, not {reason} {message}");
    }

    async fn until(&self, what: &str, path: &str, reached: impl Fn(u16, &Value) -> bool) -> Value {
        let deadline = Instant::now() + SOON;
        loop {
            let reply = self.client.get(path).await.expect("the server answers");
            let (code, object) = (reply.code, reply.json());
            if reached(code, &object) {
                return object;
            }
            assert!(Instant::now() < deadline, "{what}: {code} {object}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

fn claim(name: &str, class: Option<&str>) -> Value {
    let mut spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    if let Some(class) = class {
        spec["storageClassName"] = class.into();
    }
    json!({"metadata": {"name": name}, "spec": spec})
}

fn uses(claim: &str) -> Value {
    json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]})
}

const NOT_HELPFUL: &str = "Preemption is not helpful for scheduling";

#[tokio::test]
async fn pods_go_where_they_may_and_say_why_not() {
    let cluster = Cluster::start(&[]).await;
    cluster.node("n1", json!({"disk": "ssd"}), json!([])).await;
    cluster.node("n2", json!({}), json!([{"key": "gpu", "value": "yes", "effect": "NoSchedule"}])).await;

    cluster.pod("selects", json!({}), "100m", json!({"nodeSelector": {"disk": "ssd"}})).await;
    assert_eq!(cluster.placed("selects").await, "n1");
    cluster.told("selects", "Scheduled", "Successfully assigned default/selects to n1").await;

    let tolerates = json!({"tolerations": [{"key": "gpu", "operator": "Exists"}], "nodeSelector": {"kubernetes.io/hostname": "n2"}});
    cluster.pod("tolerates", json!({}), "100m", tolerates).await;
    assert_eq!(cluster.placed("tolerates").await, "n2");

    cluster.pod("nowhere", json!({}), "100m", json!({"nodeSelector": {"disk": "tape"}})).await;
    // The taint is looked at first, so only one of the two nodes comes as far as the selector.
    let text = format!(
        "0/2 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, 1 node(s) had untolerated taint(s). no new claims to deallocate, preemption: 0/2 nodes are available: 2 {NOT_HELPFUL}."
    );
    cluster.refused("nowhere", &text).await;
    cluster.told("nowhere", "FailedScheduling", &text).await;

    cluster.pod("large", json!({}), "8", json!({})).await;
    let text = format!(
        "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint(s). no new claims to deallocate, preemption: 0/2 nodes are available: 2 {NOT_HELPFUL}."
    );
    cluster.refused("large", &text).await;

    // What waits is tried again when something that matters changes.
    let patch = json!({"metadata": {"labels": {"disk": "tape"}}}).to_string();
    let reply = cluster.client.send("PATCH", "/api/v1/nodes/n1", "application/merge-patch+json", patch).await.unwrap();
    assert_eq!(reply.code, 200);
    assert_eq!(cluster.placed("nowhere").await, "n1");
}

#[tokio::test]
async fn pods_of_a_kind_are_spread_and_kept_apart() {
    let cluster = Cluster::start(&[]).await;
    for (node, zone) in [("n1", "a"), ("n2", "b"), ("n3", "c")] {
        cluster.node(node, json!({"topology.kubernetes.io/zone": zone}), json!([])).await;
    }
    let spread = json!({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone",
        "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "web"}}}]});
    let mut nodes = Vec::new();
    for name in ["web-1", "web-2", "web-3"] {
        cluster.pod(name, json!({"app": "web"}), "100m", spread.clone()).await;
        nodes.push(cluster.placed(name).await);
    }
    nodes.sort();
    assert_eq!(nodes, ["n1", "n2", "n3"]);

    let apart = json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}}]}}});
    cluster.pod("apart", json!({"app": "db"}), "100m", apart).await;
    cluster
        .refused(
            "apart",
            "0/3 nodes are available: 3 node(s) didn't match pod anti-affinity rules. no new claims to deallocate, preemption: 0/3 nodes are available: 3 No preemption victims found for incoming pod.",
        )
        .await;
    let near = json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}}]}}});
    cluster.pod("near", json!({}), "100m", near).await;
    cluster.placed("near").await;
}

#[tokio::test]
async fn important_pods_take_the_place_of_others_but_budgets_are_kept() {
    let cluster = Cluster::start(&[]).await;
    cluster.node("n1", json!({}), json!([])).await;
    cluster.node("n2", json!({}), json!([])).await;
    let high = json!({"metadata": {"name": "high"}, "value": 1000});
    cluster.create("/apis/scheduling.k8s.io/v1/priorityclasses", high).await;
    for (name, node) in [("guarded", "n1"), ("free", "n2")] {
        let place = json!({"nodeSelector": {"kubernetes.io/hostname": node}});
        cluster.pod(name, json!({"name": name}), "1500m", place).await;
        assert_eq!(cluster.placed(name).await, node);
    }
    let budget = json!({"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"name": "guarded"}}}});
    cluster.create("/apis/policy/v1/namespaces/default/poddisruptionbudgets", budget).await;
    cluster.pod("important", json!({}), "1500m", json!({"priorityClassName": "high"})).await;
    // No kubelet ends the victim's containers here; without a grace period it is gone at once all the same.
    assert_eq!(cluster.placed("important").await, "n2");
    assert_eq!(cluster.client.get(&format!("{PODS}/guarded")).await.unwrap().code, 200);
    let important = cluster.get(&format!("{PODS}/important")).await;
    // It was promised the node while it waited; now that it is there nothing speaks of a promise.
    assert_eq!(important["status"]["nominatedNodeName"], Value::Null);
    let uid = important["metadata"]["uid"].as_str().unwrap_or_default();
    cluster.told("free", "Preempted", &format!("Preempted by pod {uid} on node n2")).await;
}

#[tokio::test]
async fn a_claim_gets_its_folder_where_its_pod_goes() {
    let cluster = Cluster::start(&[]).await;
    let class = cluster.get("/apis/storage.k8s.io/v1/storageclasses/local-path").await;
    assert_eq!(class["provisioner"], "knarr.dev/local-path");
    cluster.node("n1", json!({}), json!([])).await;
    cluster.node("n2", json!({"disk": "ssd"}), json!([])).await;

    cluster.create(CLAIMS, claim("data", None)).await;
    let waits = "waiting for first consumer to be created before binding";
    cluster.told("data", "WaitForFirstConsumer", waits).await;
    let mut spec = uses("data");
    spec["nodeSelector"] = json!({"disk": "ssd"});
    cluster.pod("user", json!({}), "100m", spec).await;
    assert_eq!(cluster.placed("user").await, "n2");
    let bound = cluster.get(&format!("{CLAIMS}/data")).await;
    assert_eq!(
        (&bound["status"]["phase"], &bound["spec"]["storageClassName"]),
        (&json!("Bound"), &json!("local-path"))
    );
    let name = bound["spec"]["volumeName"].as_str().expect("it has a volume").to_owned();
    let path = format!("/api/v1/persistentvolumes/{name}");
    let volume = cluster.until("the volume is bound", &path, |_, volume| volume["status"]["phase"] == "Bound").await;
    let folder = cluster.server.data_dir().join("storage").join(format!("{name}_default_data"));
    assert_eq!(volume["spec"]["hostPath"]["path"], folder.to_string_lossy().as_ref());
    cluster.told("data", "ProvisioningSucceeded", &format!("Successfully provisioned volume {name}")).await;

    // The volume binds later pods to its node.
    let mut elsewhere = uses("data");
    elsewhere["nodeSelector"] = json!({"kubernetes.io/hostname": "n1"});
    cluster.pod("elsewhere", json!({}), "100m", elsewhere).await;
    cluster
        .refused(
            "elsewhere",
            &format!("0/2 nodes are available: 1 node(s) didn't match PersistentVolume's node affinity, 1 node(s) didn't match Pod's node affinity/selector. no new claims to deallocate, preemption: 0/2 nodes are available: 2 {NOT_HELPFUL}."),
        )
        .await;

    // A claim that a pod uses stays until the pod is gone; its folder is then removed by a pod on its node.
    let claim_path = format!("{CLAIMS}/data");
    cluster.client.send("DELETE", &claim_path, "application/json", "{}").await.unwrap();
    let ending = cluster.get(&claim_path).await;
    assert_eq!(ending["metadata"]["finalizers"], json!(["kubernetes.io/pvc-protection"]));
    for pod in ["user", "elsewhere"] {
        cluster
            .client
            .send("DELETE", &format!("{PODS}/{pod}"), "application/json", json!({"gracePeriodSeconds": 0}).to_string())
            .await
            .unwrap();
    }
    cluster.until("the claim is gone", &claim_path, |code, _| code == 404).await;
    let helper = format!("/api/v1/namespaces/kube-system/pods/helper-{name}");
    let made = cluster.until("the helper", &helper, |code, _| code == 200).await;
    assert_eq!(made["spec"]["nodeName"], "n2");
    let done = json!({"status": {"phase": "Succeeded"}}).to_string();
    let reply =
        cluster.client.send("PATCH", &format!("{helper}/status"), "application/merge-patch+json", done).await.unwrap();
    assert_eq!(reply.code, 200, "{}", reply.text());
    cluster.until("the volume is gone", &path, |code, _| code == 404).await;
    cluster.until("the helper is gone", &helper, |code, _| code == 404).await;
}

#[tokio::test]
async fn pods_without_their_volumes_say_what_is_missing() {
    let cluster = Cluster::start(&["--disable", "local-storage"]).await;
    cluster.node("n1", json!({}), json!([])).await;
    let preemption = format!("no new claims to deallocate, preemption: 0/1 nodes are available: 1 {NOT_HELPFUL}.");
    cluster.pod("early", json!({}), "100m", uses("later")).await;
    let text = format!("0/1 nodes are available: persistentvolumeclaim \"later\" not found. {preemption}");
    cluster.refused("early", &text).await;

    cluster.create(CLAIMS, claim("later", Some(""))).await;
    let text = format!("0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims. {preemption}");
    cluster.refused("early", &text).await;
    let none = "no persistent volumes available for this claim and no storage class is set";
    cluster.told("later", "FailedBinding", none).await;

    // A volume that somebody makes is taken, and the pod goes.
    let volume = json!({"metadata": {"name": "v"}, "spec": {"capacity": {"storage": "2Gi"}, "accessModes": ["ReadWriteOnce"],
        "hostPath": {"path": "/v"}, "persistentVolumeReclaimPolicy": "Retain"}});
    cluster.create("/api/v1/persistentvolumes", volume).await;
    assert_eq!(cluster.placed("early").await, "n1");
    let bound = cluster.get(&format!("{CLAIMS}/later")).await;
    assert_eq!((&bound["spec"]["volumeName"], &bound["status"]["capacity"]["storage"]), (&json!("v"), &json!("2Gi")));

    // Static local volumes wait for their first pod, too.
    let class = json!({"metadata": {"name": "static"}, "provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer"});
    cluster.create("/apis/storage.k8s.io/v1/storageclasses", class).await;
    cluster.create(CLAIMS, claim("local", Some("static"))).await;
    cluster.pod("late", json!({}), "100m", uses("local")).await;
    let text =
        format!("0/1 nodes are available: 1 node(s) didn't find available persistent volumes to bind. {preemption}");
    cluster.refused("late", &text).await;
    let terms = json!([{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1"]}]}]);
    let volume = json!({"metadata": {"name": "l"}, "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
        "local": {"path": "/l"}, "storageClassName": "static", "nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}});
    cluster.create("/api/v1/persistentvolumes", volume).await;
    assert_eq!(cluster.placed("late").await, "n1");
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

/// A port that nobody uses now.
fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// What a path answers over plain HTTP; nothing while nobody listens.
async fn asked(port: u16, path: &str) -> String {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let Ok(mut stream) = tokio::net::TcpStream::connect(("127.0.0.1", port)).await else { return String::new() };
    let mut answer = String::new();
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let _ = stream.write_all(request.as_bytes()).await;
    let _ = stream.read_to_string(&mut answer).await;
    answer
}

#[tokio::test]
async fn monitoring_reads_how_the_scheduler_is_doing() {
    let cluster = Cluster::start(&["--disable=kube-scheduler"]).await;
    let port = free_port();
    let address = format!("--health-address=127.0.0.1:{port}");
    let _scheduler = testkit::Component::start(&cluster.server, "scheduler", "kube-scheduler", &[&address]).unwrap();
    cluster.node("n1", json!({}), json!([])).await;
    for name in ["one", "two"] {
        cluster.pod(name, json!({}), "100m", json!({})).await;
        cluster.placed(name).await;
    }
    cluster.pod("large", json!({}), "100", json!({})).await;
    cluster.pod("gated", json!({}), "100m", json!({"schedulingGates": [{"name": "example.com/wait"}]})).await;
    let expected = [
        r#"scheduler_pending_pods{queue="active"} 0"#,
        r#"scheduler_pending_pods{queue="unschedulable"} 1"#,
        r#"scheduler_pending_pods{queue="gated"} 1"#,
        r#"scheduler_unschedulable_pods{plugin="NodeResourcesFit",profile="default-scheduler"} 1"#,
        r#"scheduler_schedule_attempts_total{profile="default-scheduler",result="scheduled"} 2"#,
        r#"scheduler_schedule_attempts_total{profile="default-scheduler",result="unschedulable"} 1"#,
        r#"scheduler_scheduling_attempt_duration_seconds_count{profile="default-scheduler",result="scheduled"} 2"#,
        r#"scheduler_pod_scheduling_sli_duration_seconds_count{attempts="1"} 2"#,
        "scheduler_pod_scheduling_attempts_count 2",
        "scheduler_preemption_attempts_total 1",
        r#"scheduler_cache_size{type="nodes"} 1"#,
        r#"scheduler_cache_size{type="pods"} 2"#,
        r#"scheduler_queue_incoming_pods_total{event="PodAdd",queue="active"} 3"#,
        r#"leader_election_master_status{name="kube-scheduler"} 1"#,
    ];
    let deadline = Instant::now() + SOON;
    loop {
        let page = asked(port, "/metrics").await;
        let missing: Vec<&&str> = expected.iter().filter(|line| !page.lines().any(|one| one == **line)).collect();
        if missing.is_empty() {
            break;
        }
        assert!(Instant::now() < deadline, "{missing:#?} in {page}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(asked(port, "/healthz").await.ends_with("\r\n\r\nok"));
}

#[tokio::test]
async fn two_schedulers_share_a_cluster_by_name() {
    let cluster = Cluster::start(&[]).await;
    cluster.node("n1", json!({}), json!([])).await;
    cluster.pod("default", json!({}), "100m", json!({})).await;
    cluster.placed("default").await;
    cluster.pod("own", json!({}), "100m", json!({"schedulerName": "packed"})).await;
    let file = cluster.server.data_dir().join("scheduler.yaml");
    std::fs::write(
        &file,
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n- schedulerName: packed\n  pluginConfig:\n  - name: NodeResourcesFit\n    args: {scoringStrategy: {type: MostAllocated}}\n",
    )
    .unwrap();
    assert_eq!(cluster.get(&format!("{PODS}/own")).await["spec"]["nodeName"], Value::Null);
    let mut command = std::process::Command::new(testkit::server::binary().unwrap());
    command.arg("kube-scheduler").arg("--kubeconfig").arg(cluster.server.kubeconfig()).arg("--config").arg(&file);
    // The server's own scheduler may have the usual port.
    command.arg("--secure-port=0");
    let _scheduler = Process(command.stderr(std::process::Stdio::null()).spawn().unwrap());
    assert_eq!(cluster.placed("own").await, "n1");
}
