//! Admission plugins that an operator names, and what a file tells them, against a real server.

#[path = "support/webhook.rs"]
#[allow(dead_code, reason = "the answers of admission webhooks are not for reviews of images")]
mod webhook;

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use testkit::Server;
use testkit::client::{Client, Reply};
use webhook::{Answer, Webhook};

const PODS: &str = "/api/v1/namespaces/default/pods";
const SERVICES: &str = "/api/v1/namespaces/default/services";
const EVENTS: &str = "/api/v1/namespaces/default/events";
const ACCOUNT_TRIES: usize = 1200;

struct Bed {
    server: Server,
    runtime: tokio::runtime::Runtime,
}

impl Bed {
    fn start(flags: &[&str]) -> Bed {
        let flags: Vec<String> = flags.iter().map(|flag| format!("--kube-apiserver-arg={flag}")).collect();
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let server = Server::start_api(&flags).expect("starts");
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let bed = Bed { server, runtime };
        // Pods need the account of their namespace, which a controller makes.
        let account = "/api/v1/namespaces/default/serviceaccounts/default";
        for _ in 0..ACCOUNT_TRIES {
            if bed.get(account).code == 200 {
                return bed;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        panic!("the account of the namespace default did not appear");
    }

    fn admin(&self) -> Client {
        self.server.client().unwrap()
    }

    fn post(&self, path: &str, object: &Value) -> Reply {
        self.runtime.block_on(self.admin().post(path, object)).unwrap()
    }

    fn put(&self, path: &str, object: &Value) -> Reply {
        self.runtime.block_on(self.admin().put(path, object)).unwrap()
    }

    fn get(&self, path: &str) -> Reply {
        self.runtime.block_on(self.admin().get(path)).unwrap()
    }

    /// What was stored; a refusal fails the test with its words.
    fn created(&self, path: &str, object: &Value) -> Value {
        let reply = self.post(path, object);
        assert_eq!(reply.code, 201, "{}", reply.text());
        reply.json()
    }

    fn refused(&self, path: &str, object: &Value, code: u16, words: &str) {
        let reply = self.post(path, object);
        assert_eq!(reply.code, code, "{}", reply.text());
        let message = reply.json()["message"].as_str().unwrap_or_default().to_owned();
        assert!(message.contains(words), "{message}");
    }
}

fn pod(name: &str, more: Value) -> Value {
    let mut spec = json!({"containers": [{"name": "c", "image": "example.com/a:1"}]});
    for (field, value) in more.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
}

fn write(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[test]
fn plugins_that_are_named_run() {
    let bed = Bed::start(&[
        "enable-admission-plugins=AlwaysPullImages,DenyServiceExternalIPs,ExtendedResourceToleration,LimitPodHardAntiAffinityTopology,NamespaceAutoProvision,PodNodeSelector,PodTolerationRestriction",
    ]);
    let stored = bed.created(
        PODS,
        &pod("pulled", json!({"volumes": [{"name": "i", "image": {"reference": "x", "pullPolicy": "Never"}}]})),
    );
    assert_eq!(stored["spec"]["containers"][0]["imagePullPolicy"], "Always");
    assert_eq!(stored["spec"]["volumes"][0]["image"]["pullPolicy"], "Always");

    let resources = json!({"requests": {"example.com/gpu": "1"}, "limits": {"example.com/gpu": "1"}});
    let device =
        bed.created(PODS, &pod("device", json!({"containers": [{"name": "c", "image": "a", "resources": resources}]})));
    let wanted = json!({"key": "example.com/gpu", "operator": "Exists", "effect": "NoSchedule"});
    assert!(device["spec"]["tolerations"].as_array().unwrap().contains(&wanted), "{device}");

    let term = json!({"labelSelector": {}, "topologyKey": "topology.kubernetes.io/zone"});
    let affinity = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
    bed.refused(
        PODS,
        &pod("wide", json!({"affinity": affinity})),
        403,
        "has TopologyKey topology.kubernetes.io/zone but only key kubernetes.io/hostname is allowed",
    );

    let service = |ips: &[&str]| json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}], "externalIPs": ips}});
    bed.refused(SERVICES, &service(&["192.0.2.1"]), 403, "Use of external IPs is denied by admission control");
    let plain = bed.created(SERVICES, &service(&[]));
    let mut more = plain.clone();
    more["spec"]["externalIPs"] = json!(["192.0.2.1"]);
    assert_eq!(bed.put(&format!("{SERVICES}/s"), &more).code, 403);

    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}});
    assert_eq!(
        bed.post("/api/v1/namespaces/made/configmaps?dryRun=All", &map).code,
        404,
        "a dry run makes no namespace"
    );
    bed.created("/api/v1/namespaces/made/configmaps", &map);
    assert_eq!(bed.get("/api/v1/namespaces/made").json()["status"]["phase"], "Active");

    let annotations = json!({
        "scheduler.alpha.kubernetes.io/node-selector": "disk=ssd",
        "scheduler.alpha.kubernetes.io/defaultTolerations": "[{\"key\":\"team\",\"operator\":\"Exists\"}]",
        "scheduler.alpha.kubernetes.io/tolerationsWhitelist": "[{\"key\":\"team\",\"operator\":\"Exists\"},{\"operator\":\"Exists\",\"effect\":\"NoExecute\"}]",
    });
    bed.created(
        "/api/v1/namespaces",
        &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kept", "annotations": annotations}}),
    );
    let kept = "/api/v1/namespaces/kept/pods";
    let mut stored = None;
    // The account of a new namespace is on its way.
    for _ in 0..100 {
        let reply = bed.post(kept, &pod("a", json!({"automountServiceAccountToken": false})));
        if reply.code == 201 {
            stored = Some(reply.json());
            break;
        }
        assert_eq!(reply.code, 403, "{}", reply.text());
        std::thread::sleep(Duration::from_millis(100));
    }
    let stored = stored.expect("the namespace gets its account");
    assert_eq!(stored["spec"]["nodeSelector"], json!({"disk": "ssd"}));
    assert!(stored["spec"]["tolerations"].as_array().unwrap().contains(&json!({"key": "team", "operator": "Exists"})));
    bed.refused(
        kept,
        &pod("b", json!({"nodeSelector": {"disk": "hdd"}})),
        403,
        "pod node label selector conflicts with its namespace node label selector",
    );
    bed.refused(
        kept,
        &pod("c", json!({"tolerations": [{"key": "other", "operator": "Exists"}]})),
        500,
        "conflict with its namespace whitelist",
    );
}

