//! Rules in upstream's words, of kinds that have no suite of their own: a good object, one change at a time.

use serde_json::{Value, json};

use crate::testing::Rules;

#[track_caller]
fn check(rules: &Rules, changes: Value, expected: &[&str]) {
    rules.create(changes, expected);
}

#[test]
fn priority_levels_say_their_type() {
    let rules = Rules::of(json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "PriorityLevelConfiguration", "metadata": {"name": "l"},
        "spec": {"type": "Limited", "limited": {"limitResponse": {"type": "Reject"}}},
    }));
    check(&rules, json!({"spec": {"type": ""}}), &["spec.type: Required value"]);
    check(
        &rules,
        json!({"spec": {"type": "Free"}}),
        &["spec.type: Unsupported value: \"Free\": supported values: \"Exempt\", \"Limited\""],
    );
    let response = |kind: &str| json!({"spec": {"limited": {"limitResponse": {"type": kind}}}});
    check(&rules, response(""), &["spec.limited.limitResponse.type: Required value"]);
    check(
        &rules,
        response("Drop"),
        &["spec.limited.limitResponse.type: Unsupported value: \"Drop\": supported values: \"Queue\", \"Reject\""],
    );
    let key = "flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares";
    check(
        &rules,
        json!({"metadata": {"annotations": {key: ""}}}),
        &[&format!("metadata.annotations: Forbidden: annotation '{key}' is forbidden")],
    );
}

#[test]
fn tolerations_of_runtime_classes_are_told_apart_without_their_seconds() {
    let rules = Rules::of(
        json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "r"}, "handler": "h"}),
    );
    let tolerations = |first: i64, effect: &str| {
        let one = |seconds: i64, effect: &str| json!({"key": "k", "operator": "Exists", "effect": effect, "tolerationSeconds": seconds});
        json!({"scheduling": {"tolerations": [one(first, "NoExecute"), one(10, effect)]}})
    };
    check(
        &rules,
        tolerations(5, "NoExecute"),
        &[
            "scheduling.tolerations[1]: Duplicate value: {\"Key\":\"k\",\"Operator\":\"Exists\",\"Value\":\"\",\"Effect\":\
           \"NoExecute\",\"TolerationSeconds\":10}",
        ],
    );
}

#[test]
fn parents_of_addresses_are_for_ever() {
    let rules = Rules::of(json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "IPAddress", "metadata": {"name": "10.0.0.1"},
        "spec": {"parentRef": {"resource": "services", "name": "s", "namespace": "n"}},
    }));
    rules.update(json!({"metadata": {"labels": {"a": "b"}}}), &[]);
    rules.update(
        json!({"spec": {"parentRef": {"name": "t"}}}),
        &["spec.parentRef: Invalid value: {\"Group\":\"\",\"Resource\":\"services\",\"Namespace\":\"n\",\"Name\":\"t\"}: \
           field is immutable"],
    );
}

#[test]
fn names_of_signers() {
    let request = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0K";
    let object = json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": "c"},
        "spec": {"request": request, "signerName": "example.com/a", "usages": ["client auth"]},
    });
    let signer = |name: &str| {
        let mut object = object.clone();
        object["spec"]["signerName"] = name.into();
        let mut errors = machinery::field::Errors::default();
        (crate::certificates::certificatesigningrequest::KIND.validate)(
            &machinery::node::Node::root(&object),
            &mut errors,
        );
        let told = errors.0.iter().filter(|error| error.field == "spec.signerName");
        told.map(|error| error.message().split(" (e.g.").next().unwrap_or_default().to_owned()).collect::<Vec<_>>()
    };
    let none: [&str; 0] = [];
    let form = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
    let subdomain = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
                     start and end with an alphanumeric character";
    assert_eq!(signer("example.com/a.b"), none);
    assert_eq!(signer("example.com"), [format!("Invalid value: \"example.com\": {form}")]);
    assert_eq!(signer("a.b/c/d"), [format!("Invalid value: \"a.b/c/d\": {form}")]);
    assert_eq!(signer("example.com/"), [format!("Invalid value: \"\": validating label \"\": {subdomain}")]);
    assert_eq!(
        signer("example/a"),
        ["Invalid value: \"example\": should be a domain with at least two segments separated by dots"]
    );
    let long = "a".repeat(64);
    assert_eq!(
        signer(&format!("{long}.com/a")),
        [format!("Invalid value: \"{long}.com\": validating label \"{long}\": must be no more than 63 characters")]
    );
    let domain = ["a"; 128].join(".");
    assert_eq!(signer(&format!("{domain}/a")), ["Too long: may not be more than 253 bytes"]);
}

#[test]
fn counts_that_are_parts_of_others() {
    for (api_version, kind) in [("v1", "ReplicationController"), ("apps/v1", "ReplicaSet")] {
        let labels = json!({"app": "web"});
        let selector = if kind == "ReplicaSet" { json!({"matchLabels": labels}) } else { labels.clone() };
        let rules = Rules::of(json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "r"}, "spec": {
            "selector": selector,
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "x"}]}},
        }}));
        rules.status(json!({}), json!({"replicas": 2, "readyReplicas": 2, "availableReplicas": 2}), &[]);
        rules.status(
            json!({}),
            json!({"replicas": 1, "readyReplicas": 2}),
            &["status.readyReplicas: Invalid value: 2: cannot be greater than status.replicas"],
        );
        rules.status(
            json!({}),
            json!({"replicas": 2, "readyReplicas": 1, "availableReplicas": 2}),
            &["status.availableReplicas: Invalid value: 2: cannot be greater than readyReplicas"],
        );
    }
}

#[test]
fn a_job_that_runs_keeps_its_start() {
    let rules =
        Rules::of(json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "uid": "u"}, "spec": {
            "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]}},
        }}));
    let started = |minute: u8| json!({"startTime": format!("2030-01-01T00:0{minute}:00Z")});
    rules.status(json!({}), started(1), &[]);
    rules.status(started(1), started(1), &[]);
    rules.status(
        started(1),
        started(2),
        &["status.startTime: Invalid value: \"2030-01-01T00:02:00Z\": field is immutable for unsuspended job once set"],
    );
    rules.status(
        started(1),
        json!({}),
        &["status.startTime: Invalid value: null: field is immutable for unsuspended job once set"],
    );
}

#[test]
fn labels_are_told_from_subdomains() {
    let rules = Rules::of(
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "x"}]}}),
    );
    let container = |name: &str| json!({"spec": {"containers": [{"name": name}]}});
    check(&rules, container("a.b"), &["spec.containers[0].name: Invalid value: \"a.b\": must not contain dots"]);
    let words = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end \
                 with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
                 '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
    check(&rules, container("a..b"), &[&format!("spec.containers[0].name: Invalid value: \"a..b\": {words}")]);
    check(&rules, container("a_b"), &[&format!("spec.containers[0].name: Invalid value: \"a_b\": {words}")]);
}
