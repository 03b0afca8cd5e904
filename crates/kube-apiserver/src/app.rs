//! State shared by all requests: the table of resources, stores, authorizers.

use std::net::IpAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
pub use component_base::clock::{Clock, stamp};
use store::cache::Cache;

use crate::admission::Admission;
use crate::aggregate::Aggregator;
use crate::audit::Audit;
use crate::authn::Authenticator;
use crate::authz::Authorizer;
use crate::encryption::Encrypted;
use crate::flowcontrol::FlowControl;
use crate::health::Health;
use crate::key_locks::KeyLocks;
use crate::local::mount::Mounts;
use crate::metrics::Metrics;
use crate::offload::Offload;
use crate::openapi::Documents;
use crate::resources::Table;
use crate::subresources::kubelet::Nodes;
use crate::views::Views;
use crate::webhooks::Pool;

pub struct App {
    /// The store below all others, for how long it takes.
    pub measured: Arc<crate::metrics::Measured>,
    pub edge: crate::edge::Edge,
    pub cache: Arc<Cache>,
    /// The store below the cache.
    pub encrypted: Arc<Encrypted>,
    pub table: ArcSwap<Table>,
    pub views: Views,
    pub authenticator: Authenticator,
    pub authorizer: Authorizer,
    /// Who may run now.
    pub flow: FlowControl,
    pub admission: Admission,
    pub locks: KeyLocks,
    pub health: Health,
    pub leaving: crate::leaving::Leaving,
    /// Who is told what requests do, where somebody wants to know.
    pub tracer: Option<Arc<crate::traces::Tracer>>,
    pub metrics: Metrics,
    pub openapi: Documents,
    /// The way to kubelets and what proxies reach.
    pub nodes: Nodes,
    /// Who serves groups that this server does not.
    pub aggregator: Aggregator,
    /// Who writes down what is asked, where somebody wants that.
    pub audit: Option<Arc<Audit>>,
    /// Connections to webhooks.
    pub webhooks: Pool,
    /// Where long pure work runs.
    pub offload: Offload,
    /// Pages beside the API.
    pub mounts: Mounts,
    pub settings: Settings,
    /// What `/flagz` and `/statusz` show.
    pub zpages: component_helpers::zpages::Zpages,
    pub clock: Clock,
}

/// What the answers of the server depend on besides its objects.
#[derive(Clone, Debug)]
pub struct Settings {
    pub gates: component_base::features::Gates,
    /// Where clients reach this server, for the endpoints of the `kubernetes` Service.
    pub advertise_address: Advertised,
    pub https_port: u16,
    pub service_cidr: ipnet::IpNet,
    pub node_ports: std::ops::RangeInclusive<u16>,
    pub issuer: String,
    /// Where others find the keys of service accounts' tokens; this server itself where it is not said.
    pub jwks_uri: Option<String>,
    /// The name by which this server tells others to reach it.
    pub external_hostname: Option<String>,
    /// The hash of who this server is, as metrics show it.
    pub identity_hash: String,
    /// How long an Event is kept.
    pub event_ttl: std::time::Duration,
    /// Which of a node's addresses its kubelet is asked at, the best first.
    pub kubelet_address_types: Vec<String>,
}

impl Settings {
    /// As the discovery document of service accounts' tokens says it.
    pub fn jwks_uri(&self) -> String {
        let port = self.https_port;
        match (&self.jwks_uri, &self.external_hostname) {
            (Some(given), _) => given.clone(),
            (None, Some(host)) => format!("https://{host}:{port}/openid/v1/jwks"),
            (None, None) => format!("https://{}:{port}/openid/v1/jwks", self.advertise_address),
        }
    }
}

/// The address that others reach this server by. It changes where the machine gets another one.
#[derive(Clone, Debug)]
pub struct Advertised(tokio::sync::watch::Sender<IpAddr>);

impl Advertised {
    pub fn new(address: IpAddr) -> Advertised {
        Advertised(tokio::sync::watch::Sender::new(address))
    }

    pub fn get(&self) -> IpAddr {
        *self.0.borrow()
    }

    pub fn set(&self, address: IpAddr) {
        self.0.send_if_modified(|current| std::mem::replace(current, address) != address);
    }

    pub fn changes(&self) -> tokio::sync::watch::Receiver<IpAddr> {
        self.0.subscribe()
    }
}

impl std::fmt::Display for Advertised {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        self.get().fmt(f)
    }
}
