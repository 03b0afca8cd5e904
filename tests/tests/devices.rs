//! Devices that pods claim (dynamic resource allocation): templates become claims, the scheduler gives each pod devices of its own
//! where they are, and what a pod had is free again when it has ended. The driver is the test: it offers devices of hollow nodes.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::{Component, Kubectl, Server};

const LATER: Duration = Duration::from_secs(60);

struct Cluster {
    kubectl: Kubectl,
    _nodes: Component,
    _server: Server,
}

impl Cluster {
    fn start() -> Cluster {
        let server = Server::start().unwrap();
        server.default_account("default").unwrap();
        let nodes = Component::start(&server, "nodes", "hollow-nodes", &["--count=2"]).unwrap();
        let cluster = Cluster { kubectl: server.kubectl(), _nodes: nodes, _server: server };
        cluster.until("the nodes are ready", |cluster| {
            cluster.ok("get nodes --no-headers").lines().filter(|line| line.contains(" Ready ")).count() == 2
        });
        cluster
    }

    fn ok(&self, line: &str) -> String {
        self.kubectl.ok(&line.split_whitespace().collect::<Vec<_>>())
    }

    fn create(&self, object: Value) {
        self.kubectl.ok_with(&["create", "-f", "-"], &object.to_string());
    }

    fn get(&self, what: &str) -> Value {
        serde_json::from_str(&self.ok(&format!("get {what} -o json"))).unwrap()
    }

    fn until(&self, what: &str, mut reached: impl FnMut(&Cluster) -> bool) {
        let began = Instant::now();
        while !reached(self) {
            assert!(
                began.elapsed() < LATER,
                "{what}: not within {LATER:?}\n{}\n{}",
                self.ok("get pods,resourceclaims -o wide"),
                self.ok("get events")
            );
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn slice(&self, node: &str, devices: &[&str]) {
        let devices: Vec<Value> = devices
            .iter()
            .map(|name| json!({"name": name, "attributes": {"model": {"string": "a"}}, "capacity": {"memory": {"value": "40Gi"}}}))
            .collect();
        let pool = json!({"name": node, "generation": 1, "resourceSliceCount": 1});
        self.create(json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": node},
            "spec": {"driver": "gpu.example.com", "nodeName": node, "pool": pool, "devices": devices}}));
    }

    fn pod(&self, name: &str, claim: Value) {
        let mut claim = claim;
        claim["name"] = "gpu".into();
        let container = json!({"name": "c", "image": "demo:1", "resources": {"claims": [{"name": "gpu"}]}});
        self.create(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "gpu"}},
            "spec": {"resourceClaims": [claim], "containers": [container]}}));
    }

    /// `node/device` of a pod that runs with one.
    fn device(&self, pod: &str) -> Option<String> {
        let pod = self.get(&format!("pod {pod}"));
        let node = pod["spec"]["nodeName"].as_str()?;
        let claim = pod["status"]["resourceClaimStatuses"][0]["resourceClaimName"].as_str()?;
        let claim = self.get(&format!("resourceclaim {claim}"));
        assert_eq!(claim["status"]["reservedFor"][0]["uid"], pod["metadata"]["uid"]);
        assert_eq!(claim["metadata"]["finalizers"], json!(["resource.kubernetes.io/delete-protection"]));
        let result = &claim["status"]["allocation"]["devices"]["results"][0];
        assert_eq!((&result["request"], &result["driver"]), (&json!("one"), &json!("gpu.example.com")));
        assert_eq!(result["pool"], node);
        Some(format!("{node}/{}", result["device"].as_str()?))
    }
}

