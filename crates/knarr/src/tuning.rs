//! Times and rates of the controllers that operators change, under upstream's names. The server takes them too.

use std::time::Duration;

use kube_controller_manager::{Autoscaling, Config, NodeLifecycle};

use crate::leader::duration;

#[derive(clap::Args, Clone)]
#[group(skip)]
pub struct Flags {
    /// Number of terminated pods to keep; 0 keeps all.
    #[arg(long, default_value_t = 12500)]
    terminated_pod_gc_threshold: usize,
    /// Interval of node health checks.
    #[arg(long, value_parser = duration, default_value = "5s")]
    node_monitor_period: Duration,
    /// Time without a status update after which a node becomes Unknown.
    #[arg(long, value_parser = duration, default_value = "50s")]
    node_monitor_grace_period: Duration,
    /// Time without any status update after which a new node becomes Unknown.
    #[arg(long, value_parser = duration, default_value = "1m")]
    node_startup_grace_period: Duration,
    /// Number of unhealthy nodes per second to evict pods from.
    #[arg(long, default_value_t = 0.1)]
    node_eviction_rate: f64,
    /// Number of nodes per second to evict pods from in a large disrupted zone.
    #[arg(long, default_value_t = 0.01)]
    secondary_node_eviction_rate: f64,
    /// Number of nodes above which a zone is large.
    #[arg(long, default_value_t = 50)]
    large_cluster_size_threshold: usize,
    /// Fraction of unhealthy nodes at which a zone is disrupted.
    #[arg(long, default_value_t = 0.55)]
    unhealthy_zone_threshold: f64,
    /// Interval of HorizontalPodAutoscaler evaluations.
    #[arg(long, value_parser = duration, default_value = "15s")]
    horizontal_pod_autoscaler_sync_period: Duration,
    /// Default stabilization window for scaling down.
    #[arg(long, value_parser = duration, default_value = "5m")]
    horizontal_pod_autoscaler_downscale_stabilization: Duration,
    /// Tolerated deviation from the target before scaling.
    #[arg(long, default_value_t = 0.1)]
    horizontal_pod_autoscaler_tolerance: f64,
    /// Time after a pod's start during which its CPU usage may be ignored by autoscalers.
    #[arg(long, value_parser = duration, default_value = "5m")]
    horizontal_pod_autoscaler_cpu_initialization_period: Duration,
    /// Time after a pod's start during which a change to unready counts as not yet ready.
    #[arg(long, value_parser = duration, default_value = "30s")]
    horizontal_pod_autoscaler_initial_readiness_delay: Duration,
}

impl Flags {
    pub fn terminated_pods_max(&self) -> usize {
        self.terminated_pod_gc_threshold
    }

    pub fn apply(&self, config: Config) -> Config {
        Config {
            terminated_pods_max: self.terminated_pod_gc_threshold,
            node_lifecycle: NodeLifecycle {
                monitor_period: self.node_monitor_period,
                monitor_grace_period: self.node_monitor_grace_period,
                startup_grace_period: self.node_startup_grace_period,
                eviction_rate: self.node_eviction_rate,
                secondary_eviction_rate: self.secondary_node_eviction_rate,
                large_cluster_size_threshold: self.large_cluster_size_threshold,
                unhealthy_zone_threshold: self.unhealthy_zone_threshold,
            },
            autoscaling: Autoscaling {
                sync_period: self.horizontal_pod_autoscaler_sync_period,
                downscale_stabilization: self.horizontal_pod_autoscaler_downscale_stabilization,
                tolerance: self.horizontal_pod_autoscaler_tolerance,
                cpu_initialization_period: self.horizontal_pod_autoscaler_cpu_initialization_period,
                initial_readiness_delay: self.horizontal_pod_autoscaler_initial_readiness_delay,
            },
            ..config
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Given {
        #[command(flatten)]
        flags: Flags,
    }

    #[test]
    fn what_is_not_said_is_as_the_controllers_have_it() {
        let config = Given::parse_from(["test"]).flags.apply(Config::default());
        assert_eq!(config.node_lifecycle, NodeLifecycle::default());
        assert_eq!(config.autoscaling, Autoscaling::default());
    }
}
