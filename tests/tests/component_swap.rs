//! Every part of a cluster by itself, as upstream's program of that name, put together as kubeadm does it. Each can be taken
//! away and come back; and none asks for anything that upstream's API server would not have, or not allow.

#[path = "support/by_hand.rs"]
mod by_hand;

use std::collections::{BTreeMap, BTreeSet};

use by_hand::{ByHand, NODE, PARTS, PATIENCE, PODS, eventually, testdata};
use serde_json::{Value, json};
use testkit::Kubectl;

const TOKEN: (&str, &str) = ("abcdef", "0123456789abcdef");

#[test]
fn parts_by_themselves_are_a_cluster() {
    let mut cluster = ByHand::new();
    let kubectl = cluster.kubectl();
    for part in ["etcd", "kube-apiserver"] {
        cluster.start(part);
    }
    eventually("the API server is ready", || is_ready(&kubectl));
    only_upstreams_roles(&kubectl);

    prepare(&cluster, &kubectl);
    for part in &PARTS[2..] {
        cluster.start(part);
    }
    eventually("the node asks for the certificate of its server", || approve_serving(&kubectl));
    eventually("the node is there", || kubectl.ok(&["get", "nodes", "-o", "name"]).contains(NODE));
    kubectl.ok(&["wait", "--for=condition=Ready", "node", "--all", "--timeout=90s"]);

    let app = App::start(&kubectl, &cluster);
    app.works(1);
    told_to_those_who_may_see(&cluster);
    for (part, replicas) in PARTS.iter().copied().zip(2..) {
        cluster.kill(part);
        // What runs goes on.
        app.answers();
        cluster.start(part);
        if part == "kube-apiserver" || part == "etcd" {
            eventually("the API server is ready again", || is_ready(&kubectl));
        }
        app.works(replicas);
    }
    asked_only_what_upstream_has(&cluster);
}

fn is_ready(kubectl: &Kubectl) -> bool {
    kubectl.run(&["get", "--raw", "/readyz"]).unwrap().status.success()
}

/// No role and no binding beyond upstream's, and those as upstream has them.
fn only_upstreams_roles(kubectl: &Kubectl) {
    let mut expected: BTreeMap<[String; 3], Value> = BTreeMap::new();
    for line in testdata("upstream/roles.jsonl").lines() {
        let object: Value = serde_json::from_str(line).unwrap();
        let name = ["resource", "namespace", "name"].map(|field| object[field].as_str().unwrap_or("").to_owned());
        expected.insert(name, object);
    }
    for resource in ["clusterroles", "clusterrolebindings", "roles", "rolebindings"] {
        let list: Value = serde_json::from_str(&kubectl.ok(&["get", resource, "-A", "-o", "json"])).unwrap();
        for object in list["items"].as_array().unwrap() {
            let of = |field: &str| object["metadata"][field].as_str().unwrap_or("").to_owned();
            let name = [resource.to_owned(), of("namespace"), of("name")];
            let upstream = expected.remove(&name).unwrap_or_else(|| panic!("upstream has no {name:?}"));
            for field in ["rules", "roleRef", "subjects", "aggregationRule"] {
                // The rules of roles that are put together come from a controller.
                if upstream.get(field).is_some() {
                    assert_eq!(unordered(&object[field]), unordered(&upstream[field]), "{name:?} {field}");
                }
            }
        }
    }
    assert_eq!(expected.keys().collect::<Vec<_>>(), Vec::<&[String; 3]>::new(), "upstream has these, too");
}

fn unordered(value: &Value) -> Value {
    match value {
        Value::Array(items) => {
            let mut items: Vec<Value> = items.iter().map(unordered).collect();
            items.sort_by_key(Value::to_string);
            items.into()
        }
        Value::Object(fields) => fields.iter().map(|(name, value)| (name.clone(), unordered(value))).collect(),
        other => other.clone(),
    }
}

