//! The dashboard: a page that shows the whole cluster and says why it is as it is, served below `/dashboard/`.
//!
//! It talks to Kubernetes through its API alone, as the signed-in user and nobody else (`access.rs` is the seam), and
//! keeps nothing but a ring of measurements. Without a viewer it does nothing but write that ring.
//! `serve.rs` has the steps of a request in order.

pub mod access;
pub mod body;
mod serve;
mod guard;
mod session;
mod codes;
mod assets;
mod pass;
mod ask;
mod event;
mod kinds;
mod rights;
mod live;
mod table;
mod search;
mod overview;
mod map;
pub mod insight;
mod why;
mod history;
mod revisions;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use component_base::clock::{Clock, stamp};
use tokio_util::sync::CancellationToken;

pub use access::{Access, Connection, Credential, User};
pub use insight::{Policy, Revisions, Scheduling};

/// What the operator decides, and what only the program around it can tell.
pub struct Config {
    /// With which its page is served. The origin of a page is its scheme, too: one that came in clear may be anybody's.
    pub scheme: http::uri::Scheme,
    /// Names by which this server may be asked, besides its addresses: those of its certificate.
    pub hosts: Vec<String>,
    /// Seals sessions; the same on all servers of a cluster.
    pub secret: [u8; 32],
    pub version: String,
    pub name: String,
    /// The verdicts of the scheduler's own plugins, where they can be had.
    pub scheduling: Option<Arc<dyn Scheduling>>,
    pub policy: Option<Arc<dyn Policy>>,
    pub revisions: Option<Arc<dyn Revisions>>,
    /// When the servers' certificates end, by their names.
    pub certificates: Option<Certificates>,
    /// Where measurements are kept and as whom they are read; none are without it.
    pub history: Option<HistoryConfig>,
    pub clock: Clock,
}

pub type Certificates = Arc<dyn Fn() -> Vec<(String, jiff::Timestamp)> + Send + Sync>;

pub struct HistoryConfig {
    pub folder: PathBuf,
    pub client: kube::Client,
    pub restarts: Restarts,
}

/// How often the containers of each pod were started again, by `namespace/name`, as far as it is known without asking anybody.
pub type Restarts = Arc<dyn Fn() -> HashMap<String, u8> + Send + Sync>;

pub struct Dashboard {
    config: Config,
    access: Arc<dyn Access>,
    sessions: session::Sessions,
    codes: codes::Codes,
    failures: codes::Failures,
    rights: rights::Rights,
    kinds: search::Kinds,
    tables: Arc<table::Tables>,
    history: Option<Arc<history::History>>,
    shutdown: CancellationToken,
}

impl Dashboard {
    pub fn new(config: Config, access: Arc<dyn Access>, shutdown: CancellationToken) -> Arc<Dashboard> {
        let clock = &config.clock;
        let history = config.history.as_ref().map(|config| history::start(config, clock.clone(), shutdown.clone()));
        Arc::new(Dashboard {
            sessions: session::Sessions::new(&config.secret),
            codes: codes::Codes::default(),
            failures: codes::Failures::default(),
            rights: rights::Rights::default(),
            kinds: search::Kinds::default(),
            tables: table::Tables::new(shutdown.clone()),
            history,
            config,
            access,
            shutdown,
        })
    }

    fn certificates(&self) -> Vec<serde_json::Value> {
        let known = self.config.certificates.as_ref().map(|list| list()).unwrap_or_default();
        known.into_iter().map(|(name, end)| serde_json::json!({"name": name, "expires": stamp(end)})).collect()
    }

    pub fn name(&self) -> &str {
        &self.config.name
    }
}
