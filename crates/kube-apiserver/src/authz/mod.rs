//! May they do it: system:masters, then the modes in their order, usually the node authorizer and RBAC. The first that
//! allows or denies decides.

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

/// One way to decide, by upstream's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Node,
    Rbac,
    AlwaysAllow,
    AlwaysDeny,
}

impl std::str::FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Mode, String> {
        match text {
            "Node" => Ok(Mode::Node),
            "RBAC" => Ok(Mode::Rbac),
            "AlwaysAllow" => Ok(Mode::AlwaysAllow),
            "AlwaysDeny" => Ok(Mode::AlwaysDeny),
            "Webhook" | "ABAC" => Err(format!("knarr has no authorization mode {text}: use Node,RBAC")),
            _ => Err(format!("{text:?} is not a valid mode: use Node,RBAC, AlwaysAllow or AlwaysDeny")),
        }
    }
}

/// Shared by all requests; reads roles, bindings and pods through `Objects`.
pub struct Authorizer {
    rbac: rbac::Rbac,
    modes: Vec<Mode>,
}

impl Default for Authorizer {
    fn default() -> Authorizer {
        Authorizer::new(vec![Mode::Node, Mode::Rbac])
    }
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
    pub fn new(modes: Vec<Mode>) -> Authorizer {
        Authorizer { rbac: rbac::Rbac::default(), modes }
    }

    pub fn authorize(&self, a: &Attributes, objects: &dyn Objects) -> Decision {
        if a.user.groups.iter().any(|group| group == MASTERS) {
            return Decision::Allow(String::new());
        }
        let mut reasons: Vec<String> = Vec::new();
        for mode in &self.modes {
            let decision = match mode {
                Mode::Node => node::authorize(a, objects),
                Mode::Rbac => self.rbac.authorize(a, objects),
                Mode::AlwaysAllow => Decision::Allow(String::new()),
                Mode::AlwaysDeny => Decision::NoOpinion("Everything is forbidden.".into()),
            };
            match decision {
                Decision::NoOpinion(reason) if reason.is_empty() => {}
                Decision::NoOpinion(reason) => reasons.push(reason),
                decided => return decided,
            }
        }
        Decision::NoOpinion(reasons.join("\n"))
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
