//! `knarr hollow-nodes`: nodes and kubelets without containers, against any Kubernetes API, to try sizes.

use std::time::Duration;

use kubelet::hollow::Config;

const AGENT: &str = concat!("hollow-nodes/v", env!("CARGO_PKG_VERSION"), " (knarr)");

#[derive(clap::Args)]
pub struct Flags {
    #[command(flatten)]
    cluster: crate::alone::Flags,
    /// How many nodes.
    #[arg(long, default_value_t = 100)]
    count: usize,
    /// What the names of the nodes begin with.
    #[arg(long, default_value = "hollow-")]
    prefix: String,
    /// Processors of each node.
    #[arg(long, default_value = "32")]
    cpu: String,
    /// Memory of each node.
    #[arg(long, default_value = "128Gi")]
    memory: String,
    /// Pods that each node takes.
    #[arg(long, default_value_t = 110)]
    max_pods: u32,
    /// Over how many zones the nodes are spread.
    #[arg(long, default_value_t = 3)]
    zones: usize,
    /// Every lease is renewed once in so many seconds.
    #[arg(long, default_value_t = 15)]
    renew_seconds: u64,
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
            ..Config::default()
        };
        Ok(kubelet::hollow::run(config, cluster.client().clone(), shutdown).await?)
    })
}