#[test]
fn pods_get_devices_of_their_own_and_give_them_back() {
    let cluster = Cluster::start();
    let selector = json!([{"cel": {"expression": "device.driver == 'gpu.example.com'"}}]);
    cluster.create(json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpu"},
        "spec": {"selectors": selector}}));
    let large = "device.capacity['gpu.example.com'].memory.compareTo(quantity('20Gi')) > 0";
    let request =
        json!({"name": "one", "exactly": {"deviceClassName": "gpu", "selectors": [{"cel": {"expression": large}}]}});
    let devices = json!({"devices": {"requests": [request]}});
    cluster.create(json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
        "metadata": {"name": "gpu"}, "spec": {"metadata": {"labels": {"from": "template"}}, "spec": devices}}));
    cluster.slice("hollow-0", &["a", "b"]);
    cluster.slice("hollow-1", &["a"]);

    let template = json!({"resourceClaimTemplateName": "gpu"});
    for name in ["p1", "p2", "p3"] {
        cluster.pod(name, template.clone());
    }
    cluster.ok("wait --for=condition=Ready pod/p1 pod/p2 pod/p3 --timeout=60s");
    let mut given = BTreeSet::new();
    for name in ["p1", "p2", "p3"] {
        given.insert(cluster.device(name).expect("it has a device"));
    }
    let all: BTreeSet<String> = ["hollow-0/a", "hollow-0/b", "hollow-1/a"].map(Into::into).into();
    assert_eq!(given, all, "each has its own");
    assert_eq!(cluster.get("resourceclaims -l from=template")["items"].as_array().map(Vec::len), Some(3));

    // The fourth waits until one is given back.
    cluster.pod("p4", template.clone());
    let waits = "0/2 nodes are available: 2 cannot allocate all claims. still not schedulable, preemption: 0/2 nodes are \
                 available: 2 Preemption is not helpful for scheduling.";
    cluster.until("it says why it waits", |cluster| {
        let pod = cluster.get("pod p4");
        let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|one| one["type"] == "PodScheduled" && one["message"] == waits)
    });
    let freed = cluster.device("p2").unwrap();
    cluster.ok("delete pod p2 --timeout=60s");
    cluster.ok("wait --for=condition=Ready pod/p4 --timeout=60s");
    assert_eq!(cluster.device("p4"), Some(freed));
    cluster.until("the claim of the one that is gone goes too", |cluster| {
        cluster.get("resourceclaims")["items"].as_array().is_some_and(|claims| claims.len() == 3)
    });

    // A claim that several pods share keeps them where its device is.
    cluster.ok("delete pod p1 p3 p4 --timeout=60s");
    cluster.create(json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "shared"}, "spec": devices}));
    for name in ["s1", "s2", "s3"] {
        cluster.pod(name, json!({"resourceClaimName": "shared"}));
    }
    cluster.ok("wait --for=condition=Ready pod/s1 pod/s2 pod/s3 --timeout=60s");
    let claim = cluster.get("resourceclaim shared");
    assert_eq!(claim["status"]["reservedFor"].as_array().map(Vec::len), Some(3));
    let node = cluster.get("pod s1")["spec"]["nodeName"].clone();
    assert!(["s2", "s3"].iter().all(|pod| cluster.get(&format!("pod {pod}"))["spec"]["nodeName"] == node));
    let shown = cluster.ok("get resourceclaim shared --no-headers");
    assert!(shown.contains("allocated,reserved"), "{shown}");
    // Who deletes it waits for its users; with the last one it goes.
    cluster.ok("delete resourceclaim shared --wait=false");
    cluster.ok("delete pod s1 s2 --timeout=60s");
    assert!(cluster.get("resourceclaim shared")["metadata"]["deletionTimestamp"].is_string());
    cluster.ok("delete pod s3 --timeout=60s");
    cluster.ok("wait --for=delete resourceclaim/shared --timeout=60s");
}

#[test]
fn a_pod_that_has_ended_lets_go_of_its_device() {
    let cluster = Cluster::start();
    cluster.create(
        json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpu"}, "spec": {}}),
    );
    let request = json!({"name": "one", "exactly": {"deviceClassName": "gpu"}});
    cluster.create(json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
        "metadata": {"name": "gpu"}, "spec": {"spec": {"devices": {"requests": [request]}}}}));
    cluster.slice("hollow-0", &["only"]);
    cluster.pod("first", json!({"resourceClaimTemplateName": "gpu"}));
    cluster.ok("wait --for=condition=Ready pod/first --timeout=60s");
    cluster.pod("second", json!({"resourceClaimTemplateName": "gpu"}));
    cluster.kubectl.ok(&[
        "patch",
        "pod",
        "first",
        "--subresource=status",
        "--type=merge",
        "-p",
        r#"{"status":{"phase":"Succeeded"}}"#,
    ]);
    cluster.ok("wait --for=condition=Ready pod/second --timeout=60s");
    assert_eq!(cluster.device("second").as_deref(), Some("hollow-0/only"));
    cluster.until("the claim of the first is gone", |cluster| {
        cluster.get("resourceclaims")["items"].as_array().is_some_and(|claims| claims.len() == 1)
    });
    // A template that is missing is told, and used once it is there.
    cluster.pod("third", json!({"resourceClaimTemplateName": "later"}));
    cluster.until("what is missing is told", |cluster| {
        cluster.ok("get events").contains("resourceclaimtemplate.resource.k8s.io \"later\" not found")
    });
    cluster.ok("delete pod second --timeout=60s");
    let request = json!({"name": "one", "exactly": {"deviceClassName": "gpu"}});
    cluster.create(json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
        "metadata": {"name": "later"}, "spec": {"spec": {"devices": {"requests": [request]}}}}));
    cluster.ok("wait --for=condition=Ready pod/third --timeout=60s");
}

