//! Rows of `kubectl get`, kind by kind, as upstream's own tests of its printers expect them.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::KINDS;

fn now() -> Timestamp {
    "2026-01-01T01:00:00Z".parse().expect("a time")
}

fn ago(seconds: i64) -> String {
    (now() - SignedDuration::from_secs(seconds)).to_string()
}

/// The first cells of the row; what is not told is not compared.
fn check(kind: &str, object: Value, expected: Value) {
    let entry = KINDS.iter().find(|entry| entry.kind == kind && entry.convert.is_none()).expect("the kind is served");
    let row = (entry.row)(&object, now());
    let expected = expected.as_array().cloned().unwrap_or_default();
    assert_eq!(row.len(), entry.columns.len(), "{kind}");
    assert_eq!(row[..expected.len()], expected, "{kind} {object}");
}

/// The status of a container in a few words: `ready running restarts:3 ended:10`.
fn status(words: &str) -> Value {
    let mut status = json!({"name": "", "ready": false, "restartCount": 0, "state": {}, "lastState": {}});
    for word in words.split_whitespace() {
        let parts: Vec<&str> = word.split(':').collect();
        let number = |at: usize| parts.get(at).and_then(|part| part.parse::<i64>().ok()).unwrap_or(0);
        let reason = parts.get(1).copied().unwrap_or_default();
        match parts[0] {
            "ready" => status["ready"] = true.into(),
            "running" => status["state"] = json!({"running": {}}),
            "waiting" => status["state"] = json!({"waiting": {"reason": reason}}),
            "terminated" => status["state"] = json!({"terminated": {"reason": reason, "exitCode": number(2)}}),
            "signal" => status["state"] = json!({"terminated": {"signal": number(1), "exitCode": 0}}),
            "restarts" => status["restartCount"] = number(1).into(),
            "ended" => status["lastState"] = json!({"terminated": {"finishedAt": ago(number(1))}}),
            "started" => status["started"] = true.into(),
            "name" => status["name"] = reason.into(),
            other => panic!("what is {other}?"),
        }
    }
    status
}

/// Containers and init containers, the statuses of both, the rest of the status, and what is printed: ready, status, restarts.
fn pod(init: &[&str], inits: &[&str], containers: usize, statuses: &[&str], rest: Value, expected: [&str; 3]) {
    let init = init.iter().map(|name| match name.strip_suffix('*') {
        Some(name) => json!({"name": name, "restartPolicy": "Always"}),
        None => json!({"name": name}),
    });
    let mut object = json!({
        "metadata": {"name": "p"},
        "spec": {"initContainers": init.collect::<Value>(), "containers": vec![json!({"name": ""}); containers]},
        "status": rest,
    });
    object["status"]["initContainerStatuses"] = inits.iter().map(|words| status(words)).collect();
    object["status"]["containerStatuses"] = statuses.iter().map(|words| status(words)).collect();
    if let Some(deleted) = object["status"].as_object_mut().and_then(|status| status.remove("deleted")) {
        object["metadata"]["deletionTimestamp"] = deleted;
    }
    let [ready, word, restarts] = expected;
    check("Pod", object, json!(["p", ready, word, restarts, "<unknown>"]));
}

