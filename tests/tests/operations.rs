//! What operators do with kubectl on a running cluster, on hollow nodes: drain, autoscale, delete what owns others, delete
//! namespaces whatever is in them.

use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::{Component, Kubectl, Options, Server};

const LATER: Duration = Duration::from_secs(90);

struct Cluster {
    kubectl: Kubectl,
    _nodes: Component,
    _server: Server,
}

impl Cluster {
    fn start(arguments: &[&str], nodes: usize) -> Cluster {
        let arguments = arguments.iter().map(|one| one.to_string()).collect();
        let server = Server::start_with(Options { arguments, ..Options::default() }).unwrap();
        server.default_account("default").unwrap();
        let count = format!("--count={nodes}");
        let hollow = Component::start(&server, "nodes", "hollow-nodes", &[&count]).unwrap();
        let cluster = Cluster { kubectl: server.kubectl(), _nodes: hollow, _server: server };
        cluster.until("the nodes are ready", |cluster| {
            let listed = cluster.ok("get nodes --no-headers");
            listed.lines().filter(|line| line.split_whitespace().nth(1) == Some("Ready")).count() == nodes
        });
        cluster
    }

    fn ok(&self, line: &str) -> String {
        self.kubectl.ok(&line.split_whitespace().collect::<Vec<_>>())
    }

    fn apply(&self, object: Value) {
        self.kubectl.ok_with(&["apply", "-f", "-"], &object.to_string());
    }

    fn get(&self, what: &str) -> Value {
        serde_json::from_str(&self.ok(&format!("get {what} -o json"))).unwrap()
    }

    fn items(&self, what: &str) -> Vec<Value> {
        self.get(what)["items"].as_array().cloned().unwrap()
    }

    fn names(&self, what: &str) -> Vec<String> {
        let listed = self.ok(&format!("get {what} -o name --ignore-not-found"));
        listed.lines().map(|line| line.rsplit('/').next().unwrap().to_owned()).collect()
    }

    fn until(&self, what: &str, mut reached: impl FnMut(&Cluster) -> bool) {
        let began = Instant::now();
        while !reached(self) {
            assert!(
                began.elapsed() < LATER,
                "{what}: not within {LATER:?}\n{}\n{}",
                self.ok("get nodes,all,hpa,pdb -o wide"),
                self.ok("get events"),
            );
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn deployment(&self, name: &str, replicas: usize) {
        let labels = json!({"app": name});
        let container = json!({"name": "c", "image": "demo:1", "resources": {"requests": {"cpu": "100m"}}});
        let template = json!({"metadata": {"labels": labels}, "spec": {"containers": [container]}});
        let spec = json!({"replicas": replicas, "selector": {"matchLabels": labels}, "template": template});
        self.apply(json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}));
        self.ok(&format!("rollout status deployment/{name} --timeout=60s"));
    }
}

