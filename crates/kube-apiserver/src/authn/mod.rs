//! Authentication: every method, tried in upstream's order.
//!
//! Front proxy, client certificate, bearer token (token file, bootstrap token, service account, OpenID Connect, webhook), then
//! anonymous.
//! A method says yes, no, or "not shown to me"; one wrong credential without a right one is a 401, never anonymous.
//! What the user may do is `authz`'s business.

mod anonymous;
mod bootstrap_token;
mod client_certificate;
mod dynamic;
pub mod external_signer;
#[cfg(test)]
pub(crate) mod fixtures;
mod front_proxy;
mod headers;
mod impersonation;
mod jwt;
mod legacy_token;
pub mod oidc;
mod service_account;
#[cfg(test)]
mod tests;
mod token_cache;
mod token_error;
pub mod token_use;
mod token_file;
pub mod webhook;

use std::collections::BTreeMap;
use std::sync::Arc;

use http::HeaderMap;
use jiff::Timestamp;
use machinery::status::Status;
use serde_json::Value;

use crate::app::Clock;
use token_error::TokenError;

pub use crate::pki::PeerCertificate;
pub use anonymous::Anonymous;
pub use dynamic::Dynamic;
pub use dynamic::Settings;
pub use front_proxy::FrontProxy;
pub use front_proxy::WrongProxy;
pub use impersonation::impersonate;
pub use jwt::KeyError;
pub(crate) use service_account::split_user_name;
pub use service_account::{Issued, Reference, ServiceAccounts, TokenRequest, groups, user_name};
pub use token_file::{TokenFile, TokenFileError};

pub(crate) const ALL_AUTHENTICATED: &str = "system:authenticated";
pub(crate) const ALL_UNAUTHENTICATED: &str = "system:unauthenticated";
pub const ANONYMOUS: &str = "system:anonymous";
pub(crate) const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

#[derive(Clone, Debug, Default, PartialEq)]
pub struct User {
    pub name: String,
    pub uid: String,
    pub groups: Vec<String>,
    pub extra: BTreeMap<String, Vec<String>>,
}

/// What authentication and authorization must look up; the server answers from its cache, tests from maps.
pub trait Objects: Send + Sync {
    /// `resource` is a plural name such as `serviceaccounts`; `namespace` is empty for cluster-scoped kinds.
    fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Arc<Value>>;
    /// An empty namespace lists all of them.
    fn list(&self, resource: &str, namespace: &str) -> Vec<Arc<Value>>;
    /// The pods that are bound to a node, of one namespace or of all.
    fn pods_on(&self, node: &str, namespace: &str) -> Vec<Arc<Value>> {
        let on_node = |pod: &Arc<Value>| pod.pointer("/spec/nodeName").and_then(Value::as_str) == Some(node);
        self.list("pods", namespace).into_iter().filter(on_node).collect()
    }
    /// A number that grows whenever an object of that resource changes.
    fn last_changed(&self, resource: &str) -> u64;
}

/// Which methods are on, and what they trust. Client certificates are judged by the CAs of the connection's
/// `pki::ClientAuthorities`.
pub struct Config {
    pub clock: Clock,
    pub service_accounts: Arc<ServiceAccounts>,
    pub token_file: TokenFile,
    pub bootstrap_tokens: bool,
    /// Proxies that may say who the user is.
    pub front_proxy: FrontProxy,
    pub anonymous: Anonymous,
    pub dynamic: Dynamic,
}

pub struct Authenticator {
    config: Config,
}

/// What one method has to say about a request.
enum Outcome {
    User(User),
    NotShown,
    Wrong(String),
}

impl Authenticator {
    pub fn new(config: Config) -> Authenticator {
        Authenticator { config }
    }

