//! What an older server stored and today's rules refuse may stay as it is, and may not be written anew.

use serde_json::{Value, json};

use crate::testing::Rules;

/// The same object is refused when it is made, and taken when it is written over itself.
#[track_caller]
fn check(good: Value, bad: Value, refused: &[&str]) {
    let rules = Rules::of(good);
    rules.create(bad.clone(), refused);
    rules.update(bad.clone(), refused);
    rules.update_from(&bad, json!({"metadata": {"labels": {"touched": "yes"}}}), &[]);
}

fn webhooks(kind: &str) -> Value {
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": "w"}, "webhooks": [
        {"name": "a.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"], "clientConfig": {"url": "https://example.com/"}},
        {"name": "b.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"], "clientConfig": {"url": "https://example.com/"}},
    ]})
}

#[test]
fn webhooks_of_older_servers() {
    for kind in ["ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"] {
        let one = |change: Value, refused: &[&str]| check(webhooks(kind), json!({"webhooks": [change]}), refused);
        one(
            json!({"sideEffects": "Unknown"}),
            &["webhooks[0].sideEffects: Unsupported value: \"Unknown\": supported values: \"None\", \"NoneOnDryRun\""],
        );
        one(
            json!({"admissionReviewVersions": ["v7"]}),
            &["webhooks[0].admissionReviewVersions: Invalid value: [\"v7\"]: must include at least one of v1, v1beta1"],
        );
        check(
            webhooks(kind),
            json!({"webhooks": [{}, {"name": "a.example.com"}]}),
            &["webhooks[1].name: Duplicate value: \"a.example.com\""],
        );
        one(
            json!({"matchConditions": [{"name": "c", "expression": "nothing"}]}),
            &["webhooks[0].matchConditions[0].expression: Invalid value: \"nothing\": compilation failed: ERROR: \
               <input>:1:1: undeclared reference to 'nothing' (in container '')\n | nothing\n | ^"],
        );
        // Where one is unknown, another may be so, too; but no effect is made up.
        let effects = |effects: &str| json!({"webhooks": [{"sideEffects": effects}]});
        let rules = Rules::of(webhooks(kind));
        rules.update_from(&effects("Unknown"), effects("Some"), &[]);
        rules.update_from(
            &effects("Unknown"),
            effects("Maybe"),
            &["webhooks[0].sideEffects: Unsupported value: \"Maybe\": supported values: \"None\", \"NoneOnDryRun\", \"Some\", \"Unknown\""],
        );
    }
}

fn policy(kind: &str) -> Value {
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": "p"}, "spec": {
        "matchConstraints": {"resourceRules": [
            {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]},
        ]},
        "validations": [{"expression": "true"}],
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": "[JSONPatch{op: 'remove', path: '/a'}]"}}],
        "reinvocationPolicy": "Never",
    }})
}

fn validating_policy() -> Value {
    let mut policy = policy("ValidatingAdmissionPolicy");
    for field in ["mutations", "reinvocationPolicy"] {
        policy["spec"].as_object_mut().expect("a spec").remove(field);
    }
    policy
}

fn mutating_policy() -> Value {
    let mut policy = policy("MutatingAdmissionPolicy");
    policy["spec"].as_object_mut().expect("a spec").remove("validations");
    policy
}

#[test]
fn conditions_of_policies() {
    let refused = "spec.matchConditions[0].expression: Invalid value: \"params.x == 1\": compilation failed: ERROR: \
                   <input>:1:1: undeclared reference to 'params' (in container '')\n | params.x == 1\n | ^";
    let bad = json!({"spec": {"matchConditions": [{"name": "c", "expression": "params.x == 1"}]}});
    check(validating_policy(), bad.clone(), &[refused]);
    check(mutating_policy(), bad.clone(), &[refused]);
    // The parameters that are taken away may be what the condition asks.
    let with_params = json!({"spec": {
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "matchConditions": [{"name": "c", "expression": "params.x == 1"}],
    }});
    let rules = Rules::of(validating_policy());
    rules.create(with_params.clone(), &[]);
    rules.update_from(&with_params, json!({"spec": {"paramKind": null}}), &[refused]);
}

