//! What the user may do, asked of the API server and kept for a minute: a page asks the same for every row.

use std::collections::HashMap;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use machinery::status::Status;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::session::SignedIn;

const CHECKS_MAX: usize = 64;
const KEPT: Duration = Duration::from_secs(60);
const KEPT_MAX: usize = 20_000;
/// Reviews that run at the same time for one question.
const PARALLEL: usize = 8;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub(crate) struct Check {
    pub verb: String,
    pub group: String,
    pub resource: String,
    pub subresource: String,
    pub namespace: String,
    pub name: String,
}

#[derive(Deserialize)]
struct Asked {
    checks: Vec<Check>,
}

/// By session, so that nobody is told what somebody else may.
#[derive(Default)]
pub(crate) struct Rights {
    known: Mutex<HashMap<(String, Check), (bool, Instant)>>,
}

impl Rights {
    pub async fn answer(&self, signed_in: &SignedIn, body: &Value) -> Result<Value, Status> {
        let asked: Asked = crate::serve::parse(body)?;
        if asked.checks.len() > CHECKS_MAX {
            return Err(Status::bad_request(format!("at most {CHECKS_MAX} checks are answered at once")));
        }
        // Boxed: what borrows its item is otherwise not known to be `Send`.
        let reviews = asked.checks.iter().map(|check| self.may(signed_in, check).boxed());
        let reviews: Vec<BoxFuture<Result<bool, Status>>> = reviews.collect();
        let answers: Vec<Result<bool, Status>> = futures::stream::iter(reviews).buffered(PARALLEL).collect().await;
        let allowed: Vec<bool> = answers.into_iter().collect::<Result<_, _>>()?;
        Ok(json!({"allowed": allowed}))
    }

    pub async fn may(&self, signed_in: &SignedIn, check: &Check) -> Result<bool, Status> {
        let key = (signed_in.session.id.clone(), check.clone());
        if let Some((allowed, at)) = self.known.lock().get(&key)
            && at.elapsed() < KEPT
        {
            return Ok(*allowed);
        }
        let review = review(&signed_in.client, check).await?;
        let mut known = self.known.lock();
        if known.len() >= KEPT_MAX {
            known.retain(|_, (_, at)| at.elapsed() < KEPT);
            if known.len() >= KEPT_MAX {
                known.clear();
            }
        }
        known.insert(key, (review.0, Instant::now()));
        Ok(review.0)
    }
}

/// Whether it is allowed, and the authorizer's reason.
pub(crate) async fn review(client: &kube::Client, check: &Check) -> Result<(bool, String), Status> {
    let attributes = json!({
        "verb": check.verb, "group": check.group, "resource": check.resource, "subresource": check.subresource,
        "namespace": check.namespace, "name": check.name,
    });
    let body = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    });
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let review = crate::ask::post(client, path, &body).await?;
    let reason = review["status"]["reason"].as_str().unwrap_or_default().to_string();
    Ok((review["status"]["allowed"] == true, reason))
}
