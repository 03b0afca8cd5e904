//! Machines become nodes with a token, stay nodes through restarts of either side, and are refused where they should be.

use std::sync::Arc;
use std::time::{Duration, Instant};

use testkit::{Agent, Cluster, Machine, Place, Server};

const PATIENCE: Duration = Duration::from_secs(90);

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// `node-1=True node-2=Unknown`
fn readiness(server: &Server) -> String {
    let path = r#"{range .items[*]}{.metadata.name}={.status.conditions[?(@.type=="Ready")].status} {end}"#;
    server.kubectl().ok(&["get", "nodes", "-o", &format!("jsonpath={path}")]).trim().to_owned()
}

#[test]
fn nodes_join_run_pods_and_come_back() {
    let mut cluster = Cluster::start(2, 1, &[]).unwrap();
    eventually("both nodes are ready", || readiness(&cluster.server) == "node-1=True node-2=True");
    let kubectl = cluster.server.kubectl();
    let pod = r#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "far"}, "spec": {"nodeName": "node-2",
        "containers": [{"name": "main", "image": "knarr.dev/demo", "imagePullPolicy": "IfNotPresent", "args": ["sleep", "infinity"]}]}}"#;
    eventually("the account of pods is there", || {
        kubectl.run(&["get", "serviceaccount", "default"]).unwrap().status.success()
    });
    kubectl.ok_with(&["create", "-f", "-"], pod);
    kubectl.ok(&["wait", "--for=condition=Ready", "pod/far", "--timeout=90s"]);
    // Its kubelet shows a certificate of the cluster, for its own address.
    assert!(kubectl.ok(&["exec", "far", "--", "env"]).contains("KUBERNETES_SERVICE_HOST"));
    let address =
        kubectl.ok(&["get", "node", "node-2", "-o", "jsonpath={.status.addresses[?(@.type=='InternalIP')].address}"]);
    assert_eq!(address, cluster.machine(2).address());
    let id = kubectl.ok(&["get", "pod", "far", "-o", "jsonpath={.status.containerStatuses[0].containerID}"]);

    // Started again it needs neither server nor token, and keeps its certificate and its containers.
    let certificate = cluster.agents[0].data_dir().join("agent/client-kubelet.crt");
    let before = std::fs::read(&certificate).unwrap();
    cluster.agents[0].set_arguments(Vec::new());
    cluster.agents[0].restart().unwrap();
    assert_eq!(std::fs::read(&certificate).unwrap(), before);
    eventually("the node is ready again", || readiness(&cluster.server) == "node-1=True node-2=True");
    assert_eq!(kubectl.ok(&["get", "pod", "far", "-o", "jsonpath={.status.containerStatuses[0].containerID}"]), id);

    // The server goes and comes back; the agent finds it again by itself.
    cluster.server.restart().unwrap();
    kubectl.ok(&["annotate", "pod", "far", "seen=1"]);
    kubectl.ok_with(&["create", "-f", "-"], &pod.replace(r#""far""#, r#""later""#));
    kubectl.ok(&["wait", "--for=condition=Ready", "pod/later", "--timeout=90s"]);
    assert_eq!(kubectl.ok(&["get", "pod", "far", "-o", "jsonpath={.status.containerStatuses[0].restartCount}"]), "0");
}

#[test]
fn a_wrong_token_or_server_is_refused_with_a_reason() {
    let cluster = Cluster::start(1, 1, &[]).unwrap();
    let other = Server::start_api(&[]).unwrap();
    let machine = Arc::new(Machine::start_on(&cluster.hub, Place { link: 0, host: 9 }).unwrap());
    let url = cluster.server.url.replace("127.0.0.1", &cluster.server.machine().address());
    let attempt = |token: &str| {
        let arguments = ["--server", &url, "--token", token].map(str::to_owned).to_vec();
        Agent::start(machine.clone(), "node-9", arguments).err().expect("it is refused").to_string()
    };
    let right = std::fs::read_to_string(cluster.server.data_dir().join("server/node-token")).unwrap();
    let foreign = std::fs::read_to_string(other.data_dir().join("server/node-token")).unwrap();
    assert!(attempt(foreign.trim()).contains("is not the cluster of this token"));
    let (pin, _) = right.split_once("::").unwrap();
    let refused = attempt(&format!("{pin}::abcdef.0123456789abcdef"));
    assert!(refused.contains("Unauthorized"), "{refused}");
    assert!(attempt("abcdef.0123456789abcdef").contains("is unknown to"));
    assert!(attempt("no.token").contains("`knarr token create`"));
    assert_eq!(readiness(&cluster.server).split('=').next(), Some("node-1"));
}

#[test]
fn tokens_are_made_listed_and_ended() {
    let cluster = Cluster::start(1, 1, &[]).unwrap();
    let token = |arguments: &[&str]| {
        let mut command = cluster.server.machine().command(testkit::server::binary().unwrap());
        command.arg("token").args(arguments).arg("--data-dir").arg(cluster.server.data_dir());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    // The line that is printed is the one to type.
    let line = token(&["create", "--ttl", "1h", "--description", "for the test"]);
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(words[..3], ["knarr", "agent", "--server"], "{line}");
    let machine = Arc::new(Machine::start_on(&cluster.hub, Place { link: 0, host: 2 }).unwrap());
    let arguments = words[2..].iter().map(|word| word.to_string()).collect();
    let _agent = Agent::start(machine, "node-2", arguments).unwrap();
    eventually("the node is ready", || readiness(&cluster.server) == "node-1=True node-2=True");
    assert!(token(&["list"]).contains("for the test"));
    let secret = words[5];
    token(&["delete", secret]);
    assert!(!token(&["list"]).contains("for the test"));
    // One without its pin proves the server by the signature instead.
    let plain = token(&["create", "--quiet"]);
    let plain = plain.trim().split_once("::").unwrap().1.to_owned();
    let machine = Arc::new(Machine::start_on(&cluster.hub, Place { link: 0, host: 3 }).unwrap());
    let url = words[3].to_owned();
    let joined = || {
        Agent::start(machine.clone(), "node-3", vec!["--server".into(), url.clone(), "--token".into(), plain.clone()])
    };
    // The signature is there a moment after the token.
    let mut agent = None;
    eventually("node-3 joins", || joined().map(|joined| agent = Some(joined)).is_ok());
}

#[test]
fn a_further_server_gets_the_clusters_keys_with_the_token_of_servers() {
    let etcd = testkit::Etcd::start().unwrap().expect("etcd is installed: run `make tools`");
    let arguments = ["--etcd-servers", &etcd.endpoint, "--token", "a text of our own"].map(str::to_owned).to_vec();
    let first = Server::start_with(testkit::Options { arguments, machine: None }).unwrap();
    let join = |token: String| {
        let arguments = vec!["--server".to_owned(), first.url.clone(), "--token".into(), token];
        Server::start_with(testkit::Options { arguments, machine: None })
    };
    // That of nodes opens nothing.
    let of_nodes = std::fs::read_to_string(first.data_dir().join("server/node-token")).unwrap();
    let refused = join(of_nodes).err().expect("it is refused").to_string();
    assert!(refused.contains("the token must be that of servers"), "{refused}");
    let second = join("a text of our own".into()).unwrap();
    let read = |server: &Server, name: &str| std::fs::read(server.data_dir().join(name)).unwrap();
    for name in ["tls/ca.key", "tls/sa.key", "tls/front-proxy-ca.key", "server/token"] {
        assert_eq!(read(&first, name), read(&second, name), "{name}");
    }
    // One cluster: what one signs the other believes, and what one writes the other knows.
    first.kubectl().ok(&["create", "configmap", "shared"]);
    let kubectl = testkit::Kubectl::new(&testkit::kubectl::programs()[0], &first.kubeconfig());
    let through_second = kubectl.ok(&["--server", &second.url, "get", "configmap", "shared", "-o", "name"]);
    assert_eq!(through_second.trim(), "configmap/shared");
}
