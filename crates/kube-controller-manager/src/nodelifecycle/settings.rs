//! When a node counts as lost, and how fast nodes may lose their pods.

use std::time::Duration;

/// What the operator decides, under upstream's names and with its defaults.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeLifecycle {
    /// How often every node is looked at.
    pub monitor_period: Duration,
    /// A node that has said nothing for so long is not known to run.
    pub monitor_grace_period: Duration,
    /// A node that has never said anything gets longer.
    pub startup_grace_period: Duration,
    /// Nodes per second that lose their pods, usually.
    pub eviction_rate: f64,
    /// The same in a large zone with much trouble.
    pub secondary_eviction_rate: f64,
    /// Zones with more nodes than this are large.
    pub large_cluster_size_threshold: usize,
    /// The share of nodes in trouble that makes a zone disrupted.
    pub unhealthy_zone_threshold: f64,
}

impl Default for NodeLifecycle {
    fn default() -> NodeLifecycle {
        NodeLifecycle {
            monitor_period: Duration::from_secs(5),
            monitor_grace_period: Duration::from_secs(50),
            startup_grace_period: Duration::from_secs(60),
            eviction_rate: 0.1,
            secondary_eviction_rate: 0.01,
            large_cluster_size_threshold: 50,
            unhealthy_zone_threshold: 0.55,
        }
    }
}
