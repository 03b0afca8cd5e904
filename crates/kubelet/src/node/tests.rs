//! A node against a fake API and a fake runtime, under paused time. `Fixture` also serves the tests of other modules.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use cri::{Result, v1};
use parking_lot::Mutex;
use reconcile::Shutdown;
use reconcile::events::Recorder;
use serde_json::{Value, json};
use testkit::{FakeApi, Fault, Link};
use tokio::time::sleep;

use super::*;
use crate::Config;

pub(crate) fn config() -> Config {
    Config {
        node_name: "n1".into(),
        addresses: super::addresses::Addresses::fixed(vec![IpAddr::V4(Ipv4Addr::new(192, 168, 77, 1))]),
        node_external_ips: vec![IpAddr::V4(Ipv4Addr::new(203, 0, 113, 7))],
        node_labels: BTreeMap::new(),
        register_with_taints: Vec::new(),
        root_dir: "/".into(),
        root_dir_of_drivers: "/".into(),
        log_dir: "/var/log/pods".into(),
        static_pod_path: None,
        bind_address: IpAddr::V4(Ipv4Addr::LOCALHOST),
        port: 10250,
        serving_certificate: Arc::new(NoCertificate),
        client_ca: String::new(),
        cluster_dns: Vec::new(),
        cluster_domain: "cluster.local".into(),
        resolv_conf: "/etc/resolv.conf".into(),
        pods_max: 110,
        pod_cidr: None,
        cgroup_root: "/".into(),
        pod_pids_limit: None,
        kube_reserved: BTreeMap::new(),
        system_reserved: BTreeMap::new(),
        eviction_hard: BTreeMap::new(),
        managers: Default::default(),
        swap_behavior: Default::default(),
        fail_swap_on: false,
        eviction_soft: BTreeMap::new(),
        eviction_soft_grace_period: BTreeMap::new(),
        eviction_pressure_transition_period: Duration::from_secs(300),
        image_gc_high_threshold_percent: 85,
        image_gc_low_threshold_percent: 80,
        image_minimum_gc_age: Duration::from_secs(120),
        container_log_max_size: 10 << 20,
        container_log_max_files: 5,
        node_status_update_frequency: Duration::from_secs(10),
        node_status_report_frequency: Duration::from_secs(300),
        node_lease_duration: Duration::from_secs(40),
        power_off: Default::default(),
        allowed_unsafe_sysctls: Vec::new(),
        credential_providers: None,
        image_pulls_max: 5,
        shown: Default::default(),
        clock: Default::default(),
    }
}

#[derive(Debug)]
struct NoCertificate;

impl rustls::server::ResolvesServerCert for NoCertificate {
    fn resolve(&self, _: rustls::server::ClientHello<'_>) -> Option<Arc<rustls::sign::CertifiedKey>> {
        None
    }
}

/// A runtime whose answers a test sets. What these tests never call fails.
#[derive(Default)]
pub(crate) struct FakeRuntime {
    pub images: Mutex<Vec<v1::Image>>,
    pub removed_images: Mutex<Vec<String>>,
    pub containers: Mutex<Vec<v1::Container>>,
    pub stats: Mutex<Vec<v1::ContainerStats>>,
    pub stats_fail: Mutex<bool>,
    pub pod_stats: Mutex<Vec<v1::PodSandboxStats>>,
    pub pod_cidrs: Mutex<Vec<String>>,
    pub network_problem: Mutex<Option<String>>,
    pub image_fs: Mutex<v1::ImageFsInfoResponse>,
    /// Every call hangs.
    pub hangs: std::sync::atomic::AtomicBool,
}

