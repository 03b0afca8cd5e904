//! Pods and workloads against answers of an upstream v1.36: what defaulting makes of a request, what is refused and
//! in which words, and the rows that `kubectl get` shows.

use jiff::Timestamp;
use machinery::field::Errors;
use machinery::kind::Kind;
use machinery::node::Node;
use machinery::schema::conform::{Problems, conform};
use machinery::status::Status;
use serde_json::{Value, json};

fn kind(name: &str) -> &'static Kind {
    api::KINDS.iter().find(|kind| kind.kind == name).expect("a kind of the table")
}

fn lines(text: &str) -> impl Iterator<Item = Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON"))
}

/// The object as it stands before rules run: types checked, nulls gone, quantities in canonical form.
fn conformed(object: &Value) -> Value {
    let (mut object, mut problems) = (object.clone(), Problems::default());
    let ty = api::schema::type_of(object_kind(&object));
    conform(&mut object, ty, &mut problems).expect("an object of its kind");
    object
}

fn object_kind(object: &Value) -> &'static Kind {
    kind(object["kind"].as_str().expect("a kind"))
}

#[test]
fn defaults() {
    for line in lines(include_str!("testdata/workloads/defaults.jsonl")) {
        let (mut object, mut expected) = (conformed(&line["request"]), line["response"].clone());
        let kind = object_kind(&object);
        // The uid is there before a kind prepares its object.
        let uid = expected.pointer("/spec/selector/matchLabels/batch.kubernetes.io~1controller-uid").cloned();
        object["metadata"]["uid"] = uid.unwrap_or_else(|| "u".into());
        (kind.defaults)(&mut object);
        (kind.prepare_create)(&mut object);
        let mut again = object.clone();
        (kind.defaults)(&mut again);
        assert_eq!(again, object, "defaults are stable");
        without_admission(&mut expected);
        for field in ["uid", "namespace", "generation"] {
            object["metadata"].as_object_mut().expect("a map").remove(field);
            expected["metadata"].as_object_mut().expect("a map").remove(field);
        }
        assert_eq!(pretty(&object), pretty(&expected), "{}", line["request"]);
    }
}

/// Takes out what admission adds to a Pod: the service account and its token, tolerations, priority.
fn without_admission(object: &mut Value) {
    if object["kind"] != "Pod" {
        return;
    }
    let spec = object["spec"].as_object_mut().expect("a map");
    for field in ["serviceAccountName", "serviceAccount", "priority", "preemptionPolicy"] {
        spec.remove(field);
    }
    let added = |item: &Value, field: &str, prefix: &str| item[field].as_str().unwrap_or("").starts_with(prefix);
    let drop = |owner: &mut serde_json::Map<String, Value>, list: &str, field: &str, prefix: &str| {
        if let Some(items) = owner.get_mut(list).and_then(Value::as_array_mut) {
            items.retain(|item| !added(item, field, prefix));
            if items.is_empty() {
                owner.remove(list);
            }
        }
    };
    drop(spec, "volumes", "name", "kube-api-access");
    drop(spec, "tolerations", "key", "node.kubernetes.io");
    for list in ["containers", "initContainers"] {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            drop(container.as_object_mut().expect("a map"), "volumeMounts", "name", "kube-api-access");
        }
    }
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).expect("JSON")
}

#[test]
fn errors() {
    for line in lines(include_str!("testdata/workloads/errors.jsonl")) {
        let mut object = conformed(&line["request"]);
        let kind = object_kind(&object);
        object["metadata"]["uid"] = "u".into();
        (kind.defaults)(&mut object);
        (kind.prepare_create)(&mut object);
        let mut errors = Errors::default();
        (kind.validate)(&Node::root(&object), &mut errors);
        let name = object["metadata"]["name"].as_str().expect("a name");
        let status = Status::invalid(kind.group, kind.kind, name, &errors);
        assert_eq!(status.message, line["message"], "{}", line["request"]);
        let answer = status.to_value();
        assert_eq!(answer["details"]["causes"], line["causes"], "{}", line["request"]);
    }
}

