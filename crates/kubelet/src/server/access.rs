//! Authorization of requests to this node: the API server decides (SubjectAccessReview), as if the request were one for a
//! subresource of the Node.

use std::collections::HashMap;
use std::time::Duration;

use http::Method;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::identity::User;

/// How long decisions count, as upstream's defaults.
const ALLOWED_LIFETIME: Duration = Duration::from_secs(300);
const REFUSED_LIFETIME: Duration = Duration::from_secs(30);
const DECISIONS_MAX: usize = 4096;

/// The subresources of the Node any of which lets a request through.
pub fn subresources(path: &str) -> &'static [&'static str] {
    let first = path.trim_start_matches('/').split('/').next().unwrap_or("");
    match first {
        "stats" => &["stats"],
        "metrics" => &["metrics"],
        "logs" => &["log"],
        "checkpoint" => &["checkpoint"],
        "statusz" => &["statusz"],
        "flagz" => &["flagz"],
        // The narrow name first; the wide one has always been enough.
        "pods" | "runningpods" => &["pods", "proxy"],
        "healthz" => &["healthz", "proxy"],
        "configz" => &["configz", "proxy"],
        _ => &["proxy"],
    }
}

pub fn verb(method: &Method) -> &'static str {
    match method.as_str() {
        "POST" => "create",
        "GET" => "get",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" => "delete",
        _ => "",
    }
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Question {
    user: User,
    verb: &'static str,
    subresource: &'static str,
}

#[derive(Default)]
pub struct Decisions(Mutex<HashMap<Question, (Instant, bool)>>);

impl Decisions {
    pub async fn allows(
        &self,
        client: &kube::Client,
        node: &str,
        user: &User,
        verb: &'static str,
        subresource: &'static str,
    ) -> Result<bool, kube::Error> {
        let question = Question { user: user.clone(), verb, subresource };
        if let Some((until, allowed)) = self.0.lock().get(&question)
            && *until > Instant::now()
        {
            return Ok(*allowed);
        }
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: Some(user.name.clone()),
                uid: Some(user.uid.clone()).filter(|uid| !uid.is_empty()),
                groups: Some(user.groups.clone()),
                extra: Some(user.extra.clone()).filter(|extra| !extra.is_empty()),
                resource_attributes: Some(ResourceAttributes {
                    verb: Some(verb.into()),
                    version: Some("v1".into()),
                    resource: Some("nodes".into()),
                    subresource: Some(subresource.into()),
                    name: Some(node.into()),
                    ..ResourceAttributes::default()
                }),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let reviews = kube::Api::<SubjectAccessReview>::all(client.clone());
        let answer = reviews.create(&Default::default(), &review).await?;
        let allowed = answer.status.is_some_and(|status| status.allowed);
        let lifetime = if allowed { ALLOWED_LIFETIME } else { REFUSED_LIFETIME };
        let mut known = self.0.lock();
        if known.len() >= DECISIONS_MAX {
            known.clear();
        }
        known.insert(question, (Instant::now() + lifetime, allowed));
        Ok(allowed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_belong_to_subresources() {
        let check = |path: &str, expected: &[&str]| assert_eq!(subresources(path), expected, "{path}");
        check("/stats/summary", &["stats"]);
        check("/metrics/cadvisor", &["metrics"]);
        check("/logs/", &["log"]);
        check("/pods", &["pods", "proxy"]);
        check("/runningpods/", &["pods", "proxy"]);
        check("/healthz", &["healthz", "proxy"]);
        check("/configz", &["configz", "proxy"]);
        check("/containerLogs/a/b/c", &["proxy"]);
        check("/exec/a/b/c", &["proxy"]);
        check("/podsx", &["proxy"]);
        check("/", &["proxy"]);
    }
}