#[test]
fn a_node_is_drained_as_far_as_budgets_allow() {
    let cluster = Cluster::start(&[], 3);
    let labels = json!({"app": "agent"});
    let template = json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "demo:1"}]}});
    let spec = json!({"selector": {"matchLabels": labels}, "template": template});
    cluster.apply(json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "agent"}, "spec": spec}));
    cluster.deployment("web", 6);
    cluster.ok("create pdb web --selector=app=web --min-available=6");
    cluster.until("the budget is counted", |cluster| cluster.get("pdb web")["status"]["currentHealthy"] == 6);
    let here = |cluster: &Cluster, app: &str| {
        let pods = cluster.items(&format!("pods -l app={app}"));
        pods.iter().filter(|pod| pod["spec"]["nodeName"] == "hollow-0").count()
    };
    assert!(here(&cluster, "web") > 0);

    let said = cluster.kubectl.fails(&["drain", "hollow-0", "--timeout=5s"]);
    assert!(said.contains("cannot delete DaemonSet-managed Pods"), "{said}");
    let drain = ["drain", "hollow-0", "--ignore-daemonsets", "--timeout=90s"];
    let draining = cluster.kubectl.command(&drain).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Nothing may go: six are wanted and six are there.
    cluster.until("the node is closed", |cluster| cluster.get("node hollow-0")["spec"]["unschedulable"] == true);
    std::thread::sleep(Duration::from_secs(2));
    assert!(here(&cluster, "web") > 0);
    assert_eq!(cluster.get("pdb web")["status"]["disruptionsAllowed"], 0);
    // One more lets one go at a time.
    cluster.ok("scale deployment/web --replicas=7");
    let output = draining.wait_with_output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{stdout}{stderr}");
    assert!(stderr.contains("Cannot evict pod as it would violate the pod's disruption budget."), "{stderr}");
    assert!(stdout.contains("node/hollow-0 drained"), "{stdout}");
    assert_eq!((here(&cluster, "web"), here(&cluster, "agent")), (0, 1));
    cluster.ok("rollout status deployment/web --timeout=60s");
    assert_eq!(here(&cluster, "web"), 0, "the node is still closed");

    cluster.ok("uncordon hollow-0");
    cluster.ok("scale deployment/web --replicas=20");
    cluster.until("the node takes pods again", |cluster| here(cluster, "web") > 0);
    // A budget that nothing satisfies keeps pods from eviction, not from their owner.
    cluster.ok("scale deployment/web --replicas=0");
    cluster.until("all have gone", |cluster| cluster.items("pods -l app=web").is_empty());
}

/// The metrics API as a custom kind: the controller reads the same paths, whoever serves them.
fn metrics_kind(plural: &str, group: &str, kind: &str) -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let names = json!({"plural": plural, "singular": plural, "kind": kind, "listKind": format!("{kind}List")});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}"),
            "annotations": {"api-approved.kubernetes.io": "unapproved, a stand-in for the metrics API"}},
        "spec": {"group": group, "scope": "Namespaced", "names": names,
            "versions": [{"name": "v1beta1", "served": true, "storage": true, "schema": schema}]},
    })
}

#[test]
fn a_deployment_follows_its_load() {
    let arguments = [
        "--horizontal-pod-autoscaler-sync-period=500ms",
        // The numbers come from a custom resource instead.
        "--disable=metrics-server",
        "--horizontal-pod-autoscaler-downscale-stabilization=3s",
        // The pods are new, and their use counts all the same.
        "--horizontal-pod-autoscaler-cpu-initialization-period=0s",
    ];
    let cluster = Cluster::start(&arguments, 2);
    cluster.apply(metrics_kind("pods", "metrics.k8s.io", "PodMetrics"));
    cluster.apply(metrics_kind("queue-length", "external.metrics.k8s.io", "ExternalMetricValue"));
    cluster.ok("wait --for=condition=Established crd/pods.metrics.k8s.io crd/queue-length.external.metrics.k8s.io");
    cluster.deployment("web", 1);
    cluster.ok("autoscale deployment web --cpu-percent=50 --min=1 --max=10");
    // Each pod has asked for 100m and uses so much.
    let load = |cluster: &Cluster, milli: usize| {
        let now = k8s_openapi::jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        // Those that have numbers first: new ones alone would look like more load than there is.
        let known = cluster.names("pods.metrics.k8s.io");
        let mut pods = cluster.names("pods -l app=web");
        pods.sort_by_key(|pod| !known.contains(pod));
        for pod in pods {
            let usage = json!([{"name": "c", "usage": {"cpu": format!("{milli}m"), "memory": "1Mi"}}]);
            let metadata = json!({"name": pod, "labels": {"app": "web"}});
            cluster.apply(json!({"apiVersion": "metrics.k8s.io/v1beta1", "kind": "PodMetrics", "metadata": metadata,
                "timestamp": now, "window": "10s", "containers": usage}));
        }
    };
    let replicas = |cluster: &Cluster| cluster.get("deployment web")["spec"]["replicas"].as_u64().unwrap();
    load(&cluster, 200);
    cluster.until("four times the load, four pods", |cluster| replicas(cluster) == 4);
    cluster.ok("rollout status deployment/web --timeout=60s");
    load(&cluster, 50);
    cluster.until("the use is what was wanted", |cluster| {
        cluster.get("hpa web")["status"]["currentMetrics"][0]["resource"]["current"]["averageUtilization"] == 50
    });
    assert_eq!(replicas(&cluster), 4);
    let described = cluster.ok("describe hpa web");
    for expected in [
        "resource cpu on pods  (as a percentage of request):  50% (50m) / 50%\n",
        "AbleToScale     True    ",
        "ScalingActive   True    ValidMetricFound",
        "the HPA was able to successfully calculate a replica count from cpu resource utilization (percentage of request)",
        "New size: 4; reason: cpu resource utilization (percentage of request) above target",
    ] {
        assert!(described.contains(expected), "{expected}\n{described}");
    }
    load(&cluster, 20);
    cluster.until("less load, fewer pods", |cluster| replicas(cluster) == 2);
    cluster.until("the reason is told", |cluster| {
        cluster.ok("describe hpa web").contains("New size: 2; reason: All metrics below target")
    });

    // By something outside the cluster, never above the most.
    let metric = json!({"type": "External", "external": {"metric": {"name": "queue-length"},
        "target": {"type": "AverageValue", "averageValue": "10"}}});
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "worker"});
    cluster.deployment("worker", 1);
    let spec = json!({"minReplicas": 1, "maxReplicas": 5, "scaleTargetRef": target, "metrics": [metric]});
    let (version, kind) = ("autoscaling/v2", "HorizontalPodAutoscaler");
    cluster.apply(json!({"apiVersion": version, "kind": kind, "metadata": {"name": "worker"}, "spec": spec}));
    cluster.apply(json!({"apiVersion": "external.metrics.k8s.io/v1beta1", "kind": "ExternalMetricValue",
        "metadata": {"name": "one"}, "metricName": "queue-length", "value": "1k"}));
    cluster.until("as many as there may be", |cluster| cluster.get("deployment worker")["spec"]["replicas"] == 5);
    cluster.until("which it says", |cluster| {
        let conditions = cluster.get("hpa worker")["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|one| one["type"] == "ScalingLimited" && one["reason"] == "TooManyReplicas")
    });
}