    /// `peer` is the client certificate of the connection, if one was shown; `path` is what is asked for.
    /// The user may be `system:anonymous`; a wrong credential is 401.
    pub async fn authenticate(
        &self,
        headers: &HeaderMap,
        peer: Option<&PeerCertificate>,
        path: &str,
        objects: &dyn Objects,
    ) -> Result<User, Status> {
        let now = self.config.clock.now();
        let mut reasons = Vec::new();
        let certificates: [&(dyn Fn(&PeerCertificate) -> Outcome + Sync); 2] =
            [&|peer| front_proxy::authenticate(headers, peer, &self.config.front_proxy, now), &|peer| {
                client_certificate::authenticate(peer, now)
            }];
        for attempt in certificates {
            match peer.map_or(Outcome::NotShown, attempt) {
                Outcome::User(user) => return Ok(with_authenticated_group(user)),
                Outcome::NotShown => {}
                Outcome::Wrong(reason) => reasons.push(reason),
            }
        }
        match self.authenticate_token(headers, objects, now).await {
            Outcome::User(user) => return Ok(with_authenticated_group(user)),
            Outcome::NotShown => {}
            Outcome::Wrong(reason) => reasons.push(reason),
        }
        if reasons.is_empty() && self.config.anonymous.may_ask(path) {
            return Ok(anonymous::user());
        }
        tracing::debug!(?reasons, "authentication failed");
        Err(Status::unauthorized())
    }

    /// For TokenReview: the user and the audiences, of those asked for, that the token is good for.
    /// No audiences asked for means those of this server.
    pub(crate) async fn review_token(
        &self,
        token: &str,
        audiences: &[String],
        objects: &dyn Objects,
    ) -> Result<(User, Vec<String>), TokenError> {
        let wanted = if audiences.is_empty() { self.config.service_accounts.audiences() } else { audiences };
        let (user, audiences) = self.find_token(token, wanted, objects, self.config.clock.now()).await?;
        Ok((with_authenticated_group(user), audiences))
    }

    pub(crate) fn service_accounts(&self) -> &ServiceAccounts {
        &self.config.service_accounts
    }

    /// What can change while the server runs.
    pub fn dynamic(&self) -> &Dynamic {
        &self.config.dynamic
    }

    async fn authenticate_token(&self, headers: &HeaderMap, objects: &dyn Objects, now: Timestamp) -> Outcome {
        let Some(token) = headers::bearer_token(headers) else { return Outcome::NotShown };
        match self.find_token(&token, self.config.service_accounts.audiences(), objects, now).await {
            Ok((user, _)) => Outcome::User(user),
            Err(error) => Outcome::Wrong(error.to_string()),
        }
    }

    /// What is known here is asked first; only tokens of nobody here go to others.
    async fn find_token(
        &self,
        token: &str,
        wanted: &[String],
        objects: &dyn Objects,
        now: Timestamp,
    ) -> Result<(User, Vec<String>), TokenError> {
        let plain = self.config.token_file.find(token).cloned().or_else(|| {
            let enabled = self.config.bootstrap_tokens;
            enabled.then(|| bootstrap_token::authenticate(token, objects, now)).flatten()
        });
        if let Some(user) = plain {
            return self.for_this_server(user, wanted);
        }
        let mut reasons = Vec::new();
        self.config.service_accounts.find_key(token).await;
        match self.config.service_accounts.verify(token, wanted, objects, now) {
            Some(Ok(found)) => return Ok(found),
            Some(Err(error)) => reasons.push(error.to_string()),
            None => {}
        }
        match self.config.dynamic.verify(token, now).await {
            Some(Ok(user)) => return self.for_this_server(user, wanted),
            Some(Err(error)) => reasons.push(error.to_string()),
            None => {}
        }
        if let Some(webhook) = &self.config.dynamic.webhook {
            match webhook.review(token, wanted, self.config.service_accounts.audiences()).await {
                Ok(webhook::Review::User(user, audiences)) => return Ok((user, audiences)),
                Ok(webhook::Review::Unknown) => {}
                Ok(webhook::Review::Refused(reason)) => reasons.push(reason),
                Err(error) => reasons.push(error.to_string()),
            }
        }
        Err(if reasons.is_empty() { TokenError::Unknown } else { TokenError::Refused(reasons) })
    }

    /// Tokens of some kinds name no audience of ours: they are for this server.
    fn for_this_server(&self, user: User, wanted: &[String]) -> Result<(User, Vec<String>), TokenError> {
        let audiences = self.config.service_accounts.audiences();
        let ours: Vec<String> = wanted.iter().filter(|one| audiences.contains(one)).cloned().collect();
        if ours.is_empty() { Err(TokenError::Unknown) } else { Ok((user, ours)) }
    }
}

fn with_authenticated_group(mut user: User) -> User {
    let known = |group: &String| group == ALL_AUTHENTICATED || group == ALL_UNAUTHENTICATED;
    if user.name != ANONYMOUS && !user.groups.iter().any(known) {
        user.groups.push(ALL_AUTHENTICATED.into());
    }
    user
}