impl FakeRuntime {
    async fn answer<T>(&self, value: T) -> Result<T> {
        if self.hangs.load(std::sync::atomic::Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        Ok(value)
    }

    async fn copy<T: Clone>(&self, of: &Mutex<T>) -> Result<T> {
        let value = of.lock().clone();
        self.answer(value).await
    }
}

fn unused<T>() -> Result<T> {
    Err(cri::Error::new(cri::Code::Unimplemented, "the fake runtime runs nothing"))
}

#[async_trait]
impl cri::Runtime for FakeRuntime {
    async fn version(&self) -> Result<v1::VersionResponse> {
        let version = v1::VersionResponse {
            runtime_name: "knarr".into(),
            runtime_version: "0.1.0".into(),
            ..v1::VersionResponse::default()
        };
        self.answer(version).await
    }
    async fn status(&self) -> Result<v1::RuntimeStatus> {
        let problem = self.network_problem.lock().clone();
        let condition = |kind: &str, problem: Option<String>| v1::RuntimeCondition {
            r#type: kind.into(),
            status: problem.is_none(),
            reason: problem.iter().map(|_| "NetworkPluginNotReady").collect(),
            message: problem.unwrap_or_default(),
        };
        let conditions = vec![condition("RuntimeReady", None), condition("NetworkReady", problem)];
        self.answer(v1::RuntimeStatus { conditions }).await
    }
    async fn run_pod_sandbox(&self, _: v1::PodSandboxConfig, _: &str) -> Result<String> {
        unused()
    }
    async fn stop_pod_sandbox(&self, _: &str) -> Result<()> {
        unused()
    }
    async fn remove_pod_sandbox(&self, _: &str) -> Result<()> {
        unused()
    }
    async fn pod_sandbox_status(&self, _: &str) -> Result<v1::PodSandboxStatus> {
        unused()
    }
    async fn list_pod_sandboxes(&self, _: Option<v1::PodSandboxFilter>) -> Result<Vec<v1::PodSandbox>> {
        unused()
    }
    async fn create_container(&self, _: &str, _: v1::ContainerConfig, _: v1::PodSandboxConfig) -> Result<String> {
        unused()
    }
    async fn start_container(&self, _: &str) -> Result<()> {
        unused()
    }
    async fn stop_container(&self, _: &str, _: i64) -> Result<()> {
        unused()
    }
    async fn remove_container(&self, _: &str) -> Result<()> {
        unused()
    }
    async fn list_containers(&self, _: Option<v1::ContainerFilter>) -> Result<Vec<v1::Container>> {
        self.copy(&self.containers).await
    }
    async fn container_status(&self, _: &str) -> Result<v1::ContainerStatus> {
        unused()
    }
    async fn update_container_resources(&self, _: &str, _: v1::LinuxContainerResources) -> Result<()> {
        unused()
    }
    async fn reopen_container_log(&self, _: &str) -> Result<()> {
        unused()
    }
    async fn exec_sync(&self, _: &str, _: &[String], _: i64) -> Result<cri::ExecSync> {
        unused()
    }
    async fn exec(&self, _: v1::ExecRequest) -> Result<cri::Streaming<cri::Session>> {
        unused()
    }
    async fn attach(&self, _: v1::AttachRequest) -> Result<cri::Streaming<cri::Attached>> {
        unused()
    }
    async fn port_forward(&self, _: &str, _: u16) -> Result<cri::Streaming<cri::Forwarded>> {
        unused()
    }
    async fn list_container_stats(&self) -> Result<Vec<v1::ContainerStats>> {
        if *self.stats_fail.lock() {
            return unused();
        }
        self.copy(&self.stats).await
    }
    async fn list_pod_sandbox_stats(&self) -> Result<Vec<v1::PodSandboxStats>> {
        self.copy(&self.pod_stats).await
    }
    async fn events(&self) -> Result<futures::stream::BoxStream<'static, v1::ContainerEventResponse>> {
        unused()
    }
    async fn list_images(&self) -> Result<Vec<v1::Image>> {
        self.copy(&self.images).await
    }
    async fn image_status(&self, _: &str) -> Result<Option<v1::Image>> {
        unused()
    }
    async fn pull_image(&self, _: &str, _: Option<v1::AuthConfig>, _: Option<v1::PodSandboxConfig>) -> Result<String> {
        unused()
    }
    async fn remove_image(&self, image: &str) -> Result<()> {
        self.removed_images.lock().push(image.to_owned());
        self.images.lock().retain(|other| other.id != image);
        Ok(())
    }
    async fn image_fs_info(&self) -> Result<v1::ImageFsInfoResponse> {
        self.copy(&self.image_fs).await
    }
    async fn update_pod_cidr(&self, pod_cidr: &str) -> Result<()> {
        self.pod_cidrs.lock().push(pod_cidr.to_owned());
        Ok(())
    }
}

