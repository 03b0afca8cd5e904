//! `knarr check --cis` on a cluster that runs: what it says by default, and that it says so because it looked.

#[path = "support/on_node.rs"]
mod on_node;

use std::collections::BTreeMap;

use on_node::{Node, one, script, with};
use serde_json::{Value, json};

/// More than k3s passes by default.
const PASS_MIN: u64 = 82;
const LOOKS_MAX: usize = 50;

struct Answer {
    results: BTreeMap<String, (String, String)>,
    summary: Value,
}

impl Answer {
    fn of(node: &Node) -> Answer {
        let document: Value = serde_json::from_str(&ask(node, "-o json")).expect("JSON");
        let text = |check: &Value, field: &str| check[field].as_str().unwrap_or_default().to_owned();
        let checks = document["checks"].as_array().expect("checks");
        let results = checks.iter().map(|one| (text(one, "id"), (text(one, "result"), text(one, "detail")))).collect();
        Answer { results, summary: document["summary"].clone() }
    }

    fn result(&self, id: &str) -> &str {
        &self.results[id].0
    }
}

fn ask(node: &Node, output: &str) -> String {
    let program = testkit::server::binary().expect("knarr is built");
    let data = node.server.data_dir().display();
    node.server
        .machine()
        .shell(&format!("{} check --cis --data-dir {data} {output}", program.display()))
        .expect("an answer")
}

#[test]
fn a_cluster_is_judged_by_what_it_is() {
    let node = Node::start(&[]);
    let mut answer = Answer::of(&node);
    // The pod network writes its first file a moment after the node is Ready.
    for _ in 0..LOOKS_MAX {
        if answer.result("1.1.9") != "N/A" {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
        answer = Answer::of(&node);
    }
    assert_eq!(answer.result("1.1.9"), "PASS", "files of the pod network");
    let told: Vec<String> = answer
        .results
        .iter()
        .filter(|(_, (result, _))| result == "FAIL" || result == "WARN")
        .map(|(id, (result, detail))| format!("{result} {id}: {detail}"))
        .collect();
    println!("{}\n{}", answer.summary, told.join("\n"));
    assert!(answer.summary["pass"].as_u64().unwrap() >= PASS_MIN, "{}\n{told:#?}", answer.summary);
    // As upstream does by default, for clients that never read their token again.
    let failed: Vec<&String> =
        answer.results.iter().filter(|(_, (result, _))| result == "FAIL").map(|(id, _)| id).collect();
    assert_eq!(failed, ["1.2.30"], "{told:#?}");
    let text = ask(&node, "");
    assert!(text.contains(&format!("131 checks: {} PASS, 1 FAIL", answer.summary["pass"])), "{text}");

    let data = node.server.data_dir().display().to_string();
    let shell = |line: &str| node.server.machine().shell(&line.replace("DATA", &data)).expect("the shell");
    shell(
        "chmod 644 DATA/admin.kubeconfig && chmod 755 DATA/store && chown 1:1 DATA/tls/sa.key && chmod 640 DATA/tls/ca.key",
    );
    let role = json!({"metadata": {"name": "everything"}, "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]});
    node.create("/apis/rbac.authorization.k8s.io/v1/clusterroles", role);
    let binding = json!({
        "metadata": {"name": "everybody"}, "subjects": [{"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "system:authenticated"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "everything"},
    });
    node.create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding);
    let privileged = json!({"securityContext": {"privileged": true}});
    node.pod(
        "cis",
        with(one(with(script("sleep 600"), privileged)), json!({"hostPID": true, "restartPolicy": "Always"})),
    );
    node.until_ready("cis");
    let broken = Answer::of(&node);
    for id in ["1.1.11", "1.1.13", "1.1.19"] {
        assert_eq!((answer.result(id), broken.result(id)), ("PASS", "FAIL"), "{id}: {:?}", broken.results[id]);
    }
    for id in ["1.1.21", "5.1.2", "5.1.3", "5.1.4", "5.1.6", "5.1.8", "5.2.1", "5.2.2", "5.2.3", "5.2.6", "5.6.4"] {
        assert_eq!((answer.result(id), broken.result(id)), ("PASS", "WARN"), "{id}: {:?}", broken.results[id]);
    }
    // What is allowed, and by whom, is named.
    assert!(
        broken.results["5.1.2"].1.contains("Group system:authenticated (by everything)"),
        "{:?}",
        broken.results["5.1.2"]
    );
    assert!(broken.results["1.1.13"].1.contains("admin.kubeconfig (644 0:0)"), "{:?}", broken.results["1.1.13"]);
}

#[test]
fn flags_that_weaken_a_server_are_found() {
    let tokens = tempfile::NamedTempFile::new().expect("a file");
    let file = format!("--token-auth-file={}", tokens.path().display());
    let node = Node::start(&[
        &file,
        "--audit-log-path=",
        "--kubelet-insecure-tls",
        "--disable=network-policy",
        "--pod-max-pids=100",
    ]);
    let answer = Answer::of(&node);
    for id in ["1.2.2", "1.2.5", "1.2.16", "1.2.17", "1.2.18", "1.2.19"] {
        assert_eq!(answer.result(id), "FAIL", "{id}: {:?}", answer.results[id]);
    }
    assert_eq!((answer.result("5.3.1"), answer.result("4.2.13")), ("WARN", "PASS"));
}
