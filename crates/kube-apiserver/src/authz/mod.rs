//! May they do it: system:masters, then the node authorizer, then RBAC. The first that allows or denies decides.

mod aggregate;
mod escalation;
mod node;
mod node_uses;
mod rbac;
mod rule;
#[cfg(test)]
mod tests;

use machinery::status::{GroupResource, Status};
use serde_json::{Value, json};

use crate::authn::{Objects, User};

pub use aggregate::aggregate;
pub use node::node_identity;
pub use rule::{Rule, rules_of};

/// Its members may do everything, whatever the roles say: the way back in when the roles are broken.
pub const MASTERS: &str = "system:masters";

/// One request as authorization sees it. A request for a path has `path` and `verb` only.
#[derive(Clone, Copy, Debug)]
pub struct Attributes<'a> {
    pub user: &'a User,
    pub verb: &'a str,
    pub group: &'a str,
    pub version: &'a str,
    pub resource: &'a str,
    pub subresource: &'a str,
    pub namespace: &'a str,
    pub name: &'a str,
    /// Only of requests that name no resource; empty otherwise.
    pub path: &'a str,
    /// The selectors as written in the query: `spec.nodeName=a`.
    pub field_selector: &'a str,
    pub label_selector: &'a str,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    Allow(String),
    Deny(String),
    NoOpinion(String),
}

/// The answer to a SelfSubjectRulesReview.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RulesReview {
    pub resource_rules: Vec<Value>,
    pub non_resource_rules: Vec<Value>,
    pub incomplete: bool,
    pub evaluation_error: String,
}

/// Shared by all requests; reads roles, bindings and pods through `Objects`.
#[derive(Default)]
pub struct Authorizer {
    rbac: rbac::Rbac,
}

impl<'a> Attributes<'a> {
    pub fn resource(user: &'a User, verb: &'a str, group: &'a str, resource: &'a str) -> Attributes<'a> {
        Attributes { group, resource, ..Attributes::path(user, verb, "") }
    }

    pub fn path(user: &'a User, verb: &'a str, path: &'a str) -> Attributes<'a> {
        Attributes {
            user,
            verb,
            path,
            group: "",
            version: "",
            resource: "",
            subresource: "",
            namespace: "",
            name: "",
            field_selector: "",
            label_selector: "",
        }
    }
}

impl RulesReview {
    /// The `status` of the review.
    pub fn to_status(&self) -> Value {
        let mut status = json!({
            "resourceRules": self.resource_rules,
            "nonResourceRules": self.non_resource_rules,
            "incomplete": self.incomplete,
        });
        if !self.evaluation_error.is_empty() {
            status["evaluationError"] = self.evaluation_error.clone().into();
        }
        status
    }
}

impl Authorizer {
    pub fn authorize(&self, a: &Attributes, objects: &dyn Objects) -> Decision {
        if a.user.groups.iter().any(|group| group == MASTERS) {
            return Decision::Allow(String::new());
        }
        let first = match node::authorize(a, objects) {
            Decision::NoOpinion(reason) => reason,
            decided => return decided,
        };
        match self.rbac.authorize(a, objects) {
            Decision::NoOpinion(second) if first.is_empty() => Decision::NoOpinion(second),
            Decision::NoOpinion(second) if second.is_empty() => Decision::NoOpinion(first),
            Decision::NoOpinion(second) => Decision::NoOpinion(format!("{first}\n{second}")),
            decided => decided,
        }
    }

    /// What the user may do in the namespace, as far as it can be listed.
    pub fn rules_for(&self, user: &User, namespace: &str, objects: &dyn Objects) -> RulesReview {
        let (rules, error) = self.rbac.rules(user, namespace, objects);
        let mut errors: Vec<String> = error.into_iter().collect();
        let mut incomplete = !errors.is_empty();
        if node_identity(user).is_some() {
            errors.insert(0, "node authorizer does not support user rule resolution".into());
            incomplete = true;
        }
        let (paths, resources): (Vec<&Rule>, Vec<&Rule>) =
            rules.iter().partition(|rule| !rule.non_resource_urls.is_empty());
        RulesReview {
            resource_rules: resources.into_iter().map(|rule| json!(rule)).collect(),
            non_resource_rules: paths.into_iter().map(|rule| json!(rule)).collect(),
            incomplete,
            evaluation_error: match errors.as_slice() {
                [one] => one.clone(),
                [] => String::new(),
                several => format!("[{}]", several.join(", ")),
            },
        }
    }
}

/// The 403 a user sees; `reason` is what the authorizers had to say, often nothing.
pub fn forbidden(a: &Attributes, reason: &str) -> Status {
    let mut why = sentence(a);
    if !reason.is_empty() {
        why.push_str(": ");
        why.push_str(reason);
    }
    if a.resource.is_empty() {
        return Status::new(403, "Forbidden", format!("forbidden: {why}")).with_empty_details();
    }
    Status::forbidden(GroupResource { group: a.group, resource: a.resource }, a.name, &why)
}

fn sentence(a: &Attributes) -> String {
    let (user, verb) = (&a.user.name, a.verb);
    if a.resource.is_empty() {
        return format!("User {user:?} cannot {verb} path {:?}", a.path);
    }
    let slash = if a.subresource.is_empty() { "" } else { "/" };
    let scope = match a.namespace {
        "" => "at the cluster scope".to_string(),
        namespace => format!("in the namespace {namespace:?}"),
    };
    format!(
        "User {user:?} cannot {verb} resource \"{}{slash}{}\" in API group {:?} {scope}",
        a.resource, a.subresource, a.group
    )
}