/// A kubelet with nothing real around it.
pub(crate) struct Fixture {
    pub api: FakeApi,
    pub link: Link,
    pub runtime: Arc<FakeRuntime>,
    pub kubelet: Arc<Kubelet>,
    pub health: Arc<Health>,
}

impl Fixture {
    pub(crate) fn new(change: impl FnOnce(&mut Config)) -> Fixture {
        let (api, runtime) = (FakeApi::default(), Arc::<FakeRuntime>::default());
        let (client, link) = api.client();
        let mut config = config();
        change(&mut config);
        let health = Arc::new(Health::new(config.port));
        let kubelet = Kubelet {
            config,
            client: client.clone(),
            runtime: runtime.clone(),
            // Events have a connection of their own here: faults are meant for the node's objects.
            events: Recorder::new(api.client().0, "kubelet", "n1"),
            objects: crate::objects::Objects::new(client),
            shutdown: Shutdown::new(),
            pull_times: Arc::default(),
        };
        Fixture { api, link, runtime, kubelet: Arc::new(kubelet), health }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.kubelet.config.root_dir
    }

    pub(crate) fn event_reasons(&self) -> Vec<String> {
        let paths = self.api.paths().into_iter().filter(|path| path.contains("/events/"));
        let mut events: Vec<Value> = paths.filter_map(|path| self.api.get(&path)).collect();
        events.sort_by_key(|event| event["metadata"]["name"].to_string());
        events.iter().map(|event| event["reason"].as_str().unwrap_or("").to_owned()).collect()
    }

    fn run(&self) {
        tokio::spawn(run(self.kubelet.clone(), self.health.clone(), Arc::default()));
    }

    fn node(&self) -> Value {
        self.api.get(NODE).expect("the node has registered")
    }

    fn ready(&self) -> (String, String) {
        let conditions = self.node()["status"]["conditions"].clone();
        let ready = conditions.as_array().unwrap().iter().find(|it| it["type"] == "Ready").unwrap().clone();
        (ready["status"].as_str().unwrap().into(), ready["message"].as_str().unwrap().into())
    }
}

const NODE: &str = "/api/v1/nodes/n1";
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1";

