//! The seam to Kubernetes: who somebody is, and a client that asks as they do. Two implementations, both in `knarr`:
//! within the API server's process, and over a kubeconfig.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use jiff::Timestamp;
use machinery::status::Status;
use serde::{Deserialize, Serialize};

/// Who somebody is, as the API server says.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct User {
    #[serde(rename = "n")]
    pub name: String,
    #[serde(rename = "u", default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
    #[serde(rename = "g", default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    #[serde(rename = "e", default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, Vec<String>>,
}

/// By what somebody has signed in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Credential {
    /// Checked with every request.
    Token(String),
    /// Proven by a client certificate when the session began.
    Identity(User),
    /// The identity of the kubeconfig that the dashboard was started with.
    Kubeconfig,
}

/// What is known of a connection before anything is asked.
#[derive(Clone, Debug, Default)]
pub struct Connection {
    pub address: Option<SocketAddr>,
    /// Whom its client certificate proves, and until when.
    pub certificate: Option<(User, Timestamp)>,
}

#[async_trait::async_trait]
pub trait Access: Send + Sync + 'static {
    /// Who that is now; 401 where the credential is no longer good.
    async fn identify(&self, credential: &Credential) -> Result<User, Status>;

    /// Asks as that user and nobody else; every right is checked by the API server.
    fn client(&self, credential: &Credential, user: &User, connection: &Connection) -> Result<kube::Client, Status>;

    /// Whether a client certificate signs in here.
    fn takes_certificates(&self) -> bool;

    /// Remembers, where other servers know the same sessions, that one was signed out; at least for that long.
    async fn sign_out(&self, session: &str, lifetime: Duration) -> Result<(), Status>;

    /// Whether it was, at whichever server.
    async fn is_signed_out(&self, session: &str) -> Result<bool, Status>;
}
