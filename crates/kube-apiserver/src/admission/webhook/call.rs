//! Asks one webhook, and says what its answer, or its silence, means for the request.

use bytes::Bytes;
use machinery::status::Status;
use serde_json::Value;
use tokio::time::Instant;

use super::configuration::Webhook;
use super::metrics::{Kind, Outcome};
use super::review::{self, Answer, AnswerError};
use crate::admission::outside::{Seen, Way};
use crate::names;
use crate::webhooks;

/// Why there is no answer to go by.
pub enum Refused {
    /// It could not be asked, and the request goes on without it.
    Open,
    Closed(Status),
}

/// Asks it about an object as it is shown to it. An answer that comes back has allowed the request.
pub async fn ask(
    seen: &Seen<'_>,
    webhook: &Webhook,
    way: &Way,
    shown: &Value,
    mutating: bool,
) -> Result<Answer, Refused> {
    let request = seen.request;
    let kind = if mutating { Kind::Admit } else { Kind::Validating };
    let count =
        |outcome: Outcome, took| request.app.metrics.webhooks.count(&webhook.name, kind, seen.operation, outcome, took);
    if request.dry_run && !webhook.dry_run {
        let why = format!("admission webhook {:?} does not support dry run", webhook.name);
        count(Outcome::Internal, Default::default());
        return Err(Refused::Closed(Status::bad_request(why)));
    }
    let began = Instant::now();
    let mut step = crate::traces::step(if mutating { "Call mutating webhook" } else { "Call validating webhook" });
    step.note("configuration", || webhook.configuration.clone());
    step.note("webhook", || webhook.name.clone());
    step.note("operation", || seen.operation.to_string());
    let asked = exchange(seen, webhook, way, shown, mutating).await;
    if asked.is_err() {
        step.failed();
    }
    drop(step);
    let took = began.elapsed();
    if mutating {
        request.call.waited(took);
    }
    let (why, code) = match asked {
        Ok(answer) => {
            for (key, value) in &answer.annotations {
                request.call.annotate(format!("{}/{key}", webhook.name), value.clone());
            }
            answer.warnings.iter().for_each(|text| request.call.warn(text.clone()));
            if answer.allowed {
                count(Outcome::Allowed, took);
                return Ok(answer);
            }
            let status = review::refusal(&webhook.name, &answer.status);
            count(Outcome::Denied(status.code), took);
            return Err(Refused::Closed(status));
        }
        Err(failed) => failed,
    };
    let why = format!("failed calling webhook {:?}: {why}", webhook.name);
    if webhook.ignore_failure {
        tracing::warn!(
            webhook = webhook.name,
            error = why,
            "cannot call admission webhook; allowing the request (failurePolicy Ignore)"
        );
        let round = usize::from(request.rounds.lock().again);
        let stage = if mutating { "mutation" } else { "validating" };
        let key = if mutating {
            format!("failed-open.{stage}.webhook.admission.k8s.io/round_{round}_{}", webhook.configuration)
        } else {
            format!("failed-open.{stage}.webhook.admission.k8s.io/{}", webhook.configuration)
        };
        request.call.annotate(key, webhook.name.clone());
        count(Outcome::FailedOpen(code), took);
        return Err(Refused::Open);
    }
    tracing::warn!(
        webhook = webhook.name,
        error = why,
        "cannot call admission webhook; rejecting the request (failurePolicy Fail)"
    );
    count(Outcome::Failed(code), took);
    Err(Refused::Closed(Status::internal(why)))
}

/// One review there and back; otherwise why, and as which code it counts.
async fn exchange(
    seen: &Seen<'_>,
    webhook: &Webhook,
    way: &Way,
    shown: &Value,
    mutating: bool,
) -> Result<Answer, (String, u16)> {
    let unknown =
        "could not create admission objects: webhook does not accept known AdmissionReview versions (v1, v1beta1)";
    let version = webhook.review_version.ok_or_else(|| (unknown.to_string(), 400))?;
    let hook = webhook.hook.as_ref().map_err(|why| (format!("could not get REST client: {why}"), 500))?;
    let old = seen.show(way, seen.old()).await.map_err(|status| (status.message, status.code))?;
    let uid = names::uid();
    let body = review::review(version, &uid, seen.described(way), shown, &old);
    let answered = webhooks::post(seen.request.app, hook, Bytes::from(body.to_string()), webhook.timeout).await;
    let answered = answered.map_err(|failed| (format!("failed to call webhook: {}", failed.why), failed.code))?;
    let answer = webhooks::decoded(&answered).map_err(|why| (format!("failed to call webhook: {why}"), 503))?;
    let invalid = |why: AnswerError| (format!("received invalid webhook response: {why}"), 503);
    review::read(version, &uid, mutating, &answer).map_err(invalid)
}