/// What kubeadm makes besides certificates: a token, what its holders may do, and the files of the node.
fn prepare(cluster: &ByHand, kubectl: &Kubectl) {
    let (id, secret) = TOKEN;
    let bootstrappers = "system:bootstrappers:kubeadm:default-node-token";
    let bind = |name: &str, role: &str, group: &str| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group}],
        })
    };
    let requests = "system:certificates.k8s.io:certificatesigningrequests";
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [
        {
            "apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
            "metadata": {"name": format!("bootstrap-token-{id}"), "namespace": "kube-system"},
            "stringData": {
                "token-id": id, "token-secret": secret, "usage-bootstrap-authentication": "true",
                "usage-bootstrap-signing": "true", "auth-extra-groups": bootstrappers,
            },
        },
        bind("kubeadm:kubelet-bootstrap", "system:node-bootstrapper", bootstrappers),
        bind("kubeadm:node-autoapprove-bootstrap", &format!("{requests}:nodeclient"), bootstrappers),
        bind("kubeadm:node-autoapprove-certificate-rotation", &format!("{requests}:selfnodeclient"), "system:nodes"),
    ]});
    kubectl.ok_with(&["apply", "-f", "-"], &list.to_string());
    cluster.write("bootstrap-kubelet.conf", &cluster.kubeconfig(&format!("token: {id}.{secret}")));
    let kubelet = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": false}, "webhook": {"enabled": true, "cacheTTL": "0s"},
            "x509": {"clientCAFile": cluster.path("pki/ca.crt")},
        },
        "authorization": {"mode": "Webhook"}, "cgroupDriver": "systemd", "clusterDNS": ["10.96.0.10"],
        "clusterDomain": "cluster.local", "rotateCertificates": true, "serverTLSBootstrap": true,
        "staticPodPath": cluster.path("manifests"), "evictionHard": {"memory.available": "10Mi"},
        "nodeStatusUpdateFrequency": "0s", "runtimeRequestTimeout": "0s",
    });
    cluster.write("kubelet.yaml", &kubelet.to_string());
    let proxy = json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration",
        "bindAddress": "0.0.0.0", "clientConnection": {"kubeconfig": cluster.path("proxy.conf")}, "clusterCIDR": PODS,
        "mode": "",
    });
    cluster.write("proxy.yaml", &proxy.to_string());
}

/// Upstream leaves certificates of kubelets' servers to an administrator.
fn approve_serving(kubectl: &Kubectl) -> bool {
    let columns = "-o=jsonpath={range .items[*]}{.metadata.name} {.spec.signerName}{\"\\n\"}{end}";
    let requests = kubectl.ok(&["get", "csr", columns]);
    let serving = requests.lines().filter_map(|line| line.strip_suffix(" kubernetes.io/kubelet-serving"));
    serving.inspect(|name| _ = kubectl.ok(&["certificate", "approve", name])).count() > 0
}

/// A Deployment and its Service.
struct App<'a> {
    kubectl: &'a Kubectl,
    network: std::path::PathBuf,
    address: String,
}

impl App<'_> {
    fn start<'a>(kubectl: &'a Kubectl, cluster: &ByHand) -> App<'a> {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": [
            {
                "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
                "spec": {
                    "replicas": 1, "selector": {"matchLabels": {"app": "web"}},
                    "template": {
                        "metadata": {"labels": {"app": "web"}},
                        "spec": {"terminationGracePeriodSeconds": 0, "containers": [{
                            "name": "main", "image": "knarr.dev/demo", "imagePullPolicy": "IfNotPresent",
                            "args": ["serve", "--port", "8080"], "ports": [{"containerPort": 8080}],
                        }]},
                    },
                },
            },
            {
                "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
                "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]},
            },
        ]});
        kubectl.ok_with(&["apply", "-f", "-"], &list.to_string());
        let address = kubectl.ok(&["get", "service", "web", "-o=jsonpath={.spec.clusterIP}"]);
        App { kubectl, network: cluster.machine.network(), address }
    }

    /// With every part at its work: a new pod is made, placed and run, the Service leads to it, and it can be looked into.
    fn works(&self, replicas: usize) {
        eventually("the Deployment is scaled", || {
            let count = format!("--replicas={replicas}");
            self.kubectl.run(&["scale", "deployment/web", &count]).unwrap().status.success()
        });
        self.kubectl.ok(&["rollout", "status", "deployment/web", &format!("--timeout={}s", PATIENCE.as_secs())]);
        let mut seen = BTreeSet::new();
        eventually("the Service leads to every pod", || {
            seen.extend(self.ask());
            seen.len() == replicas
        });
        let newest = "--sort-by=.metadata.creationTimestamp";
        let pods = self.kubectl.ok(&["get", "pods", newest, "-o=jsonpath={.items[*].metadata.name}"]);
        let newest = pods.split(' ').next_back().unwrap();
        assert!(seen.contains(newest), "{newest} is one of {seen:?}");
        eventually("the new pod's log is shown", || {
            let output = self.kubectl.run(&["logs", newest]).unwrap();
            output.status.success() && String::from_utf8_lossy(&output.stdout).contains("listening on")
        });
        assert_eq!(self.kubectl.ok(&["exec", newest, "--", "sh", "-c", "echo inside"]), "inside\n");
    }

    /// The Service leads to a pod.
    fn answers(&self) {
        assert!(self.ask().is_some(), "the Service answers");
    }

    /// Which pod answered.
    fn ask(&self) -> Option<String> {
        use std::io::{Read, Write};
        let address: std::net::SocketAddr = format!("{}:80", self.address).parse().unwrap();
        let timeout = std::time::Duration::from_secs(2);
        let connect = move || std::net::TcpStream::connect_timeout(&address, timeout);
        let mut stream = testkit::machine::within(&self.network, connect).ok()?;
        stream.set_read_timeout(Some(timeout)).ok()?;
        stream.write_all(b"GET / HTTP/1.1\r\nHost: web\r\nConnection: close\r\n\r\n").ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        text.lines().find_map(|line| line.strip_prefix("pod: ")).map(str::to_owned)
    }
}

