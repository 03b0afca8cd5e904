//! Credential providers: programs of the host that give credentials for images, as upstream's `--image-credential-provider-config` names them.
//! What they give is kept for as long as they say, by image, by registry or for all images.

mod settings;
mod exec;
mod matching;
#[cfg(test)]
mod tests;

pub use settings::{CacheType, Invalid, Provider, Settings, TokenAttributes};

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Weak};

use component_base::Clock;
use cri::v1;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::api::Api;
use parking_lot::Mutex;
use serde_json::{Map, Value};

use self::exec::{CacheKey, ExecError, Request};
use super::credentials;
use super::pulled::{AccountUse, repository};
use crate::pod::spec;
use crate::tokens::{TokenError, Tokens};

/// Answers that are kept for one provider. More make room by forgetting all: they are asked for again.
const KEPT_MAX: usize = 4096;
/// What upstream asks for: the API's default.
const TOKEN_SECONDS: i64 = 3600;

/// Why a provider gives nothing.
#[derive(Debug, thiserror::Error)]
enum ProvideError {
    #[error("failed to get service account: {0}")]
    Account(#[source] kube::Error),
    #[error("failed to get service account token: {0}")]
    Token(#[from] TokenError),
    #[error("failed to get credential from external registry credential provider: {0}")]
    Exec(#[from] ExecError),
    #[error(
        "credential provider plugin returned the service account token as the password which is not allowed when service account cache type is not set to 'Token'"
    )]
    TokenAsPassword,
}

/// Credentials for an image, and the service account they were given to; of none where they are the node's.
pub(super) struct Given {
    pub auth: v1::AuthConfig,
    pub account: Option<AccountUse>,
}

pub(super) struct Providers {
    folder: PathBuf,
    providers: Vec<Kept>,
    client: kube::Client,
    tokens: Tokens,
    clock: Clock,
}

struct Kept {
    provider: Provider,
    cache: Mutex<HashMap<String, Answer>>,
    /// One question at a time for the same thing: the second finds the answer.
    turns: Mutex<HashMap<String, Weak<tokio::sync::Mutex<()>>>>,
}

/// What a provider answered, and until when it counts.
type Answer = (Map<String, Value>, Timestamp);

/// Of a pod, for providers that want to know.
#[derive(Default)]
struct Identity {
    token: String,
    annotations: BTreeMap<String, String>,
    /// A part of the keys under which answers are kept.
    key: String,
    account: Option<AccountUse>,
}

impl Providers {
    pub fn new(settings: &Settings, client: kube::Client, clock: Clock) -> Providers {
        let kept =
            |provider: &Provider| Kept { provider: provider.clone(), cache: Mutex::default(), turns: Mutex::default() };
        Providers {
            folder: settings.bin_dir.clone(),
            providers: settings.providers.iter().map(kept).collect(),
            tokens: Tokens::new(client.clone(), clock.clone()),
            client,
            clock,
        }
    }

    /// What all providers give for an image. One that fails is told, and the others count.
    pub async fn credentials(&self, pod: &Pod, image: &str) -> Vec<Given> {
        let image = repository(image);
        let mut all = Vec::new();
        for kept in self.providers.iter().filter(|kept| kept.provider.is_for(&image)) {
            match self.of_provider(kept, pod, &image).await {
                Ok(given) => all.extend(given),
                Err(error) => {
                    let pod = spec::full_name(pod);
                    tracing::error!(provider = kept.provider.name, image, pod, %error, "cannot get image credentials from credential provider");
                }
            }
        }
        all
    }

    async fn of_provider(&self, kept: &Kept, pod: &Pod, image: &str) -> Result<Vec<Given>, ProvideError> {
        let Some(identity) = self.identity(&kept.provider, pod).await? else { return Ok(Vec::new()) };
        let turn = kept.turn(&format!("{image}\0{}", identity.key));
        let _turn = turn.lock().await;
        let auths = match kept.cached(image, &identity.key, self.clock.now()) {
            Some(auths) => auths,
            None => self.ask(kept, image, &identity).await?,
        };
        let account = identity.account;
        let given = |auth: v1::AuthConfig| Given {
            account: account.clone().map(|account| AccountUse { credential_hash: credentials::hash(&auth), ..account }),
            auth,
        };
        Ok(credentials::matching_entries(&auths, image).into_iter().map(given).collect())
    }

