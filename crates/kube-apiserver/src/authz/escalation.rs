//! Nobody may grant what they do not hold: checks on writes of roles and bindings.
//!
//! Three doors are open: the group system:masters, the verb `escalate` on the role, the verb `bind` on the bound role.

use machinery::status::{GroupResource, Status};
use serde_json::{Value, json};

use super::rule::{Rule, missing, quoted_list, rules_of};
use super::{Attributes, Authorizer, Decision, rbac};
use crate::authn::{Objects, User};

const GROUP: &str = "rbac.authorization.k8s.io";

impl Authorizer {
    /// For create and update of `roles` and `clusterroles`; `old` is the stored object of an update.
    pub(crate) async fn check_role_write(
        &self,
        user: &User,
        resource: &str,
        role: &Value,
        old: Option<&Value>,
        objects: &dyn Objects,
    ) -> Result<(), Status> {
        let (name, namespace) = (meta(role, "name"), meta(role, "namespace"));
        if is_privileged(user) || old.is_some_and(|old| differ_for_collection_only(role, old)) {
            return Ok(());
        }
        if self.may(user, "escalate", resource, namespace, name, objects).await {
            return Ok(());
        }
        self.escalation_check(user, resource, namespace, name, &rules_of(role), objects)?;
        // An aggregated role will hold whatever others put into roles with those labels, so it may become anything.
        let selects = |value: &Value| value.get("aggregationRule").is_some_and(|rule| !rule.is_null());
        if selects(role) {
            self.escalation_check(user, resource, namespace, name, &everything(), objects)?;
        }
        Ok(())
    }

    /// For create and update of `rolebindings` and `clusterrolebindings`.
    pub(crate) async fn check_binding_write(
        &self,
        user: &User,
        resource: &str,
        binding: &Value,
        old: Option<&Value>,
        objects: &dyn Objects,
    ) -> Result<(), Status> {
        if is_privileged(user) || old.is_some_and(|old| differ_for_collection_only(binding, old)) {
            return Ok(());
        }
        let (name, namespace) = (meta(binding, "name"), meta(binding, "namespace"));
        let role_ref = binding.get("roleRef").unwrap_or(&Value::Null);
        let role_name = role_ref.get("name").and_then(Value::as_str).unwrap_or("");
        let role_resource = match role_ref.get("kind").and_then(Value::as_str) {
            Some("Role") => "roles",
            _ => "clusterroles",
        };
        if self.may(user, "bind", role_resource, namespace, role_name, objects).await {
            return Ok(());
        }
        let Ok(rules) = rbac::referenced_rules(role_ref, namespace, objects) else {
            return Err(Status::not_found(GroupResource { group: GROUP, resource: role_resource }, role_name));
        };
        self.escalation_check(user, resource, namespace, name, &rules, objects)
    }

    /// 403 with the list of what is missing, unless the user holds all of `granted` in the namespace.
    pub(crate) fn escalation_check(
        &self,
        user: &User,
        resource: &str,
        namespace: &str,
        name: &str,
        granted: &[Rule],
        objects: &dyn Objects,
    ) -> Result<(), Status> {
        let (held, error) = self.rbac.rules(user, namespace, objects);
        let missing = missing(&held, granted);
        if missing.is_empty() {
            return Ok(());
        }
        let mut why = format!(
            "user {:?} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
            user.name,
            quoted_list(&user.groups),
            missing.join("\n")
        );
        if let Some(error) = error {
            why.push_str(&format!("; resolution errors: [{error}]"));
        }
        Err(Status::forbidden(GroupResource { group: GROUP, resource }, name, &why))
    }

    async fn may(
        &self,
        user: &User,
        verb: &str,
        resource: &str,
        namespace: &str,
        name: &str,
        objects: &dyn Objects,
    ) -> bool {
        let a = Attributes { version: "*", namespace, name, ..Attributes::resource(user, verb, GROUP, resource) };
        matches!(self.authorize(&a, objects).await, Decision::Allow(_))
    }
}

/// The garbage collector must be able to let go of any role. A label is no such thing: it can put a role into another.
fn differ_for_collection_only(new: &Value, old: &Value) -> bool {
    let stripped = |object: &Value| {
        let mut object = object.clone();
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            for field in ["ownerReferences", "finalizers", "managedFields", "resourceVersion"] {
                metadata.remove(field);
            }
        }
        object
    };
    stripped(new) == stripped(old)
}

fn is_privileged(user: &User) -> bool {
    user.groups.iter().any(|group| group == super::MASTERS)
}

fn meta<'a>(object: &'a Value, field: &str) -> &'a str {
    object.get("metadata").and_then(|metadata| metadata.get(field)).and_then(Value::as_str).unwrap_or("")
}

fn everything() -> Vec<Rule> {
    rules_of(&json!({"rules": [
        {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
        {"verbs": ["*"], "nonResourceURLs": ["*"]},
    ]}))
}
