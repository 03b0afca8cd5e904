//! The only control loop: shared caches, queues, and the driver that every controller runs in.
//!
//! A controller is an entry (`Controller`): what wakes it, and a `reconcile` that turns a key into a `Plan`. The driver
//! takes one key at a time, does the plan's writes, waits until the cache has seen them, and comes back when told.

mod cache;
mod cluster;
mod controller;
mod decode;
mod discovery;
mod driver;
pub mod events;
mod key;
pub mod lease;
mod metrics;
mod plan;
mod queue;
mod stream;
mod watch;
#[cfg(test)]
mod nulls;

pub use cache::{Cache, Caches, Index, Kind};
pub use cluster::{Cluster, Connect, Identity};
pub use component_base::Clock;
pub use controller::{Context, Controller, On, Rule, Wake, Work};
pub use discovery::{Discovered, Resource, discover};
pub use driver::{Next, perform, run, run_all, work};
pub use key::Key;
pub use metrics::Metrics;
pub use plan::{Event, Plan, Write};
pub use queue::{Backoff, Queue};
pub use stream::{Seen, Watching};
pub use watch::Watched;

/// Says when to stop.
pub use component_base::Shutdown;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{action}: {source}")]
    Api { action: String, source: Box<kube::Error> },
    #[error("{0}")]
    Other(String),
}

impl Error {
    pub fn api(action: impl Into<String>, source: kube::Error) -> Error {
        Error::Api { action: action.into(), source: Box::new(source) }
    }

    /// The reason the server gave, such as `Conflict`; empty where it gave none.
    pub fn reason(&self) -> &str {
        match self {
            Error::Api { source, .. } => reason(source),
            Error::Other(_) => "",
        }
    }
}

/// The reason of an error the server answered with; empty for every other error.
pub fn reason(error: &kube::Error) -> &str {
    match error {
        kube::Error::Api(status) => &status.reason,
        _ => "",
    }
}

pub fn is_not_found(error: &kube::Error) -> bool {
    reason(error) == "NotFound"
}
