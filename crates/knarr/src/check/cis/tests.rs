use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde_json::{Value, json};

use super::state::{Cluster, Node, Seen, State};
use super::*;

fn mark(state: &State, id: &str) -> &'static str {
    let findings = judge(state);
    findings.iter().find(|finding| finding.check.id == id).unwrap_or_else(|| panic!("there is no {id}")).mark.name()
}

fn server(flags: &[(&str, &str)], objects: &[(&'static str, Value)]) -> State {
    let flags: BTreeMap<String, String> =
        flags.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
    let objects = objects.iter().map(|(plural, items)| (*plural, items.as_array().cloned().unwrap_or_default()));
    let cluster = Cluster { flags, objects: objects.collect(), ..Cluster::default() };
    State { data_dir: "/data".into(), cluster: Some(cluster), ..State::default() }
}

#[test]
fn every_check_of_the_benchmark_is_there_once() {
    let counts = [("1.1", 21), ("1.2", 30), ("1.3", 7), ("1.4", 2), ("2", 7), ("3.1", 3), ("3.2", 2), ("4.1", 10)];
    let more = [("4.2", 14), ("4.3", 1), ("5.1", 13), ("5.2", 12), ("5.3", 2), ("5.4", 2), ("5.5", 1), ("5.6", 4)];
    let expected: Vec<String> = counts
        .into_iter()
        .chain(more)
        .flat_map(|(section, count)| (1..=count).map(move |number| format!("{section}.{number}")))
        .collect();
    let found: Vec<&str> = checks().map(|check| check.id).collect();
    assert_eq!(found, expected);
    let titles: BTreeSet<&str> = checks().map(|check| check.title).collect();
    assert!(titles.len() > 120, "titles say which check it is");
}

#[test]
fn modes_and_owners() {
    let file = |path: &str, mode: u32, owner: (u32, u32), is_dir: bool| Seen {
        path: PathBuf::from("/data").join(path),
        mode,
        owner,
        is_dir,
    };
    let check = |files: Vec<Seen>, id: &str, expected: &str| {
        let state = State { files, ..server(&[], &[]) };
        assert_eq!(mark(&state, id), expected, "{id}");
    };
    check(vec![file("admin.kubeconfig", 0o600, (0, 0), false)], "1.1.13", "PASS");
    check(vec![file("admin.kubeconfig", 0o400, (0, 0), false)], "1.1.13", "PASS");
    check(vec![file("admin.kubeconfig", 0o640, (0, 0), false)], "1.1.13", "FAIL");
    check(vec![file("admin.kubeconfig", 0o600, (0, 7), false)], "1.1.14", "FAIL");
    check(vec![], "1.1.13", "N/A");
    check(vec![file("store", 0o700, (0, 0), true), file("store/1.log", 0o644, (0, 0), false)], "1.1.11", "PASS");
    check(vec![file("store", 0o750, (0, 0), true)], "1.1.11", "FAIL");
    check(vec![file("tls/ca.crt", 0o644, (0, 0), false), file("tls/ca.key", 0o600, (0, 0), false)], "1.1.20", "PASS");
    // What the benchmark calls manual is warned of.
    check(vec![file("tls/ca.key", 0o644, (0, 0), false)], "1.1.21", "WARN");
    check(vec![file("pod-manifests/kube-scheduler.yaml", 0o644, (0, 0), false)], "1.1.5", "FAIL");
    check(vec![], "1.1.5", "N/A");
}

#[test]
fn flags_in_use_decide() {
    let check =
        |flags: &[(&str, &str)], id: &str, expected: &str| assert_eq!(mark(&server(flags, &[]), id), expected, "{id}");
    check(&[("authorization-mode", "Node,RBAC")], "1.2.6", "PASS");
    check(&[("authorization-mode", "AlwaysAllow")], "1.2.6", "FAIL");
    check(&[("authorization-mode", "RBAC")], "1.2.7", "FAIL");
    check(&[("token-auth-file", "")], "1.2.2", "PASS");
    check(&[("token-auth-file", "/t")], "1.2.2", "FAIL");
    check(&[("audit-log-path", "/a"), ("audit-log-maxage", "29")], "1.2.17", "FAIL");
    check(&[("audit-log-path", "/a"), ("audit-log-maxage", "30")], "1.2.17", "PASS");
    check(&[("audit-log-path", ""), ("audit-log-maxage", "30")], "1.2.17", "FAIL");
    check(&[("enable-admission-plugins", "NodeRestriction,ServiceAccount")], "1.2.14", "PASS");
    check(&[("enable-admission-plugins", "")], "1.2.14", "FAIL");
    check(&[("enable-admission-plugins", "")], "1.2.11", "WARN");
    check(&[], "1.2.23", "N/A");
    check(&[("etcd-servers", "https://e"), ("etcd-certfile", "c"), ("etcd-keyfile", "k")], "1.2.23", "PASS");
    check(&[("etcd-servers", "https://e")], "1.2.26", "FAIL");
    assert_eq!(mark(&State::default(), "1.2.6"), "N/A");
}

#[test]
fn an_etcd_is_judged_by_how_it_was_started() {
    let words = |text: &str| Some(text.split_whitespace().map(str::to_owned).collect());
    let good = "etcd --cert-file c --key-file k --client-cert-auth --trusted-ca-file /data/tls/etcd-ca.crt";
    let state = State { etcd: words(good), ..server(&[("client-ca-file", "/data/tls/ca.crt")], &[]) };
    for (id, expected) in [("2.1", "PASS"), ("2.2", "PASS"), ("2.3", "PASS"), ("2.4", "FAIL"), ("2.7", "PASS")] {
        assert_eq!(mark(&state, id), expected, "{id}");
    }
    let state = State { etcd: words("etcd --auto-tls=true"), ..State::default() };
    assert_eq!((mark(&state, "2.1"), mark(&state, "2.3")), ("FAIL", "FAIL"));
    assert_eq!(mark(&server(&[], &[]), "2.1"), "N/A");
}

#[test]
fn rights_are_judged_by_whom_they_reach() {
    let role = |name: &str, rule: Value| json!({"metadata": {"name": name}, "rules": [rule]});
    let secrets = json!({"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]});
    let everything = json!({"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]});
    let bind = |role: &str, kind: &str, name: &str| {
        json!({"metadata": {"name": "b"}, "roleRef": {"kind": "ClusterRole", "name": role},
            "subjects": [{"kind": kind, "name": name}]})
    };
    let roles = json!([role("reader", secrets), role("cluster-admin", everything)]);
    let check = |bindings: Value, id: &str, expected: &str| {
        let state = server(&[], &[("clusterroles", roles.clone()), ("clusterrolebindings", bindings)]);
        assert_eq!(mark(&state, id), expected, "{id}");
    };
    check(json!([]), "5.1.2", "PASS");
    check(json!([bind("cluster-admin", "Group", "system:masters")]), "5.1.2", "PASS");
    check(json!([bind("cluster-admin", "Group", "system:masters")]), "5.1.1", "PASS");
    check(json!([bind("cluster-admin", "User", "ada")]), "5.1.1", "WARN");
    check(json!([bind("cluster-admin", "User", "ada")]), "5.1.13", "WARN");
    check(json!([bind("reader", "User", "ada")]), "5.1.2", "WARN");
    check(json!([bind("reader", "User", "ada")]), "5.1.4", "PASS");
    check(json!([bind("reader", "Group", "system:authenticated")]), "5.1.2", "WARN");
    check(json!([bind("reader", "Group", "system:serviceaccounts")]), "5.1.2", "WARN");
    check(json!([bind("reader", "User", "system:kube-scheduler")]), "5.1.2", "PASS");
    check(json!([]), "5.1.3", "PASS");
}

#[test]
fn pods_are_judged_by_what_they_ask_for() {
    let check = |spec: Value, id: &str, expected: &str| {
        let pods = json!([{"metadata": {"name": "p", "namespace": "team"}, "spec": spec}]);
        let namespaces = json!([{"metadata": {"name": "team"}}]);
        assert_eq!(mark(&server(&[], &[("pods", pods), ("namespaces", namespaces)]), id), expected, "{id}");
    };
    let with = |context: Value| json!({"containers": [{"securityContext": context}]});
    check(with(json!({"privileged": true})), "5.2.2", "WARN");
    check(with(json!({})), "5.2.2", "PASS");
    check(with(json!({})), "5.2.6", "WARN");
    check(with(json!({"allowPrivilegeEscalation": false})), "5.2.6", "PASS");
    check(with(json!({"capabilities": {"drop": ["ALL"]}})), "5.2.8", "PASS");
    check(with(json!({"capabilities": {"drop": ["ALL"], "add": ["NET_RAW"]}})), "5.2.8", "WARN");
    check(json!({"securityContext": {"runAsUser": 7}, "containers": [{}]}), "5.2.7", "PASS");
    check(json!({"containers": [{"securityContext": {"runAsUser": 0}}]}), "5.2.7", "WARN");
    check(json!({"volumes": [{"hostPath": {"path": "/"}}]}), "5.2.11", "WARN");
    check(json!({"containers": [{"env": [{"valueFrom": {"secretKeyRef": {"name": "s"}}}]}]}), "5.4.1", "WARN");
    check(with(json!({})), "5.2.1", "WARN");
    assert_eq!(mark(&server(&[], &[]), "5.2.1"), "PASS");
}

#[test]
fn a_kubelet_is_judged_by_what_it_answers() {
    let node = |configuration: Value, code: u16| State {
        node: Some(Node { configuration, anonymous_code: Some(code), ..Node::default() }),
        listening: vec!["0.0.0.0:10249".parse().unwrap()],
        ..server(&[], &[])
    };
    let good = node(json!({"authorization": {"mode": "Webhook"}, "podPidsLimit": -1}), 401);
    assert_eq!((mark(&good, "4.2.1"), mark(&good, "4.2.2"), mark(&good, "4.2.13")), ("PASS", "PASS", "WARN"));
    assert_eq!((mark(&good, "4.2.3"), mark(&good, "4.3.1")), ("FAIL", "FAIL"));
    assert_eq!(mark(&node(json!({}), 200), "4.2.1"), "FAIL");
}

#[test]
fn both_forms_say_the_same() {
    let findings = judge(&server(&[], &[]));
    let (text, document) = (table(&findings), document(&findings));
    let summary = &document["summary"];
    let total: u64 = ["pass", "fail", "warn", "notApplicable"].iter().filter_map(|name| summary[name].as_u64()).sum();
    assert_eq!((total, document["checks"].as_array().map(Vec::len)), (131, Some(131)));
    assert!(text.contains(&format!("131 checks: {} PASS", summary["pass"])), "{text}");
    assert_eq!(
        text.matches("to do: ").count() as u64,
        summary["fail"].as_u64().unwrap() + summary["warn"].as_u64().unwrap()
    );
}
