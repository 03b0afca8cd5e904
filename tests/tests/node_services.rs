//! Services on a real node with real kubectl: reached from pods, from the node and from outside, under restarts, damage and
//! rolling updates.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use testkit::machine::connect_within;
use testkit::{Kubectl, Server};

/// A state that is not reached in this time is never reached.
const LONG: Duration = Duration::from_secs(60);
const NODE: &str = "172.29.0.1";
const CLIENT: &str = "172.29.0.9";

/// Three web servers that say when they are ready, and go on serving for a while after they were asked to end.
const WEB: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  strategy: {rollingUpdate: {maxUnavailable: 0, maxSurge: 1}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 10
      containers:
      - name: web
        image: knarr.dev/demo:latest
        imagePullPolicy: Never
        command: [serve]
        ports: [{name: http, containerPort: 8080}]
        readinessProbe: {httpGet: {path: /readyz, port: http}, periodSeconds: 1}
        lifecycle: {preStop: {sleep: {seconds: 2}}}
---
apiVersion: v1
kind: Pod
metadata: {name: client}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: "knarr.dev/demo:latest", imagePullPolicy: Never, command: [sleep, infinity]}]
"#;

struct Cluster {
    server: Server,
    kubectl: Kubectl,
    /// A machine on the node's link, with an address of its own.
    outside: PathBuf,
}

impl Cluster {
    fn start() -> Cluster {
        Cluster::start_with(&[])
    }

    fn start_with(arguments: &[&str]) -> Cluster {
        let server = Server::start_node(arguments).unwrap();
        let kubectl = server.kubectl();
        let script = format!(
            "unshare --net sleep infinity >/dev/null 2>&1 &
             until ! test /proc/$!/ns/net -ef /proc/self/ns/net; do sleep 0.02; done
             ip link add client0 type veth peer name eth0 netns $! && ip link set client0 master uplink0 up &&
             nsenter --net=/proc/$!/ns/net ip address add {CLIENT}/24 dev eth0 &&
             nsenter --net=/proc/$!/ns/net ip link set eth0 up && echo $!"
        );
        let inner = server.machine().shell(&script).unwrap();
        let outside = server.machine().path(format!("/proc/{}/ns/net", inner.trim()));
        kubectl.ok_with(&["apply", "-f", "-"], WEB);
        let cluster = Cluster { server, kubectl, outside };
        cluster.until(&["get", "deployment", "web", "-o", "jsonpath={.status.readyReplicas}"], |ready| ready == "3");
        cluster.until(&["get", "pod", "client", "-o", "jsonpath={.status.phase}"], |phase| phase == "Running");
        cluster
    }

    fn until(&self, arguments: &[&str], wanted: impl Fn(&str) -> bool) -> String {
        let deadline = Instant::now() + LONG;
        loop {
            let output = self.kubectl.run(arguments).expect("kubectl runs");
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            if wanted(&said) {
                return said;
            }
            assert!(Instant::now() < deadline, "{arguments:?} says {said:?}\n{}", self.log());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.server.data_dir().join("log")).unwrap_or_default()
    }

    fn field(&self, service: &str, path: &str) -> String {
        self.kubectl.ok(&["get", "service", service, "-o", &format!("jsonpath={{{path}}}")])
    }

    /// What the web server answers the client's pod.
    fn asked_by_pod(&self, url: &str) -> String {
        self.kubectl.ok(&["exec", "client", "--", "get", url])
    }

    fn asked_by_node(&self, address: &str) -> anyhow::Result<String> {
        get(&self.server.machine().network(), address)
    }

    fn asked_by_outsider(&self, address: &str) -> anyhow::Result<String> {
        get(&self.outside, address)
    }

