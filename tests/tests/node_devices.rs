//! Devices on a real node: a plugin and a driver of our own offer them, pods see exactly theirs, also after knarr's restart and kill, and
//! those who misbehave harm nobody else.

#[path = "support/on_node.rs"]
mod on_node;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use on_node::{Node, one, script, with};
use serde_json::{Value, json};
use testkit::devices::{self, Driver, DriverOptions, Fault, HealthStatus, Plugin, PluginOptions};

/// A state that is not reached in this time is never reached.
const LONG: Duration = Duration::from_secs(120);
const RESOURCE: &str = "vendor.test/gpu";

fn wait<T>(what: &str, look: impl Fn() -> Option<T>) -> T {
    let deadline = Instant::now() + LONG;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "never {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn root(node: &Node) -> PathBuf {
    node.server.data_dir().join("kubelet")
}

/// Block devices of the machine that nobody may open who was not given them.
fn options(count: usize) -> PluginOptions {
    let all = [("a", "/dev/loop4"), ("b", "/dev/loop5"), ("c", "/dev/loop6"), ("d", "/dev/loop7")];
    PluginOptions::new(RESOURCE, &all[..count])
}

fn plugin(node: &Node, options: PluginOptions) -> Plugin {
    let plugin = Plugin::start(&root(node), options).expect("the plugin starts");
    plugin.until_registered().expect("the plugin is registered");
    plugin
}

fn counts(node: &Node) -> (Value, Value) {
    let status = node.send("GET", "/api/v1/nodes/node-1", Value::Null).json()["status"].clone();
    (status["capacity"][RESOURCE].clone(), status["allocatable"][RESOURCE].clone())
}

