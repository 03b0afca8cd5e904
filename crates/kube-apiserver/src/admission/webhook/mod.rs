//! MutatingAdmissionWebhook and ValidatingAdmissionWebhook: others are asked before a write, over HTTPS.
//!
//! `configuration.rs` keeps what the configurations say, read once per change; `review.rs` is what is sent and what may
//! come back; `call.rs` asks one webhook. A server without configurations pays one look at a revision.

mod configuration;
mod review;
mod call;
pub mod metrics;

use std::sync::Arc;

use futures::stream::{FuturesUnordered, StreamExt};
use machinery::cel::Val;
use machinery::kind::Kind;
use machinery::object::Meta;
use machinery::patch::json;
use machinery::status::Status;
use serde_json::Value;
use tokio::time::Instant;

use super::outside::conditions::{self, Authority};
use super::outside::{self, Seen, Way};
use super::{Operation, Plugin, Request};
use crate::app::App;
use call::{Refused, ask};
use configuration::{Configurations, Webhook};

pub struct Mutating {
    configurations: Configurations,
}

pub struct Validating {
    configurations: Configurations,
}

impl Default for Mutating {
    fn default() -> Mutating {
        Mutating { configurations: Configurations::new("mutatingwebhookconfigurations") }
    }
}

impl Default for Validating {
    fn default() -> Validating {
        Validating { configurations: Configurations::new("validatingwebhookconfigurations") }
    }
}

#[async_trait::async_trait]
impl Plugin for Mutating {
    fn name(&self) -> &'static str {
        "MutatingAdmissionWebhook"
    }

    async fn mutate(&self, request: &Request<'_>, object: &mut Value) -> Result<(), Status> {
        self.run(request, Some(object)).await
    }

    /// A delete has nothing to change, but is asked about all the same.
    async fn validate(&self, request: &Request<'_>, _object: Option<&Value>) -> Result<(), Status> {
        match request.operation {
            Operation::Delete => self.run(request, None).await,
            Operation::Create | Operation::Update | Operation::Connect => Ok(()),
        }
    }

    fn is_outside(&self) -> bool {
        true
    }

    fn asks_others(&self, app: &App, kind: &Kind) -> bool {
        self.configurations.names(app, kind)
    }
}

impl Mutating {
    async fn run(&self, request: &Request<'_>, mut object: Option<&mut Value>) -> Result<(), Status> {
        let webhooks = self.configurations.current(request.app);
        if webhooks.is_empty() || !outside::concerns(request) {
            return Ok(());
        }
        let seen = Seen::new(request, object.as_deref());
        let again = {
            let mut rounds = request.rounds.lock();
            let again = rounds.again;
            rounds.webhooks.begin(again, object.as_deref());
            again
        };
        for webhook in webhooks.iter() {
            let Some(way) = should_ask(&seen, webhook, object.as_deref()).await? else { continue };
            // Nobody is asked for the first time in the second round.
            if again && !request.rounds.lock().webhooks.to_ask.contains(&webhook.id) {
                continue;
            }
            let changed = self.one(&seen, webhook, &way, object.as_deref_mut()).await?;
            let mut rounds = request.rounds.lock();
            if changed {
                rounds.webhooks.changed();
                rounds.wanted = true;
            }
            if webhook.reinvoke {
                rounds.webhooks.asked_before.push(webhook.id.clone());
            }
        }
        request.rounds.lock().webhooks.left = object.map(|object| object.clone());
        Ok(())
    }

    /// Asks one; whether it has changed the object.
    async fn one(
        &self,
        seen: &Seen<'_>,
        webhook: &Webhook,
        way: &Way,
        object: Option<&mut Value>,
    ) -> Result<bool, Status> {
        let shown = seen.show(way, object.as_deref()).await?;
        let answer = match ask(seen, webhook, way, &shown, true).await {
            Ok(answer) => answer,
            Err(Refused::Open) => return Ok(false),
            Err(Refused::Closed(status)) => return Err(status),
        };
        let Some(patch) = answer.patch else { return Ok(false) };
        let Some(object) = object else {
            return Err(Status::internal(format!(
                "admission webhook {:?} attempted to modify the object, which is not supported for this operation",
                webhook.name
            )));
        };
        let mut changed = shown.clone();
        json::apply(&mut changed, &patch).map_err(|error| Status::internal(error.to_string()))?;
        if changed == shown {
            return Ok(false);
        }
        let before = object.clone();
        seen.take(way, changed, object).await?;
        settle(seen, &before, object)?;
        Ok(*object != before)
    }
}

