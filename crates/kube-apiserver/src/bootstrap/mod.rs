//! The objects that are there from the first start: namespaces, the default roles and their bindings, system priority
//! classes, flow schemas and priority levels. The JSON files hold what differs between objects of a kind; what all of
//! them share is added here. Creating the objects, and repairing those marked for automatic update, is the server's job.

mod create;
pub mod endpoints;
mod gated;
mod trusted;

use component_base::features::Gates;
use serde_json::{Value, json};

pub use create::{create, ensure, publish_trusted};

const RBAC: &str = "rbac.authorization.k8s.io/v1";
const SCHEDULING: &str = "scheduling.k8s.io/v1";
const FLOWCONTROL: &str = "flowcontrol.apiserver.k8s.io/v1";

/// The namespaces of every cluster.
pub const NAMESPACES: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];

/// One file of objects of one kind.
struct File {
    api_version: &'static str,
    kind: &'static str,
    text: &'static str,
}

/// In the order of creation: what others refer to comes first.
const FILES: &[File] = &[
    File { api_version: FLOWCONTROL, kind: "PriorityLevelConfiguration", text: include_str!("priority-levels.json") },
    File { api_version: FLOWCONTROL, kind: "FlowSchema", text: include_str!("flow-schemas.json") },
    File { api_version: SCHEDULING, kind: "PriorityClass", text: include_str!("priority-classes.json") },
    File { api_version: RBAC, kind: "ClusterRole", text: include_str!("cluster-roles.json") },
    File { api_version: RBAC, kind: "ClusterRoleBinding", text: include_str!("cluster-role-bindings.json") },
    File { api_version: RBAC, kind: "Role", text: include_str!("roles.json") },
    File { api_version: RBAC, kind: "RoleBinding", text: include_str!("role-bindings.json") },
];

/// Every object, ready to be created, in an order in which nothing waits for a later one.
pub fn objects(gates: &Gates) -> Vec<Value> {
    let mut objects: Vec<Value> = NAMESPACES.iter().map(|name| namespace(name)).collect();
    for file in FILES {
        let items: Vec<Value> = serde_json::from_str(file.text).expect("the embedded file is a JSON list");
        objects.extend(items.into_iter().map(|item| complete(file, item)));
    }
    gated::add(&mut objects, gates);
    objects
}

fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

/// Adds what all objects of the file share: type, and the marks by which the server knows its own objects again.
fn complete(file: &File, mut item: Value) -> Value {
    item["apiVersion"] = file.api_version.into();
    item["kind"] = file.kind.into();
    let metadata = &mut item["metadata"];
    match file.api_version {
        RBAC => {
            metadata["annotations"] = json!({"rbac.authorization.kubernetes.io/autoupdate": "true"});
            metadata["labels"]["kubernetes.io/bootstrapping"] = "rbac-defaults".into();
        }
        FLOWCONTROL => metadata["annotations"] = json!({"apf.kubernetes.io/autoupdate-spec": "true"}),
        _ => {}
    }
    item
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use machinery::field::Errors;
    use machinery::kind::Kind;
    use machinery::node::Node;
    use machinery::object::Meta;
    use machinery::schema::conform::{Problems, conform};

    use super::*;

    fn names(kind: &str) -> BTreeSet<String> {
        objects(&Gates::default())
            .iter()
            .filter(|object| object["kind"] == kind)
            .map(|object| object.name().to_string())
            .collect()
    }

    #[test]
    fn every_kind_is_complete() {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for object in objects(&Gates::default()) {
            *counts.entry(object["kind"].as_str().unwrap_or("").to_string()).or_default() += 1;
        }
        let expected = [
            ("ClusterRole", 69),
            ("ClusterRoleBinding", 50),
            ("FlowSchema", 11),
            ("Namespace", 4),
            ("PriorityClass", 2),
            ("PriorityLevelConfiguration", 8),
            ("Role", 7),
            ("RoleBinding", 7),
        ];
        assert_eq!(counts, expected.map(|(kind, count)| (kind.to_string(), count)).into());
    }

    #[test]
    fn well_known_names_are_there() {
        let roles = names("ClusterRole");
        for name in
            ["admin", "cluster-admin", "edit", "view", "system:node", "system:discovery", "system:kube-scheduler"]
        {
            assert!(roles.contains(name), "{name}");
        }
        assert!(names("ClusterRoleBinding").contains("cluster-admin"));
        assert_eq!(names("PriorityClass").len(), 2);
        assert!(names("FlowSchema").contains("catch-all") && names("FlowSchema").contains("exempt"));
    }

    #[test]
    fn every_binding_names_a_role_that_exists() {
        let objects = objects(&Gates::default());
        let is_role = |kind: &Value, name: &Value, namespace: &str| {
            objects.iter().any(|object| {
                object["kind"] == *kind && object["metadata"]["name"] == *name && object.namespace() == namespace
            })
        };
        for binding in objects.iter().filter(|object| object.get("roleRef").is_some()) {
            let reference = &binding["roleRef"];
            let namespace = if reference["kind"] == "Role" { binding.namespace() } else { "" };
            assert!(is_role(&reference["kind"], &reference["name"], namespace), "{}", binding.name());
        }
    }

    /// The server's own objects pass the rules that everyone's objects pass, and need no defaults beyond them.
    #[test]
    fn every_object_is_valid() {
        for mut object in objects(&Gates::default()) {
            let matches = |kind: &&&Kind| object["kind"] == kind.kind && object["apiVersion"] == kind.api_version();
            let kind = api::KINDS.iter().find(matches).expect("a kind of the table");
            conform(&mut object, api::schema::type_of(kind), &mut Problems::default()).expect("the types are right");
            (kind.defaults)(&mut object);
            let mut errors = Errors::default();
            (kind.validate)(&Node::root(&object), &mut errors);
            assert_eq!(errors, Errors::default(), "{}", object.name());
            assert_eq!((kind.name_rule)(object.name()), Vec::<String>::new());
        }
    }

    #[test]
    fn objects_carry_the_marks_of_the_server() {
        for object in objects(&Gates::default()) {
            let marked = object.annotation("rbac.authorization.kubernetes.io/autoupdate").is_some()
                && object.label("kubernetes.io/bootstrapping") == Some("rbac-defaults");
            assert_eq!(marked, object["apiVersion"] == RBAC, "{}", object.name());
        }
    }
}
