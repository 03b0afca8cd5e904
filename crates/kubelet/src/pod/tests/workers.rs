//! Whole lives of pods: workers over a fake runtime and a fake API.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::fake_api::FakeApi;
use tokio::sync::watch;

use crate::claims::Claims;
use crate::device_plugins::DevicePlugins;
use crate::drivers::Drivers;
use crate::images::Images;
use crate::node::Health;
use crate::node::addresses::Addresses;
use crate::objects::Objects;
use crate::pod::fake_runtime::{FakeRuntime, Script};
use crate::pod::terminations::Termination;
use crate::pod::{Shared, source, user_ranges};
use crate::pods::{Order, Pods};
use crate::volumes::Volumes;
use crate::{Config, Kubelet};

const PATIENCE: Duration = Duration::from_secs(20);
const PATH: &str = "/api/v1/namespaces/n/pods/p";

#[derive(Debug)]
struct NoCertificate;

impl rustls::server::ResolvesServerCert for NoCertificate {
    fn resolve(&self, _hello: rustls::server::ClientHello<'_>) -> Option<Arc<rustls::sign::CertifiedKey>> {
        None
    }
}

fn config(folder: &std::path::Path) -> Config {
    let second = Duration::from_secs(1);
    Config {
        node_name: "n1".to_owned(),
        addresses: Addresses::fixed(vec![IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1))]),
        node_external_ips: Vec::new(),
        node_labels: Default::default(),
        register_with_taints: Vec::new(),
        root_dir: folder.join("kubelet"),
        root_dir_of_drivers: folder.join("kubelet"),
        log_dir: folder.join("logs"),
        static_pod_path: None,
        bind_address: IpAddr::V4(Ipv4Addr::LOCALHOST),
        port: 0,
        serving_certificate: Arc::new(NoCertificate),
        client_ca: String::new(),
        cluster_dns: Vec::new(),
        cluster_domain: "cluster.local".to_owned(),
        resolv_conf: PathBuf::new(),
        pods_max: 110,
        pod_cidr: None,
        cgroup_root: "/".to_owned(),
        pod_pids_limit: None,
        kube_reserved: Default::default(),
        system_reserved: Default::default(),
        managers: Default::default(),
        swap_behavior: Default::default(),
        fail_swap_on: false,
        credential_providers: None,
        eviction_hard: Default::default(),
        eviction_soft: Default::default(),
        eviction_soft_grace_period: Default::default(),
        eviction_pressure_transition_period: second,
        image_gc_high_threshold_percent: 85,
        image_gc_low_threshold_percent: 80,
        image_minimum_gc_age: second,
        container_log_max_size: 1 << 20,
        container_log_max_files: 5,
        node_status_update_frequency: second,
        node_status_report_frequency: second,
        node_lease_duration: second,
        power_off: Default::default(),
        allowed_unsafe_sysctls: Vec::new(),
        image_pulls_max: 3,
        shown: Default::default(),
        clock: Default::default(),
    }
}

struct Node {
    api: FakeApi,
    runtime: FakeRuntime,
    shared: Arc<Shared>,
    link: testkit::fake_api::Link,
    static_pods: watch::Sender<Vec<Arc<k8s_openapi::api::core::v1::Pod>>>,
    _folder: Arc<tempfile::TempDir>,
}

impl Node {
    fn start() -> Node {
        let folder = Arc::new(tempfile::tempdir().expect("a folder"));
        Node::start_with(FakeApi::default(), FakeRuntime::new(), folder)
    }