#[test]
fn rows_of_pods() {
    let expected = include_str!("testdata/workloads/pods.txt").lines().skip(1);
    for (pod, expected) in lines(include_str!("testdata/workloads/pods.jsonl")).zip(expected) {
        // Columns stand two blanks apart at least; a cell holds single blanks at most.
        let expected: Vec<&str> = expected.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
        assert_eq!(cells("Pod", &pod), expected);
    }
}

#[test]
fn rows_of_workloads() {
    let expected = include_str!("testdata/workloads/workloads.txt").lines();
    for (object, expected) in lines(include_str!("testdata/workloads/workloads.jsonl")).zip(expected) {
        let name = object["kind"].as_str().expect("a kind");
        let all = cells(name, &object);
        let narrow = kind(name).columns.iter().filter(|column| column.priority == 0).count();
        assert_eq!(all[..narrow].join("|"), expected);
        assert_eq!(all.len(), kind(name).columns.len(), "{name}");
    }
}

fn cells(name: &str, object: &Value) -> Vec<String> {
    let now: Timestamp = "2026-11-15T08:17:31Z".parse().expect("a time");
    let row = (kind(name).row)(object, now);
    row.into_iter().map(|cell| cell.as_str().map_or_else(|| cell.to_string(), str::to_string)).collect()
}

/// A good object of a kind, defaulted, for tests that break one thing in it.
fn good(name: &str, spec: Value) -> Value {
    let mut object = json!({ "metadata": { "name": "x", "uid": "u" }, "spec": spec });
    (kind(name).defaults)(&mut object);
    (kind(name).prepare_create)(&mut object);
    object
}

fn check_update(name: &str, old: &Value, change: impl Fn(&mut Value), expected: &[&str]) {
    let mut new = old.clone();
    change(&mut new);
    (kind(name).defaults)(&mut new);
    (kind(name).prepare_update)(&mut new, old);
    let mut errors = Errors::default();
    (kind(name).validate_update)(&Node::root(&new), &Node::root(old), &mut errors);
    let found: Vec<String> = errors.0.iter().map(|error| format!("{}: {}", error.field, error.message())).collect();
    assert_eq!(found.len(), expected.len(), "{found:?}");
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.starts_with(expected), "{found} does not start with {expected}");
    }
}

#[test]
fn updates_of_pods() {
    let spec = json!({
        "containers": [{ "name": "c", "image": "x" }],
        "tolerations": [{ "key": "a", "operator": "Exists" }],
    });
    let old = good("Pod", spec);
    let check = |change: &dyn Fn(&mut Value), expected: &[&str]| check_update("Pod", &old, change, expected);
    check(&|_| {}, &[]);
    check(&|pod| pod["spec"]["containers"][0]["image"] = "y".into(), &[]);
    check(&|pod| pod["spec"]["activeDeadlineSeconds"] = 5.into(), &[]);
    check(
        &|pod| pod["spec"]["containers"][0]["command"] = json!(["z"]),
        &["spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,\
         `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing \
         tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)\n@@ "],
    );
    check(
        &|pod| pod["spec"]["containers"].as_array_mut().unwrap().push(json!({ "name": "d", "image": "x" })),
        &["spec.containers: Forbidden: pod updates may not add or remove containers"],
    );
    check(
        &|pod| pod["spec"]["tolerations"] = json!([]),
        &["spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds"],
    );
    check(
        &|pod| pod["spec"]["tolerations"][0]["effect"] = "NoExecute".into(),
        &["spec.tolerations: Forbidden: existing toleration can not be modified"],
    );
}

