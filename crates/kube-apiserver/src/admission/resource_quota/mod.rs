//! ResourceQuota: what a namespace may hold is never exceeded, however many writers on however many servers.
//!
//! A write reserves first: the new usage is stored in the quota's status by compare-and-swap, then the object is
//! written. Requests that wait for the same namespace are reserved together, in one write. When the status says that
//! a quota is full, live objects are counted again, so that room comes back also where no controller runs. The files
//! in the order of a request: `usage` says what an object takes, `scopes` which quotas care, `reserve` takes it,
//! `recount` counts what is there, `ledger` remembers what is on its way.

mod constraints;
mod devices;
mod ledger;
mod limited;
mod recount;
mod reserve;

use std::sync::Arc;

use component_helpers::quota::{scopes, usage};
use machinery::status::Status;
use serde_json::Value;

use self::ledger::{Ledger, Pending};
pub use self::limited::{Limited, read as read_limited};
use self::reserve::Wanted;
use super::pod_resources::Amounts;
use super::{Operation, Plugin, Request};

#[derive(Default)]
pub struct ResourceQuota {
    ledger: Arc<Ledger>,
    limited: Vec<Limited>,
}

impl ResourceQuota {
    pub fn new(limited: Vec<Limited>) -> ResourceQuota {
        ResourceQuota { ledger: Arc::default(), limited }
    }
}

#[async_trait::async_trait]
impl Plugin for ResourceQuota {
    fn name(&self) -> &'static str {
        "ResourceQuota"
    }

    async fn validate(&self, request: &Request<'_>, object: Option<&Value>) -> Result<(), Status> {
        let Some(object) = object.filter(|_| counts(request, object)) else { return Ok(()) };
        let quotas = request.app.views.all("resourcequotas", request.namespace);
        if quotas.is_empty() && self.limited.is_empty() {
            return Ok(());
        }
        let kind = &request.resource.kind;
        let refuse = |why: String| request.forbidden(Some(object), &why);
        let classes = devices::classes(request.app, kind.group, kind.plural);
        let now = request.app.clock.now();
        let taken = |object: &Value| devices::of_object(request.app, &classes, (kind.group, kind.plural), object, now);
        let outside = limited::uncovered_scopes(&self.limited, (kind.group, kind.plural), object, &quotas);
        let outside: Vec<String> = outside.iter().map(ToString::to_string).collect();
        let mut matching = Vec::new();
        for quota in quotas {
            let names = usage::matching_names(kind.group, kind.plural, &quota["spec"]["hard"], &classes);
            if names.is_empty() || !scopes::matches(&quota, kind.group, kind.plural, object) {
                continue;
            }
            if kind.group.is_empty() && kind.plural == "pods" {
                constraints::check(&names, object).map_err(|why| {
                    refuse(format!("failed quota: {}: {why}", machinery::object::Meta::name(&*quota)))
                })?;
            }
            matching.push(quota);
        }
        if !self.limited.is_empty() {
            let of_kind = (kind.group, kind.plural, &classes);
            let missing = limited::uncovered(&self.limited, of_kind, &taken(object), matching.iter());
            if !missing.is_empty() {
                return Err(refuse(format!("insufficient quota to consume: {}", missing.join(","))));
            }
            if !outside.is_empty() {
                // Upstream has no status for it, so that it is an internal error there, too.
                let why = format!("insufficient quota to match these scopes: [{}]", outside.join(" "));
                return Err(Status::new(500, "", why));
            }
        }
        let before = request.old.filter(|_| request.is("", "pods"));
        if let Some(old) = before {
            // A pod that is of another scope now is new to the quotas of that scope, and nothing new to the others.
            matching.retain(|quota| !scopes::matches(quota, kind.group, kind.plural, old));
        }
        if matching.is_empty() {
            return Ok(());
        }
        let mut more = taken(object);
        let negative: Vec<&str> =
            more.iter().filter(|(_, amount)| amount.sign() < 0).map(|(name, _)| name.as_str()).collect();
        if !negative.is_empty() {
            return Err(refuse(format!("quota usage is negative for resource(s): {}", negative.join(","))));
        }
        if let Some(old) = request.old.filter(|_| before.is_none()) {
            more = usage::growth(&more, &taken(old));
        }
        more.retain(|_, amount| !amount.is_zero());
        if more.is_empty() {
            return Ok(());
        }
        let wanted = Wanted::new(request, object, more, &matching);
        match reserve::reserve(&self.ledger, request, wanted).await {
            Ok(pending) => {
                pending.into_iter().for_each(|pending| request.hold(pending));
                Ok(())
            }
            Err(reserve::Refused::Exceeded(why)) => Err(refuse(why)),
            Err(reserve::Refused::Failed(status)) => Err(status),
        }
    }

    async fn give_back(&self, request: &Request<'_>) {
        for pending in request.held::<Pending>() {
            reserve::give_back(&self.ledger, request, pending).await;
        }
    }
}

/// New objects count; of those that are there, only what grows.
fn counts(request: &Request<'_>, object: Option<&Value>) -> bool {
    if request.namespace.is_empty() {
        return false;
    }
    match request.operation {
        Operation::Create => request.subresource.is_empty(),
        Operation::Update => {
            request.is("", "services")
                || request.is("", "persistentvolumeclaims")
                || request.is("resource.k8s.io", "resourceclaims")
                || request.is_for("", "pods") && request.subresource == "resize"
                || request.is("", "pods")
                    && object.is_some_and(|new| is_terminating(new) != request.old.is_some_and(is_terminating))
        }
        Operation::Delete | Operation::Connect => false,
    }
}

/// Whether a pod ends by itself, which scopes of quotas ask for.
fn is_terminating(pod: &Value) -> bool {
    pod["spec"]["activeDeadlineSeconds"].as_i64().is_some_and(|seconds| seconds >= 0)
}

/// `cpu=1,pods=2`, as messages list amounts.
fn shown(amounts: &Amounts) -> String {
    amounts.iter().map(|(name, amount)| format!("{name}={amount}")).collect::<Vec<_>>().join(",")
}
