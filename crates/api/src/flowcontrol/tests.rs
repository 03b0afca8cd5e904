//! Rules of flow schemas and priority levels: a good object, one change at a time, and what upstream (v1.36.4) says to it.

use serde_json::{Value, json};

use crate::testing::Rules;

fn flow_schema() -> Value {
    json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1",
        "kind": "FlowSchema",
        "metadata": {"name": "f"},
        "spec": {
            "priorityLevelConfiguration": {"name": "l"},
            "matchingPrecedence": 50,
            "rules": [
                {
                    "subjects": [{"kind": "User", "user": {"name": "ann"}}],
                    "resourceRules": [
                        {
                            "verbs": ["get"],
                            "apiGroups": [""],
                            "resources": ["pods"],
                            "namespaces": ["*"],
                        },
                    ],
                },
            ],
        },
    })
}

fn priority_level_configuration() -> Value {
    json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1",
        "kind": "PriorityLevelConfiguration",
        "metadata": {"name": "l"},
        "spec": {
            "type": "Limited",
            "limited": {
                "limitResponse": {"type": "Queue", "queuing": {"queues": 64, "handSize": 6, "queueLengthLimit": 50}},
            },
        },
    })
}

#[test]
fn flow_schemas_name_a_level_and_an_order() {
    let rules = Rules::of(flow_schema());
    let spec = |inner: Value| json!({"spec": inner});
    rules.create(
        spec(json!({"matchingPrecedence": 10001})),
        &["spec.matchingPrecedence: Invalid value: 10001: must not be greater than 10000"],
    );
    rules.create(
        spec(json!({"matchingPrecedence": -1})),
        &["spec.matchingPrecedence: Invalid value: -1: must be a positive value"],
    );
    rules.create(
        spec(json!({"priorityLevelConfiguration": {"name": ""}})),
        &["spec.priorityLevelConfiguration.name: Required value: must reference a priority level"],
    );
    rules.create(
        spec(json!({"priorityLevelConfiguration": {"name": "A"}})),
        &["spec.priorityLevelConfiguration.name: Invalid value: \"A\": a lowercase RFC 1123 subdomain \
             must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an \
             alphanumeric character (e.g. 'example.com', regex used for validation is \
             '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"],
    );
    rules.create(spec(json!({"distinguisherMethod": {"type": "ByUser"}})), &[]);
    rules.create(
        spec(json!({"distinguisherMethod": {"type": "ByColor"}})),
        &["spec.distinguisherMethod.type: Unsupported value: {\"Type\":\"ByColor\"}: supported values: \
             \"ByNamespace\", \"ByUser\""],
    );
}

#[test]
fn subjects_of_flow_schemas() {
    let rules = Rules::of(flow_schema());
    let subject = |inner: Value| json!({"spec": {"rules": [{"subjects": [inner]}]}});
    let rule = |inner: Value| json!({"spec": {"rules": [inner]}});
    rules.create(
        rule(json!({"subjects": null})),
        &["spec.rules[0].subjects: Required value: subjects must contain at least one value"],
    );
    rules.create(
        subject(json!({"kind": "Robot"})),
        &["spec.rules[0].subjects[0].kind: Unsupported value: \"Robot\": supported values: \"Group\", \
             \"ServiceAccount\", \"User\""],
    );
    rules.create(subject(json!({"user": {"name": ""}})), &["spec.rules[0].subjects[0].user.name: Required value"]);
    rules.create(
        subject(json!({"user": null})),
        &["spec.rules[0].subjects[0].user: Required value: user is required when subject kind is 'User'"],
    );
    rules.create(
        subject(json!({"group": {"name": "g"}})),
        &["spec.rules[0].subjects[0].group: Forbidden: group is forbidden when subject kind is not 'Group'"],
    );
    rules.create(
        subject(json!({"kind": "Group", "user": null, "group": {"name": ""}})),
        &["spec.rules[0].subjects[0].group.name: Required value"],
    );
    rules.create(
        subject(json!({"kind": "ServiceAccount", "user": null, "serviceAccount": {"namespace": "n", "name": "*"}})),
        &[],
    );
    rules.create(
        subject(json!({"kind": "ServiceAccount", "user": null, "serviceAccount": {"namespace": "", "name": ""}})),
        &[
            "spec.rules[0].subjects[0].serviceAccount.name: Required value",
            "spec.rules[0].subjects[0].serviceAccount.namespace: Required value: must specify namespace \
             for service account",
        ],
    );
    rules.create(
        subject(json!({"kind": "ServiceAccount", "user": null, "serviceAccount": {"namespace": "N", "name": "s_a"}})),
        &[
            "spec.rules[0].subjects[0].serviceAccount.name: Invalid value: \"s_a\": a lowercase RFC 1123 \
             subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and \
             end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
             '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
            "spec.rules[0].subjects[0].serviceAccount.namespace: Invalid value: \"N\": a lowercase RFC \
             1123 label must consist of lower case alphanumeric characters or '-', and must start and end \
             with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
             '[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
        ],
    );
}

