//! May they do it: system:masters, then the authorizers in their order, usually the node authorizer and RBAC. The first that
//! allows or denies decides. `chain.rs` asks them, `config.rs` makes them from flags or a file.

mod chain;
pub mod config;
mod structured;
mod webhook;
mod abac;
mod aggregate;
mod escalation;
mod metrics;
mod node;
mod node_uses;
mod rbac;
mod rule;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;

use arc_swap::ArcSwap;
use machinery::status::{GroupResource, Status};
use serde_json::{Value, json};

use crate::authn::{Objects, User};
use crate::configuration::Reloads;

pub use aggregate::aggregate;
use chain::{Chain, Progress};
pub use config::{Config, WebhookFlags};
pub use metrics::Metrics;
pub(crate) use node::node_identity;
pub use rule::{Rule, rules_of};
pub use webhook::Version as ReviewVersion;

/// Its members may do everything, whatever the roles say: the way back in when the roles are broken.
pub(crate) const MASTERS: &str = "system:masters";

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
    /// Nobody allowed it, and at least one could not be asked. `denied` where that one denies what it cannot judge.
    Failed {
        denied: bool,
        reason: String,
        error: String,
    },
}

impl Decision {
    pub fn is_allowed(&self) -> bool {
        matches!(self, Decision::Allow(_))
    }

    fn cannot_wait() -> Decision {
        let error = "an expression cannot ask a webhook here".to_owned();
        Decision::Failed { denied: false, reason: String::new(), error }
    }

    /// What the authorizers had to say, often nothing.
    pub fn reason(&self) -> &str {
        match self {
            Decision::Allow(reason) | Decision::Deny(reason) | Decision::NoOpinion(reason) => reason,
            Decision::Failed { reason, .. } => reason,
        }
    }
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
    Abac,
    Webhook,
    AlwaysAllow,
    AlwaysDeny,
}

impl Mode {
    pub fn name(self) -> &'static str {
        match self {
            Mode::Node => "Node",
            Mode::Rbac => "RBAC",
            Mode::Abac => "ABAC",
            Mode::Webhook => "Webhook",
            Mode::AlwaysAllow => "AlwaysAllow",
            Mode::AlwaysDeny => "AlwaysDeny",
        }
    }

    /// Whether it must have been there from the start, as upstream asks.
    fn needs_start(self) -> bool {
        matches!(self, Mode::Node | Mode::Rbac | Mode::Abac)
    }
}

#[derive(Debug, PartialEq, thiserror::Error)]
#[error("authorization-mode {0:?} is not a valid mode: use Node, RBAC, ABAC, Webhook, AlwaysAllow or AlwaysDeny")]
pub struct NoSuchMode(String);

impl std::str::FromStr for Mode {
    type Err = NoSuchMode;

    fn from_str(text: &str) -> Result<Mode, NoSuchMode> {
        match text {
            "Node" => Ok(Mode::Node),
            "RBAC" => Ok(Mode::Rbac),
            "ABAC" => Ok(Mode::Abac),
            "Webhook" => Ok(Mode::Webhook),
            "AlwaysAllow" => Ok(Mode::AlwaysAllow),
            "AlwaysDeny" => Ok(Mode::AlwaysDeny),
            _ => Err(NoSuchMode(text.to_owned())),
        }
    }
}

/// Shared by all requests; reads roles, bindings and pods through `Objects`.
pub struct Authorizer {
    rbac: rbac::Rbac,
    chain: ArcSwap<Chain>,
    metrics: Arc<Metrics>,
    first: config::First,
    pub reloads: Reloads,
}

impl Default for Authorizer {
    fn default() -> Authorizer {
        let config = Config::of_modes(&[Mode::Node, Mode::Rbac]);
        Authorizer::new(&config).expect("the usual modes need no files").0
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
    pub(crate) fn to_status(&self) -> Value {
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
    /// And the text of the file that says who decides, where there is one.
    pub fn new(config: &Config) -> Result<(Authorizer, String), config::Error> {
        let metrics = Arc::new(Metrics::default());
        let config::Loaded { chain, text, first } = config::load(config, &metrics)?;
        let (rbac, chain, reloads) = (rbac::Rbac::default(), ArcSwap::from_pointee(chain), Reloads::default());
        Ok((Authorizer { rbac, chain, metrics, first, reloads }, text))
    }

    /// Who decides from now on; requests under way end with those who decided before.
    pub fn reload(&self, path: &Path, text: &str) -> Result<(), config::Error> {
        self.chain.store(Arc::new(config::reload(path, text, &self.first, &self.metrics)?));
        Ok(())
    }

    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Only a webhook is waited for: whoever the built-in modes decide about has the answer at the first poll, without
    /// anything allocated for the wait.
    pub async fn authorize(&self, a: &Attributes<'_>, objects: &dyn Objects) -> Decision {
        match self.begin(a, objects) {
            Progress::Decided(decision) => decision,
            Progress::Asks(pending) => self.finish(pending, a, objects).await,
        }
    }

    /// Whether all of them are allowed.
    pub async fn allows_all<'b>(&self, all: impl Iterator<Item = &'b Attributes<'b>>, objects: &dyn Objects) -> bool {
        for a in all {
            if !self.authorize(a, objects).await.is_allowed() {
                return false;
            }
        }
        true
    }

    /// For expressions, which cannot wait: where a webhook must be asked, the worker hands its queue to another thread first.
    pub(crate) fn authorize_in_place(&self, a: &Attributes, objects: &dyn Objects) -> Decision {
        match self.begin(a, objects) {
            Progress::Decided(decision) => decision,
            Progress::Asks(pending) => {
                crate::offload::wait_in_place(self.finish(pending, a, objects)).unwrap_or_else(Decision::cannot_wait)
            }
        }
    }

    /// What the user may do in the namespace, as far as it can be listed.
    pub(crate) fn rules_for(&self, user: &User, namespace: &str, objects: &dyn Objects) -> RulesReview {
        let chain = self.chain.load();
        let mut errors: Vec<String> = Vec::new();
        let (mut resource_rules, mut non_resource_rules) = (Vec::new(), Vec::new());
        if chain.has(Mode::Node) && node_identity(user).is_some() {
            errors.push("node authorizer does not support user rule resolution".into());
        }
        if chain.asks_webhooks() {
            errors.push("webhook authorizer does not support user rule resolution".into());
        }
        if let Some(policies) = chain.policies() {
            (resource_rules, non_resource_rules) = policies.rules(user, namespace);
        }
        if chain.has(Mode::AlwaysAllow) {
            resource_rules.push(json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}));
            non_resource_rules.push(json!({"verbs": ["*"], "nonResourceURLs": ["*"]}));
        }
        if chain.has(Mode::Rbac) {
            let (rules, error) = self.rbac.rules(user, namespace, objects);
            errors.extend(error);
            let (paths, resources): (Vec<&Rule>, Vec<&Rule>) =
                rules.iter().partition(|rule| !rule.non_resource_urls.is_empty());
            resource_rules.extend(resources.into_iter().map(|rule| json!(rule)));
            non_resource_rules.extend(paths.into_iter().map(|rule| json!(rule)));
        }
        RulesReview {
            resource_rules,
            non_resource_rules,
            incomplete: !errors.is_empty(),
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
