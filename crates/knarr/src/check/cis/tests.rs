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

#[test]
fn every_flag_of_the_server_is_judged() {
    let check = |id: &str, flag: &str, values: &[(&str, &str)]| {
        for (value, expected) in values {
            assert_eq!(mark(&server(&[(flag, value)], &[]), id), *expected, "{id}: {flag}={value}");
        }
    };
    check("1.2.1", "anonymous-auth", &[("false", "PASS"), ("true", "WARN"), ("", "WARN")]);
    check("1.2.3", "enable-admission-plugins", &[("DenyServiceExternalIPs", "PASS"), ("", "WARN")]);
    check("1.2.5", "kubelet-certificate-authority", &[("/ca.crt", "PASS"), ("", "FAIL")]);
    check("1.2.8", "authorization-mode", &[("RBAC", "PASS"), ("Node", "FAIL"), ("NotRBAC", "FAIL")]);
    check("1.2.9", "enable-admission-plugins", &[("EventRateLimit", "PASS"), ("", "WARN")]);
    check("1.2.10", "enable-admission-plugins", &[("AlwaysAdmit,x", "FAIL"), ("", "PASS")]);
    check("1.2.12", "enable-admission-plugins", &[("ServiceAccount", "PASS"), ("ServiceAccounts", "FAIL")]);
    check("1.2.13", "enable-admission-plugins", &[("a,NamespaceLifecycle", "PASS"), ("a", "FAIL")]);
    check("1.2.15", "profiling", &[("false", "PASS"), ("true", "FAIL"), ("", "FAIL")]);
    check("1.2.16", "audit-log-path", &[("-", "PASS"), ("", "FAIL")]);
    check("1.2.20", "request-timeout", &[("1m0s", "PASS"), ("", "WARN")]);
    check("1.2.21", "service-account-lookup", &[("true", "PASS"), ("false", "FAIL"), ("", "FAIL")]);
    check("1.2.22", "service-account-key-file", &[("/sa.pub", "PASS"), ("", "FAIL")]);
    check("1.2.25", "client-ca-file", &[("/ca.crt", "PASS"), ("", "FAIL")]);
    check("1.2.27", "encryption-provider-config", &[("/e.yaml", "PASS"), ("", "WARN")]);
    check("1.2.30", "service-account-extend-token-expiration", &[("false", "PASS"), ("true", "FAIL"), ("", "FAIL")]);
    check("1.3.1", "terminated-pod-gc-threshold", &[("12500", "PASS"), ("0", "WARN"), ("", "WARN")]);
    check("1.3.4", "service-account-signing-key-file", &[("/sa.key", "PASS"), ("", "FAIL")]);
    check("3.2.1", "audit-policy-file", &[("/p.yaml", "PASS"), ("", "WARN")]);
}

#[test]
fn pairs_of_files_are_needed_together() {
    let check = |id: &str, first: &str, second: &str| {
        assert_eq!(mark(&server(&[(first, "/a"), (second, "/b")], &[]), id), "PASS", "{id}");
        assert_eq!(mark(&server(&[(first, "/a")], &[]), id), "FAIL", "{id} without {second}");
        assert_eq!(mark(&server(&[(second, "/b")], &[]), id), "FAIL", "{id} without {first}");
    };
    check("1.2.4", "kubelet-client-certificate", "kubelet-client-key");
    check("1.2.24", "tls-cert-file", "tls-private-key-file");
    for (id, flag, least) in [
        ("1.2.17", "audit-log-maxage", 30),
        ("1.2.18", "audit-log-maxbackup", 10),
        ("1.2.19", "audit-log-maxsize", 100),
    ] {
        let with = |value: u64| mark(&server(&[("audit-log-path", "/a"), (flag, &value.to_string())], &[]), id);
        assert_eq!((with(least - 1), with(least), with(least + 1)), ("FAIL", "PASS", "PASS"), "{id}");
        assert_eq!(mark(&server(&[("audit-log-path", "/a"), (flag, "many")], &[]), id), "FAIL", "{id}");
    }
}

#[test]
fn without_a_server_nothing_of_it_is_judged() {
    let state = State::default();
    for finding in judge(&state) {
        let of_files = finding.check.id.starts_with("1.1.") || finding.check.id.starts_with("4.1.");
        let of_sockets = ["1.3.7", "1.4.2", "4.3.1"].contains(&finding.check.id);
        match finding.mark {
            Mark::Pass => assert!(of_sockets, "{} passes though nothing is known", finding.check.id),
            Mark::Fail => assert!(!of_files, "{} fails though nothing is known", finding.check.id),
            Mark::Warn | Mark::NotApplicable => {}
        }
    }
}

