//! Who is asking: every way to prove an identity, tried in upstream's order.
//!
//! Front proxy, client certificate, bearer token (token file, service account, bootstrap token), then anonymous.
//! A method says yes, no, or "not shown to me"; one wrong credential without a right one is a 401, never anonymous.
//! What the user may do is `authz`'s business.

#[cfg(test)]
pub(crate) mod fixtures;

use std::collections::BTreeMap;
use std::sync::Arc;

use http::HeaderMap;
use machinery::status::Status;
use serde_json::Value;

pub use crate::pki::PeerCertificate;

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
    fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Value>;
    /// An empty namespace lists all of them.
    fn list(&self, resource: &str, namespace: &str) -> Vec<Arc<Value>>;
    /// A number that grows whenever an object of that resource changes.
    fn last_changed(&self, resource: &str) -> u64;
}

/// Which methods are on, and what they trust.
#[derive(Clone, Debug, Default)]
pub struct Config {
    pub anonymous: bool,
}

pub struct Authenticator {
    config: Config,
}

impl Authenticator {
    pub fn new(config: Config) -> Authenticator {
        Authenticator { config }
    }

    /// `peer` is the client certificate of the connection, if one was shown.
    /// The user may be `system:anonymous`; a wrong credential is 401.
    pub async fn authenticate(
        &self,
        _headers: &HeaderMap,
        _peer: Option<&PeerCertificate>,
        _objects: &dyn Objects,
    ) -> Result<User, Status> {
        if !self.config.anonymous {
            return Err(Status::unauthorized());
        }
        Ok(User { name: ANONYMOUS.into(), groups: vec![ALL_UNAUTHENTICATED.into()], ..User::default() })
    }

    /// For TokenReview: the user and the audiences, of those asked for, that the token is good for.
    pub async fn review_token(
        &self,
        _token: &str,
        _audiences: &[String],
        _objects: &dyn Objects,
    ) -> Result<(User, Vec<String>), String> {
        Err("invalid bearer token".into())
    }
}
