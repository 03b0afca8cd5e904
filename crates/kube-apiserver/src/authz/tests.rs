//! Decisions over upstream's default roles, the node authorizer's relations, and the sentences users see.

use serde_json::{Value, json};

use futures::FutureExt;

use super::*;
use crate::authn::fixtures::{Map, user};

fn default_roles() -> Map {
    let roles: Value = serde_json::from_str(include_str!("testdata/default-roles.json")).unwrap();
    let mut map = Map::default();
    for (resource, objects) in roles.as_object().unwrap() {
        map = map.with(resource, objects.as_array().unwrap().iter().cloned());
    }
    map
}

fn role_binding(namespace: &str, name: &str, kind: &str, role: &str, subject: Value) -> Value {
    json!({
        "metadata": {"name": name, "namespace": namespace},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
        "subjects": [subject],
    })
}

fn person(name: &str) -> Value {
    json!({"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": name})
}

/// `verb group/resource/subresource namespace name`, with `-` for what is not there, or `verb /path`.
fn parse<'a>(user: &'a User, request: &'a str) -> Attributes<'a> {
    let words: Vec<&str> = request.split(' ').map(|word| if word == "-" { "" } else { word }).collect();
    if words[1].starts_with('/') {
        return Attributes::path(user, words[0], words[1]);
    }
    let parts: Vec<&str> = words[1].split('/').collect();
    Attributes {
        subresource: parts.get(2).unwrap_or(&""),
        namespace: words.get(2).unwrap_or(&""),
        name: words.get(3).unwrap_or(&""),
        field_selector: words.get(4).unwrap_or(&""),
        ..Attributes::resource(user, words[0], if parts[0] == "core" { "" } else { parts[0] }, parts[1])
    }
}

/// The built-in modes decide without waiting, so that they cost no more than a plain call.
fn at_once<T>(decision: impl Future<Output = T>) -> T {
    decision.now_or_never().expect("nothing is waited for")
}

fn allowed(authorizer: &Authorizer, user: &User, request: &str, objects: &Map) -> bool {
    matches!(at_once(authorizer.authorize(&parse(user, request), objects)), Decision::Allow(_))
}

#[test]
fn the_modes_decide_in_their_order() {
    let objects = default_roles();
    let check = |modes: &str, name: &str, request: &str, expected: bool| {
        let modes: Vec<Mode> = modes.split(',').map(|mode| mode.parse().unwrap()).collect();
        let groups: &[&str] = match name {
            "root" => &["system:masters"],
            _ => &["system:nodes", "system:authenticated"],
        };
        let authorizer = Authorizer::new(&Config::of_modes(&modes)).unwrap().0;
        assert_eq!(
            allowed(&authorizer, &user(name, groups), request, &objects),
            expected,
            "{modes:?} {name}: {request}"
        );
    };
    let own_node = "get core/nodes - a";
    check("Node,RBAC", "system:node:a", own_node, true);
    check("RBAC", "system:node:a", own_node, false);
    check("Node", "system:node:a", own_node, true);
    check("Node", "system:node:a", "get /version", false);
    check("RBAC", "system:node:a", "get /version", true);
    check("AlwaysAllow", "system:node:b", own_node, true);
    check("AlwaysDeny", "system:node:a", own_node, false);
    check("AlwaysDeny", "root", own_node, true);
    assert!(Authorizer::new(&Config::of_modes(&[Mode::Webhook])).is_err(), "it needs a file");
    assert!("rbac".parse::<Mode>().is_err());
}