#[test]
fn flags_of_etcd_have_two_forms() {
    let judged = |line: &str, id: &str| {
        let words = Some(line.split_whitespace().map(str::to_owned).collect());
        mark(&State { etcd: words, ..server(&[("client-ca-file", "/ca.crt")], &[]) }, id)
    };
    for (id, good) in [
        ("2.1", "--cert-file=c --key-file=k"),
        ("2.1", "--cert-file c --key-file=k"),
        ("2.2", "--client-cert-auth=true"),
        ("2.4", "--peer-cert-file=c --peer-key-file=k"),
        ("2.5", "--peer-client-cert-auth"),
        ("2.6", "--peer-auto-tls=false"),
    ] {
        assert_eq!(judged(&format!("etcd {good}"), id), "PASS", "{id} {good}");
    }
    for (id, bad) in [
        ("2.1", "--cert-file=c"),
        ("2.1", "--cert-file= --key-file=k"),
        ("2.1", "--peer-cert-file=c --peer-key-file=k"),
        ("2.2", "--client-cert-auth=false"),
        ("2.3", "--auto-tls"),
        ("2.6", "--peer-auto-tls=true"),
    ] {
        assert_eq!(judged(&format!("etcd {bad}"), id), "FAIL", "{id} {bad}");
    }
    assert_eq!(judged("etcd --trusted-ca-file=/ca.crt", "2.7"), "WARN", "the cluster's own authority");
    assert_eq!(judged("etcd --trusted-ca-file=/etcd-ca.crt", "2.7"), "PASS");
    let elsewhere = server(&[("etcd-servers", "https://e:2379")], &[]);
    assert_eq!(mark(&elsewhere, "2.1"), "N/A");
}

#[test]
fn ports_are_for_this_machine() {
    let listening = |addresses: &[&str]| State {
        listening: addresses.iter().map(|text| text.parse().expect("an address")).collect(),
        ..server(&[], &[])
    };
    for (id, port) in [("1.3.7", 10257), ("1.4.2", 10259), ("4.3.1", 10249)] {
        let at = |host: &str| mark(&listening(&[&format!("{host}:{port}")]), id);
        assert_eq!(
            (at("127.0.0.1"), at("[::1]"), at("0.0.0.0"), at("[::]"), at("10.0.0.1")),
            ("PASS", "PASS", "FAIL", "FAIL", "FAIL"),
            "{id}"
        );
        assert_eq!(mark(&listening(&["0.0.0.0:1"]), id), "PASS", "{id}: another port");
    }
}

#[test]
fn controllers_have_accounts_of_their_own() {
    let bound = |name: &str, subjects: Value| json!({"metadata": {"name": name}, "roleRef": {"name": format!("system:controller:{name}")}, "subjects": subjects});
    let account = |name: &str| json!({"kind": "ServiceAccount", "namespace": "kube-system", "name": name});
    let check = |bindings: Value, expected: &str| {
        assert_eq!(mark(&server(&[], &[("clusterrolebindings", bindings)]), "1.3.3"), expected);
    };
    check(json!([]), "FAIL");
    check(json!([bound("a", json!([account("a")]))]), "PASS");
    check(json!([bound("a", json!([account("a"), account("b")]))]), "FAIL");
    check(json!([bound("a", json!([{"kind": "User", "name": "ada"}]))]), "FAIL");
    let published = json!([{"metadata": {"name": "kube-root-ca.crt"}}]);
    assert_eq!(mark(&server(&[], &[("configmaps", published)]), "1.3.5"), "PASS");
    assert_eq!(mark(&server(&[], &[]), "1.3.5"), "FAIL");
}

#[test]
fn people_are_known_by_neither_certificates_nor_bootstrap_tokens() {
    let request = |signer: &str, user: &str, issued: bool| {
        let mut one =
            json!({"metadata": {"name": "r"}, "spec": {"signerName": signer, "username": user}, "status": {}});
        if issued {
            one["status"]["certificate"] = "pem".into();
        }
        json!([one])
    };
    let client = "kubernetes.io/kube-apiserver-client";
    let certificates = |requests: Value| mark(&server(&[], &[("certificatesigningrequests", requests)]), "3.1.1");
    assert_eq!(certificates(request(client, "ada", true)), "WARN");
    assert_eq!(certificates(request(client, "ada", false)), "PASS");
    assert_eq!(certificates(request(client, "system:node:n1", true)), "PASS");
    assert_eq!(certificates(request("kubernetes.io/kubelet-serving", "ada", true)), "PASS");
    let token = |groups: &str| {
        use base64::Engine;
        let encoded = base64::engine::general_purpose::STANDARD.encode(groups);
        let secret = json!({"metadata": {"name": "t"}, "type": "bootstrap.kubernetes.io/token",
            "data": {"auth-extra-groups": encoded}});
        mark(&server(&[], &[("secrets", json!([secret]))]), "3.1.3")
    };
    assert_eq!((token(""), token("system:bootstrappers:knarr:agents")), ("PASS", "PASS"));
    assert_eq!(token("system:bootstrappers:x, system:masters"), "WARN");
}

