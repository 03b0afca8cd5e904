//! The network left to third-party CNI plugins: Debian's.

#[path = "support/several_nodes.rs"]
mod several_nodes;

use several_nodes::{eventually, run_pods, seen, server_pod};
use testkit::Server;

#[test]
fn pods_are_connected_by_debians_plugins() {
    let folder = tempfile::tempdir().unwrap();
    let (configurations, claims) = (folder.path().join("net.d"), folder.path().join("claims"));
    std::fs::create_dir_all(&configurations).unwrap();
    let conf_dir = format!("--cni-conf-dir={}", configurations.display());
    let server =
        Server::start_node(&["--network-backend=none", &conf_dir, "--cni-bin-dir=/nonexistent,/usr/lib/cni"]).unwrap();
    server.default_account("default").unwrap();
    let kubectl = server.kubectl();
    // Without a configuration the node says that it cannot take pods.
    let ready = |field: &str| {
        let path = format!("jsonpath={{.status.conditions[?(@.type==\"Ready\")].{field}}}");
        kubectl
            .run(&["get", "node", "node-1", "-o", &path])
            .map(|output| String::from_utf8(output.stdout).unwrap())
            .unwrap()
    };
    eventually("the node is not ready", || ready("status") == "False");
    assert!(ready("message").contains("NetworkReady=false"), "{}", ready("message"));

    let list = format!(
        r#"{{"cniVersion": "1.0.0", "name": "pods", "plugins": [{{
            "type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true,
            "ipam": {{"type": "host-local", "dataDir": "{}", "ranges": [[{{"subnet": "10.99.0.0/24"}}]],
                      "routes": [{{"dst": "0.0.0.0/0"}}]}}
        }}]}}"#,
        claims.display()
    );
    std::fs::write(configurations.join("10-pods.conflist"), list).unwrap();
    eventually("the node is ready", || ready("status") == "True");
    let addresses = run_pods(&kubectl, &[server_pod("a", 1), server_pod("b", 1)]);
    assert!(addresses.values().all(|address| address.starts_with("10.99.0.")), "{addresses:?}");
    assert_eq!(seen(&kubectl, "a", &addresses["b"], 8080).as_ref(), Some(&addresses["a"]));
    // Ours is not there.
    let links = server.machine().shell("ip -o link").unwrap();
    assert!(links.contains("cni0") && !links.contains("knarr0"), "{links}");

    kubectl.ok(&["delete", "pod", "--all", "--wait"]);
    let claimed = || {
        std::fs::read_dir(claims.join("pods"))
            .unwrap()
            .flatten()
            .filter(|file| file.file_name().to_string_lossy().starts_with("10."))
            .count()
    };
    eventually("their addresses are free again", || claimed() == 0);
}
