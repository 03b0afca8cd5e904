//! Attacks with a node's certificate: it reads what its own pods use, and of other nodes' pods what the network needs.

#[path = "support/several_nodes.rs"]
mod several_nodes;

use std::process::Output;

use serde_json::{Value, json};
use several_nodes::{eventually, run_pods, seen, server_pod, start};
use testkit::Cluster;
use testkit::attack::held;

const SECRET: &str = "hunter2-of-the-test";

/// Asks from the machine of the second node, with its certificate.
struct Node<'a> {
    cluster: &'a Cluster,
    folder: tempfile::TempDir,
}

impl Node<'_> {
    fn new(cluster: &Cluster) -> Node<'_> {
        let folder = tempfile::tempdir().unwrap();
        let agent = cluster.agents[0].data_dir().join("agent");
        let url = cluster.server.url.replace("127.0.0.1", &cluster.server.machine().address());
        let file = |name: &str| agent.join(name);
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": url, "certificate-authority": file("ca.crt")}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "users": [{"name": "u", "user": {"client-certificate": file("client-kubelet.crt"), "client-key": file("client-kubelet.key")}}],
        });
        std::fs::write(folder.path().join("kubeconfig"), config.to_string()).unwrap();
        Node { cluster, folder }
    }

    fn get(&self, path: &str) -> Output {
        let mut command = self.cluster.machine(2).command(testkit::server::binary().unwrap());
        command.arg("kubectl").arg("--kubeconfig").arg(self.folder.path().join("kubeconfig"));
        command.args(["get", "--raw", path]).output().unwrap()
    }

    fn read(&self, path: &str) -> Value {
        let output = self.get(path);
        assert!(output.status.success(), "{path}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Why it was refused.
    fn refused(&self, path: &str) -> String {
        let output = self.get(path);
        let seen = String::from_utf8_lossy(&output.stdout);
        held(&format!("GET {path} by another node"), !output.status.success(), seen);
        String::from_utf8_lossy(&output.stderr).into_owned()
    }
}

fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().unwrap();
    items.iter().map(|item| item["metadata"]["name"].as_str().unwrap()).collect()
}

#[test]
fn a_node_reads_no_pods_of_others_and_policies_hold() {
    let cluster = start(2, 1, &[]);
    let kubectl = cluster.server.kubectl();
    let mut pods = [server_pod("foreign", 1), server_pod("own", 2)];
    for pod in &mut pods {
        pod["spec"]["containers"][0]["env"] = json!([{"name": "PASSWORD", "value": SECRET}]);
        pod["metadata"]["annotations"] = json!({"note": SECRET});
    }
    let addresses = run_pods(&kubectl, &pods);
    let node = Node::new(&cluster);

    let only = "can only list/watch pods with spec.nodeName field selector";
    let escaped = "fieldSelector=metadata.name!%3Da%5C%2Cspec.nodeName%3Dnode-2";
    for path in [
        "/api/v1/pods".to_owned(),
        "/api/v1/namespaces/default/pods".to_owned(),
        "/api/v1/pods?watch=true&timeoutSeconds=1".to_owned(),
        "/api/v1/watch/pods".to_owned(),
        "/api/v1/pods?fieldSelector=spec.nodeName%3Dnode-1".to_owned(),
        "/api/v1/pods?fieldSelector=spec.nodeName!%3Dnode-2".to_owned(),
        format!("/api/v1/pods?{escaped}"),
    ] {
        let said = node.refused(&path);
        assert!(said.contains(only), "{path}: {said}");
    }
    let unrelated = "no relationship found between node 'node-2' and this object";
    let said = node.refused("/api/v1/namespaces/default/pods/foreign");
    assert!(said.contains(unrelated), "{said}");
    assert_eq!(node.read("/api/v1/namespaces/default/pods/own")["metadata"]["name"], "own");
    let own = node.read("/api/v1/pods?fieldSelector=spec.nodeName%3Dnode-2");
    assert!(names(&own).contains(&"own") && !names(&own).contains(&"foreign"), "{:?}", names(&own));
    let said = node.refused("/api/v1/nodes");
    assert!(said.contains("node 'node-2' cannot read all nodes, only its own Node object"), "{said}");
    let said = node.refused("/api/v1/nodes/node-1");
    assert!(said.contains("node 'node-2' cannot read 'node-1', only its own Node object"), "{said}");
    node.read("/api/v1/nodes/node-2");
    let slices = node.refused("/apis/resource.k8s.io/v1/resourceslices");
    assert!(
        slices.contains("can only list/watch/deletecollection resourceslices with nodeName field selector"),
        "{slices}"
    );

    // What the network needs of them, it sees: nothing else, by no verb and in no form.
    let reduced = node.read("/apis/network.knarr.dev/v1/podaddresses");
    assert!(names(&reduced).contains(&"foreign"), "{reduced}");
    held("environment of others in their addresses", !reduced.to_string().contains(SECRET), &reduced);
    let foreign = reduced["items"].as_array().unwrap().iter().find(|pod| pod["metadata"]["name"] == "foreign").unwrap();
    assert_eq!(foreign["status"]["podIP"], addresses["foreign"].as_str());
    let events = node.get("/apis/network.knarr.dev/v1/podaddresses?watch=true&timeoutSeconds=1");
    let events = String::from_utf8(events.stdout).unwrap();
    held("environment of others in a watch", events.contains("foreign") && !events.contains(SECRET), &events);
    node.refused("/apis/network.knarr.dev/v1/namespaces/default/podaddresses/foreign");
    // Nobody comes across them by looking for all there is.
    assert!(!kubectl.ok(&["api-resources"]).contains("podaddresses"));
    let pod = json!({"apiVersion": "network.knarr.dev/v1", "kind": "Pod", "metadata": {"name": "x"}}).to_string();
    let made = kubectl
        .run_with(&["create", "--raw", "/apis/network.knarr.dev/v1/namespaces/default/podaddresses", "-f", "-"], &pod);
    held("pods created as addresses", !made.unwrap().status.success(), "created");

    // The agent's rules know the pods of the other node by it.
    let policy = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "allow"},
        "spec": {"podSelector": {"matchLabels": {"app": "own"}},
            "ingress": [{"from": [{"podSelector": {"matchLabels": {"trusted": "yes"}}}]}]},
    });
    kubectl.ok_with(&["apply", "-f", "-"], &policy.to_string());
    let reaches = || seen(&kubectl, "foreign", &addresses["own"], 8080).is_some();
    eventually("the policy holds", || !reaches());
    kubectl.ok(&["label", "pod", "foreign", "trusted=yes"]);
    eventually("the label of a pod of another node counts", reaches);
}
