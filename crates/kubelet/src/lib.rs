//! The kubelet: makes the pods that are bound to its node run, and says how they are.

pub mod config;
pub mod node;
pub mod stats;
pub mod eviction;
pub mod gc;
pub mod shutdown;
pub mod logind;
pub mod pods;
pub mod pod;
pub mod objects;
pub mod tokens;
mod pod_certificates;
pub mod plugins;
pub mod drivers;
pub mod device_plugins;
pub mod claims;
pub mod managers;
pub mod pod_resources;
pub mod volumes;
pub mod probe;
pub mod images;
pub mod resources;
mod operations;
pub mod server;
pub mod hollow;
mod checkpoint;
mod run;
#[cfg(test)]
mod fake_api;

pub use config::{Config, Shown};
pub use run::run;

use std::sync::Arc;

use reconcile::Shutdown;
use reconcile::events::Recorder;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{step}")]
    Io {
        step: String,
        #[source]
        source: std::io::Error,
    },
    #[error("{step}: {source}")]
    Api {
        step: String,
        #[source]
        source: kube::Error,
    },
    #[error("{step}: {source}")]
    Runtime {
        step: String,
        #[source]
        source: cri::Error,
    },
    #[error(transparent)]
    ClientAuthority(#[from] server::AuthorityError),
    #[error("write statistics: {0}")]
    Statistics(#[from] serde_json::Error),
    #[error(transparent)]
    Managers(#[from] managers::StartError),
    #[error("{0}")]
    Other(String),
}

/// What every part of the kubelet works with.
pub struct Kubelet {
    pub config: Config,
    pub client: kube::Client,
    pub runtime: Arc<dyn cri::Runtime>,
    pub events: Recorder,
    /// Objects that pods refer to.
    pub objects: Arc<objects::Objects>,
    pub shutdown: Shutdown,
    /// Where pulls of images are measured.
    pub pull_times: Arc<images::PullTimes>,
}

impl Kubelet {
    pub fn now(&self) -> jiff::Timestamp {
        self.config.clock.now()
    }
}