    async fn ask(&self, kept: &Kept, image: &str, identity: &Identity) -> Result<Map<String, Value>, ProvideError> {
        let provider = &kept.provider;
        let request = Request { image, token: &identity.token, annotations: &identity.annotations };
        let response = exec::run(&self.folder, provider, request).await?;
        let may_be_token = provider.token.as_ref().is_none_or(|attributes| attributes.cache_type == CacheType::Token);
        let is_token = |auth: &Value| auth["password"] == Value::String(identity.token.clone());
        if !identity.token.is_empty() && !may_be_token && response.auth.values().any(is_token) {
            return Err(ProvideError::TokenAsPassword);
        }
        let lasts = response.cache_duration.unwrap_or(provider.default_cache_duration);
        if !lasts.is_zero() {
            let base = match response.cache_key {
                CacheKey::Image => image.to_owned(),
                CacheKey::Registry => registry(image).to_owned(),
                CacheKey::Global => GLOBAL.to_owned(),
            };
            let lasts = jiff::SignedDuration::try_from(lasts).unwrap_or(jiff::SignedDuration::MAX);
            let until = self.clock.now().checked_add(lasts).unwrap_or(Timestamp::MAX);
            kept.keep(format!("{base}\0{}", identity.key), response.auth.clone(), until);
        }
        Ok(response.auth)
    }

    /// Nothing where the provider is not for such a pod.
    async fn identity(&self, provider: &Provider, pod: &Pod) -> Result<Option<Identity>, ProvideError> {
        let Some(wanted) = &provider.token else { return Ok(Some(Identity::default())) };
        let account = spec::wishes(pod).service_account_name.as_deref().filter(|name| !name.is_empty());
        let Some(name) = account else {
            return Ok((!wanted.require_service_account).then(Identity::default));
        };
        let namespace = spec::namespace(pod);
        let api: Api<ServiceAccount> = Api::namespaced(self.client.clone(), namespace);
        let found = api.get(name).await.map_err(ProvideError::Account)?;
        let Some(annotations) = wanted.annotations(&found.metadata.annotations.unwrap_or_default()) else {
            return Ok(None);
        };
        let token = self.tokens.get(pod, &wanted.audience, TOKEN_SECONDS).await?;
        let uid = found.metadata.uid.unwrap_or_default();
        // Who shares an answer: all pods of the account, or this token alone.
        let mut parts = vec![namespace.to_owned(), name.to_owned(), uid.clone()];
        parts.extend(annotations.iter().flat_map(|(key, value)| [key.clone(), value.clone()]));
        if wanted.cache_type == CacheType::Token {
            let (pod_name, pod_uid) = (spec::name(pod).to_owned(), spec::uid(pod).to_owned());
            parts.extend([pod_name, pod_uid, super::pulled::hash(token.as_bytes())]);
        }
        let key = parts.iter().map(|part| format!("{}:{part}", part.len())).collect();
        let account = AccountUse { uid, namespace: namespace.to_owned(), name: name.to_owned(), ..Default::default() };
        Ok(Some(Identity { token, annotations, key, account: Some(account) }))
    }
}

const GLOBAL: &str = "<global>";

fn registry(image: &str) -> &str {
    image.split('/').next().unwrap_or(image)
}

impl Kept {
    fn cached(&self, image: &str, identity: &str, now: Timestamp) -> Option<Map<String, Value>> {
        let mut cache = self.cache.lock();
        cache.retain(|_, (_, until)| *until > now);
        let keys = [image, registry(image), GLOBAL].map(|base| format!("{base}\0{identity}"));
        keys.iter().find_map(|key| cache.get(key)).map(|(auths, _)| auths.clone())
    }

    fn keep(&self, key: String, auths: Map<String, Value>, until: Timestamp) {
        let mut cache = self.cache.lock();
        if cache.len() >= KEPT_MAX {
            cache.clear();
        }
        cache.insert(key, (auths, until));
    }

    fn turn(&self, key: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut turns = self.turns.lock();
        turns.retain(|_, turn| turn.strong_count() > 0);
        if let Some(turn) = turns.get(key).and_then(Weak::upgrade) {
            return turn;
        }
        let turn = Arc::new(tokio::sync::Mutex::new(()));
        turns.insert(key.to_owned(), Arc::downgrade(&turn));
        turn
    }
}
