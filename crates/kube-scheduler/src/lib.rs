//! The scheduler: gives every waiting pod a node.
//!
//! One loop owns the snapshot and the queue ([`scheduler`]), decides ([`cycle`]), assumes that its decision holds and lets the
//! binding be written beside it.

pub mod pod_info;
pub mod alike;
pub mod snapshot;
pub mod objects;
pub mod framework;
pub mod plugins;
pub mod profile;
pub mod failure;
pub mod cycle;
pub mod preempt;
pub mod queue;
pub mod metrics;
pub mod configuration;
pub mod scheduler;
mod writes;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod speed;

use reconcile::{Clock, Cluster, Shutdown};

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
    pub queue: queue::Limits,
    /// Where the loop shows how it is doing.
    pub metrics: tokio::sync::watch::Sender<metrics::Metrics>,
    pub clock: Clock,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            profiles: vec![Profile::standard()],
            bindings_max: 64,
            queue: queue::Limits::default(),
            metrics: tokio::sync::watch::Sender::default(),
            clock: Clock::system(),
        }
    }
}

/// Schedules until told to stop.
pub async fn run(config: Config, cluster: Cluster, shutdown: Shutdown) -> Result<(), Error> {
    scheduler::run(config, cluster, shutdown).await;
    Ok(())
}