/// What nobody outside can do: move an object elsewhere, or take its identity from it.
pub(super) fn settle(seen: &Seen, before: &Value, object: &mut Value) -> Result<(), Status> {
    if before.namespace() != object.namespace() {
        return Err(crate::write::namespace_mismatch());
    }
    if let Some(old) = seen.old() {
        crate::write::keep_identity(object, old);
    }
    Ok(())
}

#[async_trait::async_trait]
impl Plugin for Validating {
    fn name(&self) -> &'static str {
        "ValidatingAdmissionWebhook"
    }

    fn is_outside(&self) -> bool {
        true
    }

    fn asks_others(&self, app: &App, kind: &Kind) -> bool {
        self.configurations.names(app, kind)
    }

    async fn validate(&self, request: &Request<'_>, object: Option<&Value>) -> Result<(), Status> {
        let webhooks = self.configurations.current(request.app);
        if webhooks.is_empty() || !outside::concerns(request) {
            return Ok(());
        }
        let seen = Seen::new(request, object);
        let mut to_ask: Vec<(&Arc<Webhook>, Way)> = Vec::new();
        for webhook in webhooks.iter() {
            if let Some(way) = should_ask(&seen, webhook, object).await? {
                to_ask.push((webhook, way));
            }
        }
        let seen = &seen;
        let mut asked: FuturesUnordered<_> = to_ask
            .iter()
            .map(|(webhook, way)| async move {
                let shown = seen.show(way, object).await?;
                match ask(seen, webhook, way, &shown, false).await {
                    Ok(_) | Err(Refused::Open) => Ok(()),
                    Err(Refused::Closed(status)) => Err(status),
                }
            })
            .collect();
        // All are heard, so that all can count; the first that refuses is told.
        let (mut first, began) = (Ok(()), Instant::now());
        while let Some(outcome) = asked.next().await {
            first = first.and(outcome);
        }
        // They are asked at the same time: the slowest is what the request has waited for.
        request.call.waited(began.elapsed());
        first
    }
}

/// In which version a webhook wants to see the request, if it is about it.
async fn should_ask(seen: &Seen<'_>, webhook: &Webhook, object: Option<&Value>) -> Result<Option<Way>, Status> {
    // A selector that cannot be asked is an error only for those that the request is about otherwise.
    let in_namespace = webhook.selectors.match_namespace(seen, object);
    if matches!(in_namespace, Ok(false)) {
        return Ok(None);
    }
    let labelled = webhook.selectors.match_object(object, seen.old());
    if matches!(labelled, Ok(false)) {
        return Ok(None);
    }
    let Some(way) = seen.matched(&webhook.rules, webhook.equivalent) else { return Ok(None) };
    in_namespace?;
    labelled?;
    if webhook.conditions.is_empty() {
        return Ok(Some(way));
    }
    let (new, old) = (seen.show(&way, object).await?, seen.show(&way, seen.old()).await?);
    let described = seen.described(&way);
    let authority = Authority(seen.request);
    let variables = [
        ("object", Val::json(&new, None)),
        ("oldObject", Val::json(&old, None)),
        ("request", Val::json(&described, None)),
        ("authorizer", Val::authorizer(&authority, authority.request_resource())),
    ];
    match conditions::hold(&webhook.conditions, &variables) {
        Ok(true) => Ok(Some(way)),
        Ok(false) => Ok(None),
        Err(_) if webhook.ignore_failure => Ok(None),
        Err(why) => Err(seen.request.forbidden(object, &why)),
    }
}
