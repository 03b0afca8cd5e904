//! What a component gets to work with: a client under its own identity, and the caches the whole process shares.

use std::sync::Arc;

use kube::Client;

use crate::cache::Caches;
use crate::metrics::Metrics;

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
    metrics: Arc<Metrics>,
}

impl Cluster {
    pub fn new(component: &'static str, connect: Connect, caches: Arc<Caches>) -> Cluster {
        let client = connect(&Identity::Component(component));
        Cluster { connect, client, caches, metrics: Arc::default() }
    }

    /// Everything under the one identity that the client has.
    pub fn with_client(client: Client, caches: Arc<Caches>) -> Cluster {
        let same = client.clone();
        Cluster { connect: Arc::new(move |_| same.clone()), client, caches, metrics: Arc::default() }
    }

    /// The same, counting there.
    pub fn counting_in(self, metrics: Arc<Metrics>) -> Cluster {
        Cluster { metrics, ..self }
    }

    /// Of the queues that work on this cluster, and of its clients where they count.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
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
