//! Who is asking: every way to prove an identity, tried in upstream's order.
//!
//! Front proxy, client certificate, bearer token (token file, service account, bootstrap token), then anonymous.
//! A method says yes, no, or "not shown to me"; one wrong credential without a right one is a 401, never anonymous.
//! What the user may do is `authz`'s business.

mod anonymous;
mod bootstrap_token;
mod client_certificate;
#[cfg(test)]
pub(crate) mod fixtures;
mod front_proxy;
mod headers;
mod impersonation;
mod jwt;
mod legacy_token;
mod service_account;
#[cfg(test)]
mod tests;
mod token_cache;
pub mod token_use;
mod token_file;

use std::collections::BTreeMap;
use std::sync::Arc;

use http::HeaderMap;
use jiff::Timestamp;
use machinery::status::Status;
use serde_json::Value;

pub use crate::pki::PeerCertificate;
pub use front_proxy::{FrontProxy, WrongProxy};
pub use impersonation::impersonate;
pub use jwt::KeyError;
pub use service_account::{
    EXTENDS_TOKENS, Issued, Reference, ServiceAccounts, TokenRequest, groups, split_user_name, user_name,
};
pub use token_file::{TokenFile, TokenFileError};

pub const ALL_AUTHENTICATED: &str = "system:authenticated";
pub const ALL_UNAUTHENTICATED: &str = "system:unauthenticated";
pub const ANONYMOUS: &str = "system:anonymous";
pub const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

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
    /// A number that grows whenever an object of that resource changes.
    fn last_changed(&self, resource: &str) -> u64;
}

/// Where the time comes from, so that tests can own it.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Which methods are on, and what they trust. Client certificates are judged by the CAs of the connection's
/// `pki::ClientAuthorities`.
pub struct Config {
    pub clock: Clock,
    pub service_accounts: Arc<ServiceAccounts>,
    pub token_file: TokenFile,
    pub bootstrap_tokens: bool,
    /// Proxies that may say who the user is.
    pub front_proxy: FrontProxy,
    pub anonymous: bool,
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

    /// `peer` is the client certificate of the connection, if one was shown.
    /// The user may be `system:anonymous`; a wrong credential is 401.
    pub async fn authenticate(
        &self,
        headers: &HeaderMap,
        peer: Option<&PeerCertificate>,
        objects: &dyn Objects,
    ) -> Result<User, Status> {
        let now = (self.config.clock)();
        let mut reasons = Vec::new();
        let attempts: [&dyn Fn() -> Outcome; 3] = [
            &|| match peer {
                Some(peer) => front_proxy::authenticate(headers, peer, &self.config.front_proxy, now),
                None => Outcome::NotShown,
            },
            &|| peer.map_or(Outcome::NotShown, |peer| client_certificate::authenticate(peer, now)),
            &|| self.authenticate_token(headers, objects, now),
        ];
        for attempt in attempts {
            match attempt() {
                Outcome::User(user) => return Ok(with_authenticated_group(user)),
                Outcome::NotShown => {}
                Outcome::Wrong(reason) => reasons.push(reason),
            }
        }
        if reasons.is_empty() && self.config.anonymous {
            return Ok(anonymous::user());
        }
        tracing::debug!(?reasons, "authentication failed");
        Err(Status::unauthorized())
    }

    /// For TokenReview: the user and the audiences, of those asked for, that the token is good for.
    /// No audiences asked for means those of this server.
    pub async fn review_token(
        &self,
        token: &str,
        audiences: &[String],
        objects: &dyn Objects,
    ) -> Result<(User, Vec<String>), String> {
        let wanted = if audiences.is_empty() { self.config.service_accounts.audiences() } else { audiences };
        let (user, audiences) = self.find_token(token, wanted, objects, (self.config.clock)())?;
        Ok((with_authenticated_group(user), audiences))
    }

    pub fn service_accounts(&self) -> &ServiceAccounts {
        &self.config.service_accounts
    }

    fn authenticate_token(&self, headers: &HeaderMap, objects: &dyn Objects, now: Timestamp) -> Outcome {
        let Some(token) = headers::bearer_token(headers) else { return Outcome::NotShown };
        match self.find_token(&token, self.config.service_accounts.audiences(), objects, now) {
            Ok((user, _)) => Outcome::User(user),
            Err(reason) => Outcome::Wrong(reason),
        }
    }

    fn find_token(
        &self,
        token: &str,
        wanted: &[String],
        objects: &dyn Objects,
        now: Timestamp,
    ) -> Result<(User, Vec<String>), String> {
        // Tokens of these two kinds name no audience: they are for this server.
        let audiences = self.config.service_accounts.audiences();
        let plain = self.config.token_file.find(token).cloned().or_else(|| {
            let enabled = self.config.bootstrap_tokens;
            enabled.then(|| bootstrap_token::authenticate(token, objects, now)).flatten()
        });
        if let Some(user) = plain {
            let ours: Vec<String> = wanted.iter().filter(|one| audiences.contains(one)).cloned().collect();
            return if ours.is_empty() { Err("invalid bearer token".into()) } else { Ok((user, ours)) };
        }
        let verified = self.config.service_accounts.verify(token, wanted, objects, now);
        verified.unwrap_or_else(|| Err("invalid bearer token".into()))
    }
}

fn with_authenticated_group(mut user: User) -> User {
    let known = |group: &String| group == ALL_AUTHENTICATED || group == ALL_UNAUTHENTICATED;
    if user.name != ANONYMOUS && !user.groups.iter().any(known) {
        user.groups.push(ALL_AUTHENTICATED.into());
    }
    user
}