#[test]
fn rules_of_flow_schemas() {
    let rules = Rules::of(flow_schema());
    let resources = |inner: Value| json!({"spec": {"rules": [{"resourceRules": [inner]}]}});
    let paths = |inner: Value| json!({"spec": {"rules": [{"nonResourceRules": [inner]}]}});
    let rule = |inner: Value| json!({"spec": {"rules": [inner]}});
    rules.create(
        rule(json!({"resourceRules": null})),
        &["spec.rules[0]: Required value: at least one of resourceRules and nonResourceRules has to be \
             non-empty"],
    );
    rules.create(resources(json!({"verbs": []})), &[]);
    rules.create(
        resources(json!({"verbs": ["*", "get"]})),
        &["spec.rules[0].resourceRules[0].verbs: Invalid value: [\"*\",\"get\"]: if '*' is present, must \
             not specify other verbs"],
    );
    rules.create(
        resources(json!({"verbs": ["fly"]})),
        &["spec.rules[0].resourceRules[0].verbs: Unsupported value: [\"fly\"]: supported values: \
             \"create\", \"delete\", \"deletecollection\", \"get\", \"list\", \"patch\", \"proxy\", \
             \"update\", \"watch\""],
    );
    rules.create(resources(json!({"apiGroups": []})), &[]);
    rules.create(
        resources(json!({"apiGroups": ["*", "apps"]})),
        &["spec.rules[0].resourceRules[0].apiGroups: Invalid value: [\"*\",\"apps\"]: if '*' is present, \
             must not specify other api groups"],
    );
    rules.create(resources(json!({"resources": []})), &[]);
    rules.create(
        resources(json!({"resources": ["*", "pods"]})),
        &["spec.rules[0].resourceRules[0].resources: Invalid value: [\"*\",\"pods\"]: if '*' is present, \
             must not specify other resources"],
    );
    rules.create(
        resources(json!({"namespaces": null})),
        &["spec.rules[0].resourceRules[0].namespaces: Required value: resource rules that are not \
             cluster scoped must supply at least one namespace"],
    );
    rules.create(resources(json!({"namespaces": null, "clusterScope": true})), &[]);
    rules.create(
        resources(json!({"namespaces": ["*", "a"]})),
        &["spec.rules[0].resourceRules[0].namespaces: Invalid value: [\"*\",\"a\"]: if '*' is present, \
             must not specify other namespaces"],
    );
    rules.create(
        resources(json!({"namespaces": ["a_b"]})),
        &["spec.rules[0].resourceRules[0].namespaces[0]: Invalid value: \"a_b\": each member of this \
             list must be '*' or a DNS-1123 label; a lowercase RFC 1123 label must consist of lower case \
             alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. \
             'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"],
    );
    rules.create(
        paths(json!({"verbs": ["get"], "nonResourceURLs": ["/healthz", "*"]})),
        &["spec.rules[0].nonResourceRules[0].nonResourceURLs: Invalid value: [\"/healthz\",\"*\"]: if \
             '*' is present, must not specify other non-resource URLs"],
    );
    rules.create(paths(json!({"verbs": ["get"], "nonResourceURLs": ["/healthz/*"]})), &[]);
    rules.create(
        paths(json!({"verbs": [], "nonResourceURLs": []})),
        &[
            "spec.rules[0].nonResourceRules[0].verbs: Required value: verbs must contain at least one value",
            "spec.rules[0].nonResourceRules[0].nonResourceURLs: Required value: nonResourceURLs must \
             contain at least one value",
        ],
    );
    rules.create(
        paths(json!({"verbs": ["list"], "nonResourceURLs": ["healthz"]})),
        &["spec.rules[0].nonResourceRules[0].nonResourceURLs[0]: Invalid value: \"healthz\": must start \
             with slash"],
    );
    rules.create(
        paths(json!({"verbs": ["get"], "nonResourceURLs": ["/a*b", "/a b"]})),
        &[
            "spec.rules[0].nonResourceRules[0].nonResourceURLs[0]: Invalid value: \"/a*b\": wildcard can \
             only do suffix matching",
            "spec.rules[0].nonResourceRules[0].nonResourceURLs[1]: Invalid value: \"/a b\": must not \
             contain white-space",
        ],
    );
}

