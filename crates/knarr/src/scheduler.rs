//! `knarr kube-scheduler`: the scheduler by itself.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
use reconcile::{Cluster, Shutdown};

use crate::health;

pub const AGENT: &str = concat!("kube-scheduler/v", env!("CARGO_PKG_VERSION"), " (knarr)");

/// The name of its lease.
pub const COMPONENT: &str = "kube-scheduler";

/// Where upstream's answers.
const PORT: u16 = 10259;

#[derive(clap::Args)]
pub struct Flags {
    #[command(flatten)]
    cluster: crate::alone::Flags,
    #[command(flatten)]
    pub secure: crate::secure::Flags,
    /// KubeSchedulerConfiguration file: profiles, plugins and their weights.
    #[arg(long)]
    config: Option<PathBuf>,
    /// Serve /healthz, /livez, /readyz and /metrics on this address without TLS, such as 127.0.0.1:10259.
    #[arg(long)]
    health_address: Option<SocketAddr>,
    /// Maximum time until an unschedulable pod is retried.
    #[arg(long, value_parser = crate::leader::duration, default_value = "5m")]
    pod_max_in_unschedulable_pods_duration: std::time::Duration,
    #[command(flatten)]
    leader: crate::leader::Flags,
}

/// Until it is told to stop.
pub fn run(mut flags: Flags) -> anyhow::Result<()> {
    let mut config = config(flags.config.as_deref())?;
    config.queue.waiting_max = flags.pod_max_in_unschedulable_pods_duration;
    flags.follow_file()?;
    crate::alone::run(async move |shutdown| {
        let cluster = flags.cluster.cluster(AGENT).await?;
        let election = flags.leader.election(COMPONENT)?;
        let page = page(&config, election.leads(), &cluster);
        if let Some(address) = flags.health_address {
            health::serve(address, page.clone()).await?;
        }
        flags.secure.serve(PORT, COMPONENT, AGENT, page).await?;
        let client = cluster.client().clone();
        election.run(client, shutdown, move |stop| work(config.clone(), cluster.clone(), stop)).await;
        Ok(())
    })
}

/// What `/metrics` shows of a scheduler.
pub fn page(config: &kube_scheduler::Config, leads: Arc<AtomicBool>, cluster: &Cluster) -> health::Page {
    let metrics = config.metrics.subscribe();
    let own = move || kube_scheduler::metrics::text(&metrics.borrow());
    health::both(own, health::page(COMPONENT, leads, cluster.metrics().clone(), Default::default()))
}

/// What a file says of the scheduler as a program; flags say how to reach the cluster before it.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Program {
    leader_election: crate::leader::InFile,
    client_connection: Connection,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
struct Connection {
    kubeconfig: String,
}

impl Flags {
    fn follow_file(&mut self) -> anyhow::Result<()> {
        let Some(path) = &self.config else { return Ok(()) };
        let fields =
            crate::component_config::read(path, "kubescheduler.config.k8s.io/v1", "KubeSchedulerConfiguration")?;
        let program: Program =
            serde_json::from_value(fields.into()).with_context(|| format!("use {}", path.display()))?;
        let kubeconfig = Some(PathBuf::from(program.client_connection.kubeconfig));
        let kubeconfig = kubeconfig.filter(|path| !path.as_os_str().is_empty());
        self.cluster.kubeconfig = self.cluster.kubeconfig.take().or(kubeconfig);
        self.leader.follow(program.leader_election).with_context(|| format!("use {}", path.display()))
    }
}

/// Schedules until told to stop.
pub async fn work(config: kube_scheduler::Config, cluster: Cluster, stop: Shutdown) {
    if let Err(error) = kube_scheduler::run(config, cluster, stop).await {
        tracing::error!(%error, "kube-scheduler failed");
    }
}

/// What the file says, or what upstream does without one.
pub fn config(file: Option<&Path>) -> anyhow::Result<kube_scheduler::Config> {
    let Some(file) = file else { return Ok(kube_scheduler::Config::default()) };
    let text = std::fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?;
    kube_scheduler::configuration::read(&text).with_context(|| format!("use {}", file.display()))
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
    fn a_file_says_how_to_reach_the_cluster_and_who_leads() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("scheduler.yaml");
        let text = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n\
            clientConnection: {kubeconfig: /etc/kubernetes/scheduler.conf}\n\
            leaderElection: {leaderElect: false, leaseDuration: 20s}\n";
        std::fs::write(&file, text).unwrap();
        config(Some(&file)).unwrap();
        let config = format!("--config={}", file.display());
        let mut flags = Given::parse_from(["x", &config]).flags;
        flags.follow_file().unwrap();
        assert_eq!(flags.cluster.kubeconfig.as_deref(), Some(Path::new("/etc/kubernetes/scheduler.conf")));
        let mut flags = Given::parse_from(["x", &config, "--kubeconfig=/mine"]).flags;
        flags.follow_file().unwrap();
        assert_eq!(flags.cluster.kubeconfig.as_deref(), Some(Path::new("/mine")));
        std::fs::write(&file, text.replace("leaderElect: false", "resourceLock: endpoints")).unwrap();
        assert!(flags.follow_file().is_err());
    }
}