#[test]
fn mutating_policies_do_not_change_what_is_deleted() {
    let rules = Rules::of(mutating_policy());
    let on = |operation: &str| json!({"spec": {"matchConstraints": {"resourceRules": [{"operations": [operation]}]}}});
    rules.create(on("*"), &[]);
    rules.create(on("CONNECT"), &[]);
    let place = "spec.matchConstraints.resourceRules.operations: Unsupported value";
    rules.create(
        on("DELETE"),
        &[&format!("{place}: \"DELETE\": supported values: \"*\", \"CONNECT\", \"CREATE\", \"UPDATE\"")],
    );
}

#[test]
fn keys_of_audit_annotations_are_judged_with_their_prefix() {
    let rules = Rules::of(validating_policy());
    let key = |key: &str| json!({"spec": {"auditAnnotations": [{"key": key, "valueExpression": "'x'"}]}});
    rules.create(key("good"), &[]);
    let words = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric \
                 character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
                 '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
    rules.create(key("@"), &[&format!("spec.auditAnnotations[0].key: Invalid value: \"p/@\": name part {words}")]);
    rules.create(
        key("a/b"),
        &[&format!(
            "spec.auditAnnotations[0].key: Invalid value: \"p/a/b\": a valid label key {words} with an optional DNS \
             subdomain prefix and '/' (e.g. 'example.com/MyName')"
        )],
    );
}

#[test]
fn ingresses() {
    let ingress = json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "i"}, "spec": {
        "tls": [{"secretName": "s"}],
        "rules": [{"host": "*.example.com", "http": {"paths": [
            {"path": "/a", "pathType": "Prefix", "backend": {"service": {"name": "s", "port": {"number": 80}}}},
        ]}}],
    }});
    check(
        ingress.clone(),
        json!({"spec": {"rules": [{"http": {"paths": [{"path": "a"}]}}]}}),
        &["spec.rules[0].http.paths[0].path: Invalid value: \"a\": must be an absolute path"],
    );
    check(
        ingress.clone(),
        json!({"spec": {"tls": [{"secretName": "S"}]}}),
        &["spec.tls[0].secretName: Invalid value: \"S\": a lowercase RFC 1123 subdomain must consist of lower case \
           alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. \
           'example.com', regex used for validation is \
           '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"],
    );
    // Rules of plain hosts were always looked at.
    let plain = json!({"spec": {"rules": [{"host": "example.com", "http": {"paths": [{"path": "a"}]}}]}});
    Rules::of(ingress.clone()).update_from(
        &plain,
        json!({}),
        &["spec.rules[0].http.paths[0].path: Invalid value: \"a\": must be an absolute path"],
    );
    let points = |ip: &str| json!({"loadBalancer": {"ingress": [{"ip": ip}]}});
    let zeros = "status.loadBalancer.ingress[0].ip: Invalid value: \"001.2.3.4\": must not have leading 0s";
    Rules::of(ingress.clone()).status(json!({}), points("001.2.3.4"), &[zeros]);
    Rules::of(ingress).status(points("001.2.3.4"), points("001.2.3.4"), &[]);
}

#[test]
fn versions_of_described_objects() {
    let autoscaler = json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "h"}, "spec": {
        "maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
        "metrics": [{"type": "Object", "object": {
            "describedObject": {"apiVersion": "v1", "kind": "Service", "name": "s"},
            "metric": {"name": "m"}, "target": {"type": "Value", "value": "1"},
        }}],
    }});
    let version = |text: &str| json!({"spec": {"metrics": [{"object": {"describedObject": {"apiVersion": text}}}]}});
    check(
        autoscaler,
        version("a/b/c"),
        &[
            "spec.metrics[0].object.describedObject.apiVersion: Invalid value: \"a/b/c\": unexpected GroupVersion string: a/b/c",
        ],
    );
}