#[test]
fn a_file_tells_plugins_what_to_do() {
    let hook = Webhook::start(|_, review| {
        let images = review["spec"]["containers"].to_string();
        let allowed = !images.contains("forbidden");
        let status = if allowed { json!({"allowed": true}) } else { json!({"allowed": false, "reason": "not signed"}) };
        let answer = json!({"apiVersion": "imagepolicy.k8s.io/v1alpha1", "kind": "ImageReview", "status": status});
        Answer::Raw(200, Bytes::from(answer.to_string()))
    });
    let folder = tempfile::tempdir().unwrap();
    let cluster =
        json!({"server": format!("https://127.0.0.1:{}/images", hook.port), "certificate-authority-data": hook.bundle});
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c", "clusters": [{"name": "k", "cluster": cluster}],
        "users": [], "contexts": [{"name": "c", "context": {"cluster": "k", "user": ""}}],
    });
    write(folder.path(), "images.kubeconfig", &kubeconfig.to_string());
    write(
        folder.path(),
        "images.yaml",
        "imagePolicy:\n  kubeConfigFile: images.kubeconfig\n  allowTTL: 30\n  denyTTL: 30\n  retryBackoff: 100\n  defaultAllow: false\n",
    );
    let file = write(
        folder.path(),
        "admission.yaml",
        r"
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: PodSecurity
  configuration:
    apiVersion: pod-security.admission.config.k8s.io/v1
    kind: PodSecurityConfiguration
    defaults: {enforce: baseline, enforce-version: latest}
    exemptions: {namespaces: [kube-system]}
- name: EventRateLimit
  configuration:
    apiVersion: eventratelimit.admission.k8s.io/v1alpha1
    kind: Configuration
    limits: [{type: SourceAndObject, qps: 1, burst: 3}]
- name: ImagePolicyWebhook
  path: images.yaml
- name: ResourceQuota
  configuration:
    apiVersion: apiserver.config.k8s.io/v1
    kind: ResourceQuotaConfiguration
    limitedResources:
    - {resource: services, matchContains: [services.loadbalancers]}
",
    );
    let bed = Bed::start(&[
        &format!("admission-control-config-file={file}"),
        "enable-admission-plugins=EventRateLimit,ImagePolicyWebhook",
    ]);
    let host = json!({"hostNetwork": true});
    bed.refused(PODS, &pod("host", host.clone()), 403, "violates PodSecurity \"baseline:latest\": host namespaces");
    let exempt = bed.post("/api/v1/namespaces/kube-system/pods", &pod("host", host));
    assert_eq!(exempt.code, 201, "{}", exempt.text());

    bed.created(PODS, &pod("signed", json!({})));
    let forbidden = json!({"containers": [{"name": "c", "image": "example.com/forbidden:1"}]});
    bed.refused(
        PODS,
        &pod("unsigned", forbidden),
        403,
        "image policy webhook backend denied one or more images: not signed",
    );

    let event = |name: &str, of: &str| {
        json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": name}, "reason": "R", "source": {"component": "x"},
            "involvedObject": {"kind": "Pod", "name": of, "namespace": "default"}})
    };
    let codes: Vec<u16> = (0..8).map(|index| bed.post(EVENTS, &event(&format!("e{index}"), "one")).code).collect();
    assert!(codes[..3].iter().all(|code| *code == 201), "{codes:?}");
    assert!(codes.contains(&429), "{codes:?}");
    bed.created(EVENTS, &event("other", "another"));

    let balanced = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "lb"}, "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}});
    bed.refused(SERVICES, &balanced, 403, "insufficient quota to consume: services.loadbalancers");
    bed.created("/api/v1/namespaces/default/resourcequotas", &json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": {"services.loadbalancers": "1"}}}));
    bed.created(SERVICES, &balanced);
}

