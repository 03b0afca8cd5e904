//! `knarr cluster add-node` and `remove-node`: a cluster grows and shrinks while it runs.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, anyhow, bail, ensure};
use k8s_openapi::api::core::v1::Node as NodeObject;
use kube::{Api, ResourceExt};

use super::machines::{self, Machine};
use super::state::{Cluster, Node, check_name};
use super::{interruptible, lock, up};
use crate::etcd::controller::FINALIZER;
use crate::progress::Progress;

/// How long pods may take to go elsewhere.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(120);
/// How long the object of a node may take to go; a server's waits for etcd.
const GONE_TIMEOUT: Duration = Duration::from_secs(60);
const GONE_INTERVAL: Duration = Duration::from_millis(100);
/// What containers get that a drain left, such as those of DaemonSets.
const GRACE_SECONDS: u64 = 5;

#[derive(clap::Args)]
pub struct Add {
    #[arg(value_parser = check_name)]
    name: String,
    /// Make the node a server. The cluster must have been created with more than one.
    #[arg(long)]
    server: bool,
}

#[derive(clap::Args)]
pub struct Remove {
    #[arg(value_parser = check_name)]
    name: String,
    /// Name of the node, such as node-2.
    node: String,
    /// Remove the node without draining it first.
    #[arg(long)]
    force: bool,
}

pub async fn add(dir: &Path, flags: Add) -> anyhow::Result<()> {
    // Two at a time would choose the same name.
    let _lock = lock()?;
    let mut cluster = Cluster::load(dir, &flags.name)?;
    ensure!(cluster.complete, "cluster {0} is incomplete: delete and create it again", cluster.name);
    if flags.server && !cluster.has_etcd() {
        bail!(
            "cluster {} has one server, with the embedded store: only a cluster created with --servers 2 or more can add servers",
            cluster.name
        );
    }
    let node = cluster.new_node(flags.server)?;
    // Written down first: what is there can be taken away, also after this was killed.
    cluster.nodes.push(node.clone());
    cluster.save()?;
    let progress = Progress::new(3);
    if let Err(error) = interruptible(up::add(&cluster, &node, &progress)).await {
        progress.end();
        take_away(&mut cluster, &node).context("delete incomplete node")?;
        return Err(error);
    }
    progress.end();
    println!("{} is ready after {:.1} s", node.name, progress.elapsed().as_secs_f64());
    Ok(())
}

pub async fn remove(dir: &Path, flags: Remove) -> anyhow::Result<()> {
    let _lock = lock()?;
    let mut cluster = Cluster::load(dir, &flags.name)?;
    let node = cluster.node(&flags.node)?.clone();
    check(&cluster, &node)?;
    Machine::find(&cluster.hub_folder())?.with_context(|| up::not_running(&cluster))?;
    if !flags.force {
        drain(&cluster, &node)?;
    }
    let nodes: Api<NodeObject> = Api::all(up::client(&cluster).await?);
    if node.is_server {
        // Its member of etcd leaves while it still answers.
        until_guarded(&nodes, &node).await?;
        delete(&nodes, &node).await?;
    }
    power_off(&cluster, &node).await?;
    // Only now nobody says any more that the node is there.
    delete(&nodes, &node).await?;
    take_away(&mut cluster, &node)?;
    println!("{} is removed", node.name);
    Ok(())
}

/// Why a node must stay.
fn check(cluster: &Cluster, node: &Node) -> anyhow::Result<()> {
    let first = cluster.servers().next().is_some_and(|first| first.name == node.name);
    ensure!(
        !first,
        "{0} is the server that the others join: delete the whole cluster with `knarr cluster delete {1}`",
        node.name,
        cluster.name
    );
    if let Some(port) = cluster.ports.iter().find(|port| port.node == node.name) {
        bail!("{} forwards to {}: a node with a --port cannot be removed", port.host, node.name);
    }
    Ok(())
}

/// By the same program's kubectl, which says what it does.
fn drain(cluster: &Cluster, node: &Node) -> anyhow::Result<()> {
    let program = std::env::current_exe().context("find own executable")?;
    let mut command = Command::new(program);
    command.args(["kubectl", "drain", &node.name, "--ignore-daemonsets", "--delete-emptydir-data", "--force"]);
    command.arg(format!("--timeout={}s", DRAIN_TIMEOUT.as_secs())).arg("--kubeconfig").arg(cluster.kubeconfig());
    // What it prints is progress, not the result.
    let drained = command.stdin(Stdio::null()).stdout(std::io::stderr()).status().context("run kubectl drain")?;
    ensure!(drained.success(), "cannot drain {}: --force removes it with its pods", node.name);
    Ok(())
}

async fn power_off(cluster: &Cluster, node: &Node) -> anyhow::Result<()> {
    let folder = cluster.node_folder(node);
    let ended = tokio::task::spawn_blocking(move || match Machine::find(&folder)? {
        Some(machine) => machine.ask(&format!("power-off {GRACE_SECONDS}")).map(drop),
        None => Ok(()),
    });
    if let Err(error) = ended.await? {
        eprintln!("{} did not stop cleanly: {error:#}", node.name);
    }
    Ok(())
}

/// Waits until the node's object goes only after its member of etcd: one that stayed would count at every vote.
async fn until_guarded(nodes: &Api<NodeObject>, node: &Node) -> anyhow::Result<()> {
    let guarded = async {
        loop {
            let found = nodes.get_opt(&node.name).await.with_context(|| format!("get node {}", node.name))?;
            match found {
                Some(found) if !found.finalizers().iter().any(|one| one == FINALIZER) => {}
                Some(_) | None => return Ok(()),
            }
            tokio::time::sleep(GONE_INTERVAL).await;
        }
    };
    let guarded = tokio::time::timeout(GONE_TIMEOUT, guarded).await;
    guarded.map_err(|_| anyhow!("no server manages the etcd member of {}: try again later", node.name))?
}

/// Deletes the node's object and waits until it is gone; none is fine.
async fn delete(nodes: &Api<NodeObject>, node: &Node) -> anyhow::Result<()> {
    let gone = async {
        loop {
            match nodes.delete(&node.name, &Default::default()).await {
                Ok(_) => tokio::time::sleep(GONE_INTERVAL).await,
                Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
                Err(error) => return Err(error).with_context(|| format!("delete node {}", node.name)),
            }
        }
    };
    let gone = tokio::time::timeout(GONE_TIMEOUT, gone).await;
    gone.map_err(|_| anyhow!("node {} still exists after {} s: see its events", node.name, GONE_TIMEOUT.as_secs()))?
}

/// Everything of it on this machine; its cable goes with its network.
fn take_away(cluster: &mut Cluster, node: &Node) -> anyhow::Result<()> {
    let folder = cluster.node_folder(node);
    machines::end(&folder)?;
    machines::remove_control_group(&cluster.control_group(node))?;
    if folder.exists() {
        std::fs::remove_dir_all(&folder).with_context(|| format!("remove {}", folder.display()))?;
    }
    cluster.nodes.retain(|other| other.name != node.name);
    cluster.save()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_not_go() {
        let mut cluster = Cluster::new(Path::new("/dir"), "t", 3, 2, false, "172.30.7.0/24".parse().unwrap());
        cluster.ports = vec![super::super::ports::parse("8080:80@node-3").unwrap()];
        let said = |name: &str| check(&cluster, cluster.node(name).unwrap()).err().map(|error| error.to_string());
        assert!(said("node-1").unwrap().contains("knarr cluster delete t"));
        assert_eq!(said("node-2"), None);
        assert!(said("node-3").unwrap().contains("127.0.0.1:8080"));
    }
}
