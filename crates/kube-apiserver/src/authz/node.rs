//! The node authorizer: a kubelet may read what the pods bound to its node use, and write what it reports about itself.
//!
//! Upstream keeps a graph of pods, volumes and secrets up to date with every pod event. Kubelets ask for such objects
//! rarely compared to how often pods change, so the relation is found when asked, from the pods of the node.
//! What a kubelet may write of an object is narrowed further by the admission plugin NodeRestriction.

use std::sync::{Arc, LazyLock};

use machinery::node::Node;
use machinery::selector::{FieldOperator, FieldSelector};
use serde_json::{Value, json};

use super::rule::{Rule, rules_of};
use super::{Attributes, Decision, node_uses as uses};
use crate::authn::{Objects, User};
use crate::refusal::Refusal;

const USER_PREFIX: &str = "system:node:";
const GROUP: &str = "system:nodes";
const LEASE_NAMESPACE: &str = "kube-node-lease";
/// Upstream does not say why.
const NO_OPINION: &str = "";

/// What every kubelet may do, of the resources that are not divided among nodes.
static COMMON_RULES: LazyLock<Vec<Rule>> = LazyLock::new(|| {
    rules_of(&json!({"rules": [
        {"verbs": ["create"], "apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"]},
        {"verbs": ["create"], "apiGroups": ["authorization.k8s.io"],
         "resources": ["localsubjectaccessreviews", "subjectaccessreviews"]},
        {"verbs": ["get", "list", "watch"], "apiGroups": [""], "resources": ["services"]},
        {"verbs": ["create", "patch", "update"], "apiGroups": ["", "events.k8s.io"], "resources": ["events"]},
        {"verbs": ["get"], "apiGroups": [""], "resources": ["endpoints"]},
        {"verbs": ["create", "get", "list", "watch"], "apiGroups": ["certificates.k8s.io"],
         "resources": ["certificatesigningrequests"]},
        {"verbs": ["get", "list", "watch"], "apiGroups": ["certificates.k8s.io"], "resources": ["clustertrustbundles"]},
        {"verbs": ["get", "list", "watch"], "apiGroups": ["storage.k8s.io"], "resources": ["csidrivers"]},
        {"verbs": ["get", "list", "watch"], "apiGroups": ["node.k8s.io"], "resources": ["runtimeclasses"]},
    ]}))
});

/// The node a user speaks for: `None` for everyone else, an empty name for a node without one.
pub(crate) fn node_identity(user: &User) -> Option<&str> {
    let name = user.name.strip_prefix(USER_PREFIX)?;
    user.groups.iter().any(|group| group == GROUP).then_some(name)
}

pub fn authorize(a: &Attributes, objects: &dyn Objects) -> Decision {
    let Some(node) = node_identity(a.user) else { return Decision::NoOpinion(String::new()) };
    if node.is_empty() {
        return Decision::NoOpinion(format!("unknown node for user {:?}", a.user.name));
    }
    match judge(a, node, objects) {
        Ok(()) => Decision::Allow(String::new()),
        Err(reason) => Decision::NoOpinion(reason.to_string()),
    }
}

fn judge(a: &Attributes, node: &str, objects: &dyn Objects) -> Result<(), Refusal> {
    match (a.group, a.resource) {
        ("", "secrets" | "configmaps") => read_one(a, node, objects),
        ("", "persistentvolumeclaims") if a.subresource == "status" => match a.verb {
            "update" | "patch" => related(a, node, objects),
            _ => Err("can only get/update/patch this type".into()),
        },
        ("", "persistentvolumeclaims" | "persistentvolumes") => get_one(a, node, objects),
        ("resource.k8s.io", "resourceclaims") | ("storage.k8s.io", "volumeattachments") => get_one(a, node, objects),
        ("", "serviceaccounts") => service_account(a, node, objects),
        ("coordination.k8s.io", "leases") => lease(a, node),
        ("storage.k8s.io", "csinodes") => csi_node(a, node),
        ("certificates.k8s.io", "podcertificaterequests") => pod_certificate(a, node, objects),
        ("resource.k8s.io", "resourceslices") => resource_slice(a, node, objects),
        ("", "nodes") => own_node(a, node),
        ("", "pods") => pod(a, node, objects),
        _ if COMMON_RULES.iter().any(|rule| rule.allows(a)) => Ok(()),
        _ => Err(NO_OPINION.into()),
    }
}

