//! How often autoscalers are looked at, and what holds where they do not say otherwise.

use std::time::Duration;

/// What the operator decides, under upstream's names and with its defaults.
#[derive(Clone, Debug, PartialEq)]
pub struct Autoscaling {
    pub sync_period: Duration,
    /// The window for going down of autoscalers that name none.
    pub downscale_stabilization: Duration,
    /// So far off the target is near enough.
    pub tolerance: f64,
    /// Until a pod has been there for so long, its use of the processor is that of its start.
    pub cpu_initialization_period: Duration,
    /// A pod that became unready so soon after its start was never ready.
    pub initial_readiness_delay: Duration,
}

impl Default for Autoscaling {
    fn default() -> Autoscaling {
        Autoscaling {
            sync_period: Duration::from_secs(15),
            downscale_stabilization: Duration::from_secs(5 * 60),
            tolerance: 0.1,
            cpu_initialization_period: Duration::from_secs(5 * 60),
            initial_readiness_delay: Duration::from_secs(30),
        }
    }
}
