//! The cluster that is measured: its servers, its hollow nodes, and what they cost.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde_json::Value;
use testkit::{Etcd, Options, Server};

use super::Sizes;
use crate::cluster::{Cluster, HollowNodes};
use crate::{process, report};

/// Nodes of this prefix are lost in the middle, those of the other stay.
pub const LOST: &str = "lost-";
const STAYING: &str = "hollow-";
/// The machine must have so much left for everything else.
const AVAILABLE_MIN_MIB: f64 = 1024.0;
/// Longer than this without one more pod counts as broken.
pub const STALL: Duration = Duration::from_secs(90);
/// How often a stage looks and prints.
const LOOK_EVERY: Duration = Duration::from_secs(5);

pub struct World {
    pub cluster: Cluster,
    others: Vec<Server>,
    pub staying: Option<HollowNodes>,
    pub lost: Option<HollowNodes>,
    lost_count: usize,
    // Ends after the servers that use it.
    _etcd: Option<Etcd>,
}

impl World {
    pub async fn start(sizes: &Sizes) -> anyhow::Result<World> {
        // A range for each of very many nodes, an address for each of very many Services. Nodes are given up at once and not one in ten seconds, as
        // upstream's default is: the loss of hundreds would take an hour and measure only that pause.
        let mut arguments: Vec<String> =
            ["--cluster-cidr=10.64.0.0/10", "--service-cidr=10.32.0.0/14", "--node-eviction-rate=1000"]
                .map(str::to_owned)
                .into();
        let etcd = match sizes.servers {
            0 | 1 => None,
            _ => Some(Etcd::start()?.context("several servers need an etcd: run `make tools`")?),
        };
        arguments.extend(etcd.iter().flat_map(|etcd| ["--etcd-servers".to_owned(), etcd.endpoint.clone()]));
        let cluster = Cluster::start_with(arguments.clone()).await?;
        let options = Options { arguments, machine: None };
        let others = (1..sizes.servers).map(|_| Server::start_with(options.clone())).collect::<anyhow::Result<_>>()?;
        let lost_count = sizes.lost.min(sizes.nodes / 2);
        Ok(World { cluster, others, staying: None, lost: None, lost_count, _etcd: etcd })
    }

    /// All nodes, those to be lost in a process of their own. Each has a connection and a watch of its own, as kubelets have.
    pub async fn add_nodes(&mut self, sizes: &Sizes) -> anyhow::Result<()> {
        let staying = sizes.nodes - self.lost_count;
        self.staying = Some(self.cluster.hollow(STAYING, staying, &["--own-watches"])?);
        self.cluster.nodes_settled(STAYING, staying, sizes.stage_max()).await?;
        self.add_lost(sizes).await
    }

    pub async fn add_lost(&mut self, sizes: &Sizes) -> anyhow::Result<()> {
        if self.lost_count > 0 {
            self.lost = Some(self.cluster.hollow(LOST, self.lost_count, &["--own-watches"])?);
            self.cluster.nodes_settled(LOST, self.lost_count, sizes.stage_max()).await?;
        }
        Ok(())
    }

    pub fn lost_count(&self) -> usize {
        self.lost_count
    }

    pub fn servers(&self) -> impl Iterator<Item = &Server> {
        std::iter::once(&self.cluster.server).chain(&self.others)
    }

    /// Processor time of all servers so far.
    pub fn cpu_seconds(&self) -> anyhow::Result<f64> {
        self.servers().map(|server| process::cpu_seconds(server.pid())).sum()
    }

    pub fn resident_mib(&self) -> anyhow::Result<f64> {
        self.servers().map(|server| process::resident_mib(server.pid())).sum()
    }

    pub fn peak_mib(&self) -> anyhow::Result<f64> {
        let peaks = self.servers().map(|server| process::peak_mib(server.pid()));
        peaks.reduce(|most, one| Ok(most?.max(one?))).context("a server")?
    }

    /// The text of every server's metrics.
    pub async fn metrics(&self) -> anyhow::Result<Vec<String>> {
        let mut texts = Vec::new();
        for server in self.servers() {
            texts.push(server.client()?.get("/metrics").await?.text().to_string());
        }
        Ok(texts)
    }

    /// Looks until as many are there as are wanted, and prints each time how far it is. Answers what the wait cost at each look:
    /// how many there were, and the processor time of the servers since the beginning.
    pub async fn until_count(
        &self,
        what: &str,
        wanted: usize,
        time_max: Duration,
        mut count: impl AsyncFnMut() -> anyhow::Result<usize>,
    ) -> anyhow::Result<Vec<(usize, f64)>> {
        let (began, cpu_before) = (Instant::now(), self.cpu_seconds()?);
        let (mut last, mut progress) = ((Instant::now(), 0, cpu_before), Instant::now());
        let mut looks = Vec::new();
        loop {
            let now_there = count().await?;
            let (now, cpu) = (Instant::now(), self.cpu_seconds()?);
            looks.push((now_there, cpu - cpu_before));
            let seconds = now.duration_since(last.0).as_secs_f64().max(0.001);
            println!(
                "  {:>6.0} s: {now_there} of {wanted} {what}, {:.0}/s, {:.2} processors, {:.0} MiB, load average {}",
                began.elapsed().as_secs_f64(),
                (now_there as f64 - last.1 as f64) / seconds,
                (cpu - last.2) / seconds,
                self.resident_mib()?,
                report::load_average()
            );
            if now_there >= wanted {
                return Ok(looks);
            }
            if now_there > last.1 {
                progress = now;
            }
            if progress.elapsed() > STALL {
                bail!("{now_there} of {wanted} {what}, and none more in {} s", STALL.as_secs());
            }
            if began.elapsed() > time_max {
                bail!("{now_there} of {wanted} {what} within {} s", time_max.as_secs());
            }
            if process::available_mib()? < AVAILABLE_MIN_MIB {
                bail!("{now_there} of {wanted} {what}, and the machine has no memory left");
            }
            last = (now, now_there, cpu);
            tokio::time::sleep(LOOK_EVERY.min(Duration::from_millis(200 + began.elapsed().as_millis() as u64 / 10)))
                .await;
        }
    }

    /// A sum over all Deployments of the cluster.
    pub async fn of_deployments(&self, value: impl Fn(&Value) -> u64) -> anyhow::Result<usize> {
        let list =
            self.cluster.send("GET", "/apis/apps/v1/deployments", &Value::Null).await.context("list Deployments")?;
        Ok(list["items"].as_array().into_iter().flatten().map(value).sum::<u64>() as usize)
    }

    /// The pods that Deployments say are ready.
    pub async fn pods_ready(&self) -> anyhow::Result<usize> {
        self.of_deployments(|one| one["status"]["readyReplicas"].as_u64().unwrap_or(0)).await
    }

    /// How many nodes of a prefix pass.
    pub async fn nodes(&self, prefix: &str, passes: impl Fn(&Value) -> bool) -> anyhow::Result<usize> {
        let list = self.cluster.send("GET", "/api/v1/nodes", &Value::Null).await.context("list nodes")?;
        let nodes = list["items"].as_array().into_iter().flatten();
        let ours = nodes.filter(|node| node["metadata"]["name"].as_str().is_some_and(|name| name.starts_with(prefix)));
        Ok(ours.filter(|node| passes(node)).count())
    }
}

/// The status of a node's condition Ready.
pub fn is_ready(node: &Value) -> bool {
    let conditions = node["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|one| one["type"] == "Ready" && one["status"] == "True")
}
