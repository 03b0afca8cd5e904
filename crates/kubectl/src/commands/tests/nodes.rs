//! `kubectl cordon`, `uncordon`, `taint`, `drain` and `top node`.

use super::*;

fn node(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "resourceVersion": "1"}, "spec": spec,
        "status": {"allocatable": {"cpu": "2", "memory": "4Gi"}, "capacity": {"cpu": "4", "memory": "8Gi"}}})
}

fn with_node(spec: Value) -> Fake {
    let node = node("n1", spec);
    Fake::new().objects("/api/v1/nodes", std::slice::from_ref(&node)).answer("PATCH /api/v1/nodes/n1", node)
}

fn patched(ran: &Ran) -> Option<&Value> {
    ran.requests.iter().find(|sent| sent.line == "PATCH /api/v1/nodes/n1").map(|sent| &sent.body)
}

#[test]
fn nodes_are_cordoned_once() {
    let check = |cordoned: bool, line: &str, out: &str, patch: Option<Value>| {
        let ran = with_node(json!({"unschedulable": cordoned})).run(line);
        ended_well(&ran, out);
        assert_eq!(patched(&ran).map(|patch| patch["spec"].clone()), patch, "{line}");
    };
    check(false, "cordon n1", "node/n1 cordoned\n", Some(json!({"unschedulable": true})));
    check(true, "cordon n1", "node/n1 already cordoned\n", None);
    check(true, "uncordon n1", "node/n1 uncordoned\n", Some(json!({"unschedulable": null})));
    check(false, "uncordon n1", "node/n1 already uncordoned\n", None);
    check(false, "cordon node/n1 --dry-run=client", "node/n1 cordoned (dry run)\n", None);
    let sent = Some(json!({"unschedulable": true}));
    check(false, "cordon -l a=b --dry-run=server", "node/n1 cordoned (server dry run)\n", sent);
    misused("cordon n1 -l a=b", "cordon", "cannot specify both a node name and a --selector option");
    misused("uncordon", "uncordon", "USAGE: uncordon NODE [flags]");
}

#[test]
fn taints_are_set_and_taken_away() {
    let taints = |taints: Value| with_node(json!({"taints": taints}));
    let has = json!([{"key": "a", "value": "b", "effect": "NoSchedule"}]);
    let check = |line: &str, out: &str, expected: Value| {
        let ran = taints(has.clone()).run(line);
        ended_well(&ran, out);
        assert_eq!(patched(&ran).map(|patch| patch["spec"]["taints"].clone()), Some(expected), "{line}");
    };
    let both = json!([{"key": "d", "effect": "NoExecute"}, {"key": "a", "value": "b", "effect": "NoSchedule"}]);
    check("taint nodes n1 d:NoExecute", "node/n1 tainted\n", both);
    let changed = json!([{"key": "a", "value": "c", "effect": "NoSchedule"}]);
    check("taint nodes n1 a=c:NoSchedule --overwrite", "node/n1 modified\n", changed);
    check("taint nodes n1 a:NoSchedule-", "node/n1 untainted\n", Value::Null);
    check("taint nodes n1 a-", "node/n1 untainted\n", Value::Null);
}

#[test]
fn taints_that_cannot_be_are_refused() {
    let has = json!({"taints": [{"key": "a", "value": "b", "effect": "NoSchedule"}]});
    let check = |line: &str, err: &str| ended_badly(&with_node(has.clone()).run(line), &format!("error: {err}\n"));
    let taken = "node n1 already has a taint(s) with same effect(s) and --overwrite is false";
    check("taint nodes n1 a=b:NoSchedule", taken);
    check("taint nodes n1 a=c:NoSchedule", taken);
    check("taint nodes n1 x:NoSchedule-", "taint \"x:NoSchedule\" not found");
    let both = "can not both modify and remove the following taint(s) in the same command: a=NoSchedule";
    check("taint nodes n1 a=b:NoSchedule a:NoSchedule-", both);
    check("taint pods x a=b:NoSchedule", "invalid resource type pods, only node types are supported");
    misused("taint nodes n1 a=b:Wrong", "taint", "invalid taint effect: Wrong, unsupported taint effect");
    let twice = "duplicated taints with the same key and effect: {a c NoSchedule <nil>}";
    misused("taint nodes n1 a=b:NoSchedule a=c:NoSchedule", "taint", twice);
    refuses("taint nodes a=b:NoSchedule n1", "all resources must be specified before taint changes: n1");
    let none = "at least one resource name must be specified since 'all' parameter is not set";
    check("taint nodes a=b:NoSchedule", none);
    let both = "setting 'all' parameter with a non empty selector is prohibited";
    check("taint nodes --all -l a=b a=b:NoSchedule", both);
}

