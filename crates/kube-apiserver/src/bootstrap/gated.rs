//! Roles of features that are off by default, as upstream has them: where the gate is open, and nowhere else.

use component_base::features::Gates;
use serde_json::{Value, json};

const BUNDLES: &str = "system:cluster-trust-bundle-discovery";

/// Adds roles and bindings, and rules to the role of nodes.
pub(super) fn add(objects: &mut Vec<Value>, gates: &Gates) {
    if gates.is_on("ClusterTrustBundle") {
        let read = json!({
            "verbs": ["get", "list", "watch"], "apiGroups": ["certificates.k8s.io"], "resources": ["clustertrustbundles"],
        });
        for_nodes(objects, read.clone());
        let everyone = json!({
            "apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:serviceaccounts",
        });
        role(objects, BUNDLES, json!([read]), everyone);
    }
    if gates.is_on("PodCertificateRequest") {
        for_nodes(
            objects,
            json!({
                "verbs": ["create", "get", "list", "watch"], "apiGroups": ["certificates.k8s.io"],
                "resources": ["podcertificaterequests"],
            }),
        );
        let rules = json!([{
            "verbs": ["delete", "get", "list", "watch"], "apiGroups": ["certificates.k8s.io"],
            "resources": ["podcertificaterequests"],
        }]);
        controller(objects, "podcertificaterequestcleaner", rules);
    }
    if gates.is_on("StorageVersionMigrator") {
        let rules = json!([
            {"verbs": ["create", "list", "patch"], "apiGroups": ["*"], "resources": ["*"]},
            {"verbs": ["get"], "apiGroups": ["apiextensions.k8s.io"], "resources": ["customresourcedefinitions"]},
            {"verbs": ["patch"], "apiGroups": ["apiextensions.k8s.io"], "resources": ["customresourcedefinitions/status"]},
            {"verbs": ["update"], "apiGroups": ["storagemigration.k8s.io"], "resources": ["storageversionmigrations/status"]},
        ]);
        controller(objects, "storage-version-migrator-controller", rules);
    }
}

fn for_nodes(objects: &mut [Value], rule: Value) {
    let is_it = |object: &&mut Value| object["kind"] == "ClusterRole" && object["metadata"]["name"] == "system:node";
    let rules = objects.iter_mut().find(is_it).and_then(|role| role["rules"].as_array_mut());
    rules.expect("nodes have a role").push(rule);
}

fn controller(objects: &mut Vec<Value>, account: &str, rules: Value) {
    let subject = json!({"kind": "ServiceAccount", "name": account, "namespace": "kube-system"});
    role(objects, &format!("system:controller:{account}"), rules, subject);
}

fn role(objects: &mut Vec<Value>, name: &str, rules: Value, subject: Value) {
    let role = json!({"metadata": {"name": name}, "rules": rules});
    let binding = json!({
        "metadata": {"name": name}, "subjects": [subject],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
    });
    for (kind, object) in [("ClusterRole", role), ("ClusterRoleBinding", binding)] {
        let file = super::FILES.iter().find(|file| file.kind == kind).expect("a kind of the files");
        objects.push(super::complete(file, object));
    }
}

#[cfg(test)]
mod tests {
    use machinery::object::Meta;

    use super::*;

    fn added(gates: &str) -> (usize, Vec<String>) {
        let open = ["ClusterTrustBundle", "PodCertificateRequest", "StorageVersionMigrator"];
        let gates = Gates::parse(gates, &open).expect("gates that are known");
        let before = super::super::objects(&Gates::default());
        let mut after = super::super::objects(&gates);
        let rules = |objects: &[Value]| {
            let role = objects.iter().find(|object| object["kind"] == "ClusterRole" && object.name() == "system:node");
            role.and_then(|role| role["rules"].as_array()).map_or(0, Vec::len)
        };
        let more = rules(&after) - rules(&before);
        after.retain(|object| !before.iter().any(|old| old["kind"] == object["kind"] && old.name() == object.name()));
        (
            more,
            after.iter().map(|object| format!("{} {}", object["kind"].as_str().unwrap_or(""), object.name())).collect(),
        )
    }

    #[test]
    fn roles_come_with_their_gates() {
        assert_eq!(added(""), (0, Vec::new()));
        let both = |name: &str| vec![format!("ClusterRole {name}"), format!("ClusterRoleBinding {name}")];
        assert_eq!(added("ClusterTrustBundle=true"), (1, both(BUNDLES)));
        assert_eq!(added("PodCertificateRequest=true"), (1, both("system:controller:podcertificaterequestcleaner")));
        assert_eq!(
            added("StorageVersionMigrator=true"),
            (0, both("system:controller:storage-version-migrator-controller"))
        );
    }
}
