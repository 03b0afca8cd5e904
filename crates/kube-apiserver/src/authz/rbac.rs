//! RBAC: roles and bindings compiled into an index by subject, so that a request only looks at its own user's grants.
//!
//! The index is built again when one of the four kinds changed, which is rare; requests in between share it.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use machinery::node::Node;
use parking_lot::Mutex;
use serde_json::Value;

use super::rule::{Rule, rules_of};
use super::{Attributes, Decision};
use crate::authn::{Objects, User};
use crate::refusal::together;

const KINDS: [&str; 4] = ["clusterroles", "clusterrolebindings", "roles", "rolebindings"];

pub struct Rbac {
    index: ArcSwap<Index>,
    building: Mutex<()>,
}

#[derive(Default)]
struct Index {
    /// What `last_changed` said of the four kinds before they were read.
    stamp: Option<[u64; 4]>,
    cluster: Grants,
    namespaces: HashMap<String, Grants>,
}

#[derive(Default)]
struct Grants {
    users: HashMap<String, Vec<Grant>>,
    groups: HashMap<String, Vec<Grant>>,
}

/// Why a binding gives nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RoleError {
    #[error("unsupported role reference kind: {0:?}")]
    Kind(String),
    #[error("{singular}.rbac.authorization.k8s.io {name:?} not found")]
    NotFound { singular: &'static str, name: String },
}

/// What one subject of one binding receives.
struct Grant {
    rules: Result<Arc<[Rule]>, RoleError>,
    /// `ClusterRoleBinding "a" of ClusterRole "b" to User "c"`
    source: String,
}

impl Default for Rbac {
    fn default() -> Rbac {
        Rbac { index: ArcSwap::from_pointee(Index::default()), building: Mutex::new(()) }
    }
}

impl Rbac {
    pub fn authorize(&self, a: &Attributes, objects: &dyn Objects) -> Decision {
        let index = self.index(objects);
        let namespace = if a.resource.is_empty() { "" } else { a.namespace };
        let mut errors = Vec::new();
        for grant in index.grants(a.user, namespace) {
            match &grant.rules {
                Ok(rules) if rules.iter().any(|rule| rule.allows(a)) => {
                    return Decision::Allow(format!("RBAC: allowed by {}", grant.source));
                }
                Ok(_) => {}
                Err(error) => errors.push(error),
            }
        }
        match aggregate_errors(errors) {
            None => Decision::NoOpinion(String::new()),
            Some(error) => Decision::NoOpinion(format!("RBAC: {error}")),
        }
    }

    /// Every rule that holds for the user in the namespace (and in the cluster), and what could not be resolved.
    pub fn rules(&self, user: &User, namespace: &str, objects: &dyn Objects) -> (Vec<Rule>, Option<String>) {
        let index = self.index(objects);
        let (mut rules, mut errors) = (Vec::new(), Vec::new());
        for grant in index.grants(user, namespace) {
            match &grant.rules {
                Ok(granted) => rules.extend_from_slice(granted),
                Err(error) => errors.push(error),
            }
        }
        (rules, aggregate_errors(errors))
    }

    fn index(&self, objects: &dyn Objects) -> arc_swap::Guard<Arc<Index>> {
        let stamp = KINDS.map(|kind| objects.last_changed(kind));
        let index = self.index.load();
        if index.stamp == Some(stamp) {
            return index;
        }
        let _one_builder = self.building.lock();
        // Another request may have built it meanwhile. The stamp is read before the objects are: a change in between
        // makes the index newer than its stamp, and it is built once more.
        let stamp = KINDS.map(|kind| objects.last_changed(kind));
        if self.index.load().stamp != Some(stamp) {
            self.index.store(Arc::new(Index::build(stamp, objects)));
        }
        self.index.load()
    }
}

/// The rules of a role that a binding refers to.
pub(crate) fn referenced_rules(
    role_ref: &Value,
    namespace: &str,
    objects: &dyn Objects,
) -> Result<Vec<Rule>, RoleError> {
    let role_ref = Node::root(role_ref);
    let name = role_ref.text("name");
    let (resource, singular, namespace) = match role_ref.text("kind") {
        "Role" => ("roles", "role", namespace),
        "ClusterRole" => ("clusterroles", "clusterrole", ""),
        other => return Err(RoleError::Kind(other.to_string())),
    };
    let role = objects.get(resource, namespace, name);
    role.map(|role| rules_of(&role)).ok_or_else(|| not_found(singular, name))
}