#[test]
fn jobs_and_cron_jobs_go_with_or_without_what_they_made() {
    let cluster = Cluster::start(&[], 1);
    let spec = json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": "demo:1"}]});
    let template = json!({"metadata": {"labels": {"app": "batch"}}, "spec": spec});
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "job"},
        "spec": {"parallelism": 2, "completions": 2, "template": template}});
    let cron = json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "cron"},
        "spec": {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"template": template}}}});
    for cascade in ["background", "foreground", "orphan"] {
        cluster.apply(job.clone());
        cluster.until("the job has its pods", |cluster| {
            let pods = cluster.items("pods -l app=batch");
            pods.len() == 2 && pods.iter().all(|pod| pod["status"]["phase"] == "Running")
        });
        cluster.ok(&format!("delete job job --cascade={cascade} --timeout=60s"));
        if cascade == "orphan" {
            // They stay, and nothing holds them.
            cluster.until("nobody counts them any more", |cluster| {
                let pods = cluster.items("pods -l app=batch");
                let free = |pod: &Value| {
                    pod["metadata"]["finalizers"].is_null() && pod["metadata"]["ownerReferences"].is_null()
                };
                pods.len() == 2 && pods.iter().all(free)
            });
            cluster.ok("delete pods -l app=batch --timeout=60s");
        }
        cluster.until("no pod is left", |cluster| cluster.items("pods -l app=batch").is_empty());
    }
    for cascade in ["background", "foreground", "orphan"] {
        cluster.apply(cron.clone());
        cluster.ok("create job --from=cronjob/cron made");
        cluster.until("the job has its pod", |cluster| cluster.items("pods -l app=batch").len() == 1);
        cluster.ok(&format!("delete cronjob cron --cascade={cascade} --timeout=60s"));
        if cascade == "orphan" {
            assert_eq!(cluster.names("jobs"), ["made"]);
            cluster.ok("delete job made --timeout=60s");
        }
        cluster.until("all has gone", |cluster| {
            cluster.names("jobs").is_empty() && cluster.items("pods -l app=batch").is_empty()
        });
    }
}

