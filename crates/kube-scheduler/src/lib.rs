//! The scheduler: gives every waiting pod a node.
//!
//! One loop owns the snapshot and the queue ([`scheduler`]), decides ([`cycle`]), assumes that its decision holds and lets the
//! binding be written beside it.

pub mod pod_info;
pub mod snapshot;
pub mod objects;
pub mod framework;
pub mod plugins;
pub mod profile;
pub mod cycle;
pub mod preempt;
pub mod queue;
pub mod scheduler;
mod writes;

#[cfg(test)]
mod tests;

use reconcile::{Cluster, Shutdown};

use profile::Profile;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0}")]
    Configuration(String),
}

#[derive(Clone)]
pub struct Config {
    /// One per `schedulerName`.
    pub profiles: Vec<Profile>,
    /// Bindings that are written at the same time.
    pub bindings_max: usize,
}

impl Default for Config {
    fn default() -> Config {
        Config { profiles: vec![Profile::standard()], bindings_max: 64 }
    }
}

/// Schedules until told to stop.
pub async fn run(config: Config, cluster: Cluster, shutdown: Shutdown) -> Result<(), Error> {
    scheduler::run(config, cluster, shutdown).await;
    Ok(())
}