fn until_counts(node: &Node, capacity: &str, allocatable: &str) {
    let deadline = Instant::now() + LONG;
    while counts(node) != (json!(capacity), json!(allocatable)) {
        assert!(Instant::now() < deadline, "{:?} is never {capacity} and {allocatable}", counts(node));
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A pod with so many devices that says what it sees, and stays.
fn using(count: usize) -> Value {
    let resources = json!({"resources": {"limits": {RESOURCE: count.to_string()}}});
    one(with(script("ls /dev; echo devices=$DEVICES_OF_GPU; cat /vendor/library; echo ready; sleep 900"), resources))
}

/// The devices below `/dev` that a container has been given.
fn seen(node: &Node, pod: &str) -> Vec<String> {
    let listed = node.exec(pod, "main", &["ls", "/dev"]);
    let mut seen: Vec<String> =
        listed.split_whitespace().filter_map(|name| name.strip_prefix("test-")).map(str::to_owned).collect();
    seen.sort();
    seen
}

#[test]
fn a_pod_sees_exactly_its_devices() {
    let mut node = Node::start(&[]);
    let mut gpus =
        plugin(&node, PluginOptions { pre_start: true, preferred: vec!["c".into(), "b".into()], ..options(4) });
    until_counts(&node, "4", "4");
    node.pod("p1", using(1));
    let log = node.until_log("p1", "main", "ready");
    assert!(log.contains("devices=c") && log.contains("of the vendor"), "{log}");
    assert_eq!(seen(&node, "p1"), ["c"]);
    assert_eq!(gpus.count("PreStartContainer c"), 1);
    node.pod("p2", using(2));
    node.until_log("p2", "main", "ready");
    let two = seen(&node, "p2");
    assert!(two.len() == 2 && !two.contains(&"c".to_owned()), "{two:?}");
    assert_eq!(devices::of_pod(&root(&node), "default", "p1").unwrap(), ["main vendor.test/gpu c"]);
    let listed: Vec<String> = two.iter().map(|id| format!("p2 main vendor.test/gpu {id}")).collect();
    let all = devices::of_all_pods(&root(&node)).unwrap();
    assert_eq!(all.iter().filter(|line| line.starts_with("p2 ")).cloned().collect::<Vec<_>>(), listed);
    assert_eq!(devices::allocatable(&root(&node)).unwrap().len(), 4);
    // Given to read, and to nobody else at all.
    let denied =
        node.exec("p1", "main", &["sh", "-c", "cat /dev/test-c && echo read; echo x > /dev/test-c || echo denied"]);
    assert!(denied.contains("read") && denied.contains("denied"), "{denied}");

    // Too many are refused as upstream does, and nothing is kept for them.
    node.pod("p3", using(3));
    let refused = node.until_phase("p3", "Failed");
    assert_eq!(refused["status"]["reason"], "UnexpectedAdmissionError");
    let message = "Pod was rejected: Allocate failed due to requested number of devices unavailable for vendor.test/gpu. \
                   Requested: 3, Available: 1, which is unexpected";
    assert_eq!(refused["status"]["message"], message);

    // Neither a restart nor a kill changes who has what, and the plugin comes back.
    for killed in [false, true] {
        let before = gpus.answers().len();
        match killed {
            true => node.server.kill().unwrap(),
            false => assert!(node.server.terminate().unwrap()),
        }
        node.server.restart().unwrap();
        wait("registered again", || (gpus.answers().len() > before).then_some(()));
        until_counts(&node, "4", "4");
        node.until_ready("p1");
        assert_eq!((seen(&node, "p1"), seen(&node, "p2")), (vec!["c".to_owned()], two.clone()));
    }
    let name = format!("p4-{}", gpus.count("Allocate"));
    node.pod(&name, using(1));
    node.until_log(&name, "main", "ready");
    let taken = seen(&node, &name);
    assert!(taken.len() == 1 && taken[0] != "c" && !two.contains(&taken[0]), "{taken:?} beside {two:?}");

    // Health, and a plugin that goes.
    gpus.set_sick(&["a"]);
    until_counts(&node, "4", "3");
    gpus.set_sick(&[]);
    until_counts(&node, "4", "4");
    gpus.remove().unwrap();
    until_counts(&node, "4", "0");
    gpus.run().unwrap();
    until_counts(&node, "4", "4");

    // What a pod had is free with its end.
    node.delete("p1", Some(1));
    node.until_gone("p1");
    node.pod("p5", using(1));
    node.until_log("p5", "main", "ready");
    assert_eq!(seen(&node, "p5"), ["c"]);
}

#[test]
fn those_who_misbehave_harm_nobody_else() {
    let node = Node::start(&[]);
    let refused = |options: PluginOptions, reason: &str| {
        let liar = Plugin::start(&root(&node), options).expect("it starts");
        let answers = wait("refused", || Some(liar.answers()).filter(|answers| !answers.is_empty()));
        assert!(!answers[0].0 && answers[0].1.contains(reason), "{answers:?}");
    };
    wait("served", || root(&node).join("device-plugins/kubelet.sock").exists().then_some(()));
    refused(
        PluginOptions { version: "v9".into(), ..options(1) },
        "requested API version \"v9\" is not supported by kubelet",
    );
    refused(PluginOptions { endpoint: Some("../../x.sock".into()), ..options(1) }, "is not the name of a socket");
    refused(PluginOptions { resource: "cpu".into(), ..options(1) }, "the ResourceName \"cpu\" is invalid");
    refused(
        PluginOptions { resource: "kubernetes.io/x".into(), by_registry: true, ..options(1) },
        "the ResourceName \"kubernetes.io/x\" is invalid",
    );

    // One that floods: the node's numbers stay right in the end, and pods start meanwhile.
    let mut gpus = plugin(&node, PluginOptions { by_registry: true, ..options(2) });
    until_counts(&node, "2", "2");
    gpus.flood(true);
    std::thread::sleep(Duration::from_secs(3));
    let before = memory(&node);
    node.pod("meanwhile", one(script("echo ready; sleep 900")));
    node.until_log("meanwhile", "main", "ready");
    std::thread::sleep(Duration::from_secs(5));
    let grown = memory(&node).saturating_sub(before);
    assert!(grown < 100 << 20, "grew by {grown} bytes");
    gpus.flood(false);
    until_counts(&node, "2", "2");

    // One that hangs keeps its own pod waiting, and no other.
    gpus.break_call("Allocate", Fault::Hang);
    node.pod("waits", using(1));
    gpus.until_called("Allocate", 1).unwrap();
    node.pod("passes", one(script("echo ready; sleep 900")));
    node.until_log("passes", "main", "ready");
    assert_eq!(node.get("waits")["status"]["phase"], "Pending");
    gpus.heal();
    node.until_log("waits", "main", "ready");

    // Refusals, empty answers, devices that are none, a death in between: each is told, and the device is free again.
    let rejected = |name: &str, expected: &str| {
        let pod = node.until_phase(name, "Failed");
        assert_eq!(pod["status"]["reason"], "UnexpectedAdmissionError", "{pod}");
        assert!(pod["status"]["message"].as_str().is_some_and(|text| text.contains(expected)), "{pod}");
    };
    gpus.break_call("Allocate", Fault::Refuse);
    node.pod("refused", using(1));
    rejected("refused", "rpc error: code = Internal desc = told to refuse");
    gpus.break_call("Allocate", Fault::Empty);
    node.pod("empty", using(1));
    rejected("empty", "no containers return in allocation response");
    gpus.break_call("Allocate", Fault::Lie);
    node.pod("lied-to", using(1));
    node.until_event("lied-to", "Warning Failed Error: ");
    node.delete("lied-to", Some(1));
    node.until_gone("lied-to");
    gpus.break_call("Allocate", Fault::Die);
    node.pod("bereft", using(1));
    rejected("bereft", "rpc error: code = ");
    until_counts(&node, "2", "0");
    gpus.heal();
    gpus.run().unwrap();
    until_counts(&node, "2", "2");
    node.pod("at-last", using(1));
    node.until_log("at-last", "main", "ready");
}

/// What knarr has in memory.
fn memory(node: &Node) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", node.server.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

/// Names two block devices for containers, as a vendor's installer would.
fn describe_cdi(node: &Node) {
    let text = r#"cdiVersion: 0.7.0
kind: vendor.test/gpu
devices:
- name: a
  containerEdits: {env: [CDI_A=1], deviceNodes: [{path: /dev/test-a, hostPath: /dev/loop4, permissions: r}]}
- name: b
  containerEdits:
    env: [CDI_B=1]
    deviceNodes: [{path: /dev/test-b, hostPath: /dev/loop5, permissions: r}]
    mounts: [{hostPath: /usr/share, containerPath: /of-vendor, options: [ro, rbind]}]
    additionalGids: [4711]
"#;
    let script = format!("cat > /run/cdi/vendor.yaml <<'END'\n{text}END\n");
    node.server.machine().shell(&script).expect("the file is written");
}

#[test]
fn plugins_may_name_devices_of_cdi() {
    let node = Node::start(&[]);
    describe_cdi(&node);
    let _gpus = plugin(
        &node,
        PluginOptions { cdi_kind: Some("vendor.test/gpu".into()), preferred: vec!["b".into()], ..options(3) },
    );
    until_counts(&node, "3", "3");
    node.pod("named", using(1));
    node.until_log("named", "main", "ready");
    assert_eq!(seen(&node, "named"), ["b"]);
    let found =
        node.exec("named", "main", &["sh", "-c", "echo $CDI_B; ls /of-vendor; id; cat /dev/test-b && echo read"]);
    assert!(found.starts_with('1') && found.contains("4711") && found.contains("read"), "{found}");
    // One that no file describes is an error of the container, not a container without it.
    node.pod("more", using(2));
    node.until_event(
        "more",
        "Warning Failed Error: CDI device injection failed: unresolvable CDI devices vendor.test/gpu=c",
    );
}

const CLAIMS: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";
const SLICES: &str = "/apis/resource.k8s.io/v1/resourceslices";

/// Everything but the driver itself: what it offers, a class of it, and claims of one device each.
fn offer(node: &Node, claims: &[&str]) {
    let devices: Vec<Value> = ["a", "b"].iter().map(|name| json!({"name": name})).collect();
    slice(node, &devices);
    let selector = json!([{"cel": {"expression": "device.driver == 'gpu.test'"}}]);
    let class = json!({"metadata": {"name": "gpu"}, "spec": {"selectors": selector}});
    node.create("/apis/resource.k8s.io/v1/deviceclasses", class);
    for claim in claims {
        let request = json!({"name": "one", "exactly": {"deviceClassName": "gpu"}});
        node.create(CLAIMS, json!({"metadata": {"name": claim}, "spec": {"devices": {"requests": [request]}}}));
    }
}

fn slice(node: &Node, devices: &[Value]) {
    let pool = json!({"name": "node-1", "generation": 1, "resourceSliceCount": 1});
    let spec = json!({"driver": "gpu.test", "nodeName": "node-1", "pool": pool, "devices": devices});
    node.create(SLICES, json!({"metadata": {"name": "node-1-gpu"}, "spec": spec}));
}

fn claiming(claim: &str) -> Value {
    let container = with(script("echo ready; sleep 900"), json!({"resources": {"claims": [{"name": "gpu"}]}}));
    // The scheduler gives devices, so it must place the pod.
    with(one(container), json!({"nodeName": null, "resourceClaims": [{"name": "gpu", "resourceClaimName": claim}]}))
}

fn driver_options() -> DriverOptions {
    let named = |name: &str| vec![("one".to_owned(), format!("vendor.test/gpu={name}"))];
    let devices = [("first".to_owned(), named("a")), ("second".to_owned(), named("b"))].into();
    DriverOptions { devices, ..DriverOptions::new("gpu.test") }
}

#[test]
fn claimed_devices_are_prepared_and_taken_back() {
    let mut node = Node::start(&[]);
    describe_cdi(&node);
    // What an earlier kubelet's drivers offered is gone by now.
    offer(&node, &["first", "second"]);
    node.pod("p1", claiming("first"));
    let waits = "Warning FailedPrepareDynamicResources Failed to prepare dynamic resources: prepare dynamic resources: DRA driver gpu.test is not registered";
    node.until_event("p1", waits);
    let mut gpus = Driver::start(&root(&node), driver_options()).unwrap();
    gpus.until_registered().unwrap();
    node.until_log("p1", "main", "ready");
    assert_eq!(seen(&node, "p1"), ["a"]);
    let told = devices::of_pod(&root(&node), "default", "p1").unwrap();
    assert_eq!(told, ["main claim first gpu.test/node-1/a"]);
    node.pod("p2", claiming("first"));
    node.until_log("p2", "main", "ready");
    assert_eq!((seen(&node, "p2"), gpus.count("NodePrepareResources first")), (vec!["a".to_owned()], 1));

    // A kill in between neither forgets nor repeats.
    node.server.kill().unwrap();
    node.server.restart().unwrap();
    node.until_ready("p1");
    assert_eq!(seen(&node, "p1"), ["a"]);
    let before = gpus.answers().len();
    wait("registered again", || (gpus.answers().len() >= before && !gpus.answers().is_empty()).then_some(()));

    // It is taken back with its last pod, and a driver that does not answer well is asked again.
    node.delete("p1", Some(1));
    node.until_gone("p1");
    assert_eq!(gpus.count("NodeUnprepareResources first"), 0);
    gpus.break_call("NodeUnprepareResources", Fault::Refuse);
    node.delete("p2", Some(1));
    gpus.until_called("NodeUnprepareResources first", 2).unwrap();
    assert_eq!(node.get("p2")["metadata"]["name"], "p2", "it stays until its device is taken back");
    gpus.heal();
    node.until_gone("p2");

    // Lies, omissions and deaths are told; nobody gets a device by them.
    for (fault, expected) in [
        (Fault::Lie, "NodePrepareResources returned result for unknown claim UID of-nobody"),
        (Fault::Empty, "NodePrepareResources skipped 1 ResourceClaims"),
        (Fault::Refuse, "NodePrepareResources: rpc error: code = Internal desc = told to refuse"),
    ] {
        let name = format!("bad-{fault:?}").to_lowercase();
        gpus.break_call("NodePrepareResources", fault);
        if node.send("GET", SLICES, Value::Null).json()["items"].as_array().is_none_or(Vec::is_empty) {
            slice(&node, &[json!({"name": "a"}), json!({"name": "b"})]);
        }
        node.pod(&name, claiming("second"));
        let start = format!(
            "Warning FailedPrepareDynamicResources Failed to prepare dynamic resources: prepare dynamic resources: {expected}"
        );
        node.until_event(&name, &start);
        gpus.heal();
        node.until_log(&name, "main", "ready");
        assert_eq!(seen(&node, &name), ["b"]);
        node.delete(&name, Some(1));
        node.until_gone(&name);
    }

    // What a driver that goes has offered goes too.
    slice_is_there(&node);
    gpus.unregister().unwrap();
    wait("wiped", || node.send("GET", SLICES, Value::Null).json()["items"].as_array()?.is_empty().then_some(()));
}

fn slice_is_there(node: &Node) {
    if node.send("GET", SLICES, Value::Null).json()["items"].as_array().is_none_or(Vec::is_empty) {
        slice(node, &[json!({"name": "a"})]);
    }
}

/// What the status of a pod's container says of its devices: `resource device health message`.
fn told_health(node: &Node, pod: &str) -> Vec<String> {
    let status = node.get(pod)["status"]["containerStatuses"][0]["allocatedResourcesStatus"].clone();
    let of_resource = |resource: &Value| -> Vec<String> {
        let devices = resource["resources"].as_array().cloned().unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
        let line = |device: &Value| {
            let words = [&resource["name"], &device["resourceID"], &device["health"], &device["message"]];
            words.map(text).join(" ")
        };
        devices.iter().map(line).collect()
    };
    status.as_array().into_iter().flatten().flat_map(of_resource).collect()
}

#[test]
fn a_pods_status_shows_how_its_devices_are() {
    let mut node = Node::start(&[]);
    describe_cdi(&node);
    let told = |node: &Node, pod: &str, expected: &str| {
        let deadline = Instant::now() + LONG;
        while told_health(node, pod) != [expected] {
            assert!(Instant::now() < deadline, "{:?} instead of {expected}", told_health(node, pod));
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    let gpus = plugin(&node, options(1));
    until_counts(&node, "1", "1");
    node.pod("plain", using(1));
    node.until_ready("plain");
    told(&node, "plain", "vendor.test/gpu a Healthy -");
    gpus.set_sick(&["a"]);
    told(&node, "plain", "vendor.test/gpu a Unhealthy -");
    gpus.set_sick(&[]);
    told(&node, "plain", "vendor.test/gpu a Healthy -");

    offer(&node, &["first"]);
    let mut driver = Driver::start(&root(&node), driver_options()).unwrap();
    driver.until_registered().unwrap();
    driver.report("a", HealthStatus::Healthy, 0, "");
    node.pod("claims", claiming("first"));
    node.until_ready("claims");
    told(&node, "claims", "claim:gpu vendor.test/gpu=a Healthy -");
    driver.report("a", HealthStatus::Unhealthy, 600, "ECC errors");
    told(&node, "claims", "claim:gpu vendor.test/gpu=a Unhealthy ECC errors");
    driver.report("a", HealthStatus::Unhealthy, 600, "more ECC errors");
    told(&node, "claims", "claim:gpu vendor.test/gpu=a Unhealthy more ECC errors");
    // What is not said again in time counts no more, nor what the driver of before said.
    driver.report("a", HealthStatus::Healthy, 10, "for now");
    told(&node, "claims", "claim:gpu vendor.test/gpu=a Healthy for now");
    told(&node, "claims", "claim:gpu vendor.test/gpu=a Unknown -");
    driver.report("a", HealthStatus::Healthy, 600, "back");
    told(&node, "claims", "claim:gpu vendor.test/gpu=a Healthy back");
    driver.crash();
    told(&node, "claims", "claim:gpu vendor.test/gpu=a Unknown -");
    driver.run().unwrap();
    told(&node, "claims", "claim:gpu vendor.test/gpu=a Healthy back");
    let metrics = node.send("GET", "/api/v1/nodes/node-1/proxy/metrics", Value::Null).text();
    for line in [
        "dra_resource_claims_in_use{driver_name=\"gpu.test\"} 1",
        "dra_operations_duration_seconds_count{is_error=\"false\",operation_name=\"PrepareResources\"} ",
        "dra_grpc_operations_duration_seconds_count{driver_name=\"gpu.test\",grpc_status_code=\"OK\",method_name=\"/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources\"} 1",
        "kubelet_device_plugin_registration_total{resource_name=\"vendor.test/gpu\"} 1",
        "kubelet_device_plugin_alloc_duration_seconds_count{resource_name=\"vendor.test/gpu\"} 1",
        "kubelet_topology_manager_admission_requests_total ",
    ] {
        assert!(metrics.contains(line), "{line} in\n{metrics}");
    }
    node.server.kill().unwrap();
    driver.report("a", HealthStatus::Unhealthy, 600, "meanwhile");
    node.server.restart().unwrap();
    told(&node, "claims", "claim:gpu vendor.test/gpu=a Unhealthy meanwhile");
    told(&node, "plain", "vendor.test/gpu a Healthy -");
}

#[derive(Clone, Copy, Debug)]
enum Victim {
    Knarr,
    Driver,
    Node,
}

impl Victim {
    /// Kills it in the middle of a call and starts it anew.
    fn dies(self, node: &mut Node, driver: &mut Driver) {
        match self {
            Victim::Knarr => {
                node.server.kill().unwrap();
                driver.heal();
                node.server.restart().unwrap();
            }
            Victim::Driver => {
                driver.crash();
                driver.heal();
                driver.run().unwrap();
            }
            Victim::Node => {
                node.server.kill().unwrap();
                driver.heal();
                node.reboot();
                describe_cdi(node);
            }
        }
    }
}

#[test]
fn kills_at_every_step_forget_nothing_and_leave_nothing() {
    let mut node = Node::start(&[]);
    describe_cdi(&node);
    offer(&node, &["first"]);
    let mut driver = Driver::start(&root(&node), driver_options()).unwrap();
    driver.until_registered().unwrap();
    let (prepare, unprepare) = ("NodePrepareResources", "NodeUnprepareResources");
    for (round, victim) in [Victim::Driver, Victim::Knarr, Victim::Node].into_iter().enumerate() {
        let pod = format!("p{round}");
        slice_is_there(&node);
        let known = driver.count(&format!("{prepare} first"));
        driver.break_call(prepare, Fault::Hang);
        node.pod(&pod, claiming("first"));
        driver.until_called(&format!("{prepare} first"), known + 1).unwrap();
        victim.dies(&mut node, &mut driver);
        node.until_log(&pod, "main", "ready");
        assert_eq!(seen(&node, &pod), ["a"], "{victim:?}");
        let known = driver.count(&format!("{unprepare} first"));
        driver.break_call(unprepare, Fault::Hang);
        node.delete(&pod, Some(1));
        driver.until_called(&format!("{unprepare} first"), known + 1).unwrap();
        victim.dies(&mut node, &mut driver);
        node.until_gone(&pod);
        let kept = std::fs::read_to_string(root(&node).join("dra_manager_state")).unwrap();
        assert!(kept.contains(r#"\"ClaimInfoStateList\":[]"#), "{victim:?}: {kept}");
    }
}

/// A driver gives what a pod asks for as an extended resource, where no device plugin has it.
#[test]
fn extended_resources_come_from_a_driver() {
    const GPU: &str = "example.com/gpu";
    let node = Node::start(&[]);
    describe_cdi(&node);
    slice(&node, &[json!({"name": "a"})]);
    let options = DriverOptions {
        devices: ["p1", "p2"]
            .map(|pod| {
                let device = ("container-1-request-0".to_owned(), "vendor.test/gpu=a".to_owned());
                (format!("{pod}-extended-resources-"), vec![device])
            })
            .into(),
        ..DriverOptions::new("gpu.test")
    };
    let gpus = Driver::start(&root(&node), options).unwrap();
    gpus.until_registered().unwrap();
    slice_is_there(&node);
    let limits = json!({"resources": {"limits": {GPU: "1"}}});
    let without = with(script("echo ready; sleep 900"), json!({"name": "without"}));
    let main = with(script("echo ready; sleep 900"), with(limits, json!({"name": "main"})));
    let asking = json!({"restartPolicy": "Never", "nodeName": null, "containers": [without, main]});
    node.pod("p1", asking.clone());
    let lacking = "Warning FailedScheduling 0/1 nodes are available: 1 Insufficient example.com/gpu.";
    node.until_event("p1", lacking);

    // The class makes the name known; the pod is tried again by itself.
    let class = json!({"metadata": {"name": "gpu"}, "spec": {"extendedResourceName": GPU}});
    node.create("/apis/resource.k8s.io/v1/deviceclasses", class);
    node.until_log("p1", "main", "ready");
    assert_eq!(seen(&node, "p1"), ["a"]);
    let listed = node.exec("p1", "without", &["ls", "/dev"]);
    assert!(!listed.contains("test-"), "the other container asked for none: {listed}");
    let pod = node.get("p1");
    let status = &pod["status"]["extendedResourceClaimStatus"];
    let mapping = json!({"containerName": "main", "resourceName": GPU, "requestName": "container-1-request-0"});
    assert_eq!(status["requestMappings"], json!([mapping]));
    let name = status["resourceClaimName"].as_str().expect("the claim's name");
    let claim = node.send("GET", &format!("{CLAIMS}/{name}"), Value::Null).json();
    let metadata = &claim["metadata"];
    assert_eq!(metadata["annotations"]["resource.kubernetes.io/extended-resource-claim"], "true");
    assert_eq!(metadata["ownerReferences"][0]["uid"], pod["metadata"]["uid"]);
    assert_eq!(metadata["finalizers"], json!(["resource.kubernetes.io/delete-protection"]));
    let exactly = json!({"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1});
    assert_eq!(claim["spec"]["devices"]["requests"], json!([{"name": "container-1-request-0", "exactly": exactly}]));
    assert_eq!(claim["status"]["reservedFor"][0]["name"], "p1");

    // The device is taken: the next pod waits for it, and gets it when the first is gone.
    node.pod("p2", asking);
    node.until_event(
        "p2",
        "Warning FailedScheduling 0/1 nodes are available: 1 cannot allocate all claims. still not schedulable",
    );
    node.delete("p1", Some(1));
    node.until_gone("p1");
    node.until_log("p2", "main", "ready");
    assert_eq!(seen(&node, "p2"), ["a"]);
    wait("the claim of the first is gone", || {
        let claims = node.send("GET", CLAIMS, Value::Null).json();
        let claims = claims["items"].as_array()?.clone();
        (claims.len() == 1 && claims[0]["metadata"]["generateName"] == "p2-extended-resources-").then_some(())
    });
    assert_eq!(gpus.calls().iter().filter(|call| call.starts_with("NodeUnprepareResources p1-")).count(), 1);
    node.delete("p2", Some(1));
    node.until_gone("p2");
    wait("no claim is left", || {
        node.send("GET", CLAIMS, Value::Null).json()["items"].as_array()?.is_empty().then_some(())
    });
}