/// Health is for everyone, metrics are for those whom the API server lets see them.
fn told_to_those_who_may_see(cluster: &ByHand) {
    let ask = |arguments: &str| {
        let script =
            format!("cd {} && curl -sk -o /dev/null -w '%{{http_code}}' {arguments}", cluster.path("").display());
        cluster.machine.shell(&script).unwrap()
    };
    for port in [10257, 10259] {
        assert_eq!(ask(&format!("https://127.0.0.1:{port}/healthz")), "200");
        assert_eq!(ask(&format!("https://127.0.0.1:{port}/metrics")), "403");
        let certificate =
            |user: &str| format!("--cert pki/{user}.crt --key pki/{user}.key https://127.0.0.1:{port}/metrics");
        assert_eq!(ask(&certificate("proxy")), "403");
        assert_eq!(ask(&certificate("admin")), "200");
    }
    assert_eq!(ask("http://127.0.0.1:10248/healthz"), "200");
}

/// One line of the API server's log of requests.
struct Asked {
    user: String,
    verb: String,
    uri: String,
    code: u16,
}

fn asked(line: &str) -> Option<Asked> {
    let (_, rest) = line.split_once(" HTTP ")?;
    let field = |name: &str| {
        let (_, value) = rest.split_once(&format!("{name}="))?;
        Some(value.split(' ').next()?.trim_matches('"').to_owned())
    };
    Some(Asked { user: field("user")?, verb: field("verb")?, uri: field("uri")?, code: field("code")?.parse().ok()? })
}

fn asked_only_what_upstream_has(cluster: &ByHand) {
    let resources = testdata("upstream/resources.txt");
    let verbs: BTreeMap<(&str, &str), Vec<&str>> = resources
        .lines()
        .map(|line| {
            let mut words = line.split(' ');
            ((words.next().unwrap(), words.next().unwrap()), words.collect())
        })
        .collect();
    let log = cluster.log("kube-apiserver");
    let requests: Vec<Asked> = log.lines().filter_map(asked).filter(|asked| asked.user != "kubernetes-admin").collect();
    let users: BTreeSet<&str> = requests.iter().map(|asked| asked.user.as_str()).collect();
    for user in [
        "system:kube-controller-manager",
        "system:serviceaccount:kube-system:deployment-controller",
        "system:kube-scheduler",
        "system:kube-proxy",
        &format!("system:node:{NODE}"),
        &format!("system:bootstrap:{}", TOKEN.0),
    ] {
        assert!(users.contains(user), "{user} has asked: {users:?}");
    }
    let mut strange = BTreeSet::new();
    for Asked { user, verb, uri, code } in &requests {
        let path = uri.split('?').next().unwrap_or_default();
        let known = match resource_of(path) {
            None => is_common(path),
            Some((version, resource)) => {
                verbs.get(&(version.as_str(), resource.as_str())).is_some_and(|verbs| verbs.contains(&verb.as_str()))
            }
        };
        if !known || matches!(code, 401 | 403) {
            strange.insert(format!("{user} {verb} {uri} {code}"));
        }
    }
    assert!(strange.is_empty(), "of {} requests these are not upstream's: {strange:#?}", requests.len());
}

/// What every server has besides resources.
fn is_common(path: &str) -> bool {
    let first = path.trim_start_matches('/').split('/').next().unwrap_or_default();
    let discovery = path.split('/').filter(|part| !part.is_empty()).count() <= 3;
    matches!(first, "healthz" | "readyz" | "livez" | "version" | "openapi")
        || (matches!(first, "api" | "apis") && discovery)
}

/// Version, and resource with subresource, of a path of the API; nothing for paths of other kinds.
fn resource_of(path: &str) -> Option<(String, String)> {
    let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let (version, rest) = match parts[..] {
        ["api", version, ref rest @ ..] if !rest.is_empty() => (version.to_owned(), rest),
        ["apis", group, version, ref rest @ ..] if !rest.is_empty() => (format!("{group}/{version}"), rest),
        _ => return None,
    };
    let rest = match rest {
        // A namespace itself is a resource, too.
        ["namespaces", _, "status" | "finalize"] | ["namespaces"] | ["namespaces", _] => rest,
        ["namespaces", _, below @ ..] => below,
        rest => rest,
    };
    Some(match rest {
        [resource, _, subresource, ..] => (version, format!("{resource}/{subresource}")),
        [resource, ..] => (version, (*resource).to_owned()),
        [] => return None,
    })
}
