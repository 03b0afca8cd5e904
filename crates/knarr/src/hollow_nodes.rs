//! `knarr hollow-nodes`: nodes and kubelets without containers, against any Kubernetes API, to try sizes.

use std::time::Duration;

use kubelet::hollow::{Config, Pods};

const AGENT: &str = concat!("hollow-nodes/v", env!("CARGO_PKG_VERSION"), " (knarr)");

#[derive(clap::Args)]
pub struct Flags {
    #[command(flatten)]
    cluster: crate::alone::Flags,
    /// Number of nodes.
    #[arg(long, default_value_t = 100)]
    count: usize,
    /// Prefix of node names.
    #[arg(long, default_value = "hollow-")]
    prefix: String,
    /// CPUs of each node.
    #[arg(long, default_value = "32")]
    cpu: String,
    /// Memory of each node.
    #[arg(long, default_value = "128Gi")]
    memory: String,
    /// Maximum number of pods of each node.
    #[arg(long, default_value_t = 110)]
    max_pods: u32,
    /// Number of zones to spread the nodes over.
    #[arg(long, default_value_t = 3)]
    zones: usize,
    /// Interval of lease renewals in seconds.
    #[arg(long, default_value_t = 15)]
    renew_seconds: u64,
    /// Watch the pods of each node on a connection of its own, as kubelets do, instead of those of all nodes by one watch.
    #[arg(long, conflicts_with = "ignore_pods")]
    own_watches: bool,
    /// Leave the pods bound to the nodes as they are: to measure schedulers.
    #[arg(long)]
    ignore_pods: bool,
}

/// Until it is told to stop.
pub fn run(flags: Flags) -> anyhow::Result<()> {
    crate::alone::run(async move |shutdown| {
        let cluster = flags.cluster.cluster(AGENT).await?;
        let config = Config {
            count: flags.count,
            prefix: flags.prefix,
            cpu: flags.cpu,
            memory: flags.memory,
            pods_max: flags.max_pods,
            zones: flags.zones,
            renew_every: Duration::from_secs(flags.renew_seconds.max(1)),
            pods: match (flags.ignore_pods, flags.own_watches) {
                (true, _) => Pods::Ignored,
                (false, true) => Pods::OwnWatches,
                (false, false) => Pods::OneWatch,
            },
            ..Config::default()
        };
        Ok(kubelet::hollow::run(config, cluster.client().clone(), shutdown).await?)
    })
}