/// A fabric of devices: each is attached to the node of its pod after it is chosen, and the pod starts when that is done.
#[test]
fn a_pod_waits_until_its_device_is_ready() {
    let cluster = Cluster::start();
    cluster.create(
        json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpu"}, "spec": {}}),
    );
    let request = json!({"name": "one", "exactly": {"deviceClassName": "gpu"}});
    let spec = json!({"devices": {"requests": [request]}});
    cluster.create(
        json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c"}, "spec": spec}),
    );
    let device = |name: &str| json!({"name": name, "bindsToNode": true, "bindingConditions": ["Attached"], "bindingFailureConditions": ["Broken"]});
    let pool = json!({"name": "fabric", "generation": 1, "resourceSliceCount": 1});
    cluster.create(json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "fabric"},
        "spec": {"driver": "gpu.example.com", "allNodes": true, "pool": pool, "devices": [device("a"), device("b")]}}));
    cluster.pod("p", json!({"resourceClaimName": "c"}));
    let allocation = |cluster: &Cluster| cluster.get("resourceclaim c")["status"]["allocation"].clone();
    cluster.until("its claim has a device", |cluster| allocation(cluster).is_object());
    let first = allocation(&cluster);
    let result = &first["devices"]["results"][0];
    assert_eq!((&result["device"], &result["bindingConditions"]), (&json!("a"), &json!(["Attached"])));
    assert!(first["allocationTimestamp"].is_string(), "{first}");
    let node = first["nodeSelector"]["nodeSelectorTerms"][0]["matchFields"][0]["values"][0].as_str().unwrap();
    let pending = format!("waiting for binding conditions for device on node {node}");
    cluster.until("it says that it waits", |cluster| {
        let events = cluster.ok("get events");
        events.contains("BindingConditionsPending") && events.contains(&pending)
    });
    assert_eq!(cluster.get("pod p")["spec"]["nodeName"], Value::Null, "it has no node before its device is ready");

    // It breaks: the pod is told, the device given back, and another one tried. The broken one is tainted by its driver.
    let told = |device: &str, kind: &str| {
        let condition = json!({"type": kind, "status": "True", "reason": "Fabric", "message": "as told",
            "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let status =
            json!({"driver": "gpu.example.com", "pool": "fabric", "device": device, "conditions": [condition]});
        let patch = json!({"status": {"devices": [status]}}).to_string();
        cluster.kubectl.ok(&["patch", "resourceclaim", "c", "--subresource=status", "--type=merge", "-p", &patch]);
    };
    let taint =
        json!([{"op": "add", "path": "/spec/devices/0/taints", "value": [{"key": "broken", "effect": "NoSchedule"}]}]);
    cluster.kubectl.ok(&["patch", "resourceslice", "fabric", "--type=json", "-p", &taint.to_string()]);
    told("a", "Broken");
    let failed = "running PreBind plugin \"DynamicResources\": device binding failed: claim=c, reason=Fabric, message=\"as told\"";
    cluster.until("it is told why", |cluster| cluster.ok("get events").contains(failed));
    cluster.until("another device is tried", |cluster| allocation(cluster)["devices"]["results"][0]["device"] == "b");
    assert!(cluster.ok("get events").contains("deallocation of ResourceClaim completed"));
    assert_eq!(cluster.get("pod p")["spec"]["nodeName"], Value::Null);
    told("b", "Attached");
    cluster.ok("wait --for=condition=Ready pod/p --timeout=60s");
    let claim = cluster.get("resourceclaim c");
    assert_eq!(claim["status"]["reservedFor"][0]["name"], "p");
    let node = &claim["status"]["allocation"]["nodeSelector"]["nodeSelectorTerms"][0]["matchFields"][0]["values"][0];
    assert_eq!(&cluster.get("pod p")["spec"]["nodeName"], node);
}

/// The status of a claim is not one thing: who may write it may not yet give devices away, nor speak for a driver.
#[test]
fn parts_of_a_claims_status_have_rights_of_their_own() {
    let server = Server::start_api(&[]).unwrap();
    server.default_account("default").unwrap();
    let kubectl = server.kubectl();
    let create = |object: Value| kubectl.ok_with(&["create", "-f", "-"], &object.to_string());
    create(json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}}}));
    let role = |name: &str, resources: &[&str], verbs: &[&str]| {
        let (api, group) = ("rbac.authorization.k8s.io/v1", "rbac.authorization.k8s.io");
        let rule = json!({"apiGroups": ["resource.k8s.io"], "resources": resources, "verbs": verbs});
        create(json!({"apiVersion": api, "kind": "ClusterRole", "metadata": {"name": name}, "rules": [rule]}));
        create(json!({"apiVersion": api, "kind": "ClusterRoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
            "subjects": [{"apiGroup": group, "kind": "User", "name": "somebody"}]}));
    };
    role("status", &["resourceclaims", "resourceclaims/status"], &["get", "update", "patch"]);
    let patch = |status: Value| {
        let text = json!({"status": status}).to_string();
        let line =
            ["patch", "resourceclaim", "c", "--subresource=status", "--type=merge", "--as=somebody", "-p", &text];
        let output = kubectl.run(&line).unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let until_allowed = |status: Value| {
        let began = Instant::now();
        loop {
            let (done, error) = patch(status.clone());
            if done {
                return;
            }
            assert!(began.elapsed() < LATER, "{error}");
            std::thread::sleep(Duration::from_millis(100));
        }
    };
    let result = json!({"request": "r", "driver": "gpu.example.com", "pool": "p", "device": "d"});
    let allocation = json!({"allocation": {"devices": {"results": [result]}}});
    let (done, error) = patch(allocation.clone());
    let expected = "changing status.allocation or status.reservedFor requires resource=\"resourceclaims/binding\", verb=\"patch\" permission";
    assert!(!done && error.contains(expected), "{error}");
    role("binding", &["resourceclaims/binding"], &["patch"]);
    until_allowed(allocation);
    let devices = json!({"devices": [{"driver": "gpu.example.com", "pool": "p", "device": "d", "data": {"a": 1}}]});
    let (done, error) = patch(devices.clone());
    let expected = "changing status.devices requires resource=\"resourceclaims/driver\", verb=\"[arbitrary-node:patch]\" permission";
    assert!(!done && error.contains(expected), "{error}");
    role("driver", &["resourceclaims/driver"], &["arbitrary-node:patch"]);
    until_allowed(devices);
}