#[test]
fn the_default_roles_decide() {
    let mut objects = default_roles();
    for (name, role) in [("vera", "view"), ("edith", "edit"), ("adam", "admin")] {
        objects.put("rolebindings", role_binding("shop", name, "ClusterRole", role, person(name)));
    }
    let account = json!({"kind": "ServiceAccount", "name": "robot"});
    objects.put("rolebindings", role_binding("shop", "robot", "ClusterRole", "view", account));
    let authorizer = Authorizer::default();
    let check = |name: &str, request: &str, expected: bool| {
        let groups: &[&str] = match name {
            "system:anonymous" => &["system:unauthenticated"],
            "root" => &["system:masters", "system:authenticated"],
            _ => &["system:authenticated"],
        };
        assert_eq!(allowed(&authorizer, &user(name, groups), request, &objects), expected, "{name}: {request}");
    };
    check("system:anonymous", "get /version", true);
    check("system:anonymous", "get /livez", true);
    check("system:anonymous", "get /metrics", false);
    check("system:anonymous", "get /apis", false);
    check("system:anonymous", "list core/pods shop", false);
    check("stranger", "get /apis/apps/v1", true);
    check("stranger", "create authorization.k8s.io/selfsubjectaccessreviews", true);
    check("stranger", "get core/pods shop a", false);
    check("root", "delete core/nodes - a", true);
    check("root", "post /anything", true);
    check("vera", "list core/pods shop", true);
    check("vera", "get core/pods/log shop a", true);
    check("vera", "get core/secrets shop a", false);
    check("vera", "create core/pods shop", false);
    check("vera", "list core/pods other", false);
    check("vera", "list core/pods", false);
    check("edith", "create apps/deployments shop", true);
    check("edith", "create core/pods/exec shop a", true);
    check("edith", "get core/secrets shop a", true);
    check("edith", "create rbac.authorization.k8s.io/roles shop", false);
    check("adam", "create rbac.authorization.k8s.io/rolebindings shop", true);
    check("adam", "update core/resourcequotas shop a", false);
    check("system:serviceaccount:shop:robot", "get core/services shop a", true);
    check("system:serviceaccount:other:robot", "get core/services shop a", false);
    check("system:kube-scheduler", "create core/pods/binding shop a", true);
    check("system:kube-scheduler", "create core/bindings shop", true);
    check("system:kube-scheduler", "create core/pods shop", false);
    check("system:kube-scheduler", "get core/configmaps kube-system extension-apiserver-authentication", true);
}

#[test]
fn the_reason_names_the_binding_and_what_is_missing() {
    let mut objects = default_roles();
    objects.put("rolebindings", role_binding("shop", "readers", "ClusterRole", "view", person("vera")));
    objects.put("rolebindings", role_binding("shop", "lost", "Role", "gone", person("vera")));
    let authorizer = Authorizer::default();
    let vera = user("vera", &[]);
    let check = |request: &str, expected: Decision| {
        assert_eq!(at_once(authorizer.authorize(&parse(&vera, request), &objects)), expected, "{request}");
    };
    let allow = r#"RBAC: allowed by RoleBinding "readers/shop" of ClusterRole "view" to User "vera""#;
    check("get core/pods shop a", Decision::Allow(allow.into()));
    let missing = r#"RBAC: role.rbac.authorization.k8s.io "gone" not found"#;
    check("get core/nodes shop a", Decision::NoOpinion(missing.into()));
    check("get core/nodes other a", Decision::NoOpinion(String::new()));
}

#[test]
fn the_index_follows_changes() {
    let mut objects = default_roles();
    let authorizer = Authorizer::default();
    let vera = user("vera", &[]);
    assert!(!allowed(&authorizer, &vera, "get core/pods shop a", &objects));
    objects.put("rolebindings", role_binding("shop", "readers", "Role", "reader", person("vera")));
    assert!(!allowed(&authorizer, &vera, "get core/pods shop a", &objects));
    let rules = json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]);
    objects.put("roles", json!({"metadata": {"name": "reader", "namespace": "shop"}, "rules": rules}));
    assert!(allowed(&authorizer, &vera, "get core/pods shop a", &objects));
    objects.remove("rolebindings", "shop", "readers");
    assert!(!allowed(&authorizer, &vera, "get core/pods shop a", &objects));
}