fn read_one(a: &Attributes, node: &str, objects: &dyn Objects) -> Result<(), Refusal> {
    match a.verb {
        "get" | "list" | "watch" if !a.subresource.is_empty() => Err("cannot read subresource".into()),
        "get" | "list" | "watch" if a.namespace.is_empty() => {
            Err("can only read namespaced object of this type".into())
        }
        "get" | "list" | "watch" => related(a, node, objects),
        _ => Err("can only read resources of this type".into()),
    }
}

fn get_one(a: &Attributes, node: &str, objects: &dyn Objects) -> Result<(), Refusal> {
    if a.verb != "get" {
        return Err("can only get individual resources of this type".into());
    }
    if !a.subresource.is_empty() {
        return Err("cannot get subresource".into());
    }
    related(a, node, objects)
}

fn service_account(a: &Attributes, node: &str, objects: &dyn Objects) -> Result<(), Refusal> {
    match (a.verb, a.subresource) {
        ("get", "") => related(a, node, objects),
        ("create", "token") if !a.name.is_empty() => related(a, node, objects),
        ("create", _) if !a.name.is_empty() => Err("can only create token subresource of serviceaccount".into()),
        _ => Err("can only create tokens for individual service accounts".into()),
    }
}

fn lease(a: &Attributes, node: &str) -> Result<(), Refusal> {
    if !matches!(a.verb, "get" | "create" | "update" | "patch" | "delete") {
        return Err("can only get, create, update, patch, or delete a node lease".into());
    }
    if a.namespace != LEASE_NAMESPACE {
        return Err(format!("can only access leases in the {LEASE_NAMESPACE:?} system namespace").into());
    }
    // A create carries its name in the body; NodeRestriction compares it.
    if a.verb != "create" && a.name != node {
        return Err("can only access node lease with the same name as the requesting node".into());
    }
    Ok(())
}

fn csi_node(a: &Attributes, node: &str) -> Result<(), Refusal> {
    if !matches!(a.verb, "get" | "create" | "update" | "patch" | "delete") {
        return Err("can only get, create, update, patch, or delete a CSINode".into());
    }
    if !a.subresource.is_empty() {
        return Err("cannot authorize CSINode subresources".into());
    }
    if a.verb != "create" && a.name != node {
        return Err("can only access CSINode with the same name as the requesting node".into());
    }
    Ok(())
}

fn resource_slice(a: &Attributes, node: &str, objects: &dyn Objects) -> Result<(), Refusal> {
    if !a.subresource.is_empty() {
        return Err("cannot authorize ResourceSlice subresources".into());
    }
    match a.verb {
        "create" => Ok(()),
        "get" | "update" | "patch" | "delete" => related(a, node, objects),
        "watch" | "list" | "deletecollection" if selects(a.field_selector, "spec.nodeName", node) => Ok(()),
        "watch" | "list" | "deletecollection" => {
            Err("can only list/watch/deletecollection resourceslices with nodeName field selector".into())
        }
        _ => Err("only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, \
             delete, deletecollection"
            .into()),
    }
}

/// What one may be asked for is NodeRestriction's business.
fn pod_certificate(a: &Attributes, node: &str, objects: &dyn Objects) -> Result<(), Refusal> {
    if !a.subresource.is_empty() {
        return Err("nodes may not access the status subresource of PodCertificateRequests".into());
    }
    match a.verb {
        "create" => Ok(()),
        "get" => related(a, node, objects),
        "list" | "watch" if selects(a.field_selector, "spec.nodeName", node) => Ok(()),
        "list" | "watch" => Err("can only list/watch podcertificaterequests with nodeName field selector".into()),
        verb => Err(format!("nodes may not {verb} podcertificaterequests").into()),
    }
}

fn own_node(a: &Attributes, node: &str) -> Result<(), Refusal> {
    match (a.subresource, a.verb, a.name) {
        ("", "create" | "update" | "patch", _) | ("status", "update" | "patch", _) => Ok(()),
        ("", "get" | "list" | "watch", name) if name == node => Ok(()),
        ("", "get" | "list" | "watch", "") => {
            Err(format!("node '{node}' cannot read all nodes, only its own Node object").into())
        }
        ("", "get" | "list" | "watch", name) => {
            Err(format!("node '{node}' cannot read '{name}', only its own Node object").into())
        }
        _ => Err(NO_OPINION.into()),
    }
}

