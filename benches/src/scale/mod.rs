//! A cluster of upstream's largest supported size on one machine: hollow nodes, Services and pods, upstream's service level
//! objectives, a rolling update, the loss of many nodes, a restart with every kubelet connected, and churn.
//!
//! Each stage prints what it sees as it goes and is bounded in time. What breaks is told with the number where it broke; the
//! stages after it run nevertheless, as far as the cluster still answers.

mod asking;
mod churn;
mod fill;
mod loss;
mod objectives;
mod restart;
mod rollout;
mod start;
mod world;

use std::time::{Duration, Instant};

use crate::report;
use asking::start_asking;
use objectives::Objectives;
use world::World;

#[derive(clap::Args, Clone)]
pub struct Sizes {
    /// Number of hollow nodes.
    #[arg(long, default_value_t = 5_000)]
    pub nodes: usize,
    /// Number of pods, spread evenly over one Deployment for each Service.
    #[arg(long, default_value_t = 150_000)]
    pub pods: usize,
    /// Number of Services, and of Deployments behind them.
    #[arg(long, default_value_t = 10_000)]
    pub services: usize,
    /// Number of namespaces.
    #[arg(long, default_value_t = 1_000)]
    pub namespaces: usize,
    /// Number of pods that a rolling update replaces.
    #[arg(long, default_value_t = 10_000)]
    pub rolled: usize,
    /// Number of nodes that are lost at once.
    #[arg(long, default_value_t = 500)]
    pub lost: usize,
    /// Number of pods that churn ends and makes again.
    #[arg(long, default_value_t = 20_000)]
    pub churned: usize,
    /// Number of servers: one with its own store, or several on one etcd.
    #[arg(long, default_value_t = 1)]
    pub servers: usize,
    /// The longest that any stage may take.
    #[arg(long, default_value_t = 60)]
    pub stage_minutes: u64,
    /// Only these stages after the cluster is filled: start, rollout, loss, restart, churn.
    pub stages: Vec<String>,
}

const STAGES: [&str; 5] = ["start", "rollout", "loss", "restart", "churn"];

impl Sizes {
    pub fn stage_max(&self) -> Duration {
        Duration::from_secs(self.stage_minutes * 60)
    }

    /// Replicas of the Deployment of that number.
    pub fn replicas(&self, deployment: usize) -> usize {
        self.pods / self.services.max(1) + usize::from(deployment < self.pods % self.services.max(1))
    }

    pub fn namespace(&self, deployment: usize) -> String {
        format!("scale-{}", deployment % self.namespaces.max(1))
    }

    fn wants(&self, stage: &str) -> bool {
        self.stages.is_empty() || self.stages.iter().any(|wanted| wanted == stage)
    }
}

pub async fn run(sizes: Sizes) -> anyhow::Result<()> {
    if let Some(unknown) = sizes.stages.iter().find(|stage| !STAGES.contains(&stage.as_str())) {
        anyhow::bail!("there is no stage {unknown:?}; there are {}", STAGES.join(", "));
    }
    println!(
        "\nscale: {} hollow nodes, {} pods, {} Services, {} namespaces, {} server(s)",
        sizes.nodes, sizes.pods, sizes.services, sizes.namespaces, sizes.servers
    );
    let mut world = World::start(&sizes).await?;
    let objectives = Objectives::begin(&world).await?;
    stage("fill", fill::run(&mut world, &sizes)).await;
    stage("reads", objectives::reads(&world)).await;
    if sizes.wants("start") {
        stage("pod start", start::run(&world, &sizes)).await;
    }
    if sizes.wants("rollout") {
        stage("rolling update", rollout::run(&world, &sizes)).await;
    }
    // The server counts from its start: what it counted is read before it is restarted.
    stage("objectives", objectives.end(&world)).await;
    if sizes.wants("loss") {
        stage("loss of nodes", loss::run(&mut world, &sizes)).await;
    }
    if sizes.wants("restart") {
        stage("restart", restart::run(&mut world, &sizes)).await;
    }
    if sizes.wants("churn") {
        stage("churn", churn::run(&world, &sizes)).await;
    }
    report::line("scale: most memory that a server had resident", world.peak_mib()?, "MiB");
    Ok(())
}

/// Runs a stage, and tells where it broke instead of ending the run: what is measured after it may still be of use.
async fn stage(name: &str, doing: impl Future<Output = anyhow::Result<()>>) {
    println!("\n{name} (load average {})", report::load_average());
    let began = Instant::now();
    match doing.await {
        Ok(()) => println!("{name}: done after {:.1} s", began.elapsed().as_secs_f64()),
        Err(error) => report::broke(name, &format!("{error:#} (after {:.1} s)", began.elapsed().as_secs_f64())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_are_spread_evenly_and_none_is_left_out() {
        let sizes = Sizes {
            nodes: 1,
            pods: 1_000,
            services: 30,
            namespaces: 7,
            rolled: 0,
            lost: 0,
            churned: 0,
            servers: 1,
            stage_minutes: 1,
            stages: vec!["loss".into()],
        };
        let replicas: Vec<usize> = (0..30).map(|number| sizes.replicas(number)).collect();
        assert_eq!(replicas.iter().sum::<usize>(), 1_000);
        assert!(replicas.iter().all(|count| matches!(count, 33 | 34)), "{replicas:?}");
        assert_eq!((sizes.namespace(0), sizes.namespace(8)), ("scale-0".into(), "scale-1".into()));
        assert!(sizes.wants("loss") && !sizes.wants("churn"));
    }
}