/// A pod on the node that this kind owns; nobody, where it is empty.
fn pod_of(name: &str, owner: &str, spec: Value) -> Value {
    let mut pod = pod(name);
    if !owner.is_empty() {
        pod["metadata"]["ownerReferences"] =
            json!([{"apiVersion": "apps/v1", "kind": owner, "name": "owner", "uid": "1", "controller": true}]);
    }
    for (key, value) in spec.as_object().into_iter().flatten() {
        pod["spec"][key] = value.clone();
    }
    pod
}

fn draining(pods: &[Value]) -> Fake {
    let daemon = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "owner"}});
    let mut fake = with_node(json!({"unschedulable": true}))
        .answer("GET /api/v1/pods", json!({"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": pods}))
        .answer("GET /apis/apps/v1/namespaces/default/daemonsets/owner", daemon);
    for pod in pods {
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        fake = fake.answer_text(
            &format!("POST {PODS}/{name}/eviction"),
            201,
            "{\"kind\":\"Status\",\"status\":\"Success\"}",
        );
    }
    fake
}

#[test]
fn draining_evicts_what_others_make_anew() {
    let ran = draining(&[pod_of("web", "ReplicaSet", json!({}))]).run("drain n1 --grace-period=3");
    ended_well(&ran, "node/n1 already cordoned\nevicting pod default/web\npod/web evicted\nnode/n1 drained\n");
    let sent = &ran.request(&format!("POST {PODS}/web/eviction")).body;
    assert_eq!((&sent["kind"], &sent["apiVersion"]), (&json!("Eviction"), &json!("policy/v1")));
    assert_eq!(sent["deleteOptions"]["gracePeriodSeconds"], 3);
    assert_eq!(ran.request("GET /api/v1/pods").query("fieldSelector"), "spec.nodeName=n1");
}

#[test]
fn draining_stops_before_pods_that_would_be_lost() {
    let check = |pod: Value, err: &str| {
        let ran = draining(&[pod]).run("drain n1");
        let expected = format!(
            "error: unable to drain node \"n1\" due to error: {err}, continuing command...\nThere are pending nodes to be drained:\n n1\n{err}\n"
        );
        ended_badly(&ran, &expected);
        assert!(!ran.lines().iter().any(|line| line.starts_with("POST")), "{:?}", ran.lines());
    };
    check(
        pod_of("bare", "", json!({})),
        "cannot delete Pods that declare no controller (use --force to override): default/bare",
    );
    check(
        pod_of("agent", "DaemonSet", json!({})),
        "cannot delete DaemonSet-managed Pods (use --ignore-daemonsets to ignore): default/agent",
    );
    check(
        pod_of("data", "ReplicaSet", json!({"volumes": [{"name": "v", "emptyDir": {}}]})),
        "cannot delete Pods with local storage (use --delete-emptydir-data to override): default/data",
    );
}

#[test]
fn draining_can_be_told_to_go_on() {
    let ran = draining(&[pod_of("bare", "", json!({}))]).run("drain n1 --force --dry-run=client");
    assert_eq!(ran.err, "Warning: deleting Pods that declare no controller: default/bare\n");
    assert!(
        ran.out.contains("evicting pod default/bare (dry run)\n") && ran.out.ends_with("node/n1 drained (dry run)\n")
    );
    let ran = draining(&[pod_of("agent", "DaemonSet", json!({}))]).run("drain n1 --ignore-daemonsets");
    assert_eq!(ran.err, "Warning: ignoring DaemonSet-managed Pods: default/agent\n");
    assert_eq!(ran.out, "node/n1 already cordoned\nnode/n1 drained\n");
    let mut mirror = pod_of("static", "Node", json!({}));
    mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
    ended_well(&draining(&[mirror]).run("drain n1"), "node/n1 already cordoned\nnode/n1 drained\n");
}

