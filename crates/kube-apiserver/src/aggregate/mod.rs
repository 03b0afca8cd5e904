//! Foreign API servers: groups that an APIService gives to a Service, or to a part of this process.
//!
//! Whoever asks is authenticated and authorized here first; the foreign server learns who it is from headers, and
//! believes them because of the front proxy's certificate. `follow.rs` keeps the list of them and says in their status
//! whether they answer; `proxy.rs` passes requests on; `discovery.rs` and `openapi/` show what they serve.

mod local;
mod availability;
mod describe;
mod proxy;
mod connect;
mod ask;
mod follow;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::Bytes;
use component_base::metrics::{Metric, Page};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use rustls::ClientConfig;
use serde_json::Value;
use tokio::sync::Notify;

pub use availability::Reference;
pub use follow::start;
pub(crate) use local::{group_priority, is_known_group, is_known_version};
pub use proxy::pass;

use crate::outgoing::way::Way as Egress;
use crate::pki::{Credentials, Error};
use connect::Identity;

pub const GROUP: &str = "apiregistration.k8s.io";
pub(crate) const PLURAL: &str = "apiservices";

/// An API server within this process. It is asked as a foreign one is: who asks is in the headers.
pub type Handler = Arc<dyn Fn(http::Request<Bytes>) -> BoxFuture<'static, http::Response<Bytes>> + Send + Sync>;

/// What a server with other certificates shows to aggregated ones.
pub(crate) struct NextIdentity(Arc<Identity>);

/// What this server knows of others.
pub struct Aggregator {
    routes: ArcSwap<Vec<Arc<Route>>>,
    /// None until it is attached.
    handlers: Mutex<BTreeMap<String, Option<Handler>>>,
    identity: ArcSwap<Identity>,
    egress: Egress,
    /// Something that is not in the store has changed: certificates, handlers, the table of kinds.
    changed: Notify,
    /// Servers that could not be reached just now.
    suspects: Mutex<Vec<String>>,
    /// How often an APIService became unavailable, by its name and the reason; forgotten with it.
    failures: Mutex<BTreeMap<String, BTreeMap<&'static str, u64>>>,
}

impl Aggregator {
    /// `expected` are the APIServices that parts of this process will serve.
    pub fn new(credentials: &Credentials, expected: &[String], egress: Egress) -> Result<Aggregator, Error> {
        Ok(Aggregator {
            routes: ArcSwap::default(),
            handlers: Mutex::new(expected.iter().map(|name| (name.clone(), None)).collect()),
            identity: ArcSwap::from_pointee(Identity::new(credentials, egress.clone())?),
            egress,
            changed: Notify::new(),
            suspects: Mutex::default(),
            failures: Mutex::default(),
        })
    }

    /// Checks whether other certificates can be used, and changes nothing.
    pub(crate) fn prepare(&self, credentials: &Credentials) -> Result<NextIdentity, Error> {
        Ok(NextIdentity(Arc::new(Identity::new(credentials, self.egress.clone())?)))
    }

    /// After the server's certificates were renewed.
    pub(crate) fn take_over(&self, next: NextIdentity) {
        self.identity.store(next.0);
        // Each connects with the new one from its next check on.
        self.routes.load().iter().for_each(|route| self.suspect(&route.name));
    }

    /// Serves a group and version from within this process, as long as its APIService names no Service.
    pub fn attach(&self, name: &str, handler: Handler) {
        self.handlers.lock().insert(name.to_string(), Some(handler));
        self.changed.notify_one();
    }

    /// The table of kinds is another now.
    pub(crate) fn table_changed(&self) {
        self.changed.notify_one();
    }

    /// Who else serves that group and version.
    pub fn route(&self, group: &str, version: &str) -> Option<Arc<Route>> {
        self.routes.load().iter().find(|route| route.group == group && route.version == version).cloned()
    }

    pub fn routes(&self) -> Arc<Vec<Arc<Route>>> {
        self.routes.load_full()
    }