#[test]
fn queues_of_priority_levels() {
    let rules = Rules::of(priority_level_configuration());
    let queuing = |inner: Value| json!({"spec": {"limited": {"limitResponse": {"queuing": inner}}}});
    let limited = |inner: Value| json!({"spec": {"limited": inner}});
    let spec = |inner: Value| json!({"spec": inner});
    rules.create(queuing(json!({"queues": 0})), &[]);
    rules.create(queuing(json!({"handSize": 0})), &[]);
    rules.create(
        queuing(json!({"handSize": 65})),
        &["spec.limited.limitResponse.queuing.handSize: Invalid value: 65: should not be greater than \
             queues (64)"],
    );
    rules.create(queuing(json!({"queueLengthLimit": 0})), &[]);
    rules.create(
        queuing(json!({"queues": 10000001})),
        &[
            "spec.limited.limitResponse.queuing.queues: Invalid value: 10000001: must not be greater than \
             10000000",
            "spec.limited.limitResponse.queuing.handSize: Invalid value: 6: required entropy bits of \
             deckSize 10000001 and handSize 6 should not be greater than 60",
        ],
    );
    rules.create(
        queuing(json!({"queues": 1000, "handSize": 30})),
        &["spec.limited.limitResponse.queuing.handSize: Invalid value: 30: required entropy bits of \
             deckSize 1000 and handSize 30 should not be greater than 60"],
    );
    rules.create(
        limited(json!({"nominalConcurrencyShares": -1})),
        &["spec.limited.nominalConcurrencyShares: Invalid value: -1: must be a non-negative integer"],
    );
    rules.create(
        limited(json!({"lendablePercent": 101})),
        &["spec.limited.lendablePercent: Invalid value: 101: must be between 0 and 100, inclusive"],
    );
    rules.create(
        limited(json!({"borrowingLimitPercent": -1})),
        &["spec.limited.borrowingLimitPercent: Invalid value: -1: if specified, must be a non-negative \
             integer"],
    );
    rules.create(
        limited(json!({"limitResponse": {"type": "Reject"}})),
        &["spec.limited.limitResponse.queuing: Forbidden: must be nil if limited.limitResponse.type is \
             not Limited"],
    );
    rules.create(
        limited(json!({"limitResponse": {"queuing": null}})),
        &["spec.limited.limitResponse.queuing: Required value: must not be empty if \
             limited.limitResponse.type is Limited"],
    );
    rules.create(
        spec(json!({"limited": null})),
        &["spec.limited: Required value: must not be empty when type is Limited"],
    );
    rules.create(
        spec(json!({"exempt": {"lendablePercent": 5}})),
        &["spec.exempt: Forbidden: must be nil if the type is Limited"],
    );
    rules.create(
        spec(json!({"type": "Exempt", "limited": null})),
        &["spec.type: Invalid value: \"Exempt\": must be 'Exempt' if and only if `name` is 'exempt'"],
    );
}