#[test]
fn updates_of_workloads() {
    let template = json!({
        "metadata": { "labels": { "a": "b" } },
        "spec": { "containers": [{ "name": "c", "image": "x" }] },
    });
    let selector = json!({ "matchLabels": { "a": "b" } });
    let spec = json!({ "selector": selector, "template": template });
    for name in ["Deployment", "ReplicaSet", "DaemonSet"] {
        let old = good(name, spec.clone());
        check_update(name, &old, |new| new["spec"]["replicas"] = 3.into(), &[]);
        let widen = |new: &mut Value| {
            new["spec"]["template"]["metadata"]["labels"]["c"] = "d".into();
            new["spec"]["selector"]["matchLabels"]["c"] = "d".into();
        };
        let message = r#"spec.selector: Invalid value: {"matchLabels":{"a":"b","c":"d"}}: field is immutable"#;
        check_update(name, &old, widen, &[message]);
    }
    let old = good("StatefulSet", spec);
    check_update("StatefulSet", &old, |new| new["spec"]["replicas"] = 3.into(), &[]);
    check_update(
        "StatefulSet",
        &old,
        |new| new["spec"]["serviceName"] = "s".into(),
        &["spec: Forbidden: updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', \
         'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are \
         forbidden"],
    );
    let job =
        json!({ "template": { "spec": { "restartPolicy": "Never", "containers": [{ "name": "c", "image": "x" }] } } });
    let old = good("Job", job);
    check_update("Job", &old, |new| new["spec"]["parallelism"] = 3.into(), &[]);
    check_update(
        "Job",
        &old,
        |new| new["spec"]["completions"] = 3.into(),
        &["spec.completions: Invalid value: 3: field is immutable"],
    );
    check_update(
        "Job",
        &old,
        |new| new["spec"]["template"]["spec"]["nodeSelector"] = json!({ "a": "b" }),
        &["spec.template: Invalid value: "],
    );
}

fn check_create(name: &str, spec: Value, expected: &[&str]) {
    let object = good(name, spec);
    let mut errors = Errors::default();
    (kind(name).validate)(&Node::root(&object), &mut errors);
    let found: Vec<String> = errors.0.iter().map(|error| format!("{}: {}", error.field, error.message())).collect();
    assert_eq!(found, expected, "{object}");
}

/// A spec with a template whose pods are restarted by that policy, and more.
fn spec_with(restart_policy: &str, more: Value) -> Value {
    let mut spec = json!({ "template": {
        "metadata": { "labels": { "a": "b" } },
        "spec": { "restartPolicy": restart_policy, "containers": [{ "name": "c", "image": "x" }] },
    } });
    let fields = spec.as_object_mut().expect("a map");
    fields.extend(more.as_object().expect("a map").clone());
    spec
}

#[test]
fn refused_jobs() {
    let check = |policy: &str, more: Value, expected: &[&str]| check_create("Job", spec_with(policy, more), expected);
    check("Never", json!({}), &[]);
    check("Never", json!({ "completionMode": "Indexed", "completions": 3, "backoffLimitPerIndex": 1 }), &[]);
    check(
        "Never",
        json!({ "backoffLimitPerIndex": 1 }),
        &["spec.backoffLimitPerIndex: Invalid value: 1: requires indexed completion mode"],
    );
    let rules = json!({ "rules": [{ "action": "Ignore" }, { "action": "X", "onExitCodes": { "operator": "In", "values": [0, 3, 2] } }] });
    check(
        "OnFailure",
        json!({ "podFailurePolicy": rules }),
        &[
            "spec.podFailurePolicy.rules[0]: Invalid value: specifying one of OnExitCodes and OnPodConditions is required",
            "spec.podFailurePolicy.rules[1].action: Unsupported value: \"X\": supported values: \"Count\", \"FailIndex\", \
         \"FailJob\", \"Ignore\"",
            "spec.podFailurePolicy.rules[1].onExitCodes.values[0]: Invalid value: 0: must not be 0 for the In operator",
            "spec.podFailurePolicy.rules[1].onExitCodes.values: Invalid value: [0,3,2]: must be ordered",
            "spec.template.spec.restartPolicy: Invalid value: \"OnFailure\": only \"Never\" is supported when \
         podFailurePolicy is specified",
        ],
    );
    let indexed = |policy: Value| json!({ "completionMode": "Indexed", "completions": 3, "successPolicy": policy });
    check(
        "Never",
        indexed(json!({ "rules": [{ "succeededIndexes": "0-1", "succeededCount": 3 }] })),
        &[
            "spec.successPolicy.rules[0].succeededCount: Invalid value: 3: must be less than or equal to 2 (the number of \
         indexes in the specified succeededIndexes field)",
        ],
    );
    check(
        "Never",
        indexed(json!({ "rules": [{ "succeededIndexes": "2-9" }] })),
        &["spec.successPolicy.rules[0].succeededIndexes: Invalid value: \"2-9\": error parsing succeededIndexes: too \
         large index: \"9\""],
    );
    check(
        "Never",
        json!({ "selector": { "matchLabels": { "x": "y" } } }),
        &[
            "spec.selector: Invalid value: \
         {\"matchLabels\":{\"batch.kubernetes.io/controller-uid\":\"u\",\"x\":\"y\"}}: `selector` not auto-generated",
            "spec.template.metadata.labels: Invalid value: {\"a\":\"b\",\"batch.kubernetes.io/controller-uid\":\"u\",\
         \"batch.kubernetes.io/job-name\":\"x\",\"controller-uid\":\"u\",\"job-name\":\"x\"}: `selector` does not match \
         template `labels`",
        ],
    );
    let manual = json!({ "manualSelector": true, "selector": { "matchLabels": { "a": "b" } } });
    check("Never", manual, &[]);
}