#[test]
fn rights_reach_by_wildcards_too() {
    let check = |id: &str, rule: Value, expected: &str| {
        let roles = json!([{"metadata": {"name": "r"}, "rules": [rule]}]);
        let bindings = json!([{"metadata": {"name": "b"}, "roleRef": {"kind": "ClusterRole", "name": "r"},
            "subjects": [{"kind": "User", "name": "ada"}]}]);
        let state = server(&[], &[("clusterroles", roles), ("clusterrolebindings", bindings)]);
        assert_eq!(mark(&state, id), expected, "{id}");
    };
    let rule = |group: &str, resource: &str, verb: &str| json!({"apiGroups": [group], "resources": [resource], "verbs": [verb]});
    check("5.1.4", rule("", "pods", "create"), "WARN");
    check("5.1.4", rule("", "pods", "get"), "PASS");
    check("5.1.4", rule("apps", "pods", "create"), "PASS");
    check("5.1.4", rule("*", "*", "*"), "WARN");
    check("5.1.9", rule("", "persistentvolumes", "create"), "WARN");
    check("5.1.10", rule("", "nodes/proxy", "get"), "WARN");
    check("5.1.10", rule("", "*/proxy", "get"), "WARN");
    check("5.1.10", rule("", "nodes", "get"), "PASS");
    check("5.1.11", rule("certificates.k8s.io", "certificatesigningrequests/approval", "update"), "WARN");
    check("5.1.12", rule("admissionregistration.k8s.io", "mutatingwebhookconfigurations", "patch"), "WARN");
    check("5.1.12", rule("admissionregistration.k8s.io", "mutatingwebhookconfigurations", "list"), "PASS");
    check("5.1.13", rule("", "serviceaccounts/token", "create"), "WARN");
    check("5.1.8", rule("rbac.authorization.k8s.io", "clusterroles", "escalate"), "WARN");
    check("5.1.8", rule("", "users", "impersonate"), "WARN");
    check("5.1.3", rule("*", "pods", "get"), "WARN");
    check("5.1.3", rule("", "pods", "get"), "PASS");
}