    /// The route of a path: what is below `/apis/<group>/<version>`, and the document that describes it.
    pub(crate) fn route_of(&self, path: &str) -> Option<Arc<Route>> {
        if self.routes.load().is_empty() {
            return None;
        }
        let rest = path.strip_prefix("/openapi/v3").unwrap_or(path).strip_prefix("/apis/")?;
        let mut parts = rest.split('/').filter(|part| !part.is_empty());
        self.route(parts.next()?, parts.next()?)
    }

    fn count_failure(&self, name: &str, reason: &'static str) {
        *self.failures.lock().entry(name.to_owned()).or_default().entry(reason).or_default() += 1;
    }

    fn forget_failures(&self, name: &str) {
        self.failures.lock().remove(name);
    }

    /// Which APIServices cannot be served now, and how often that was so.
    pub(crate) fn render(&self, page: &mut Page) {
        let mut family = page.family(&UNAVAILABLE);
        for route in self.routes.load().iter() {
            family.sample(&[("name", &route.name)], u8::from(!route.available));
        }
        let mut family = page.family(&UNAVAILABLE_TOTAL);
        for (name, reasons) in self.failures.lock().iter() {
            for (reason, count) in reasons {
                family.sample(&[("name", name), ("reason", reason)], count);
            }
        }
    }

    fn suspect(&self, name: &str) {
        let mut suspects = self.suspects.lock();
        if !suspects.iter().any(|known| known == name) {
            suspects.push(name.to_string());
        }
        self.changed.notify_one();
    }
}

const UNAVAILABLE: Metric = Metric::gauge(
    "aggregator_unavailable_apiservice",
    "Gauge of APIServices which are marked as unavailable broken down by APIService name.",
);
const UNAVAILABLE_TOTAL: Metric = Metric::counter(
    "aggregator_unavailable_apiservice_total",
    "Counter of APIServices which are marked as unavailable broken down by APIService name and reason.",
);

/// Why a Service cannot be reached.
#[derive(Debug, thiserror::Error)]
pub enum PlacesError {
    #[error("services are not served")]
    NotServed,
    #[error("service {0:?} not found")]
    NoService(String),
    #[error("no service port {port} found for service {service:?}")]
    NoPort { service: String, port: u16 },
    #[error("no endpoints available for service {0:?}")]
    NoEndpoints(String),
}

/// Where a Service can be reached now, or why it cannot, in the words of those who call webhooks.
pub fn places(app: &crate::app::App, service: &Reference) -> Result<Vec<(String, u16)>, PlacesError> {
    let table = app.table.load();
    let state = |group: &str, plural: &str| table.get(group, "v1", plural).and_then(|resource| resource.state.clone());
    let (Some(services), Some(slices)) = (state("", "services"), state("discovery.k8s.io", "endpointslices")) else {
        return Err(PlacesError::NotServed);
    };
    follow::places_of(&services, &slices, service).map_err(|found| match found.reason {
        "ServiceNotFound" => PlacesError::NoService(service.name.clone()),
        "ServicePortError" => PlacesError::NoPort { service: service.name.clone(), port: service.port },
        _ => PlacesError::NoEndpoints(service.name.clone()),
    })
}

/// A group and version that somebody else serves.
pub struct Route {
    /// Of the APIService.
    pub name: String,
    pub group: String,
    pub version: String,
    pub group_priority: i64,
    pub version_priority: i64,
    pub way: Way,
    pub available: bool,
    /// What it serves, as aggregated discovery shows it.
    pub described: Value,
    /// The hash of its OpenAPI document, where it has one.
    pub document: Option<String>,
}

pub enum Way {
    Here(Handler),
    There(Remote),
    /// What the APIService says of certificates cannot be used.
    Nowhere,
}

pub struct Remote {
    /// Where it can be reached now.
    pub places: Vec<(String, u16)>,
    /// The name in its certificate.
    pub server_name: String,
    pub tls: Arc<ClientConfig>,
    /// By which way.
    pub egress: Egress,
}