#[test]
fn pods() {
    let phase = |phase: &str| json!({"phase": phase});
    let plain = |statuses: &[&str], rest: Value, expected| pod(&[], &[], statuses.len(), statuses, rest, expected);
    plain(&["ready running restarts:3", "restarts:3"], phase("podPhase"), ["1/2", "podPhase", "6"]);
    plain(&["ready running restarts:3", "waiting:Why restarts:3"], phase("podPhase"), ["1/2", "Why", "6"]);
    plain(&["waiting:Why restarts:3", "terminated:End restarts:3"], phase("podPhase"), ["0/2", "Why", "6"]);
    plain(&["ready running restarts:3", "ready restarts:3"], phase("podPhase"), ["1/2", "podPhase", "6"]);
    let reason = json!({"phase": "podPhase", "reason": "podReason"});
    plain(&["ready running restarts:3", "ready restarts:3"], reason, ["1/2", "podReason", "6"]);
    let completed = ["ready terminated:Completed:0 restarts:3", "ready running restarts:3"];
    plain(&completed, phase("Running"), ["1/2", "NotReady", "6"]);
    let ready = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
    plain(&completed, ready, ["1/2", "Running", "6"]);
    plain(&["ready running restarts:3 ended:432000"], phase("Running"), ["1/1", "Running", "3 (5d ago)"]);
    plain(
        &["ready running", "ready running restarts:3 ended:864000"],
        phase("Running"),
        ["2/2", "Running", "3 (10d ago)"],
    );
    plain(
        &["ready running restarts:6 ended:432000", "ready running restarts:3 ended:1728000"],
        phase("Running"),
        ["2/2", "Running", "9 (5d ago)"],
    );
    let gated = json!({"phase": "podPhase", "conditions": [
        {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"},
    ]});
    pod(&[], &[], 2, &[], gated, ["0/2", "SchedulingGated", "0"]);
    plain(&["terminated:Completed:0"], phase("Succeeded"), ["0/1", "Completed", "0"]);
    plain(&["terminated:Error:1"], phase("Failed"), ["0/1", "Error", "0"]);
    let deleted = |phase: &str| json!({"phase": phase, "deleted": ago(10)});
    plain(&["terminated:Completed:0"], deleted("Succeeded"), ["0/1", "Completed", "0"]);
    plain(&["running"], deleted("Running"), ["0/1", "Terminating", "0"]);
    pod(&[], &[], 1, &[], deleted("Pending"), ["0/1", "Terminating", "0"]);
    plain(&["terminated:podCrash:1", "ready running"], phase("Failed"), ["1/2", "podCrash", "0"]);
    plain(&["ready running", "terminated:podCrash:1"], phase("Failed"), ["1/2", "podCrash", "0"]);
    plain(
        &["ready running", "ready terminated:podCrash:1", "ready terminated::0"],
        phase("Failed"),
        ["1/3", "podCrash", "0"],
    );
    plain(&["running", "terminated:podCrash:1", "terminated::0"], phase("Failed"), ["0/3", "podCrash", "0"]);
    plain(&["ready running restarts:3", "restarts:3"], phase("Succeeded"), ["1/2", "Succeeded", "6"]);
    plain(&["ready running restarts:3", "restarts:3"], phase("Failed"), ["1/2", "Failed", "6"]);
    // Without a reason the signal or the code is told.
    plain(&["terminated::2"], phase("Failed"), ["0/1", "ExitCode:2", "0"]);
    plain(&["signal:9"], phase("Failed"), ["0/1", "Signal:9", "0"]);
}

#[test]
fn pods_with_init_containers() {
    let phase = |phase: &str| json!({"phase": phase});
    let running = "running restarts:3 ended:10";
    pod(&["a"], &[running], 1, &["waiting"], phase("podPhase"), ["0/1", "Init:0/1", "3 (10s ago)"]);
    pod(&["a", "b"], &[running, "waiting"], 1, &["waiting"], phase("podPhase"), ["0/1", "Init:0/2", "3 (10s ago)"]);
    let done = "terminated::0";
    pod(&["a", "b"], &[done, running], 1, &["waiting"], phase("podPhase"), ["0/1", "Init:1/2", "3 (10s ago)"]);
    let again = "terminated::0 restarts:2 ended:120";
    pod(&["a", "b"], &[again, running], 1, &["waiting"], phase("podPhase"), ["0/1", "Init:1/2", "5 (10s ago)"]);
    pod(&["a"], &[again], 1, &["running restarts:4 ended:20"], phase("Running"), ["0/1", "Running", "4 (20s ago)"]);
    pod(&["a"], &["terminated:Error:1"], 1, &["waiting"], phase("Pending"), ["0/1", "Init:Error", "0"]);
    pod(&["a"], &["terminated::3"], 1, &["waiting"], phase("Pending"), ["0/1", "Init:ExitCode:3", "0"]);
    pod(
        &["a"],
        &["waiting:CrashLoopBackOff restarts:1"],
        1,
        &["waiting"],
        phase("Pending"),
        ["0/1", "Init:CrashLoopBackOff", "1"],
    );
    pod(&["a"], &["waiting:PodInitializing"], 1, &["waiting"], phase("Pending"), ["0/1", "Init:0/1", "0"]);
}

#[test]
fn pods_with_sidecars() {
    let of = |phase: &str, initialized: &str| json!({"phase": phase, "conditions": [{"type": "Initialized", "status": initialized}]});
    let sides = ["one*", "two*"];
    pod(
        &sides,
        &["name:one running restarts:3 ended:10", "name:two waiting"],
        1,
        &["waiting"],
        of("Pending", "False"),
        ["0/3", "Init:0/2", "3 (10s ago)"],
    );
    pod(
        &sides,
        &["name:one running started restarts:3 ended:10", "name:two running"],
        1,
        &["waiting"],
        of("Pending", "False"),
        ["0/3", "Init:1/2", "3 (10s ago)"],
    );
    pod(
        &sides,
        &["name:one running started restarts:3 ended:10", "name:two running started"],
        1,
        &["ready running restarts:4 ended:20"],
        of("Running", "True"),
        ["1/3", "Running", "7 (10s ago)"],
    );
    pod(
        &sides,
        &["name:one terminated:Error:137 restarts:3 ended:10", "name:two terminated:Error:137"],
        1,
        &["terminated:Completed:0 restarts:4 ended:20"],
        of("Succeeded", "True"),
        ["0/3", "Completed", "7 (10s ago)"],
    );
    // Statuses of containers that the pod does not have change nothing.
    pod(
        &["init1", "sidecar1*"],
        &["name:initinvalid", "name:init1", "name:sidecar1"],
        1,
        &["name:containerinvalid", "name:"],
        json!({"phase": "Running"}),
        ["0/2", "Init:0/2", "0"],
    );
}

#[test]
fn pods_in_wide_output() {
    let gates = json!([{"conditionType": "c1"}, {"conditionType": "c2"}, {"conditionType": "c3"}]);
    let mut object = json!({
        "metadata": {"name": "p"},
        "spec": {"containers": [{}], "nodeName": "n", "readinessGates": gates},
        "status": {
            "conditions": [{"type": "c1", "status": "False"}, {"type": "c2", "status": "True"}],
            "phase": "Pending", "podIPs": [{"ip": "1.1.1.1"}, {"ip": "2001:db8::"}], "nominatedNodeName": "node1",
        },
    });
    let head = ["p", "0/1", "Pending", "0", "<unknown>"];
    let row = |tail: [&str; 4]| Value::from([&head[..], &tail].concat());
    check("Pod", object.clone(), row(["1.1.1.1", "n", "node1", "1/3"]));
    object["spec"] = json!({"containers": [{}]});
    object["status"] = json!({"phase": "Pending"});
    check("Pod", object, row(["<none>", "<none>", "<none>", "<none>"]));
}

#[test]
fn jobs() {
    let job = |spec: Value, status: Value, expected: [&str; 3]| {
        let object = json!({"metadata": {"name": "j", "creationTimestamp": ago(0)}, "spec": spec, "status": status});
        let [word, completions, duration] = expected;
        check("Job", object, json!(["j", word, completions, duration, "0s"]));
    };
    let condition = |kind: &str| json!({"conditions": [{"type": kind, "status": "True"}]});
    job(json!({"completions": 2}), json!({"succeeded": 1}), ["Running", "1/2", ""]);
    job(json!({}), json!({}), ["Running", "0/1", ""]);
    job(json!({"parallelism": 3}), json!({"succeeded": 1}), ["Running", "1/1 of 3", ""]);
    job(json!({"parallelism": 1}), json!({}), ["Running", "0/1", ""]);
    job(json!({}), json!({"startTime": ago(1860), "completionTime": ago(60)}), ["Running", "0/1", "30m"]);
    job(json!({}), json!({"startTime": ago(1200)}), ["Running", "0/1", "20m"]);
    for kind in ["Complete", "Failed", "Suspended", "FailureTarget", "SuccessCriteriaMet"] {
        job(json!({}), condition(kind), [kind, "0/1", ""]);
    }
    let deleted = json!({"metadata": {"name": "j", "deletionTimestamp": ago(0)}, "spec": {}, "status": {}});
    check("Job", deleted, json!(["j", "Terminating", "0/1", "", "<unknown>"]));
    let selected = json!({
        "metadata": {"name": "j", "creationTimestamp": ago(0)},
        "spec": {
            "completions": 2, "selector": {"matchLabels": {"l": "v"}},
            "template": {"spec": {"containers": [{"name": "c1", "image": "i1"}, {"name": "c2", "image": "i2"}]}},
        },
        "status": {"succeeded": 1},
    });
    check("Job", selected, json!(["j", "Running", "1/2", "", "0s", "c1,c2", "i1,i2", "l=v"]));
}

#[test]
fn cron_jobs() {
    let job = |spec: Value, status: Value, expected: Value| {
        let mut object =
            json!({"metadata": {"name": "c", "creationTimestamp": ago(300)}, "spec": spec, "status": status});
        object["spec"]["schedule"] = "0/5 * * * ?".into();
        check("CronJob", object, expected);
    };
    let suspend = json!({"suspend": false});
    let row = |zone: &str, last: &str| json!(["c", "0/5 * * * ?", zone, "False", 0, last, "5m"]);
    job(suspend.clone(), json!({"lastScheduleTime": ago(30)}), row("<none>", "30s"));
    job(json!({"suspend": false, "timeZone": "LOCAL"}), json!({"lastScheduleTime": ago(0)}), row("LOCAL", "0s"));
    job(suspend, json!({}), row("<none>", "<none>"));
    let running = json!({"active": [{"name": "a"}, {"name": "b"}]});
    job(json!({"suspend": true}), running, json!(["c", "0/5 * * * ?", "<none>", "True", 2, "<none>", "5m"]));
}

#[test]
fn autoscalers() {
    let check = |metrics: Value, current: Value, minimum: Value, expected: &str| {
        let least = minimum.as_i64().map_or("<unset>".to_owned(), |least| least.to_string());
        let object = json!({
            "metadata": {"name": "h"},
            "spec": {
                "scaleTargetRef": {"kind": "ReplicationController", "name": "rc"}, "maxReplicas": 10,
                "minReplicas": minimum, "metrics": metrics,
            },
            "status": {"currentReplicas": 4, "desiredReplicas": 5, "currentMetrics": current},
        });
        check(
            "HorizontalPodAutoscaler",
            object,
            json!(["h", "ReplicationController/rc", expected, least, 10, 4, "<unknown>"]),
        );
    };
    check(json!([]), json!([]), Value::Null, "<none>");
    let kinds = [
        ("External", "external", ["averageValue", "AverageValue"], "", " (avg)"),
        ("External", "external", ["value", "Value"], "", ""),
        ("Pods", "pods", ["averageValue", "AverageValue"], "", ""),
        ("Object", "object", ["value", "Value"], "", ""),
        ("Resource", "resource", ["averageValue", "AverageValue"], "cpu: ", ""),
        ("ContainerResource", "containerResource", ["averageValue", "AverageValue"], "cpu: ", ""),
    ];
    for (kind, field, [value, target], before, after) in kinds {
        let metric = json!([{"type": kind, field: {
            "name": "cpu", "metric": {"name": "m"}, "target": {"type": target, value: "100m"},
        }}]);
        let current =
            json!([{"type": kind, field: {"name": "cpu", "metric": {"name": "m"}, "current": {value: "50m"}}}]);
        check(metric.clone(), json!([]), json!(2), &format!("{before}<unknown>/100m{after}"));
        check(metric, current, json!(2), &format!("{before}50m/100m{after}"));
    }
    for (kind, field) in [("Resource", "resource"), ("ContainerResource", "containerResource")] {
        let metric = json!([{"type": kind, field: {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}]);
        let current = json!([{"type": kind, field: {"name": "cpu", "current": {"averageUtilization": 50, "averageValue": "40m"}}}]);
        check(metric.clone(), json!([]), json!(2), "cpu: <unknown>/80%");
        check(metric, current, json!(2), "cpu: 50%/80%");
    }
    let pods = |name: &str, amount: &str| json!({"type": "Pods", "pods": {"metric": {"name": name}, "target": {"type": "AverageValue", "averageValue": amount}}});
    let cpu = json!({"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}});
    let current = json!([
        {"type": "Pods", "pods": {"metric": {"name": "a"}, "current": {"averageValue": "50m"}}},
        {"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 50, "averageValue": "40m"}}},
    ]);
    check(json!([pods("a", "100m"), cpu, pods("b", "400m")]), current, json!(2), "50m/100m, cpu: 50%/80% + 1 more...");
}

#[test]
fn services() {
    let check = |spec: Value, ingress: Value, expected: [&str; 4]| {
        let object = json!({"metadata": {"name": "s"}, "spec": spec, "status": {"loadBalancer": {"ingress": ingress}}});
        let [kind, address, outside, ports] = expected;
        check("Service", object, json!(["s", kind, address, outside, ports, "<unknown>"]));
    };
    let spec = |kind: &str, ports: Value, outside: Value| json!({"type": kind, "clusterIP": "10.9.8.7", "clusterIPs": ["10.9.8.7"], "ports": ports, "externalIPs": outside});
    let one = json!([{"port": 8888, "protocol": "tcp"}]);
    let none = json!([]);
    let own = "10.9.8.7";
    check(spec("ClusterIP", one.clone(), none.clone()), none.clone(), ["ClusterIP", own, "<none>", "8888/tcp"]);
    let outside = json!(["80.11.12.10", "80.11.12.11"]);
    check(
        spec("ClusterIP", one.clone(), outside.clone()),
        none.clone(),
        ["ClusterIP", own, "80.11.12.10,80.11.12.11", "8888/tcp"],
    );
    let node = json!([{"port": 8888, "protocol": "tcp", "nodePort": 9999}]);
    check(spec("NodePort", node, none.clone()), none.clone(), ["NodePort", own, "<none>", "8888:9999/tcp"]);
    check(
        spec("LoadBalancer", one.clone(), none.clone()),
        none.clone(),
        ["LoadBalancer", own, "<pending>", "8888/tcp"],
    );
    let many = json!([
        {"port": 80, "protocol": "TCP"}, {"port": 8090, "protocol": "UDP"}, {"port": 7777, "protocol": "SCTP"},
    ]);
    let addresses = json!([{"ip": "2.3.4.5"}, {"ip": "3.4.5.6"}, {"ip": "5.6.7.8", "hostname": "host5678"}]);
    check(
        spec("LoadBalancer", many, none.clone()),
        addresses,
        ["LoadBalancer", own, "2.3.4.5,3.4.5.6,5.6.7.8", "80/TCP,8090/UDP,7777/SCTP"],
    );
    check(
        spec("LoadBalancer", one.clone(), json!(["80.11.12.10"])),
        none.clone(),
        ["LoadBalancer", own, "80.11.12.10", "8888/tcp"],
    );
    check(
        spec("LoadBalancer", one, outside),
        json!([{"ip": "2.3.4.5"}, {"hostname": "a.example"}]),
        ["LoadBalancer", own, "2.3.4.5,a.example,80.11.12.10,80.11.12.11", "8888/tcp"],
    );
    let named = json!({"type": "ExternalName", "externalName": "my.database.example.com"});
    check(named, none, ["ExternalName", "<none>", "my.database.example.com", "<none>"]);
}

#[test]
fn nodes() {
    let check = |labels: Value, unschedulable: bool, conditions: Value, expected: [&str; 2]| {
        let object = json!({
            "metadata": {"name": "n", "labels": labels}, "spec": {"unschedulable": unschedulable}, "status": {"conditions": conditions},
        });
        check("Node", object, json!(["n", expected[0], expected[1], "<unknown>", ""]));
    };
    let ready = |status: &str| json!([{"type": "Ready", "status": status}]);
    check(json!({}), false, ready("True"), ["Ready", "<none>"]);
    check(json!({}), true, ready("True"), ["Ready,SchedulingDisabled", "<none>"]);
    check(json!({}), false, ready("False"), ["NotReady", "<none>"]);
    check(json!({}), false, ready("Unknown"), ["NotReady", "<none>"]);
    check(json!({}), true, ready("False"), ["NotReady,SchedulingDisabled", "<none>"]);
    check(json!({}), false, json!([{"type": "InvalidValue", "status": "True"}]), ["Unknown", "<none>"]);
    check(json!({}), true, json!([{}]), ["Unknown,SchedulingDisabled", "<none>"]);
    let roles = json!({
        "node-role.kubernetes.io/master": "", "node-role.kubernetes.io/control-plane": "",
        "node-role.kubernetes.io/proxy": "", "kubernetes.io/role": "node",
    });
    check(roles, false, json!([]), ["Unknown", "control-plane,master,node,proxy"]);
    check(json!({"kubernetes.io/role": "node"}), false, json!([]), ["Unknown", "node"]);
}

#[test]
fn volumes_and_claims() {
    let volume = |spec: Value, phase: &str, expected: Value| {
        let mut object = json!({"metadata": {"name": "v"}, "spec": spec, "status": {"phase": phase}});
        object["spec"]["claimRef"] = json!({"name": "test", "namespace": "default"});
        object["spec"]["capacity"] = json!({"storage": "4Gi"});
        check("PersistentVolume", object, expected);
    };
    for (mode, short) in
        [("ReadOnlyMany", "ROX"), ("ReadWriteMany", "RWX"), ("ReadWriteOnce", "RWO"), ("ReadWriteOncePod", "RWOP")]
    {
        for phase in ["Bound", "Failed", "Pending", "Available", "Released"] {
            let row = json!(["v", "4Gi", short, "", phase, "default/test", "", "<unset>", "", "<unknown>", "<unset>"]);
            volume(json!({"accessModes": [mode]}), phase, row);
        }
    }
    let classes = json!({
        "accessModes": ["ReadWriteOnce"], "storageClassName": "scn", "volumeAttributesClassName": "vacn", "volumeMode": "Block",
    });
    let row = json!(["v", "4Gi", "RWO", "", "Pending", "default/test", "scn", "vacn", "", "<unknown>", "Block"]);
    volume(classes, "Pending", row);
    let claim = |spec: Value, phase: &str, expected: Value| {
        let status = json!({"phase": phase, "accessModes": ["ReadOnlyMany"], "capacity": {"storage": "4Gi"}});
        check("PersistentVolumeClaim", json!({"metadata": {"name": "c"}, "spec": spec, "status": status}), expected);
    };
    let bound = json!({"volumeName": "my-volume", "volumeMode": "Filesystem"});
    claim(bound, "Bound", json!(["c", "Bound", "my-volume", "4Gi", "ROX", "", "<unset>", "<unknown>", "Filesystem"]));
    // A claim without a volume has neither size nor modes.
    let lost = json!(["c", "Lost", "", "", "", "", "<unset>", "<unknown>", "Filesystem"]);
    claim(json!({"volumeMode": "Filesystem"}), "Lost", lost);
    let classes = json!({"volumeName": "v", "storageClassName": "scn", "volumeAttributesClassName": "vacn"});
    claim(classes, "Pending", json!(["c", "Pending", "v", "4Gi", "ROX", "scn", "vacn", "<unknown>", "<unset>"]));
}

#[test]
fn certificate_requests() {
    let check = |spec: Value, status: Value, expected: [&str; 4]| {
        let object = json!({"metadata": {"name": "c", "creationTimestamp": ago(0)}, "spec": spec, "status": status});
        let [signer, user, lasts, word] = expected;
        check("CertificateSigningRequest", object, json!(["c", "0s", signer, user, lasts, word]));
    };
    let signed = json!({"username": "u", "signerName": "example.com/s"});
    let approved = json!({"conditions": [{"type": "Approved"}]});
    check(signed.clone(), json!({}), ["example.com/s", "u", "<none>", "Pending"]);
    check(signed.clone(), approved.clone(), ["example.com/s", "u", "<none>", "Approved"]);
    let week = json!({"username": "u", "signerName": "example.com/s", "expirationSeconds": 608_400});
    check(week, approved, ["example.com/s", "u", "7d1h", "Approved"]);
    let issued = json!({"conditions": [{"type": "Approved"}], "certificate": "Y2VydCBkYXRh"});
    check(signed.clone(), issued, ["example.com/s", "u", "<none>", "Approved,Issued"]);
    check(signed.clone(), json!({"conditions": [{"type": "Denied"}]}), ["example.com/s", "u", "<none>", "Denied"]);
    let failed = json!({"conditions": [{"type": "Approved"}, {"type": "Failed"}]});
    check(signed, failed, ["example.com/s", "u", "<none>", "Approved,Failed"]);
}

#[test]
fn small_kinds() {
    let named = |seconds: i64| json!({"name": "x", "creationTimestamp": ago(seconds)});
    let with = |mut object: Value| {
        object["metadata"] = named(300);
        object
    };
    let ip = |addresses: &[&str]| addresses.iter().map(|ip| json!({"ip": ip})).collect::<Value>();
    let two = ip(&["1.2.3.4", "5.6.7.8"]);
    let four = ip(&["1.2.3.4", "5.6.7.8", "9.8.7.6", "6.6.6.6"]);
    check("Endpoints", with(json!({})), json!(["x", "<none>", "5m"]));
    check("Endpoints", with(json!({"subsets": [{"addresses": two}]})), json!(["x", "1.2.3.4,5.6.7.8", "5m"]));
    let subsets = json!({"subsets": [{"addresses": four, "ports": [{"port": 8001}]}]});
    check("Endpoints", with(subsets), json!(["x", "1.2.3.4:8001,5.6.7.8:8001,9.8.7.6:8001 + 1 more...", "5m"]));
    let ports: Value = [80, 443, 3000, 3001].iter().map(|port| json!({"port": port})).collect();
    let slice = json!({"addressType": "IPv4", "ports": ports, "endpoints": [
        {"addresses": ["10.1.2.3", "2001:db8::1234:5678"]}, {"addresses": ["10.2.3.4", "2001:db8::2345:6789"]},
    ]});
    let addresses = "10.1.2.3,2001:db8::1234:5678,10.2.3.4 + 1 more...";
    check("EndpointSlice", with(slice), json!(["x", "IPv4", "80,443,3000 + 1 more...", addresses, "5m"]));
    check("EndpointSlice", with(json!({"addressType": "IPv6"})), json!(["x", "IPv6", "<unset>", "<unset>", "5m"]));
    let budget =
        |field: &str, amount: Value| with(json!({"spec": {field: amount}, "status": {"disruptionsAllowed": 5}}));
    check("PodDisruptionBudget", budget("minAvailable", json!(22)), json!(["x", "22", "N/A", 5, "5m"]));
    check("PodDisruptionBudget", budget("maxUnavailable", json!("11%")), json!(["x", "N/A", "11%", 5, "5m"]));
    check("Lease", with(json!({"spec": {"holderIdentity": "holder2"}})), json!(["x", "holder2", "5m"]));
    check("Lease", with(json!({"spec": {}})), json!(["x", "", "5m"]));
    let class =
        with(json!({"value": 1_000_000_000, "globalDefault": true, "preemptionPolicy": "PreemptLowerPriority"}));
    check("PriorityClass", class, json!(["x", 1_000_000_000, true, "5m", "PreemptLowerPriority"]));
    check("PriorityClass", with(json!({"value": 1})), json!(["x", 1, false, "5m", ""]));
    let flow = |method: Value, conditions: Value| {
        with(json!({
            "spec": {"priorityLevelConfiguration": {"name": "allee"}, "matchingPrecedence": 7, "distinguisherMethod": method},
            "status": {"conditions": conditions},
        }))
    };
    let dangling = json!([{"type": "Dangling", "status": "True"}]);
    check("FlowSchema", flow(json!({"type": "ByUser"}), json!([])), json!(["x", "allee", 7, "ByUser", "5m", "?"]));
    check(
        "FlowSchema",
        flow(json!({"type": "ByNamespace"}), dangling),
        json!(["x", "allee", 7, "ByNamespace", "5m", "True"]),
    );
    check("FlowSchema", flow(Value::Null, json!([])), json!(["x", "allee", 7, "<none>", "5m", "?"]));
    let level = |spec: Value| with(json!({"spec": spec}));
    let none = "<none>";
    check(
        "PriorityLevelConfiguration",
        level(json!({"type": "Exempt"})),
        json!(["x", "Exempt", none, none, none, none, "5m"]),
    );
    let limited =
        json!({"type": "Limited", "limited": {"nominalConcurrencyShares": 47, "limitResponse": {"type": "Reject"}}});
    check("PriorityLevelConfiguration", level(limited), json!(["x", "Limited", 47, none, none, none, "5m"]));
    let queuing = json!({"queues": 8, "handSize": 3, "queueLengthLimit": 4});
    let queued = json!({"type": "Limited", "limited": {
        "nominalConcurrencyShares": 42, "limitResponse": {"type": "Queue", "queuing": queuing},
    }});
    check("PriorityLevelConfiguration", level(queued), json!(["x", "Limited", 42, 8, 3, 4, "5m"]));
    check("ResourceClaim", with(json!({"spec": {}})), json!(["x", "pending", "5m"]));
    let reserved = json!({"status": {"allocation": {}, "reservedFor": [{"resource": "pods", "name": "p"}]}});
    check("ResourceClaim", with(reserved), json!(["x", "allocated,reserved", "5m"]));
    let deleted = json!({"metadata": {"name": "x", "creationTimestamp": ago(300), "deletionTimestamp": ago(0)}});
    check("ResourceClaim", deleted, json!(["x", "deleted", "5m"]));
    check("ResourceClaimTemplate", with(json!({"spec": {"spec": {}}})), json!(["x", "5m"]));
    let set = with(json!({
        "spec": {
            "replicas": 5, "selector": {"matchLabels": {"foo": "bar"}},
            "template": {"spec": {"containers": [{"name": "c1", "image": "i1"}, {"name": "c2", "image": "i2"}]}},
        },
        "status": {"replicas": 5, "readyReplicas": 2},
    }));
    check("ReplicaSet", set, json!(["x", 5, 5, 2, "5m", "c1,c2", "i1,i2", "foo=bar"]));
}