fn pod(a: &Attributes, node: &str, objects: &dyn Objects) -> Result<(), Refusal> {
    match (a.subresource, a.verb) {
        ("", "get") => related(a, node, objects),
        ("", "list" | "watch") if selects(a.field_selector, "spec.nodeName", node) => Ok(()),
        ("", "list" | "watch") if !a.name.is_empty() => related(a, node, objects),
        ("", "list" | "watch") => Err("can only list/watch pods with spec.nodeName field selector".into()),
        // Mirror pods; NodeRestriction keeps these to the node's own.
        ("", "create" | "delete") | ("status", "update" | "patch") | ("eviction", "create") => Ok(()),
        _ => Err(NO_OPINION.into()),
    }
}

/// Whether the selector demands exactly this value.
fn selects(selector: &str, field: &str, value: &str) -> bool {
    let demands = |(key, operator, text): &(String, FieldOperator, String)| {
        key == field && *operator == FieldOperator::Equals && text == value
    };
    FieldSelector::parse(selector).is_ok_and(|parsed| parsed.requirements().iter().any(demands))
}

/// Whether a pod on the node leads to the object.
fn related(a: &Attributes, node: &str, objects: &dyn Objects) -> Result<(), Refusal> {
    if a.name.is_empty() {
        return Err("No Object name found".into());
    }
    let (namespace, name) = (a.namespace, a.name);
    let bound_to_node = |resource: &str| {
        let object = objects.get(resource, namespace, name);
        object.is_some_and(|object| object.pointer("/spec/nodeName").and_then(Value::as_str) == Some(node))
    };
    let used_in = |namespace: &str, uses: &dyn Fn(&Node) -> bool| {
        pods_on(node, namespace, objects).any(|pod| uses(&Node::root(&pod)))
    };
    let found = match a.resource {
        "pods" => bound_to_node("pods"),
        "volumeattachments" => bound_to_node("volumeattachments"),
        "resourceslices" => bound_to_node("resourceslices"),
        "podcertificaterequests" => bound_to_node("podcertificaterequests"),
        "configmaps" => used_in(namespace, &|pod| uses::config_map(pod, name)),
        "serviceaccounts" => used_in(namespace, &|pod| pod.at("spec").text("serviceAccountName") == name),
        "resourceclaims" => used_in(namespace, &|pod| uses::resource_claim(pod, name)),
        "persistentvolumeclaims" => used_in(namespace, &|pod| uses::volume_claim(pod, name)),
        "persistentvolumes" => objects.get("persistentvolumes", "", name).is_some_and(|volume| {
            let claim = uses::claim_of(&volume);
            claim.is_some_and(|(namespace, claim)| used_in(namespace, &|pod| uses::volume_claim(pod, claim)))
        }),
        "secrets" => {
            used_in(namespace, &|pod| uses::secret(pod, name))
                || used_in("", &|pod| uses_secret_through_volume(pod, namespace, name, objects))
        }
        _ => false,
    };
    if found { Ok(()) } else { Err(format!("no relationship found between node '{node}' and this object").into()) }
}

/// The pods that bring rights to their node. A mirror pod is the kubelet's own writing and proves nothing.
fn pods_on(node: &str, namespace: &str, objects: &dyn Objects) -> impl Iterator<Item = Arc<Value>> + use<> {
    let pods = objects.pods_on(node, namespace);
    pods.into_iter().filter(|pod| pod.pointer("/metadata/annotations/kubernetes.io~1config.mirror").is_none())
}

/// pod, claim, volume, and the secret the volume's driver needs.
fn uses_secret_through_volume(pod: &Node, namespace: &str, name: &str, objects: &dyn Objects) -> bool {
    let pod_namespace = pod.at("metadata").text("namespace");
    uses::volume_claims(pod).any(|claim| {
        let bound = objects.get("persistentvolumeclaims", pod_namespace, &claim);
        let volume = bound.as_ref().and_then(|claim| claim.pointer("/spec/volumeName")?.as_str());
        let volume = volume.and_then(|volume| objects.get("persistentvolumes", "", volume));
        volume.is_some_and(|volume| {
            uses::claim_of(&volume) == Some((pod_namespace, claim.as_str()))
                && uses::volume_secret(&volume, namespace, name)
        })
    })
}