#[test]
fn roles_of_a_namespace_are_found_in_it() {
    let role = |namespace: &str| {
        json!({"metadata": {"name": "r", "namespace": namespace},
            "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["list"]}]})
    };
    let binding = json!([{"metadata": {"name": "b", "namespace": "team"}, "roleRef": {"kind": "Role", "name": "r"},
        "subjects": [{"kind": "ServiceAccount", "namespace": "team", "name": "app"}]}]);
    let judged = |namespace: &str| {
        mark(&server(&[], &[("roles", json!([role(namespace)])), ("rolebindings", binding.clone())]), "5.1.2")
    };
    assert_eq!((judged("team"), judged("other")), ("WARN", "PASS"));
}

#[test]
fn namespaces_and_pods_of_the_host_are_seen() {
    let check = |spec: Value, id: &str, expected: &str| {
        let pods = json!([{"metadata": {"name": "p", "namespace": "team"}, "spec": spec}]);
        assert_eq!(mark(&server(&[], &[("pods", pods)]), id), expected, "{id}");
    };
    for (id, field) in [("5.2.3", "hostPID"), ("5.2.4", "hostIPC"), ("5.2.5", "hostNetwork")] {
        check(json!({field: true}), id, "WARN");
        check(json!({field: false}), id, "PASS");
    }
    for place in ["containers", "initContainers", "ephemeralContainers"] {
        check(json!({place: [{"securityContext": {"privileged": true}}]}), "5.2.2", "WARN");
    }
    check(json!({"containers": [{"ports": [{"hostPort": 80}]}]}), "5.2.12", "WARN");
    check(json!({"containers": [{"ports": [{"containerPort": 80, "hostPort": 0}]}]}), "5.2.12", "PASS");
    check(json!({"containers": [{"envFrom": [{"secretRef": {"name": "s"}}]}]}), "5.4.1", "WARN");
    check(json!({"containers": [{"envFrom": [{"configMapRef": {"name": "s"}}]}]}), "5.4.1", "PASS");
    let profile = |kind: &str| json!({"securityContext": {"seccompProfile": {"type": kind}}, "containers": [{}]});
    check(profile("RuntimeDefault"), "5.6.2", "PASS");
    check(profile("Unconfined"), "5.6.2", "WARN");
    check(
        json!({"securityContext": {"runAsNonRoot": true}, "containers": [{"securityContext": {"runAsUser": 0}}]}),
        "5.2.7",
        "PASS",
    );
    check(json!({"containers": [{}]}), "5.6.3", "WARN");
}

#[test]
fn namespaces_are_kept_apart() {
    let namespaces = |labels: Value| json!([{"metadata": {"name": "team", "labels": labels}}, {"metadata": {"name": "kube-system"}}]);
    let pods = json!([{"metadata": {"name": "p", "namespace": "team"}, "spec": {}}]);
    let enforced = |level: &str| {
        let labels = json!({"pod-security.kubernetes.io/enforce": level});
        mark(&server(&[], &[("namespaces", namespaces(labels)), ("pods", pods.clone())]), "5.2.1")
    };
    assert_eq!((enforced("restricted"), enforced("baseline"), enforced("privileged")), ("PASS", "PASS", "WARN"));
    let policies = |namespace: &str| {
        let policy = json!([{"metadata": {"name": "deny", "namespace": namespace}}]);
        mark(&server(&[], &[("namespaces", namespaces(json!({}))), ("networkpolicies", policy)]), "5.3.2")
    };
    assert_eq!((policies("team"), policies("other")), ("PASS", "WARN"));
    let with_node = |tables: &[&str]| State {
        node: Some(Node::default()),
        tables: tables.iter().map(|name| name.to_string()).collect(),
        ..server(&[], &[])
    };
    assert_eq!((mark(&with_node(&["knarr-policy"]), "5.3.1"), mark(&with_node(&["x"]), "5.3.1")), ("PASS", "WARN"));
    let service = |name: &str| json!([{"metadata": {"name": name, "namespace": "default"}}]);
    let used = |name: &str| mark(&server(&[], &[("services", service(name))]), "5.6.4");
    assert_eq!((used("kubernetes"), used("web")), ("PASS", "WARN"));
}

#[test]
fn a_kubelet_is_judged_by_its_settings() {
    let judged = |id: &str, configuration: Value| {
        mark(&State { node: Some(Node { configuration, ..Node::default() }), ..server(&[], &[]) }, id)
    };
    let check = |id: &str, good: Value, bad: Value, expected: &str| {
        assert_eq!((judged(id, good), judged(id, bad)), ("PASS", expected), "{id}");
    };
    let authority = |file: &str| json!({"authentication": {"x509": {"clientCAFile": file}}});
    check("4.2.3", authority("/ca.crt"), authority(""), "FAIL");
    check("4.2.4", json!({"readOnlyPort": 0}), json!({"readOnlyPort": 10255}), "WARN");
    let idle = |time: &str| json!({"streamingConnectionIdleTimeout": time});
    check("4.2.5", idle("4h0m0s"), idle("0s"), "WARN");
    check("4.2.9", json!({"tlsCertFile": "/k.crt"}), json!({"serverTLSBootstrap": false}), "WARN");
    check("4.2.10", json!({"rotateCertificates": true}), json!({}), "FAIL");
    check("4.2.11", json!({"serverTLSBootstrap": true}), json!({}), "WARN");
    check("4.2.13", json!({"podPidsLimit": 4096}), json!({"podPidsLimit": -1}), "WARN");
    check("4.2.14", json!({"seccompDefault": true}), json!({"seccompDefault": false}), "WARN");
    let lost = State { node_error: Some("no answer".into()), ..server(&[], &[]) };
    assert_eq!(mark(&lost, "4.2.10"), "WARN");
    let open = State {
        node: Some(Node { configuration: json!({"readOnlyPort": 0}), ..Node::default() }),
        listening: vec!["127.0.0.1:10255".parse().expect("an address")],
        ..server(&[], &[])
    };
    assert_eq!(mark(&open, "4.2.4"), "WARN", "it says one thing and does another");
}

#[test]
fn many_names_are_cut() {
    let names = |count: usize| (0..count).map(|number| format!("n{number}")).collect::<Vec<_>>();
    assert_eq!(some(&names(0)), "");
    assert_eq!(some(&names(5)), "n0, n1, n2, n3, n4");
    assert_eq!(some(&names(7)), "n0, n1, n2, n3, n4 and 2 more");
}