#[test]
fn a_namespace_ends_whatever_is_in_it() {
    let cluster = Cluster::start(&[], 2);
    // A foreign API server that is not there must not keep namespaces from ending for good.
    cluster.apply(json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": "v1.broken.example.com"},
        "spec": {"group": "broken.example.com", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 100,
            "insecureSkipTLSVerify": true, "service": {"name": "nobody", "namespace": "default"}}}));
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    cluster.apply(json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}]}}));
    cluster.ok("wait --for=condition=Established crd/things.example.com");
    cluster.ok("create namespace full");
    cluster.until("its account", |cluster| cluster.names("serviceaccounts -n full").contains(&"default".to_owned()));
    let labels = json!({"app": "x"});
    let template = json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "demo:1"}]}});
    let selector = json!({"matchLabels": labels});
    let mut once = template.clone();
    once["spec"]["restartPolicy"] = "Never".into();
    let apps = |kind: &str, spec: Value| json!({"apiVersion": "apps/v1", "kind": kind, "spec": spec});
    let objects = [
        apps("Deployment", json!({"replicas": 3, "selector": selector, "template": template})),
        apps(
            "ReplicaSet",
            json!({"replicas": 2, "selector": {"matchLabels": {"app": "y"}},
            "template": {"metadata": {"labels": {"app": "y"}}, "spec": template["spec"]}}),
        ),
        apps("StatefulSet", json!({"replicas": 2, "serviceName": "x", "selector": selector, "template": template})),
        apps("DaemonSet", json!({"selector": selector, "template": template})),
        json!({"apiVersion": "batch/v1", "kind": "Job", "spec": {"parallelism": 2, "template": once}}),
        json!({"apiVersion": "batch/v1", "kind": "CronJob",
            "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": once}}}}),
        json!({"apiVersion": "v1", "kind": "Service", "spec": {"ports": [{"port": 80}], "selector": labels}}),
        json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}),
        json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "spec": {"minAvailable": 99, "selector": selector}}),
        json!({"apiVersion": "v1", "kind": "ResourceQuota", "spec": {"hard": {"pods": "50"}}}),
        json!({"apiVersion": "example.com/v1", "kind": "Thing"}),
    ];
    for mut object in objects {
        object["metadata"] = json!({"name": "x", "namespace": "full"});
        cluster.apply(object);
    }
    let held = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "held", "namespace": "full", "finalizers": ["example.com/hold"]}});
    cluster.apply(held);
    cluster.until("pods run", |cluster| {
        cluster.items("pods -n full").iter().filter(|pod| pod["status"]["phase"] == "Running").count() >= 9
    });
    cluster.until("the foreign server is missed", |cluster| {
        cluster.ok("get apiservice v1.broken.example.com").contains("False (ServiceNotFound)")
    });
    cluster.ok("delete namespace full --wait=false");
    cluster.until("only the held one is left", |cluster| {
        let conditions = cluster.get("namespace full")["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let said = |kind: &str, text: &str| {
            conditions
                .iter()
                .any(|one| one["type"] == kind && one["message"].as_str().is_some_and(|all| all.contains(text)))
        };
        said(
            "NamespaceDeletionDiscoveryFailure",
            "broken.example.com/v1: stale GroupVersion discovery: broken.example.com/v1",
        ) && said("NamespaceContentRemaining", "Some resources are remaining: configmaps. has 1 resource instances")
            && said(
                "NamespaceFinalizersRemaining",
                "Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances",
            )
    });
    assert!(cluster.items("pods -n full").is_empty());
    let said = cluster.kubectl.fails(&["create", "configmap", "late", "-n", "full"]);
    assert!(said.contains("because it is being terminated"), "{said}");
    cluster.kubectl.ok(&[
        "patch",
        "configmap",
        "held",
        "-n",
        "full",
        "--type=merge",
        "-p",
        r#"{"metadata":{"finalizers":null}}"#,
    ]);
    cluster.ok("wait --for=delete namespace/full --timeout=60s");
}
