//! The authorizers in their order. The first that allows or denies decides; the built-in ones answer at once, and only
//! webhooks are waited for.

use std::sync::Arc;

use super::abac::Policies;
use super::metrics::Decided;
use super::webhook::Webhook;
use super::{Attributes, Authorizer, Decision, MASTERS, Mode, node};
use crate::authn::Objects;

#[derive(Debug, Default)]
pub struct Chain {
    links: Vec<Link>,
}

/// One of them, and what it decided so far.
#[derive(Debug)]
struct Link {
    step: Step,
    decided: Arc<Decided>,
}

#[derive(Debug)]
enum Step {
    Mode(Mode),
    Abac(Arc<Policies>),
    Webhook(Arc<Webhook>),
}

/// How far a decision came without waiting.
pub enum Progress {
    Decided(Decision),
    Asks(Pending),
}

/// What is left to ask, and what was said so far.
pub struct Pending {
    chain: Arc<Chain>,
    next: usize,
    said: Said,
}

/// What those said who decided nothing.
#[derive(Default)]
struct Said {
    reasons: Vec<String>,
    errors: Vec<String>,
}

impl Chain {
    /// Not for ABAC and webhooks, which need files.
    pub(crate) fn push_mode(&mut self, mode: Mode, decided: Arc<Decided>) {
        self.links.push(Link { step: Step::Mode(mode), decided });
    }

    pub(crate) fn push_abac(&mut self, policies: Arc<Policies>, decided: Arc<Decided>) {
        self.links.push(Link { step: Step::Abac(policies), decided });
    }

    pub(crate) fn push_webhook(&mut self, webhook: Arc<Webhook>, decided: Arc<Decided>) {
        self.links.push(Link { step: Step::Webhook(webhook), decided });
    }

    pub fn has(&self, wanted: Mode) -> bool {
        self.links.iter().any(|link| matches!(link.step, Step::Mode(mode) if mode == wanted))
    }

    pub(crate) fn asks_webhooks(&self) -> bool {
        self.links.iter().any(|link| matches!(link.step, Step::Webhook(_)))
    }

    pub fn policies(&self) -> Option<&Policies> {
        self.links.iter().find_map(|link| match &link.step {
            Step::Abac(policies) => Some(&**policies),
            _ => None,
        })
    }
}

impl Said {
    /// The decision where it is one; otherwise it is remembered.
    fn take(&mut self, decision: Decision) -> Option<Decision> {
        match decision {
            Decision::NoOpinion(reason) => self.remember(reason),
            Decision::Failed { denied: false, reason, error } => {
                self.remember(reason);
                self.errors.push(error);
            }
            decided => return Some(decided),
        }
        None
    }

    fn remember(&mut self, reason: String) {
        if !reason.is_empty() {
            self.reasons.push(reason);
        }
    }

    fn into_decision(self) -> Decision {
        let reason = self.reasons.join("\n");
        match self.errors.as_slice() {
            [] => Decision::NoOpinion(reason),
            [one] => Decision::Failed { denied: false, reason, error: one.clone() },
            several => Decision::Failed { denied: false, reason, error: format!("[{}]", several.join(", ")) },
        }
    }
}

impl Authorizer {
    /// As far as it goes without waiting.
    pub(super) fn begin(&self, a: &Attributes, objects: &dyn Objects) -> Progress {
        if a.user.groups.iter().any(|group| group == MASTERS) {
            return Progress::Decided(Decision::Allow(String::new()));
        }
        let chain = self.chain.load();
        let mut said = Said::default();
        for (next, link) in chain.links.iter().enumerate() {
            let Some(decision) = self.at_once(link, a, objects) else {
                return Progress::Asks(Pending { chain: Arc::clone(&chain), next, said });
            };
            link.decided.count(&decision);
            if let Some(decided) = said.take(decision) {
                return Progress::Decided(decided);
            }
        }
        Progress::Decided(said.into_decision())
    }

    pub(super) async fn finish(&self, pending: Pending, a: &Attributes<'_>, objects: &dyn Objects) -> Decision {
        let Pending { chain, next, mut said } = pending;
        for link in &chain.links[next..] {
            let decision = match (&link.step, self.at_once(link, a, objects)) {
                (_, Some(decision)) => decision,
                (Step::Webhook(webhook), None) => webhook.authorize(a).await,
                (Step::Mode(_) | Step::Abac(_), None) => continue,
            };
            link.decided.count(&decision);
            if let Some(decided) = said.take(decision) {
                return decided;
            }
        }
        said.into_decision()
    }

    /// `None` of those who must be waited for.
    fn at_once(&self, link: &Link, a: &Attributes, objects: &dyn Objects) -> Option<Decision> {
        match &link.step {
            Step::Mode(Mode::Node) => Some(node::authorize(a, objects)),
            Step::Mode(Mode::Rbac) => Some(self.rbac.authorize(a, objects)),
            Step::Mode(Mode::AlwaysAllow) => Some(Decision::Allow(String::new())),
            Step::Mode(Mode::AlwaysDeny) => Some(Decision::NoOpinion("Everything is forbidden.".into())),
            Step::Abac(policies) => Some(policies.authorize(a)),
            Step::Webhook(_) | Step::Mode(Mode::Abac | Mode::Webhook) => None,
        }
    }
}