#[test]
fn refused_sets() {
    let selector = json!({ "matchLabels": { "a": "b" } });
    let check = |name: &str, more: Value, expected: &[&str]| {
        let mut spec = spec_with("Always", json!({ "selector": selector }));
        spec.as_object_mut().expect("a map").extend(more.as_object().expect("a map").clone());
        check_create(name, spec, expected);
    };
    let claim = json!({
        "metadata": { "name": "d" },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } },
    });
    let mounted = json!({ "metadata": { "labels": { "a": "b" } }, "spec": { "containers": [
        { "name": "c", "image": "x", "volumeMounts": [{ "name": "d", "mountPath": "/d" }] },
    ] } });
    check("StatefulSet", json!({ "volumeClaimTemplates": [claim], "template": mounted }), &[]);
    check(
        "StatefulSet",
        json!({ "template": mounted }),
        &["spec.template.spec.containers[0].volumeMounts[0].name: Not found: \"d\""],
    );
    check(
        "StatefulSet",
        json!({ "updateStrategy": { "type": "OnDelete", "rollingUpdate": { "partition": 1 } } }),
        &[
            "spec.updateStrategy.rollingUpdate: Invalid value: {\"Partition\":1,\"MaxUnavailable\":null}: only allowed for \
         updateStrategy 'RollingUpdate'",
        ],
    );
    check(
        "StatefulSet",
        json!({ "selector": {} }),
        &["spec.selector: Invalid value: {}: empty selector is invalid for statefulset"],
    );
    let surge = json!({ "updateStrategy": { "rollingUpdate": { "maxUnavailable": "101%", "maxSurge": 0 } } });
    check(
        "DaemonSet",
        surge,
        &["spec.updateStrategy.rollingUpdate.maxUnavailable: Invalid value: \"101%\": must not be greater than 100%"],
    );
    check(
        "DaemonSet",
        json!({ "updateStrategy": { "rollingUpdate": { "maxUnavailable": 0, "maxSurge": 0 } } }),
        &["spec.updateStrategy.rollingUpdate.maxUnavailable: Required value: cannot be 0 when maxSurge is 0"],
    );
    check(
        "Deployment",
        json!({ "strategy": { "rollingUpdate": { "maxSurge": "x" } } }),
        &[
            "spec.strategy.rollingUpdate.maxSurge: Invalid value: \"x\": a valid percent string must be a numeric string \
         followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')",
        ],
    );
    check(
        "ReplicaSet",
        json!({ "selector": { "matchExpressions": [{ "key": "a", "operator": "Is" }] } }),
        &[
            "spec.selector.matchExpressions[0].operator: Invalid value: \"Is\": not a valid selector operator",
            "spec.selector: Invalid value: {\"matchExpressions\":[{\"key\":\"a\",\"operator\":\"Is\"}]}: invalid label \
         selector",
        ],
    );
    check_create(
        "ReplicationController",
        spec_with("Never", json!({})),
        &["spec.template.spec.restartPolicy: Unsupported value: \"Never\": supported values: \"Always\""],
    );
}