#[test]
fn refusals_read_as_upstream() {
    let bob = user("bob", &[]);
    let check = |request: &str, reason: &str, message: &str, details: Value| {
        let status = forbidden(&parse(&bob, request), reason);
        assert_eq!((status.code, status.reason, status.message.as_str()), (403, "Forbidden", message));
        assert_eq!(status.to_value()["details"], details, "{request}");
    };
    check(
        "list core/pods",
        "",
        r#"pods is forbidden: User "bob" cannot list resource "pods" in API group "" at the cluster scope"#,
        json!({"kind": "pods"}),
    );
    check(
        "get core/pods/log shop web",
        "",
        r#"pods "web" is forbidden: User "bob" cannot get resource "pods/log" in API group "" in the namespace "shop""#,
        json!({"kind": "pods", "name": "web"}),
    );
    check(
        "create apps/deployments shop",
        "RBAC: trouble",
        r#"deployments.apps is forbidden: User "bob" cannot create resource "deployments" in API group "apps" in the namespace "shop": RBAC: trouble"#,
        json!({"kind": "deployments", "group": "apps"}),
    );
    check("get /metrics", "", r#"forbidden: User "bob" cannot get path "/metrics""#, json!({}));
}

#[test]
fn aggregation_explains_the_default_roles() {
    let objects = default_roles();
    // Upstream's recorded roles are already aggregated: nothing is left to do, and an emptied one is filled again.
    let mut roles = objects.list("clusterroles", "");
    assert_eq!(aggregate(&roles), vec![]);
    let at = roles.iter().position(|role| role["metadata"]["name"] == "admin").unwrap();
    let mut emptied = roles[at].as_ref().clone();
    let full = std::mem::take(emptied["rules"].as_array_mut().unwrap());
    roles[at] = emptied.into();
    assert_eq!(aggregate(&roles), vec![("admin".to_string(), full)]);
}

#[test]
fn nobody_grants_what_they_do_not_hold() {
    let mut objects = default_roles();
    objects.put("rolebindings", role_binding("shop", "adam", "ClusterRole", "admin", person("adam")));
    let rules =
        json!([{"verbs": ["escalate", "bind"], "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["*"]}]);
    objects.put("clusterroles", json!({"metadata": {"name": "granter"}, "rules": rules}));
    objects.put("rolebindings", role_binding("shop", "greta", "ClusterRole", "granter", person("greta")));
    let authorizer = Authorizer::default();
    let role = |verbs: &[&str], resource: &str| {
        let rules = json!([{"verbs": verbs, "apiGroups": [""], "resources": [resource]}]);
        json!({"metadata": {"name": "r", "namespace": "shop"}, "rules": rules})
    };
    let write = |name: &str, groups: &[&str], role: Value, old: Option<&Value>| {
        let answer = at_once(authorizer.check_role_write(&user(name, groups), "roles", &role, old, &objects));
        answer.map_err(|status| (status.code, status.message))
    };
    assert_eq!(write("adam", &[], role(&["get"], "pods"), None), Ok(()));
    assert_eq!(write("greta", &[], role(&["*"], "*"), None), Ok(()));
    assert_eq!(write("root", &["system:masters"], role(&["*"], "*"), None), Ok(()));
    let message = "roles.rbac.authorization.k8s.io \"r\" is forbidden: user \"adam\" (groups=[\"a\" \"b\"]) is attempting \
                   to grant RBAC permissions not currently held:\n{APIGroups:[\"\"], Resources:[\"nodes\"], Verbs:[\"get\" \"list\"]}";
    assert_eq!(write("adam", &["a", "b"], role(&["get", "list"], "nodes"), None), Err((403, message.into())));
    let old = role(&["get", "list"], "nodes");
    let mut changed = old.clone();
    changed["metadata"]["finalizers"] = json!(["a/b"]);
    assert_eq!(write("adam", &[], changed.clone(), Some(&old)), Ok(()), "only a finalizer changed");
    changed["metadata"]["labels"] = json!({"rbac.authorization.k8s.io/aggregate-to-edit": "true"});
    assert_eq!(write("adam", &[], changed, Some(&old)).unwrap_err().0, 403, "a label changed");
    assert_eq!(write("adam", &[], role(&["get"], "nodes"), Some(&old)).unwrap_err().0, 403);

    let mut aggregated = role(&["get"], "pods");
    aggregated["aggregationRule"] = json!({"clusterRoleSelectors": [{}]});
    let message = write("adam", &[], aggregated, None).unwrap_err().1;
    assert!(message.contains("{APIGroups:[\"*\"], Resources:[\"*\"], Verbs:[\"*\"]}"), "{message}");

    let bind = |name: &str, kind: &str, role: &str| {
        let binding = role_binding("shop", "b", kind, role, person("eve"));
        let answer =
            at_once(authorizer.check_binding_write(&user(name, &[]), "rolebindings", &binding, None, &objects));
        answer.map_err(|status| (status.code, status.message))
    };
    assert_eq!(bind("adam", "ClusterRole", "view"), Ok(()));
    assert_eq!(bind("greta", "ClusterRole", "cluster-admin"), Ok(()));
    let (code, message) = bind("adam", "ClusterRole", "cluster-admin").unwrap_err();
    assert_eq!(code, 403);
    assert!(message.ends_with(
        "not currently held:\n{APIGroups:[\"*\"], Resources:[\"*\"], Verbs:[\"*\"]}\n{NonResourceURLs:[\"*\"], Verbs:[\"*\"]}"
    ));
    assert_eq!(
        bind("adam", "Role", "gone"),
        Err((404, "roles.rbac.authorization.k8s.io \"gone\" not found".to_string()))
    );
}

#[test]
fn rules_are_listed() {
    let mut objects = default_roles();
    let rules = json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["a"]}]);
    objects.put("roles", json!({"metadata": {"name": "reader", "namespace": "shop"}, "rules": rules}));
    objects.put("rolebindings", role_binding("shop", "readers", "Role", "reader", person("vera")));
    let authorizer = Authorizer::default();
    let status = authorizer.rules_for(&user("vera", &["system:unauthenticated"]), "shop", &objects).to_status();
    let paths =
        json!([{"verbs": ["get"], "nonResourceURLs": ["/healthz", "/livez", "/readyz", "/version", "/version/"]}]);
    assert_eq!(status, json!({"resourceRules": rules, "nonResourceRules": paths, "incomplete": false}));
    let node = user("system:node:n1", &["system:nodes"]);
    let review = authorizer.rules_for(&node, "shop", &objects);
    assert!(review.incomplete);
    assert_eq!(review.evaluation_error, "node authorizer does not support user rule resolution");
}

fn node_objects() -> Map {
    let pod = |name: &str, node: &str, spec: Value| {
        let mut pod = json!({"metadata": {"name": name, "namespace": "shop"}, "spec": spec});
        pod["spec"]["nodeName"] = node.into();
        pod
    };
    let mut mirror = pod("mirror", "n1", json!({"imagePullSecrets": [{"name": "mirrored"}]}));
    mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
    let web = json!({
        "serviceAccountName": "robot",
        "imagePullSecrets": [{"name": "pull"}],
        "containers": [{"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "env", "key": "a"}}}],
                        "envFrom": [{"configMapRef": {"name": "whole"}}]}],
        "initContainers": [{"envFrom": [{"secretRef": {"name": "init"}}]}],
        "volumes": [
            {"name": "a", "secret": {"secretName": "volume"}},
            {"name": "b", "projected": {"sources": [{"configMap": {"name": "kube-root-ca.crt"}}, {"secret": {"name": "projected"}}]}},
            {"name": "c", "persistentVolumeClaim": {"claimName": "data"}},
            {"name": "scratch", "ephemeral": {}},
            {"name": "d", "csi": {"nodePublishSecretRef": {"name": "inline"}}},
        ],
        "resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}],
    });
    let volume = |name: &str, claim: &str| {
        json!({"metadata": {"name": name}, "spec": {
            "claimRef": {"namespace": "shop", "name": claim},
            "csi": {"nodeStageSecretRef": {"namespace": "storage", "name": "stage"},
                    "controllerPublishSecretRef": {"namespace": "storage", "name": "controller"}},
        }})
    };
    Map::default()
        .with(
            "pods",
            [pod("web", "n1", web), pod("other", "n2", json!({"imagePullSecrets": [{"name": "theirs"}]})), mirror],
        )
        .with(
            "persistentvolumeclaims",
            [json!({"metadata": {"name": "data", "namespace": "shop"}, "spec": {"volumeName": "pv"}})],
        )
        .with("persistentvolumes", [volume("pv", "data"), volume("pv2", "unused")])
        .with("volumeattachments", [json!({"metadata": {"name": "va"}, "spec": {"nodeName": "n1"}})])
        .with("resourceslices", [json!({"metadata": {"name": "slice"}, "spec": {"nodeName": "n1"}})])
}

#[test]
fn nodes_reach_what_their_pods_use() {
    let objects = node_objects();
    let authorizer = Authorizer::default();
    let check = |request: &str, on_n1: bool, on_n2: bool| {
        for (name, expected) in [("n1", on_n1), ("n2", on_n2)] {
            let node = user(&format!("system:node:{name}"), &["system:nodes", "system:authenticated"]);
            assert_eq!(allowed(&authorizer, &node, request, &objects), expected, "{name}: {request}");
        }
        let impostor = user("system:node:n1", &["system:authenticated"]);
        assert!(!allowed(&authorizer, &impostor, request, &objects), "impostor: {request}");
    };
    for secret in ["pull", "env", "init", "volume", "projected", "inline"] {
        check(&format!("get core/secrets shop {secret}"), true, false);
        check(&format!("watch core/secrets shop {secret}"), true, false);
        check(&format!("get core/secrets other {secret}"), false, false);
    }
    check("get core/secrets shop theirs", false, true);
    check("get core/secrets shop mirrored", false, false);
    check("get core/secrets storage stage", true, false);
    check("get core/secrets storage controller", false, false);
    check("list core/secrets shop", false, false);
    check("update core/secrets shop pull", false, false);
    check("get core/configmaps shop whole", true, false);
    check("get core/configmaps shop kube-root-ca.crt", true, false);
    check("get core/persistentvolumeclaims shop data", true, false);
    check("get core/persistentvolumeclaims shop web-scratch", true, false);
    check("patch core/persistentvolumeclaims/status shop data", true, false);
    check("get core/persistentvolumes - pv", true, false);
    check("get core/persistentvolumes - pv2", false, false);
    check("list core/persistentvolumes", false, false);
    check("get storage.k8s.io/volumeattachments - va", true, false);
    check("get resource.k8s.io/resourceclaims shop gpu", true, false);
    check("get resource.k8s.io/resourceslices - slice", true, false);
    check("list resource.k8s.io/resourceslices - - spec.nodeName=n1", true, false);
    check("create core/serviceaccounts/token shop robot", true, false);
    check("get core/serviceaccounts shop robot", true, false);
    check("create core/serviceaccounts shop robot", false, false);
    check("update coordination.k8s.io/leases kube-node-lease n1", true, false);
    check("update coordination.k8s.io/leases kube-system n1", false, false);
    check("create coordination.k8s.io/leases kube-node-lease", true, true);
    check("get storage.k8s.io/csinodes - n1", true, false);
    check("get core/nodes - n1", true, false);
    check("list core/nodes", false, false);
    check("create core/nodes", true, true);
    check("delete core/nodes - n1", false, false);
    check("patch core/nodes/status - n1", true, true);
    check("get core/pods shop web", true, false);
    check("list core/pods", false, false);
    check("list core/pods - - spec.nodeName=n1", true, false);
    check("watch core/pods - - status.phase!=Failed,spec.nodeName==n1", true, false);
    check("watch core/pods - - spec.nodeName!=n1", false, false);
    // One requirement, whose value has an escaped comma.
    check(r"list core/pods - - metadata.name!=a\,spec.nodeName=n1", false, false);
    check("update core/pods shop web", false, false);
    check("patch core/pods/status shop web", true, true);
    check("create core/pods/eviction shop web", true, true);
    check("create core/events shop", true, true);
    check("list core/services", true, true);
    check("list apps/deployments", false, false);
}

#[test]
fn a_node_reads_why_it_was_refused() {
    let objects = node_objects();
    let authorizer = Authorizer::default();
    let check = |name: &str, request: &str, reason: &str| {
        let node = user(name, &["system:nodes"]);
        assert_eq!(
            at_once(authorizer.authorize(&parse(&node, request), &objects)),
            Decision::NoOpinion(reason.into()),
            "{request}"
        );
    };
    let node = "system:node:n2";
    check(node, "get core/secrets shop pull", "no relationship found between node 'n2' and this object");
    check(node, "list core/pods", "can only list/watch pods with spec.nodeName field selector");
    check(node, "get core/nodes - n1", "node 'n2' cannot read 'n1', only its own Node object");
    check("system:node:", "get core/nodes - n1", "unknown node for user \"system:node:\"");
}
