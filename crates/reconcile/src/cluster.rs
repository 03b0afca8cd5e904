//! What a component gets to work with: a client under its own identity, and the caches the whole process shares.

use std::sync::Arc;

use kube::Client;

use crate::cache::Caches;

/// As whom a client asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// A component's own user, such as `system:kube-controller-manager`.
    Component(&'static str),
    /// A controller's service account in `kube-system`.
    Account(&'static str),
}

/// Makes clients. In one process it leads to the API server's own service, elsewhere to its address.
pub type Connect = Arc<dyn Fn(&Identity) -> Client + Send + Sync>;

#[derive(Clone)]
pub struct Cluster {
    connect: Connect,
    client: Client,
    pub(crate) caches: Arc<Caches>,
}

impl Cluster {
    pub fn new(component: &'static str, connect: Connect, caches: Arc<Caches>) -> Cluster {
        let client = connect(&Identity::Component(component));
        Cluster { connect, client, caches }
    }

    /// Everything under the one identity that the client has.
    pub fn with_client(client: Client, caches: Arc<Caches>) -> Cluster {
        let same = client.clone();
        Cluster { connect: Arc::new(move |_| same.clone()), client, caches }
    }

    /// The component's own client.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The copies of kinds that the whole process shares.
    pub fn caches(&self) -> &Arc<Caches> {
        &self.caches
    }

    /// A client for one of the component's controllers.
    pub fn client_of(&self, account: &'static str) -> Client {
        (self.connect)(&Identity::Account(account))
    }
}