    fn start_with(api: FakeApi, runtime: FakeRuntime, folder: Arc<tempfile::TempDir>) -> Node {
        runtime.image("img:1");
        let (client, link) = api.client();
        let kubelet = Arc::new(Kubelet {
            config: config(folder.path()),
            events: reconcile::events::Recorder::new(client.clone(), "kubelet", "n1"),
            objects: Objects::new(client.clone()),
            runtime: Arc::new(runtime.clone()),
            shutdown: reconcile::Shutdown::new(),
            pull_times: Arc::default(),
            client,
        });
        let drivers = Arc::new(Drivers::new(kubelet.client.clone(), "n1"));
        std::fs::create_dir_all(&kubelet.config.root_dir).expect("the kubelet's folder");
        let shared = Arc::new(Shared {
            pods: Arc::new(Pods::default()),
            volumes: Arc::new(Volumes::new(kubelet.clone(), drivers, Arc::new(Health::new(0)))),
            device_plugins: Arc::new(DevicePlugins::new(
                &kubelet.config.root_dir,
                Arc::new(Health::new(0)),
                Arc::default(),
            )),
            claims: Arc::new(Claims::new(kubelet.client.clone(), &kubelet.config.root_dir, "n1", Arc::default())),
            managers: Arc::new(crate::managers::Managers::start(&kubelet.config).expect("managers")),
            images: Arc::new(Images::new(kubelet.clone())),
            users: user_ranges::UserRanges::load(&kubelet.config.root_dir),
            runtime_name: "fake".to_owned(),
            node: Default::default(),
            cgroups: crate::resources::PodCgroups::foreign(),
            allocatable: Default::default(),
            counters: Arc::default(),
            kubelet,
        });
        let (static_pods, rx) = watch::channel(Vec::new());
        let caches = reconcile::Caches::new(shared.kubelet.client.clone(), shared.kubelet.shutdown.clone());
        let health = Arc::new(crate::node::Health::new(0));
        tokio::spawn(source::run(shared.clone(), health, caches.start("spec.nodeName=n1"), rx));
        Node { api, runtime, shared, link, static_pods, _folder: folder }
    }

    fn stop(&self) {
        self.shared.kubelet.shutdown.cancel();
    }