#[test]
fn what_one_filter_warns_of_the_next_forgets() {
    let data = || pod_of("data", "ReplicaSet", json!({"volumes": [{"name": "v", "emptyDir": {}}]}));
    let ran = draining(&[data()]).run("drain n1 --delete-emptydir-data");
    ended_well(&ran, "node/n1 already cordoned\nevicting pod default/data\npod/data evicted\nnode/n1 drained\n");
    let gone = "daemonsets.apps \"owner\" not found";
    let orphan = |line: &str| {
        let pods = json!({"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": [pod_of("agent", "DaemonSet", json!({}))]});
        with_node(json!({"unschedulable": true}))
            .answer("GET /api/v1/pods", pods)
            .refuse("GET /apis/apps/v1/namespaces/default/daemonsets/owner", 404, "NotFound", gone)
            .answer_text(&format!("POST {PODS}/agent/eviction"), 201, "{\"kind\":\"Status\",\"status\":\"Success\"}")
            .run(line)
    };
    let ran = orphan("drain n1 --force");
    ended_well(&ran, "node/n1 already cordoned\nevicting pod default/agent\npod/agent evicted\nnode/n1 drained\n");
    let ran = orphan("drain n1 --ignore-daemonsets");
    assert!(ran.err.ends_with(&format!("\ncannot delete {gone}: default/agent\n")), "{}", ran.err);
}

#[test]
fn a_node_that_stays_is_in_no_other_nodes_way() {
    let nodes = [node("n1", json!({"unschedulable": true})), node("n2", json!({"unschedulable": true}))];
    let pods = json!({"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": [pod_of("bare", "", json!({}))]});
    let none = json!({"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": []});
    let ran = Fake::new()
        .objects("/api/v1/nodes", &nodes)
        .answer("GET /api/v1/pods", pods)
        .answer("GET /api/v1/pods", none)
        .run("drain n1 n2");
    let why = "cannot delete Pods that declare no controller (use --force to override): default/bare";
    let err = format!(
        "error: unable to drain node \"n1\" due to error: {why}, continuing command...\nThere are pending nodes to be drained:\n n1\n{why}\n"
    );
    ended_badly(&ran, &err);
    assert_eq!(ran.out, "node/n1 already cordoned\nnode/n2 already cordoned\nnode/n2 drained\n");
}

#[test]
fn an_eviction_that_fails_names_who_is_left() {
    let pods = [pod_of("one", "ReplicaSet", json!({})), pod_of("two", "ReplicaSet", json!({}))];
    let list = json!({"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": pods});
    let ran = with_node(json!({"unschedulable": true}))
        .answer("GET /api/v1/pods", list)
        .refuse(&format!("POST {PODS}/one/eviction"), 500, "InternalError", "broken")
        .answer_text(&format!("POST {PODS}/two/eviction"), 201, "{\"kind\":\"Status\",\"status\":\"Success\"}")
        .run("drain n1");
    assert!(ran.out.contains("pod/two evicted\n"), "the other one goes all the same: {}", ran.out);
    let why = "error when evicting pods/\"one\" -n \"default\": broken";
    let pending = format!("There are pending pods in node \"n1\" when an error occurred: {why}\npod/one\npod/two\n");
    assert!(ran.err.starts_with(&pending), "{}", ran.err);
    assert!(ran.err.ends_with(&format!("There are pending nodes to be drained:\n n1\n{why}\n")), "{}", ran.err);
    assert_eq!(ran.code, 1);
}

#[test]
fn a_dry_run_of_the_server_is_one() {
    let ran = draining(&[pod_of("web", "ReplicaSet", json!({}))]).run("drain n1 --dry-run=server");
    assert_eq!(ran.request(&format!("POST {PODS}/web/eviction")).body["deleteOptions"]["dryRun"], json!(["All"]));
    assert!(ran.out.contains("evicting pod default/web (server dry run)\n"), "{}", ran.out);
    assert!(!ran.out.contains("evicted"), "{}", ran.out);
}

#[test]
fn nodes_are_measured() {
    let path = "/apis/metrics.k8s.io/v1beta1/nodes";
    let measured = json!({"kind": "NodeMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "items": [
        {"metadata": {"name": "n1"}, "usage": {"cpu": "500m", "memory": "1Gi"}}]});
    let nodes =
        json!({"apiVersion": "v1", "kind": "NodeList", "items": [node("n1", json!({})), node("n2", json!({}))]});
    let fake =
        || Fake::new().answer(&format!("GET {path}"), measured.clone()).answer("GET /api/v1/nodes", nodes.clone());
    let table = "\
NAME   CPU(cores)   CPU(%)      MEMORY(bytes)   MEMORY(%)   
n1     500m         25%         1024Mi          25%         
n2     <unknown>    <unknown>   <unknown>       <unknown>   
";
    ended_well(&fake().run("top node"), table);
    assert!(fake().run("top node --show-capacity").out.contains("500m         12%"));
    ended_badly(&Fake::new().run("top node"), "error: Metrics API not available\n");
    refuses("top node --sort-by=name", "--sort-by accepts only cpu or memory");
    refuses("top node n1 -l a=b", "only one of NAME or --selector can be provided");
}