async fn seconds(seconds: u64) {
    sleep(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn registers_as_upstream_does() {
    let fixture = Fixture::new(|config| {
        config.node_labels.insert("disk".into(), "fast".into());
        let taint = json!({ "key": "dedicated", "value": "x", "effect": "NoSchedule" });
        config.register_with_taints = vec![serde_json::from_value(taint).unwrap()];
    });
    *fixture.runtime.images.lock() = (0..60)
        .map(|number| v1::Image {
            id: format!("id{number}"),
            repo_tags: (0..7).map(|tag| format!("image{number}:{tag}")).collect(),
            size: 1000 + number,
            ..v1::Image::default()
        })
        .collect();
    fixture.run();
    seconds(1).await;
    let node = fixture.node();
    let expected = json!({
        "beta.kubernetes.io/arch": "amd64", "beta.kubernetes.io/os": "linux", "disk": "fast", "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": "n1", "kubernetes.io/os": "linux",
    });
    assert_eq!(node["metadata"]["labels"], expected);
    let annotations = &node["metadata"]["annotations"];
    assert_eq!(annotations["volumes.kubernetes.io/controller-managed-attach-detach"], "true");
    // Whatever this machine listens at.
    assert!(annotations[component_helpers::host_ports::ANNOTATION].is_string(), "{annotations}");
    assert_eq!(node["spec"], json!({ "taints": [{ "key": "dedicated", "value": "x", "effect": "NoSchedule" }] }));
    let status = &node["status"];
    let addresses = json!([
        { "address": "192.168.77.1", "type": "InternalIP" },
        { "address": "203.0.113.7", "type": "ExternalIP" },
        { "address": "n1", "type": "Hostname" },
    ]);
    assert_eq!(status["addresses"], addresses);
    assert_eq!(status["daemonEndpoints"], json!({ "kubeletEndpoint": { "Port": 10250 } }));
    assert_eq!(status["nodeInfo"]["containerRuntimeVersion"], "knarr://0.1.0");
    assert_eq!(status["nodeInfo"]["kubeletVersion"], KUBELET_VERSION);
    assert_eq!(status["nodeInfo"]["kubeProxyVersion"], "");
    let images = status["images"].as_array().unwrap();
    assert_eq!(
        (images.len(), &images[0]["sizeBytes"], images[0]["names"].as_array().unwrap().len()),
        (50, &json!(1059), 5)
    );
    let types: Vec<&str> =
        status["conditions"].as_array().unwrap().iter().map(|it| it["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"]);
    assert_eq!(fixture.ready(), ("True".into(), "kubelet is posting ready status".into()));
    let reasons = ["Starting", "NodeHasSufficientMemory", "NodeHasNoDiskPressure", "NodeHasSufficientPID", "NodeReady"];
    assert_eq!(fixture.event_reasons(), reasons);
}

#[tokio::test(start_paused = true)]
async fn the_status_is_written_on_change_and_every_five_minutes() {
    let fixture = Fixture::new(|_| {});
    fixture.run();
    seconds(15).await;
    fixture.api.take_requests();
    let patches =
        || fixture.api.take_requests().iter().filter(|request| *request == "PATCH /api/v1/nodes/n1/status").count();
    seconds(240).await;
    assert_eq!(patches(), 0, "nothing changed");
    seconds(60).await;
    assert_eq!(patches(), 1, "a report is due after five minutes");
    fixture.health.set_pressures([Pressure::Disk].into());
    seconds(1).await;
    assert_eq!(patches(), 1, "a change is written at once");
    *fixture.runtime.network_problem.lock() = Some("no range yet".into());
    seconds(11).await;
    assert_eq!(patches(), 1);
    let message =
        "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:no range yet";
    assert_eq!(fixture.ready(), ("False".into(), message.into()));
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_hangs_makes_the_node_unready_and_not_silent() {
    let fixture = Fixture::new(|_| {});
    fixture.run();
    seconds(5).await;
    fixture.runtime.hangs.store(true, std::sync::atomic::Ordering::Relaxed);
    seconds(80).await;
    assert_eq!(fixture.ready(), ("False".into(), "container runtime is down".into()));
    fixture.runtime.hangs.store(false, std::sync::atomic::Ordering::Relaxed);
    seconds(40).await;
    assert_eq!(fixture.ready().0, "True");
}

#[tokio::test(start_paused = true)]
async fn a_deleted_node_registers_again_and_its_lease_follows() {
    let fixture = Fixture::new(|_| {});
    fixture.run();
    seconds(30).await;
    let lease = fixture.api.get(LEASE).unwrap();
    let uid = fixture.node()["metadata"]["uid"].clone();
    let owners = json!([{ "apiVersion": "v1", "kind": "Node", "name": "n1", "uid": uid }]);
    assert_eq!(lease["metadata"]["ownerReferences"], owners);
    let spec = lease["spec"].as_object().unwrap();
    assert_eq!(spec.keys().collect::<Vec<_>>(), ["holderIdentity", "leaseDurationSeconds", "renewTime"]);
    assert_eq!((&spec["holderIdentity"], &spec["leaseDurationSeconds"]), (&json!("n1"), &json!(40)));

    fixture.api.remove(NODE);
    seconds(12).await;
    let again = fixture.node()["metadata"]["uid"].clone();
    assert_ne!(again, uid);
    assert_eq!(fixture.ready().0, "True");
    seconds(12).await;
    let lease = fixture.api.get(LEASE).unwrap();
    assert_eq!(lease["metadata"]["ownerReferences"][0]["uid"], again);

    // Somebody else makes a Node of that name: it gets a whole status at once.
    fixture.api.remove(NODE);
    fixture.api.put(NODE, json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n1" }, "status": {} }));
    seconds(2).await;
    assert_eq!(fixture.ready().0, "True");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_was_there_keeps_what_users_gave_it() {
    let fixture = Fixture::new(|config| {
        config.node_labels.insert("new".into(), "x".into());
    });
    let node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": { "name": "n1", "labels": { "mine": "y", "kubernetes.io/os": "plan9" } },
        "spec": { "unschedulable": true },
        "status": {
            "capacity": { "example.com/gpu": "2", "gone": "1" },
            "conditions": [{ "type": "NetworkUnavailable", "status": "False" }],
            "nodeInfo": { "architecture": "", "bootID": "earlier", "containerRuntimeVersion": "", "kernelVersion": "",
                "kubeProxyVersion": "", "kubeletVersion": "", "machineID": "", "operatingSystem": "", "osImage": "", "systemUUID": "" },
        },
    });
    fixture.api.put(NODE, node);
    fixture.run();
    seconds(2).await;
    let node = fixture.node();
    assert_eq!(node["spec"], json!({ "unschedulable": true }));
    let labels = &node["metadata"]["labels"];
    assert_eq!(
        (&labels["mine"], &labels["kubernetes.io/os"], &labels["new"]),
        (&json!("y"), &json!("linux"), &Value::Null)
    );
    assert_eq!(node["status"]["capacity"]["example.com/gpu"], "2");
    assert_eq!(node["status"]["capacity"].get("gone"), None);
    assert_eq!(node["status"]["conditions"][0]["type"], "NetworkUnavailable");
    assert!(fixture.event_reasons().contains(&"Rebooted".into()));
}

#[tokio::test(start_paused = true)]
async fn the_lease_is_renewed_whatever_is_slow() {
    let fixture = Fixture::new(|_| {});
    fixture.run();
    seconds(5).await;
    fixture.runtime.hangs.store(true, std::sync::atomic::Ordering::Relaxed);
    fixture.api.take_requests();
    seconds(100).await;
    let renewals = fixture.api.take_requests().iter().filter(|request| *request == &format!("PUT {LEASE}")).count();
    assert!((9..=10).contains(&renewals), "{renewals}");
    fixture.link.set(Fault::Refused);
    seconds(60).await;
    fixture.link.set(Fault::None);
    seconds(8).await;
    let renewals = fixture.api.take_requests().iter().filter(|request| *request == &format!("PUT {LEASE}")).count();
    assert_eq!(renewals, 1, "it comes back soon after the API does");
}

#[tokio::test(start_paused = true)]
async fn an_api_that_is_away_at_first_is_waited_for() {
    let fixture = Fixture::new(|_| {});
    fixture.link.set(Fault::Status(503));
    fixture.run();
    seconds(60).await;
    assert_eq!(fixture.api.get(NODE), None);
    fixture.link.set(Fault::None);
    seconds(15).await;
    assert_eq!(fixture.ready().0, "True");
}

#[tokio::test(start_paused = true)]
async fn the_range_of_pod_addresses_is_handed_over() {
    let fixture = Fixture::new(|config| config.pod_cidr = Some("10.1.0.0/24".into()));
    fixture.run();
    seconds(2).await;
    assert_eq!(*fixture.runtime.pod_cidrs.lock(), ["10.1.0.0/24"]);
    let mut node = fixture.node();
    node["spec"] = json!({ "podCIDR": "10.244.0.0/24", "podCIDRs": ["10.244.0.0/24"] });
    fixture.api.put(NODE, node);
    seconds(1).await;
    assert_eq!(*fixture.runtime.pod_cidrs.lock(), ["10.1.0.0/24", "10.244.0.0/24"]);
    fixture.kubelet.shutdown.cancel();
    seconds(1).await;
    fixture.api.take_requests();
    seconds(60).await;
    assert_eq!(fixture.api.take_requests(), Vec::<String>::new(), "after shutdown nothing is asked");
}