    fn create(&self, spec: Value) {
        let mut spec = spec;
        spec["nodeName"] = json!("n1");
        for list in ["containers", "initContainers"] {
            for container in spec[list].as_array_mut().into_iter().flatten() {
                container["image"] = container.get("image").cloned().unwrap_or(json!("img:1"));
            }
        }
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p", "namespace": "n", "uid": "u", "generation": 1},
            "spec": spec, "status": {"phase": "Pending"},
        });
        self.api.put(PATH, pod);
    }

    /// As the API server does for a DELETE with a grace period.
    fn delete(&self, grace: i64) {
        let mut pod = self.api.get(PATH).expect("a pod");
        pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        pod["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
        self.api.put(PATH, pod);
    }

    async fn until(&self, what: &str, test: impl Fn(&Value) -> bool) -> Value {
        let began = Instant::now();
        loop {
            let pod = self.api.get(PATH).unwrap_or_default();
            if test(&pod) {
                return pod;
            }
            assert!(
                began.elapsed() < PATIENCE,
                "{what}: {pod:#}\ncalls: {:#?}\nevents: {:#?}",
                self.runtime.calls(),
                self.events()
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    fn events(&self) -> Vec<String> {
        let paths = self.api.paths().into_iter().filter(|path| path.contains("/events/"));
        let objects = paths.filter_map(|path| self.api.get(&path));
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        objects.map(|event| format!("{} {}", text(&event["reason"]), text(&event["message"]))).collect()
    }

    async fn until_event(&self, event: &str) {
        self.until(event, |_| self.events().iter().any(|told| told == event)).await;
    }
}

fn ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

fn container(pod: &Value) -> &Value {
    &pod["status"]["containerStatuses"][0]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_runs_and_is_deleted() {
    let node = Node::start();
    node.create(json!({
        "initContainers": [{"name": "i"}, {"name": "side", "restartPolicy": "Always"}],
        "containers": [{"name": "c", "lifecycle": {"preStop": {"exec": {"command": ["bye"]}}}}],
    }));
    node.runtime.script("i", Script::Exit(0));
    let pod = node.until("ready", ready).await;
    assert_eq!(pod["status"]["phase"], "Running");
    assert_eq!(pod["status"]["podIP"], "127.0.0.1");
    assert_eq!(container(&pod)["containerID"].as_str().map(|id| id.starts_with("fake://")), Some(true));
    for event in ["Created Container created", "Started Container started"] {
        node.until_event(event).await;
    }
    node.delete(5);
    node.until("gone", Value::is_null).await;
    node.until("runtime empty", |_| node.runtime.is_empty()).await;
    let calls = node.runtime.calls();
    let place = |call: &str| {
        calls.iter().position(|made| made.starts_with(call)).unwrap_or_else(|| panic!("{call}: {calls:?}"))
    };
    assert!(place("exec bye") < place("stop c "));
    assert!(place("stop c ") < place("stop side "));
    assert!(place("stop side ") < place("stop sandbox"));
    node.until_event("Killing Stopping container c").await;
    node.until("worker gone", |_| node.shared.pods.list().is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crashes_are_counted_and_waited_out() {
    let node = Node::start();
    node.runtime.script("c", Script::Exit(3));
    node.create(json!({"containers": [{"name": "c"}]}));
    let pod = node.until("back-off", |pod| container(pod)["state"]["waiting"]["reason"] == "CrashLoopBackOff").await;
    assert_eq!(container(&pod)["restartCount"], 1);
    assert_eq!(container(&pod)["lastState"]["terminated"]["exitCode"], 3);
    assert_eq!(container(&pod)["state"]["waiting"]["message"], "back-off 10s restarting failed container=c pod=p_n(u)");
    assert_eq!(pod["status"]["phase"], "Running");
    node.until_event("BackOff Back-off restarting failed container c in pod p_n(u)").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_finished_pod_keeps_its_containers_until_it_is_deleted() {
    let node = Node::start();
    node.runtime.script("c", Script::Exit(0));
    node.create(json!({"restartPolicy": "Never", "containers": [{"name": "c"}]}));
    let pod = node.until("succeeded", |pod| pod["status"]["phase"] == "Succeeded").await;
    assert_eq!(container(&pod)["state"]["terminated"]["reason"], "Completed");
    node.until("sandbox stopped", |_| node.runtime.calls().contains(&"stop sandbox".to_owned())).await;
    assert!(!node.runtime.is_empty(), "logs are still to be read");
    node.delete(30);
    node.until("gone", Value::is_null).await;
    node.until("runtime empty", |_| node.runtime.is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn images_that_cannot_be_had() {
    let node = Node::start();
    node.create(json!({"containers": [{"name": "c", "image": "nowhere.invalid/x:1"}]}));
    let pod = node.until("back-off", |pod| container(pod)["state"]["waiting"]["reason"] == "ImagePullBackOff").await;
    let message = "Back-off pulling image \"nowhere.invalid/x:1\": ErrImagePull: no such host";
    assert_eq!(container(&pod)["state"]["waiting"]["message"], message);
    assert_eq!(pod["status"]["phase"], "Pending");
    for event in [
        "Pulling Pulling image \"nowhere.invalid/x:1\"",
        "Failed Failed to pull image \"nowhere.invalid/x:1\": no such host",
        "Failed Error: ErrImagePull",
        "BackOff Back-off pulling image \"nowhere.invalid/x:1\"",
        "Failed Error: ImagePullBackOff",
    ] {
        node.until_event(event).await;
    }
    // One that is deleted while it waits goes at once.
    node.delete(30);
    node.until("gone", Value::is_null).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_started_says_why() {
    let node = Node::start();
    node.runtime.script("c", Script::FailsToStart("exec: \"/nope\": no such file"));
    node.create(json!({"containers": [{"name": "c"}]}));
    node.until_event("Failed Error: exec: \"/nope\": no such file").await;
    let pod = node.until("ended", |pod| container(pod)["restartCount"] == 1).await;
    assert_eq!(container(&pod)["lastState"]["terminated"]["reason"], "StartError");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_liveness_probe_restarts_the_container() {
    let node = Node::start();
    node.runtime.exec_answers("alive", 1, "not well");
    node.create(json!({
        "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "c", "livenessProbe": {"exec": {"command": ["alive"]}, "periodSeconds": 1, "failureThreshold": 1}}],
    }));
    node.until_event("Unhealthy Liveness probe failed: not well").await;
    node.until_event("Killing Container c failed liveness probe, will be restarted").await;
    node.until("restarted", |pod| container(pod)["restartCount"] == 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shortened_grace_period_counts() {
    let node = Node::start();
    node.runtime.script("c", Script::Stubborn);
    node.create(json!({"containers": [{"name": "c"}]}));
    node.until("ready", ready).await;
    node.delete(600);
    node.until("stopping", |_| node.runtime.calls().iter().any(|call| call.starts_with("stop c "))).await;
    let began = Instant::now();
    node.delete(1);
    node.until("gone", Value::is_null).await;
    assert!(began.elapsed() < Duration::from_secs(10));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_kubelet_finds_its_pods_again() {
    let folder = Arc::new(tempfile::tempdir().expect("a folder"));
    let (api, runtime) = (FakeApi::default(), FakeRuntime::new());
    let node = Node::start_with(api.clone(), runtime.clone(), folder.clone());
    node.create(
        json!({"containers": [{"name": "c", "readinessProbe": {"exec": {"command": ["ready"]}, "periodSeconds": 1}}]}),
    );
    let before = node.until("ready", ready).await;
    node.stop();
    tokio::time::sleep(Duration::from_millis(100)).await;
    let calls = runtime.calls().iter().filter(|call| !call.starts_with("exec")).count();
    api.take_requests();

    let again = Node::start_with(api.clone(), runtime.clone(), folder.clone());
    again
        .until("known", |_| again.shared.pods.by_name("n", "p").is_some_and(|state| !state.containers.is_empty()))
        .await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(runtime.calls().iter().filter(|call| !call.starts_with("exec")).count(), calls, "{:?}", runtime.calls());
    let after = api.get(PATH).expect("a pod");
    assert_eq!(after["status"], before["status"]);
    let patches =
        api.take_requests().into_iter().filter(|request| request.starts_with("PATCH") && request.contains("/pods/"));
    assert_eq!(patches.count(), 0, "nothing changed, so nothing is written");

    // What ended while no kubelet was there is told with its true code.
    again.stop();
    tokio::time::sleep(Duration::from_millis(100)).await;
    let (_, id) = runtime.running().pop().expect("a container");
    runtime.end(&id, 7);
    let third = Node::start_with(api.clone(), runtime.clone(), folder.clone());
    let pod = third.until("restarted", |pod| container(pod)["restartCount"] == 1).await;
    assert_eq!(container(&pod)["lastState"]["terminated"]["exitCode"], 7);
    third.stop();
    tokio::time::sleep(Duration::from_millis(100)).await;

    // A pod that was deleted meanwhile is ended and removed.
    api.remove(PATH);
    let fourth = Node::start_with(api, runtime.clone(), folder);
    fourth.until("orphan removed", |_| runtime.is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn evicted_pods_fail_and_stay() {
    let node = Node::start();
    node.create(json!({"containers": [{"name": "c"}]}));
    node.until("ready", ready).await;
    let order = Order::Evict {
        reason: "Evicted".to_owned(),
        message: "The node was low on resource: memory.".to_owned(),
        condition: Some(crate::pods::EvictionCondition {
            reason: "TerminationByKubelet".to_owned(),
            message: "m".to_owned(),
        }),
        grace_period_seconds: Some(0),
    };
    assert!(node.shared.pods.order("u", order).await);
    let pod = node.until("ended", |pod| container(pod)["state"]["terminated"]["exitCode"] == 143).await;
    assert_eq!((&pod["status"]["phase"], &pod["status"]["reason"]), (&json!("Failed"), &json!("Evicted")));
    let conditions = pod["status"]["conditions"].as_array().expect("conditions");
    assert!(
        conditions.iter().any(|condition| condition["type"] == "DisruptionTarget" && condition["status"] == "True")
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deadline_ends_the_pod() {
    let node = Node::start();
    node.create(json!({"activeDeadlineSeconds": 1, "containers": [{"name": "c"}]}));
    let pod = node.until("failed", |pod| pod["status"]["phase"] == "Failed").await;
    assert_eq!(pod["status"]["reason"], "DeadlineExceeded");
    assert_eq!(pod["status"]["message"], "Pod was active on the node longer than the specified deadline");
    node.until_event("DeadlineExceeded Pod was active on the node longer than the specified deadline").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_sandbox_is_made_again() {
    let node = Node::start();
    node.create(json!({"containers": [{"name": "c"}]}));
    node.until("ready", ready).await;
    node.runtime.lose_sandbox();
    // One that was started in the old sandbox, before its end was seen, counts as well.
    node.until("again ready", |pod| ready(pod) && container(pod)["restartCount"].as_i64() >= Some(1)).await;
    node.until_event("SandboxChanged Pod sandbox changed, it will be killed and re-created.").await;
}

/// Between the old container and the new one there is a moment with none, which nobody is to see: endpoints would leave the Service.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_container_with_a_new_image_is_replaced_while_the_pod_stays_ready() {
    let node = Node::start();
    node.runtime.image("img:2");
    node.create(json!({"containers": [{"name": "c"}]}));
    let mut pod = node.until("ready", ready).await;
    node.runtime.script("c", Script::StartsAfter(Duration::from_millis(300)));
    pod["spec"]["containers"][0]["image"] = json!("img:2");
    pod["metadata"]["generation"] = json!(2);
    node.api.put(PATH, pod);
    let pod = node
        .until("replaced", |pod| {
            assert!(ready(pod), "{pod:#}");
            container(pod)["restartCount"] == 1
        })
        .await;
    assert_eq!(container(&pod)["image"], "img:2");
    assert!(container(&pod)["lastState"]["terminated"].is_object(), "{pod:#}");

    // One that does not come back is told.
    node.runtime.script("c", Script::StartsAfter(Duration::from_secs(60)));
    let mut pod = pod;
    pod["spec"]["containers"][0]["image"] = json!("img:1");
    pod["metadata"]["generation"] = json!(3);
    node.api.put(PATH, pod);
    node.until("not ready", |pod| !ready(pod)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resources_change_while_it_runs() {
    let node = Node::start();
    node.create(json!({"containers": [{"name": "c", "resources": {"limits": {"memory": "64Mi"}, "requests": {"memory": "64Mi"}}}]}));
    let mut pod = node.until("ready", ready).await;
    let limits = json!({"limits": {"memory": "128Mi"}, "requests": {"memory": "128Mi"}});
    pod["spec"]["containers"][0]["resources"] = limits.clone();
    pod["metadata"]["generation"] = json!(2);
    node.api.put(PATH, pod);
    let pod = node.until("resized", |pod| container(pod)["resources"] == limits).await;
    assert_eq!(container(&pod)["restartCount"], 0);
    assert_eq!(container(&pod)["allocatedResources"], json!({"memory": "128Mi"}));
    let updated = format!(" {}", 128 << 20);
    assert!(node.runtime.calls().iter().any(|call| call.starts_with("update ") && call.ends_with(&updated)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_the_node_does_not_take_fails() {
    let node = Node::start();
    node.create(json!({"nodeSelector": {"disk": "ssd"}, "containers": [{"name": "c"}]}));
    let pod = node.until("failed", |pod| pod["status"]["phase"] == "Failed").await;
    assert_eq!(pod["status"]["reason"], "NodeAffinity");
    let message = "Pod was rejected: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector";
    assert_eq!(pod["status"]["message"], message);
    assert!(node.runtime.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_static_pod_shows_in_its_mirror_and_ends_with_its_file() {
    let node = Node::start();
    let pod = |uid: &str| {
        let pod = json!({
            "metadata": {
                "name": "p", "namespace": "n", "uid": uid,
                "annotations": {"kubernetes.io/config.source": "file", "kubernetes.io/config.hash": uid},
            },
            "spec": {
                "nodeName": "n1", "terminationGracePeriodSeconds": 1, "containers": [{"name": "c", "image": "img:1"}],
            },
        });
        Arc::new(serde_json::from_value(pod).expect("a pod"))
    };
    node.static_pods.send_replace(vec![pod("first")]);
    node.until("running without the API", |_| node.runtime.running().len() == 1).await;
    let mirror = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "p", "namespace": "n", "uid": "mirror",
            "annotations": {"kubernetes.io/config.source": "file", "kubernetes.io/config.mirror": "first"},
        },
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "img:1"}]},
    });
    node.api.put(PATH, mirror);
    node.until("ready", ready).await;
    // A changed file is another pod: it begins when the first has ended.
    let (_, before) = node.runtime.running().pop().expect("a container");
    node.runtime.script("c", Script::Stubborn);
    node.static_pods.send_replace(vec![pod("second")]);
    node.until("replaced", |_| node.runtime.running().iter().any(|(_, id)| *id != before)).await;
    assert_eq!(node.runtime.running().len(), 1, "never two at once");
    assert!(node.runtime.calls().contains(&"stop c 1".to_owned()), "the whole grace is given");
    node.static_pods.send_replace(Vec::new());
    node.until("all removed", |_| node.runtime.is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pull_that_hangs_does_not_hold_up_deletion() {
    let node = Node::start();
    node.create(json!({"containers": [{"name": "c", "image": "hangs.invalid/x:1"}]}));
    node.until_event("Pulling Pulling image \"hangs.invalid/x:1\"").await;
    node.delete(30);
    node.until("gone", Value::is_null).await;
    node.until("runtime empty", |_| node.runtime.is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_status_is_not_lost_while_the_api_is_away() {
    let node = Node::start();
    node.create(json!({"restartPolicy": "Never", "containers": [{"name": "c"}]}));
    node.until("ready", ready).await;
    node.link.set(testkit::fake_api::Fault::Refused);
    let (_, id) = node.runtime.running().pop().expect("a container");
    node.runtime.end(&id, 9);
    node.until("seen here", |_| {
        node.shared.pods.by_uid("u").is_some_and(|state| state.status.phase.as_deref() == Some("Failed"))
    })
    .await;
    node.link.set(testkit::fake_api::Fault::None);
    let pod = node.until("told", |pod| pod["status"]["phase"] == "Failed").await;
    assert_eq!(container(&pod)["state"]["terminated"]["exitCode"], 9);
    let counted: Vec<(Termination, u64)> = node.shared.counters.terminations.lock().clone().into_iter().collect();
    assert_eq!(counted, [(Termination { container_type: "container", exit_code: 9, reason: "Error".to_owned() }, 1)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_post_start_hook_ends_the_container() {
    let node = Node::start();
    node.runtime.exec_answers("hello", 1, "no");
    node.create(json!({
        "restartPolicy": "Never",
        "containers": [{"name": "c", "lifecycle": {"postStart": {"exec": {"command": ["hello"]}}}}],
    }));
    node.until_event("FailedPostStartHook PostStartHook failed").await;
    node.until("failed", |pod| pod["status"]["phase"] == "Failed").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn starts_and_probes_of_a_pod_are_counted() {
    let node = Node::start();
    node.runtime.exec_answers("ask", 0, "");
    let probe = json!({"exec": {"command": ["ask"]}, "periodSeconds": 1});
    node.create(json!({"containers": [{"name": "c", "livenessProbe": probe}]}));
    node.until("ready", ready).await;
    let counters = node.shared.counters.clone();
    let line = "prober_probe_total{container=\"c\",namespace=\"n\",pod=\"p\",pod_uid=\"u\",probe_type=\"Liveness\",result=\"successful\"} ";
    node.until("probed", |_| counters.probes.text().contains(line)).await;
    let text = || {
        let mut page = component_base::metrics::Page::default();
        counters.pods.write(&mut page);
        page.text()
    };
    for line in [
        "kubelet_started_pods_total 1",
        "kubelet_started_containers_total{container_type=\"container\"} 1",
        "kubelet_pod_start_duration_seconds_count 1",
        "kubelet_pod_worker_start_duration_seconds_count 1",
        "kubelet_pod_worker_duration_seconds_count{operation_type=\"create\"} 1",
    ] {
        node.until(line, |_| text().lines().any(|found| found == line)).await;
    }
    node.delete(1);
    node.until("gone", Value::is_null).await;
    node.until("its probes are forgotten", |_| counters.probes.text().is_empty()).await;
    let last = "kubelet_pod_worker_duration_seconds_count{operation_type=\"terminated\"} 1";
    node.until(last, |_| text().lines().any(|found| found == last)).await;
}