    fn until_answered(&self, ask: impl Fn() -> anyhow::Result<String>) -> String {
        let deadline = Instant::now() + LONG;
        loop {
            match ask() {
                Ok(answer) => return answer,
                Err(error) => assert!(Instant::now() < deadline, "{error:#}\n{}", self.log()),
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

fn get(network: &Path, address: &str) -> anyhow::Result<String> {
    get_path(network, address, "/")
}

fn get_path(network: &Path, address: &str, path: &str) -> anyhow::Result<String> {
    let mut stream = connect_within(network, address)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: web\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    anyhow::ensure!(text.starts_with("HTTP/1.1 200 "), "{text:?}");
    Ok(text)
}

/// The value of a line of the web server's answer.
fn line<'a>(answer: &'a str, name: &str) -> &'a str {
    let found = answer.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    found.unwrap_or_else(|| panic!("no {name} in {answer}"))
}

fn remote(answer: &str) -> &str {
    line(answer, "remote").rsplit_once(':').expect("an address with a port").0
}

#[test]
fn exposed_deployments_are_reached_from_everywhere() {
    let cluster = Cluster::start();
    let kubectl = &cluster.kubectl;
    kubectl.ok(&["expose", "deployment", "web", "--port=80", "--target-port=http"]);
    kubectl.ok(&["expose", "deployment", "web", "--name=ports", "--port=80", "--target-port=8080", "--type=NodePort"]);
    let front = ["expose", "deployment", "web", "--name=front", "--port=8088", "--target-port=http"];
    kubectl.ok(&[&front[..], &["--type=LoadBalancer", "--overrides={\"spec\":{\"externalTrafficPolicy\":\"Local\"}}"]]
        .concat());

    let address = format!("{}:80", cluster.field("web", ".spec.clusterIP"));
    cluster.until_answered(|| cluster.asked_by_node(&address));
    let pod_address = kubectl.ok(&["get", "pod", "client", "-o", "jsonpath={.status.podIP}"]);
    let mut pods: Vec<String> = Vec::new();
    for _ in 0..30 {
        let answer = cluster.asked_by_pod(&format!("http://{address}/"));
        assert_eq!(remote(&answer), pod_address, "the pod's own address is seen");
        pods.push(line(&answer, "pod").to_owned());
    }
    pods.sort();
    pods.dedup();
    assert_eq!(pods.len(), 3, "each takes its share: {pods:?}");

    let port: u16 = cluster.field("ports", ".spec.ports[0].nodePort").parse().unwrap();
    assert!((30000..=32767).contains(&port), "{port}");
    let by_node = format!("{NODE}:{port}");
    assert!(
        remote(&cluster.until_answered(|| cluster.asked_by_outsider(&by_node))).starts_with("10.42."),
        "masqueraded"
    );
    assert!(cluster.asked_by_node(&by_node).is_ok());
    cluster.asked_by_pod(&format!("http://{by_node}/"));

    let ingress = ["get", "service", "front", "-o", "jsonpath={.status.loadBalancer.ingress[*].ip}"];
    cluster.until(&ingress, |addresses| addresses == NODE);
    let balanced = format!("{NODE}:8088");
    let answer = cluster.until_answered(|| cluster.asked_by_outsider(&balanced));
    assert_eq!(remote(&answer), CLIENT, "the client's address is preserved");
    let check = format!("{NODE}:{}", cluster.field("front", ".spec.healthCheckNodePort"));
    let health = cluster.asked_by_outsider(&check).unwrap();
    assert!(health.contains("\"localEndpoints\": 3"), "{health}");

    // The API server itself, as pods reach it.
    connect_within(&cluster.server.machine().network(), "10.43.0.1:443").unwrap();
    kubectl.ok(&["exec", "client", "--", "connect", "10.43.0.1:443"]);

    // Without endpoints it is refused at once.
    kubectl.ok(&["scale", "deployment", "web", "--replicas=0"]);
    let deadline = Instant::now() + LONG;
    while cluster.asked_by_node(&address).is_ok() || cluster.asked_by_outsider(&by_node).is_ok() {
        assert!(Instant::now() < deadline, "someone still answers");
        std::thread::sleep(Duration::from_millis(50));
    }
    let refused = cluster.asked_by_outsider(&by_node).unwrap_err();
    assert!(format!("{refused:#}").contains("refused"), "{refused:#}");
    kubectl.ok(&["delete", "service", "web", "ports", "front", "--timeout=30s"]);
}

#[test]
fn packets_flow_while_the_server_restarts_and_damage_is_repaired() {
    let mut cluster = Cluster::start();
    cluster.kubectl.ok(&["expose", "deployment", "web", "--port=80", "--target-port=http"]);
    let address = format!("{}:80", cluster.field("web", ".spec.clusterIP"));
    cluster.until_answered(|| cluster.asked_by_node(&address));
    // What is kept open over the restart goes on afterwards.
    let mut kept = connect_within(&cluster.server.machine().network(), &address).unwrap();
    kept.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut ask_kept = || {
        write!(kept, "GET /healthz HTTP/1.1\r\nHost: web\r\n\r\n").unwrap();
        let mut buffer = [0; 512];
        let length = kept.read(&mut buffer).unwrap();
        assert!(buffer[..length].starts_with(b"HTTP/1.1 200 "));
    };
    ask_kept();
    cluster.server.kill().unwrap();
    ask_kept();
    for _ in 0..20 {
        cluster.asked_by_node(&address).unwrap();
    }
    cluster.server.restart().unwrap();
    ask_kept();
    cluster.until_answered(|| cluster.asked_by_node(&address));
    let deadline = Instant::now() + LONG;
    while !cluster
        .log()
        .lines()
        .any(|line| line.contains("installed Service rules") && line.contains("tables=0 chains=0 elements=0"))
    {
        assert!(Instant::now() < deadline, "the rules were not taken over as they were\n{}", cluster.log());
        std::thread::sleep(Duration::from_millis(50));
    }
    let began = Instant::now();
    cluster.server.machine().shell("nft flush table ip knarr-proxy").unwrap();
    cluster.until_answered(|| cluster.asked_by_node(&address));
    assert!(began.elapsed() < Duration::from_secs(20), "repaired after {:?}", began.elapsed());
    assert!(cluster.log().contains("repaired Service rules that another program changed"));
    ask_kept();
}

#[test]
fn the_proxy_runs_alone_against_any_api() {
    let cluster = Cluster::start_with(&["--disable=kube-proxy"]);
    cluster.kubectl.ok(&["expose", "deployment", "web", "--port=80", "--target-port=http"]);
    let address = format!("{}:80", cluster.field("web", ".spec.clusterIP"));
    let refused = cluster.asked_by_node(&address).unwrap_err();
    assert!(format!("{refused:#}").contains("refused"), "without a proxy nobody is there: {refused:#}");
    let log = std::fs::File::create(cluster.server.data_dir().join("proxy.log")).unwrap();
    let program = testkit::server::binary().unwrap();
    let mut command = cluster.server.machine().command(&program);
    command.args(["kube-proxy", "--hostname-override=node-1", "--cluster-cidr=10.42.0.0/16", "--kubeconfig"]);
    let proxy =
        command.arg(cluster.server.kubeconfig()).stderr(log).stdin(std::process::Stdio::null()).spawn().unwrap();
    let mut proxy = testkit::machine::Inside::new(proxy).unwrap();
    cluster.until_answered(|| cluster.asked_by_node(&address));
    let health = get_path(&cluster.server.machine().network(), "127.0.0.1:10256", "/healthz").unwrap();
    assert!(health.contains("\"nodeEligible\": true"), "{health}");
    let metrics = get_path(&cluster.server.machine().network(), "127.0.0.1:10249", "/metrics").unwrap();
    assert!(metrics.contains("kubeproxy_sync_proxy_rules_service_changes_total"), "{metrics}");
    proxy.signal(rustix::process::Signal::TERM).unwrap();
    assert!(proxy.wait(Duration::from_secs(20)).unwrap().is_some_and(|status| status.success()), "it ends when asked");
    cluster.asked_by_node(&address).expect("the rules stay");
}

#[test]
fn a_rolling_update_behind_a_service_loses_no_request() {
    let cluster = Cluster::start();
    cluster.kubectl.ok(&["expose", "deployment", "web", "--port=80", "--target-port=http"]);
    let address = format!("{}:80", cluster.field("web", ".spec.clusterIP"));
    cluster.until_answered(|| cluster.asked_by_node(&address));
    let (done, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let callers: Vec<_> = (0..4)
        .map(|_| {
            let (done, count) = (done.clone(), count.clone());
            let (network, address) = (cluster.server.machine().network(), address.clone());
            std::thread::spawn(move || {
                let mut failed = Vec::new();
                while !done.load(Ordering::Relaxed) {
                    match get(&network, &address) {
                        Ok(_) => _ = count.fetch_add(1, Ordering::Relaxed),
                        Err(error) => failed.push(format!("{error:#}")),
                    }
                    std::thread::sleep(Duration::from_millis(2));
                }
                failed
            })
        })
        .collect();
    cluster.kubectl.ok(&["set", "env", "deployment/web", "ROUND=2"]);
    cluster.kubectl.ok(&["rollout", "status", "deployment/web", "--timeout=60s"]);
    // The old ones are gone too.
    cluster.until(&["get", "pods", "-l", "app=web", "--no-headers"], |pods| pods.lines().count() == 3);
    done.store(true, Ordering::Relaxed);
    let failed: Vec<String> = callers.into_iter().flat_map(|caller| caller.join().unwrap()).collect();
    let count = count.load(Ordering::Relaxed);
    assert!(failed.is_empty(), "{} of {count} failed: {:?}", failed.len(), &failed[..failed.len().min(5)]);
    assert!(count > 100, "only {count} requests were made");
}

/// Where the labels count: that of a headless Service's slices on slices, that of another proxy on Services.
#[test]
fn what_is_not_for_this_proxy_and_what_is_external() {
    let cluster = Cluster::start();
    let pod = ["get", "pods", "-l", "app=web", "-o", "jsonpath={.items[0].status.podIP}"];
    let endpoint = cluster.kubectl.ok(&pod);
    let objects = format!(
        r#"
apiVersion: v1
kind: Service
metadata: {{name: custom}}
spec: {{ports: [{{name: http, port: 80}}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: custom-1, labels: {{kubernetes.io/service-name: custom}}}}
addressType: IPv4
endpoints: [{{addresses: [{endpoint}], conditions: {{ready: true}}}}]
ports: [{{name: http, port: 8080, protocol: TCP}}]
---
apiVersion: v1
kind: Service
metadata: {{name: external}}
spec: {{selector: {{app: web}}, externalIPs: [203.0.113.5], ports: [{{port: 80, targetPort: http}}]}}
"#
    );
    cluster.kubectl.ok_with(&["apply", "-f", "-"], &objects);
    let address = format!("{}:80", cluster.field("custom", ".spec.clusterIP"));
    let served = || cluster.until_answered(|| cluster.asked_by_node(&address));
    let silent = |why: &str| {
        let deadline = Instant::now() + LONG;
        while cluster.asked_by_node(&address).is_ok() {
            assert!(Instant::now() < deadline, "{why}: it is still answered");
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    served();
    cluster.kubectl.ok(&["label", "endpointslice", "custom-1", "service.kubernetes.io/headless="]);
    silent("a slice for DNS alone");
    cluster.kubectl.ok(&["label", "endpointslice", "custom-1", "service.kubernetes.io/headless-"]);
    served();
    cluster.kubectl.ok(&["label", "service", "custom", "service.kubernetes.io/headless="]);
    served();
    cluster.kubectl.ok(&["label", "service", "custom", "service.kubernetes.io/service-proxy-name=other"]);
    silent("a Service of another proxy");
    cluster.kubectl.ok(&["label", "service", "custom", "service.kubernetes.io/service-proxy-name-"]);
    served();

    // From a pod: the node of this test has no route to the world, so it would not even try.
    let ask = ["exec", "client", "--", "get", "http://203.0.113.5:80/"];
    cluster.until(&ask, |answer| answer.contains("pod: web-"));
}
