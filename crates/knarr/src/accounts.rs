//! Controllers that each ask with a service account of their own (`--use-service-account-credentials`): the account is made
//! where it is missing, and its tokens are asked for, and asked for again before they end.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use http::HeaderValue;
use http::header::AUTHORIZATION;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use reconcile::{Caches, Cluster, Connect, Identity, Metrics, Shutdown};

const NAMESPACE: &str = "kube-system";
const LIFETIME: Duration = Duration::from_secs(2 * 60 * 60);
/// A new token is asked for when a quarter of the old one's life is left.
const RENEW_AFTER: Duration = Duration::from_secs(90 * 60);

/// The component's own client fills the caches; its controllers write as themselves.
pub fn cluster(config: kube::Config, component: &'static str, agent: &'static str) -> anyhow::Result<Cluster> {
    let metrics = Arc::new(Metrics::default());
    let own = crate::alone::counted_client(config.clone(), agent, metrics.clone())?;
    // The same way without any proof: a token is added to each request.
    let mut plain = config;
    plain.auth_info = Default::default();
    let plain = crate::alone::counted_client(plain, agent, metrics.clone())?;
    let made: parking_lot::Mutex<HashMap<&'static str, Client>> = Default::default();
    let caches = Caches::new(own.clone(), Shutdown::new());
    let connect: Connect = Arc::new(move |identity| match identity {
        Identity::Component(_) => own.clone(),
        Identity::Account(name) => {
            made.lock().entry(*name).or_insert_with(|| account(own.clone(), plain.clone(), name)).clone()
        }
    });
    Ok(Cluster::new(component, connect, caches).counting_in(metrics))
}

/// A client that asks as that account.
fn account(own: Client, plain: Client, name: &'static str) -> Client {
    let tokens = Arc::new(Tokens { own, name, current: Default::default() });
    let service = tower::service_fn(move |mut request: http::Request<kube::client::Body>| {
        let (tokens, plain) = (tokens.clone(), plain.clone());
        async move {
            let token = tokens.get().await?;
            request.headers_mut().insert(AUTHORIZATION, token);
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(plain.send(request).await?)
        }
    });
    Client::new(service, "default")
}

struct Tokens {
    own: Client,
    name: &'static str,
    /// Held while a new one is asked for, so that one is enough for everybody who waits.
    current: tokio::sync::Mutex<Option<Token>>,
}

struct Token {
    header: HeaderValue,
    since: Instant,
}

impl Tokens {
    async fn get(&self) -> anyhow::Result<HeaderValue> {
        let mut current = self.current.lock().await;
        let usable = |token: &Token, until| token.since.elapsed() < until;
        if let Some(token) = current.as_ref().filter(|token| usable(token, RENEW_AFTER)) {
            return Ok(token.header.clone());
        }
        match self.ask().await {
            Ok(header) => {
                *current = Some(Token { header: header.clone(), since: Instant::now() });
                Ok(header)
            }
            Err(error) => match current.as_ref().filter(|token| usable(token, LIFETIME)) {
                Some(token) => Ok(token.header.clone()),
                None => Err(error).with_context(|| format!("get a token of the service account {}", self.name)),
            },
        }
    }

    async fn ask(&self) -> anyhow::Result<HeaderValue> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.own.clone(), NAMESPACE);
        if accounts.get_opt(self.name).await?.is_none() {
            let metadata = ObjectMeta { name: Some(self.name.into()), ..ObjectMeta::default() };
            let made =
                accounts.create(&PostParams::default(), &ServiceAccount { metadata, ..Default::default() }).await;
            // Another controller manager may have been faster.
            if let Err(error) = made
                && !matches!(&error, kube::Error::Api(status) if status.reason == "AlreadyExists")
            {
                return Err(error.into());
            }
        }
        let spec =
            TokenRequestSpec { expiration_seconds: Some(LIFETIME.as_secs() as i64), ..TokenRequestSpec::default() };
        let request = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
        let answer = accounts.create_token_request(self.name, &PostParams::default(), &request).await?;
        let token = answer.status.and_then(|status| status.token).context("the answer has no token")?;
        let mut header = HeaderValue::from_str(&format!("Bearer {token}"))?;
        header.set_sensitive(true);
        Ok(header)
    }
}