impl Index {
    fn build(stamp: [u64; 4], objects: &dyn Objects) -> Index {
        let [cluster_roles, cluster_bindings, roles, bindings] = KINDS.map(|kind| objects.list(kind, ""));
        let cluster_roles: HashMap<String, Arc<[Rule]>> =
            cluster_roles.iter().map(|role| (name_of(role).to_string(), rules_of(role).into())).collect();
        let roles: HashMap<(String, String), Arc<[Rule]>> = roles
            .iter()
            .map(|role| ((namespace_of(role).to_string(), name_of(role).to_string()), rules_of(role).into()))
            .collect();

        let mut index = Index { stamp: Some(stamp), ..Index::default() };
        for binding in &cluster_bindings {
            let name = binding.pointer("/roleRef/name").and_then(Value::as_str).unwrap_or("");
            let rules = cluster_roles.get(name).cloned().ok_or_else(|| not_found("clusterrole", name));
            index.cluster.add(binding, rules, &format!("ClusterRoleBinding {:?}", name_of(binding)));
        }
        for binding in &bindings {
            let namespace = namespace_of(binding);
            let role_ref = Node::root(binding.get("roleRef").unwrap_or(&Value::Null));
            let name = role_ref.text("name");
            let rules = match role_ref.text("kind") {
                "ClusterRole" => cluster_roles.get(name).cloned().ok_or_else(|| not_found("clusterrole", name)),
                "Role" => {
                    let role = roles.get(&(namespace.to_string(), name.to_string()));
                    role.cloned().ok_or_else(|| not_found("role", name))
                }
                other => Err(RoleError::Kind(other.to_string())),
            };
            let source = format!("RoleBinding {:?}", format!("{}/{namespace}", name_of(binding)));
            index.namespaces.entry(namespace.to_string()).or_default().add(binding, rules, &source);
        }
        index
    }

    /// The grants of the cluster and of the namespace, if one is named.
    fn grants<'a>(&'a self, user: &'a User, namespace: &str) -> impl Iterator<Item = &'a Grant> {
        let local = self.namespaces.get(namespace).filter(|_| !namespace.is_empty());
        [Some(&self.cluster), local].into_iter().flatten().flat_map(|grants| grants.of(user))
    }
}

impl Grants {
    fn add(&mut self, binding: &Value, rules: Result<Arc<[Rule]>, RoleError>, binding_name: &str) {
        let binding = Node::root(binding);
        let role = binding.at("roleRef");
        let own_namespace = binding.at("metadata").text("namespace");
        for subject in binding.at("subjects").items() {
            let (kind, name) = (subject.text("kind"), subject.text("name"));
            let namespace = Some(subject.text("namespace")).filter(|text| !text.is_empty()).unwrap_or(own_namespace);
            let (list, key, shown) = match kind {
                "User" => (&mut self.users, name.to_string(), name.to_string()),
                "Group" => (&mut self.groups, name.to_string(), name.to_string()),
                "ServiceAccount" if !namespace.is_empty() => {
                    let key = format!("system:serviceaccount:{namespace}:{name}");
                    (&mut self.users, key, format!("{name}/{namespace}"))
                }
                _ => continue,
            };
            let source = format!("{binding_name} of {} {:?} to {kind} {shown:?}", role.text("kind"), role.text("name"));
            list.entry(key).or_default().push(Grant { rules: rules.clone(), source });
        }
    }

    fn of<'a>(&'a self, user: &'a User) -> impl Iterator<Item = &'a Grant> {
        let own = self.users.get(&user.name).into_iter().flatten();
        own.chain(user.groups.iter().filter_map(|group| self.groups.get(group)).flatten())
    }
}

fn name_of(object: &Value) -> &str {
    object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or("")
}

fn namespace_of(object: &Value) -> &str {
    object.pointer("/metadata/namespace").and_then(Value::as_str).unwrap_or("")
}

fn not_found(singular: &'static str, name: &str) -> RoleError {
    RoleError::NotFound { singular, name: name.to_string() }
}

/// One error stands alone; several stand in brackets, each once.
fn aggregate_errors(errors: Vec<&RoleError>) -> Option<String> {
    let mut sentences: Vec<String> = errors.into_iter().map(ToString::to_string).collect();
    sentences.sort_unstable();
    sentences.dedup();
    (!sentences.is_empty()).then(|| together(&sentences))
}