#[test]
fn owners_are_given_only_by_those_who_may() {
    let bed = Bed::start(&["enable-admission-plugins=OwnerReferencesPermissionEnforcement"]);
    let maps = "/api/v1/namespaces/default/configmaps";
    let map = |name: &str, owners: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "ownerReferences": owners}});
    let owner = bed.created(maps, &map("owner", json!([])));
    let reference = |blocks: bool| json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"], "blockOwnerDeletion": blocks}]);
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "create", "update"]}]);
    bed.created("/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles", &json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "writer"}, "rules": rules}));
    bed.created(
        "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings",
        &json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "writer"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "writer"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "ada"}]}),
    );
    let ada = bed.admin().with_header("impersonate-user", "ada");
    let post = |object: &Value| bed.runtime.block_on(ada.post(maps, object)).unwrap();
    let loose = post(&map("loose", reference(false)));
    assert_eq!(loose.code, 201, "{}", loose.text());
    let blocking = post(&map("blocking", reference(true)));
    assert_eq!(blocking.code, 403);
    assert!(
        blocking.text().contains(
            "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on"
        ),
        "{}",
        blocking.text()
    );
    let free = post(&map("free", json!([])));
    assert_eq!(free.code, 201);
    let mut taken = free.json();
    taken["metadata"]["ownerReferences"] = reference(false);
    let update = bed.runtime.block_on(ada.put(&format!("{maps}/free"), &taken)).unwrap();
    assert_eq!(update.code, 403);
    assert!(update.text().contains("cannot set an ownerRef on a resource you can't delete"), "{}", update.text());
    bed.created(maps, &map("by-admin", reference(true)));
}

#[test]
fn a_pod_is_not_resized_beyond_its_node() {
    let bed = Bed::start(&[]);
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "small"}, "status": {"allocatable": {"cpu": "2", "memory": "1Gi", "pods": "10"}, "capacity": {"cpu": "2", "memory": "1Gi", "pods": "10"}}});
    bed.created("/api/v1/nodes", &node);
    let container = json!({"name": "c", "image": "a", "resources": {"requests": {"cpu": "1", "memory": "64Mi"}}});
    let mut placed = bed.created(PODS, &pod("p", json!({"nodeName": "small", "containers": [container]})));
    placed["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "3".into();
    let reply = bed.put(&format!("{PODS}/p/resize"), &placed);
    assert_eq!(reply.code, 403, "{}", reply.text());
    assert!(
        reply.text().contains("node didn't have enough allocatable resources: cpu, requested: 3000, allocatable: 2000"),
        "{}",
        reply.text()
    );
    placed["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "2".into();
    let reply = bed.put(&format!("{PODS}/p/resize"), &placed);
    assert_eq!(reply.code, 200, "{}", reply.text());
}