/// Devices of a class are counted where a quota limits them, and so are the extended resources that the class stands for.
#[test]
fn quotas_count_devices_by_their_class() {
    let server = Server::start().unwrap();
    server.default_account("default").unwrap();
    let kubectl = server.kubectl();
    let create = |object: Value| {
        let output = kubectl.run_with(&["create", "-f", "-"], &object.to_string()).unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let made = |object: Value| {
        let (done, error) = create(object);
        assert!(done, "{error}");
    };
    made(json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpu"},
        "spec": {"extendedResourceName": "example.com/gpu"}}));
    let per_class = "gpu.deviceclass.resource.k8s.io/devices";
    made(json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"},
        "spec": {"hard": {per_class: "3", "requests.example.com/gpu": "3"}}}));
    let claim = |name: &str, count: u32| {
        json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name},
            "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu", "count": count}}]}}})
    };
    let used = |expected: &str| {
        let began = Instant::now();
        loop {
            let quota: Value = serde_json::from_str(&kubectl.ok(&["get", "quota", "q", "-o", "json"])).unwrap();
            let used = &quota["status"]["used"];
            if used[per_class] == expected && used["requests.example.com/gpu"] == expected {
                return;
            }
            assert!(began.elapsed() < LATER, "{used} instead of {expected}");
            std::thread::sleep(Duration::from_millis(100));
        }
    };
    made(claim("two", 2));
    used("2");
    let (done, error) = create(claim("more", 2));
    let sentence = format!(
        "resourceclaims.resource.k8s.io \"more\" is forbidden: exceeded quota: q, requested: {per_class}=2,requests.example.com/gpu=2, used: {per_class}=2,requests.example.com/gpu=2, limited: {per_class}=3,requests.example.com/gpu=3"
    );
    assert!(!done && error.contains(&sentence), "{error}");
    made(claim("one", 1));
    used("3");
    kubectl.ok(&["delete", "resourceclaim", "two"]);
    used("1");
}
