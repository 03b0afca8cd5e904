//! Rules of roles and their bindings: a good object, one change at a time, and what upstream (v1.36.4) says to it.

use serde_json::{Value, json};

use crate::testing::Rules;

fn role() -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "r", "namespace": "n"},
        "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}],
    })
}

fn cluster_role() -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "r"},
        "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}],
    })
}

fn role_binding() -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "b", "namespace": "n"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "ann"}],
    })
}

fn cluster_role_binding() -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "b"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "r"},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "ann"}],
    })
}

#[test]
fn rules_of_roles() {
    let rules = Rules::of(role());
    let rule = |inner: Value| json!({"rules": [inner]});
    rules.create(json!({"metadata": {"name": "system:a"}}), &[]);
    rules.create(json!({"rules": null}), &[]);
    rules.create(
        rule(json!({"verbs": null})),
        &["rules[0].verbs: Required value: verbs must contain at least one value"],
    );
    rules.create(
        rule(json!({"apiGroups": null})),
        &["rules[0].apiGroups: Required value: resource rules must supply at least one api group"],
    );
    rules.create(
        rule(json!({"resources": null})),
        &["rules[0].resources: Required value: resource rules must supply at least one resource"],
    );
    rules.create(
        rule(json!({"nonResourceURLs": ["/x"]})),
        &[
            "rules[0].nonResourceURLs: Invalid value: [\"/x\"]: namespaced rules cannot apply to \
             non-resource URLs",
            "rules[0].nonResourceURLs: Invalid value: [\"/x\"]: rules cannot apply to both regular \
             resources and non-resource URLs",
        ],
    );
    rules.create(
        rule(json!({"apiGroups": null, "resources": null, "nonResourceURLs": ["/x"]})),
        &["rules[0].nonResourceURLs: Invalid value: [\"/x\"]: namespaced rules cannot apply to \
             non-resource URLs"],
    );
}

#[test]
fn rules_of_cluster_roles() {
    let rules = Rules::of(cluster_role());
    let rule = |inner: Value| json!({"rules": [inner]});
    rules.create(
        rule(json!({"nonResourceURLs": ["/x"]})),
        &["rules[0].nonResourceURLs: Invalid value: [\"/x\"]: rules cannot apply to both regular \
             resources and non-resource URLs"],
    );
    rules.create(rule(json!({"apiGroups": null, "resources": null, "nonResourceURLs": ["/x"]})), &[]);
    rules.create(json!({"aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}}), &[]);
    rules.create(
        json!({"aggregationRule": {}}),
        &["aggregationRule.clusterRoleSelectors: Required value: at least one clusterRoleSelector \
             required if aggregationRule is non-nil"],
    );
}

#[test]
fn bindings_of_roles() {
    let rules = Rules::of(role_binding());
    let role = |inner: Value| json!({"roleRef": inner});
    let subject = |inner: Value| json!({"subjects": [inner]});
    rules.create(role(json!({"name": ""})), &["roleRef.name: Required value"]);
    rules.create(role(json!({"name": "a/b"})), &["roleRef.name: Invalid value: \"a/b\": may not contain '/'"]);
    rules.create(
        role(json!({"kind": "Group"})),
        &["roleRef.kind: Unsupported value: \"Group\": supported values: \"Role\", \"ClusterRole\""],
    );
    rules.create(
        role(json!({"apiGroup": "apps"})),
        &["roleRef.apiGroup: Unsupported value: \"apps\": supported values: \"rbac.authorization.k8s.io\""],
    );
    rules.create(role(json!({"kind": "ClusterRole"})), &[]);
    rules.create(subject(json!({"name": ""})), &["subjects[0].name: Required value"]);
    rules.create(
        subject(json!({"kind": "Robot"})),
        &["subjects[0].kind: Unsupported value: \"Robot\": supported values: \"ServiceAccount\", \
             \"User\", \"Group\""],
    );
    rules.create(
        subject(json!({"apiGroup": "apps"})),
        &["subjects[0].apiGroup: Unsupported value: \"apps\": supported values: \
             \"rbac.authorization.k8s.io\""],
    );
    rules.create(subject(json!({"kind": "ServiceAccount", "apiGroup": null, "name": "s", "namespace": "m"})), &[]);
    rules.create(
        subject(json!({"kind": "ServiceAccount", "apiGroup": null, "name": "s_a", "namespace": ""})),
        &["subjects[0].name: Invalid value: \"s_a\": a lowercase RFC 1123 subdomain must consist of \
             lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric \
             character (e.g. 'example.com', regex used for validation is \
             '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"],
    );
    rules.create(
        subject(json!({"kind": "ServiceAccount", "name": "s", "namespace": "m"})),
        &["subjects[0].apiGroup: Unsupported value: \"rbac.authorization.k8s.io\": supported values: \"\""],
    );
    rules.create(subject(json!({"kind": "Group", "name": "g"})), &[]);
    rules.update(
        role(json!({"name": "other"})),
        &["roleRef: Invalid value: \
             {\"APIGroup\":\"rbac.authorization.k8s.io\",\"Kind\":\"Role\",\"Name\":\"other\"}: cannot \
             change roleRef"],
    );
    rules.update(subject(json!({"name": "bob"})), &[]);
}

#[test]
fn bindings_of_cluster_roles() {
    let rules = Rules::of(cluster_role_binding());
    let role = |inner: Value| json!({"roleRef": inner});
    rules.create(
        role(json!({"kind": "Role"})),
        &["roleRef.kind: Unsupported value: \"Role\": supported values: \"ClusterRole\""],
    );
    rules.update(
        role(json!({"name": "other"})),
        &["roleRef: Invalid value: \
             {\"APIGroup\":\"rbac.authorization.k8s.io\",\"Kind\":\"ClusterRole\",\"Name\":\"other\"}: \
             cannot change roleRef"],
    );
    rules.create(json!({"subjects": null}), &[]);
}