#[test]
fn sources_of_claims() {
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
    }});
    let words = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
                 start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
                 '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
    let bad = json!({"spec": {"dataSourceRef": {"apiGroup": "^a", "kind": "K", "name": "n"}}});
    let rules = Rules::of(claim);
    let refused = |field: &str| format!("spec.{field}.apiGroup: Invalid value: \"^a\": {words}");
    rules.create(bad.clone(), &[&refused("dataSource"), &refused("dataSourceRef")]);
    rules.update_from(&bad, json!({"metadata": {"labels": {"touched": "yes"}}}), &[]);
    rules.update_from(
        &json!({"metadata": {"annotations": {"volume.beta.kubernetes.io/storage-class": "a"}}}),
        json!({"metadata": {"annotations": {"volume.beta.kubernetes.io/storage-class": "b"}}}),
        &["metadata.annotations.volume.beta.kubernetes.io/storage-class: Invalid value: \"b\": field is immutable"],
    );
}

#[test]
fn addresses_of_services() {
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {
        "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
        "ports": [{"port": 80}],
    }});
    let zeros = json!({"spec": {"clusterIP": "10.0.0.01", "clusterIPs": ["10.0.0.01"]}});
    let rules = Rules::of(service);
    rules.create(zeros.clone(), &["spec.clusterIPs[0]: Invalid value: \"10.0.0.01\": must not have leading 0s"]);
    rules.update_from(&zeros, json!({"metadata": {"labels": {"touched": "yes"}}}), &[]);
}

#[test]
fn annotations_of_app_armor_become_fields() {
    let pod = |annotation: &str| {
        let key = "container.apparmor.security.beta.kubernetes.io/c";
        Rules::of(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "x"}]}}))
            .made(&json!({"metadata": {"annotations": {key: annotation}}}))
    };
    let profile =
        |annotation: &str| pod(annotation)["spec"]["containers"][0]["securityContext"]["appArmorProfile"].clone();
    assert_eq!(profile("runtime/default"), json!({"type": "RuntimeDefault"}));
    assert_eq!(profile("unconfined"), json!({"type": "Unconfined"}));
    assert_eq!(profile("localhost/mine"), json!({"type": "Localhost", "localhostProfile": "mine"}));
    assert_eq!(profile("localhost/"), Value::Null);
    assert_eq!(profile("nonsense"), Value::Null);
    let of_pod = json!({"metadata": {"annotations": {"container.apparmor.security.beta.kubernetes.io/c": "unconfined"}}, "spec": {"securityContext": {"appArmorProfile": {"type": "Unconfined"}}}});
    let made = Rules::of(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "x"}]}})).made(&of_pod);
    assert_eq!(made["spec"]["containers"][0].get("securityContext"), None);
    let told = (crate::core::pod::KIND.warnings)(&pod("unconfined"), None);
    assert_eq!(
        told,
        ["metadata.annotations[container.apparmor.security.beta.kubernetes.io/c]: deprecated since v1.30; use the \
          \"appArmorProfile\" field instead"]
    );
}

#[test]
fn label_values_of_node_affinity() {
    let terms = |value: &str| json!({"nodeSelectorTerms": [{"matchExpressions": [{"key": "k", "operator": "In", "values": [value]}]}]});
    let words = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
                 start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used \
                 for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
    let place = "nodeSelectorTerms[0].matchExpressions[0].values[0]: Invalid value: \"-1\"";
    let pod = Rules::of(
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "x"}]}}),
    );
    let affinity = |value: &str| json!({"spec": {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms(value)}}}});
    let required = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution";
    pod.create(affinity("-1"), &[&format!("{required}.{place}: {words}")]);
    pod.update_from(&affinity("-1"), json!({"metadata": {"labels": {"touched": "yes"}}}), &[]);
    let volume = Rules::of(json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/a"},
    }}));
    let affinity = |value: &str| json!({"spec": {"nodeAffinity": {"required": terms(value)}}});
    volume.create(affinity("-1"), &[&format!("spec.nodeAffinity.required.{place}: {words}")]);
    volume.update_from(&affinity("-1"), json!({"metadata": {"labels": {"touched": "yes"}}}), &[]);
    // What differs is shown under its Go names.
    volume.update_from(
        &affinity("a"),
        affinity("b"),
        &["nodeAffinity: Invalid value: {\"Required\":{\"NodeSelectorTerms\":[{\"MatchExpressions\":[{\"Key\":\"k\",\
           \"Operator\":\"In\",\"Values\":[\"b\"]}],\"MatchFields\":null}]}}: field is immutable, except for updating \
           from beta label to GA"],
    );
}
