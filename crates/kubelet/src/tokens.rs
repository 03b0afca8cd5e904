//! Tokens that pods present to the API: asked for in the pod's name, kept, and renewed well before they end.

use std::collections::HashMap;

use component_base::Clock;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::api::{Api, PostParams};
use parking_lot::Mutex;

#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    #[error("failed to fetch token: {0}")]
    Api(#[from] kube::Error),
    #[error("failed to fetch token: {0}")]
    Answer(&'static str),
}

/// Even a token for a year is renewed every day.
const AGE_MAX: SignedDuration = SignedDuration::from_hours(24);
/// Renewed when so much of its life is left.
const REST_PERCENT: i32 = 20;
/// Tokens of the same age are not all renewed in the same second.
const JITTER_MS: i64 = 10_000;
/// When a renewal failed the old token is used on, and the next try comes so much later.
const RETRY: SignedDuration = SignedDuration::from_secs(30);

/// One token per pod, audience and wished lifetime.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    uid: String,
    audience: String,
    lifetime_seconds: i64,
}

#[derive(Clone, Debug)]
struct Kept {
    token: String,
    renew: Timestamp,
    expires: Timestamp,
}

pub struct Tokens {
    client: kube::Client,
    kept: Mutex<HashMap<Key, Kept>>,
    clock: Clock,
}

impl Tokens {
    pub fn new(client: kube::Client, clock: Clock) -> Tokens {
        Tokens { client, kept: Mutex::default(), clock }
    }

    /// A token of the pod's service account that ends with the pod; the API's own audience when none is given.
    pub async fn get(&self, pod: &Pod, audience: &str, lifetime_seconds: i64) -> Result<String, TokenError> {
        self.issued(pod, audience, lifetime_seconds).await.map(|(token, _)| token)
    }

    /// One that is not kept, and when it ends: for who takes it once and does not come back.
    pub async fn fresh(
        &self,
        pod: &Pod,
        audience: &str,
        lifetime_seconds: i64,
    ) -> Result<(String, Timestamp), TokenError> {
        self.ask(pod, audience, lifetime_seconds).await.map(|fresh| (fresh.token, fresh.expires))
    }

    /// As [`Tokens::get`], and when it ends.
    pub async fn issued(
        &self,
        pod: &Pod,
        audience: &str,
        lifetime_seconds: i64,
    ) -> Result<(String, Timestamp), TokenError> {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let key = Key { uid, audience: audience.to_owned(), lifetime_seconds };
        let now = self.clock.now();
        let kept = self.kept.lock().get(&key).cloned();
        if let Some(kept) = kept.as_ref().filter(|kept| now < kept.renew) {
            return Ok((kept.token.clone(), kept.expires));
        }
        match self.ask(pod, audience, lifetime_seconds).await {
            Ok(fresh) => {
                let answer = (fresh.token.clone(), fresh.expires);
                self.kept.lock().insert(key, fresh);
                Ok(answer)
            }
            Err(error) => match kept.filter(|kept| now < kept.expires) {
                Some(mut old) => {
                    tracing::warn!(%error, pod = crate::pod::spec::full_name(pod), "cannot renew service account token of pod; retrying");
                    old.renew = now + RETRY;
                    let answer = (old.token.clone(), old.expires);
                    self.kept.lock().insert(key, old);
                    Ok(answer)
                }
                None => Err(error),
            },
        }
    }

    /// When the first of the pod's tokens must be renewed.
    pub(crate) fn next_refresh(&self, uid: &str) -> Option<Timestamp> {
        let kept = self.kept.lock();
        kept.iter().filter(|(key, _)| key.uid == uid).map(|(_, kept)| kept.renew).min()
    }

    pub fn forget(&self, uid: &str) {
        self.kept.lock().retain(|key, _| key.uid != uid);
    }

    async fn ask(&self, pod: &Pod, audience: &str, lifetime_seconds: i64) -> Result<Kept, TokenError> {
        let metadata = &pod.metadata;
        let spec = pod.spec.as_ref();
        let account = spec.and_then(|spec| spec.service_account_name.as_deref()).filter(|name| !name.is_empty());
        let request = TokenRequest {
            spec: Some(TokenRequestSpec {
                audiences: Some(
                    Some(audience.to_owned()).filter(|audience| !audience.is_empty()).into_iter().collect(),
                ),
                expiration_seconds: Some(lifetime_seconds),
                bound_object_ref: Some(BoundObjectReference {
                    api_version: Some("v1".into()),
                    kind: Some("Pod".into()),
                    name: metadata.name.clone(),
                    uid: metadata.uid.clone(),
                }),
            }),
            ..Default::default()
        };
        let api =
            Api::<ServiceAccount>::namespaced(self.client.clone(), metadata.namespace.as_deref().unwrap_or_default());
        let answer = api.create_token_request(account.unwrap_or("default"), &PostParams::default(), &request).await?;
        let lifetime = answer.spec.and_then(|spec| spec.expiration_seconds).unwrap_or(lifetime_seconds);
        let status = answer.status.unwrap_or_default();
        let token = status.token.filter(|token| !token.is_empty());
        let token = token.ok_or(TokenError::Answer("the response has no token"))?;
        let expires = status.expiration_timestamp.ok_or(TokenError::Answer("the response has no expiration"))?.0;
        let jitter = SignedDuration::from_millis(rand::random_range(0..JITTER_MS));
        Ok(Kept { token, renew: renewal(expires, SignedDuration::from_secs(lifetime)) - jitter, expires })
    }
}

/// When a fifth of its life is left, and after a day at the latest.
fn renewal(expires: Timestamp, lifetime: SignedDuration) -> Timestamp {
    let issued = expires - lifetime;
    (expires - lifetime * REST_PERCENT / 100).min(issued + AGE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renewed_at_four_fifths_or_after_a_day() {
        let issued = Timestamp::UNIX_EPOCH;
        let check = |lifetime: i64, expected: i64| {
            let lifetime = SignedDuration::from_secs(lifetime);
            assert_eq!(renewal(issued + lifetime, lifetime).as_second(), expected);
        };
        check(3600, 2880);
        check(600, 480);
        check(365 * 24 * 3600, 24 * 3600);
    }
}
