//! Bringing a cluster up: machines and cables first, then the first server, then everybody else at once.

use std::collections::BTreeSet;
use std::fs::File;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use futures::{StreamExt, future};
use k8s_openapi::api::core::v1::Node as NodeObject;
use kube::config::Kubeconfig;
use reconcile::{Seen, Watching};

use super::machine::{DATA, Setup};
use super::machines::{self, Machine};
use super::ports::{Forward, Port};
use super::state::{Cluster, Node};
use super::{API_PORT, links, load};
use crate::join::token::Token;
use crate::progress::Progress;

/// All nodes share one disk, and one memory: how full these are is no reason to evict pods or to remove images, because
/// another node would be no better.
const SHARED_HOST: [&str; 3] =
    ["--eviction-hard=memory.available<50Mi", "--image-gc-high-threshold=100", "--image-gc-low-threshold=99"];
const TOKEN_FILE: &str = "cluster-token";
const READY_TIMEOUT: Duration = Duration::from_secs(180);

pub async fn up(cluster: &Cluster, lock: File, progress: &Progress) -> anyhow::Result<()> {
    let (hub, nodes) = machines(cluster).await?;
    links::connect_host(cluster, hub).await?;
    // From here on others see that the range is taken.
    drop(lock);
    let plugging = nodes.iter().map(|(node, machine)| links::connect_node(cluster, hub, *machine, node));
    future::try_join_all(plugging).await?;
    progress.step("the machines are connected");

    let (servers, agents): (Vec<_>, Vec<_>) = nodes.into_iter().partition(|(node, _)| node.is_server);
    let first = servers.first().context("cluster has no server")?.0;
    if cluster.complete {
        // None of the servers gets far without the others.
        start_all(cluster, &servers, progress).await?;
        start_all(cluster, &agents, progress).await?;
    } else {
        start_all(cluster, &servers[..1], progress).await?;
        let token = std::fs::read_to_string(cluster.node_folder(first).join("data/server/node-token"));
        let token = token.context("read node token")?;
        agents.iter().try_for_each(|(node, _)| write_token(cluster, node, &token))?;
        let joining = async {
            // One at a time: etcd takes the next member when it is sure of the last.
            for server in &servers[1..] {
                start_all(cluster, std::slice::from_ref(server), progress).await?;
            }
            Ok(())
        };
        future::try_join(joining, start_all(cluster, &agents, progress)).await?;
    }
    let text = kubeconfig(cluster, first)?;
    kube_apiserver::pki::write_private_file(&cluster.kubeconfig(), &text)?;
    wait_ready(cluster, &cluster.nodes, progress).await
}

/// The hub and all nodes, without links and without knarr.
async fn machines(cluster: &Cluster) -> anyhow::Result<(Machine, Vec<(&Node, Machine)>)> {
    if !cluster.complete {
        // Nobody else knows it yet, so the servers can be told at once.
        let token = Token::generate_text("")?.secret();
        cluster.servers().try_for_each(|node| write_token(cluster, node, &token))?;
    }
    let hub = Setup { host_name: format!("{}-hub", cluster.name), line: Vec::new(), forwards: forwards(cluster)? };
    let mut starting = vec![(cluster.hub_folder(), hub)];
    for node in &cluster.nodes {
        starting.push((cluster.node_folder(node), setup(cluster, node)?));
    }
    let starting = starting.into_iter();
    let starting = starting.map(|(folder, setup)| tokio::task::spawn_blocking(move || Machine::start(&folder, &setup)));
    let started = future::try_join_all(starting).await?.into_iter().collect::<anyhow::Result<Vec<Machine>>>()?;
    let [hub, nodes @ ..] = &started[..] else { bail!("cluster has no hub") };
    Ok((*hub, cluster.nodes.iter().zip(nodes.iter().copied()).collect()))
}

fn setup(cluster: &Cluster, node: &Node) -> anyhow::Result<Setup> {
    let program = std::env::current_exe().context("find own executable")?;
    let program = program.to_str().context("the path of this program is not UTF-8")?;
    let line = [program.to_owned()].into_iter().chain(arguments(cluster, node)).collect();
    Ok(Setup { host_name: node.name.clone(), line, forwards: Vec::new() })
}

fn forwards(cluster: &Cluster) -> anyhow::Result<Vec<Forward>> {
    let forward = |port: &Port| {
        let node = cluster.node(&port.node)?;
        Ok(Forward { from: port.host, to: SocketAddr::from((node.address, port.port)) })
    };
    cluster.ports.iter().map(forward).collect()
}

/// One node more, in a cluster that runs.
pub async fn add(cluster: &Cluster, node: &Node, progress: &Progress) -> anyhow::Result<()> {
    let hub = Machine::find(&cluster.hub_folder())?.with_context(|| not_running(cluster))?;
    let first = cluster.servers().next().context("cluster has no server")?;
    let data = cluster.node_folder(first).join("data");
    let file = data.join(if node.is_server { TOKEN_FILE } else { "server/node-token" });
    let token = std::fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
    write_token(cluster, node, &token)?;
    load::catch_up(cluster, node).await?;
    let (folder, setup) = (cluster.node_folder(node), setup(cluster, node)?);
    let machine = tokio::task::spawn_blocking(move || Machine::start(&folder, &setup)).await??;
    links::connect_node(cluster, hub, machine, node).await?;
    progress.step(&format!("connected {}", node.name));
    start_all(cluster, &[(node, machine)], progress).await?;
    wait_ready(cluster, std::slice::from_ref(node), progress).await
}

pub fn not_running(cluster: &Cluster) -> String {
    format!("the cluster is not running: start it with `knarr cluster start {}`", cluster.name)
}

/// What knarr is told on a node; the same at every start.
fn arguments(cluster: &Cluster, node: &Node) -> Vec<String> {
    let mut all: Vec<String> = vec![if node.is_server { "server" } else { "agent" }.into()];
    // The host's own settings are not theirs.
    all.extend(["--config".into(), "/dev/null".into()]);
    all.extend(["--data-dir".into(), DATA.into(), "--node-name".into(), node.name.clone()]);
    all.extend(["--node-ip".into(), node.address.to_string()]);
    all.extend(["--cgroup-root".into(), format!("/{}", cluster.control_group(node))]);
    all.extend(SHARED_HOST.map(String::from));
    all.extend(["--token-file".into(), format!("{DATA}/{TOKEN_FILE}")]);
    let first = cluster.servers().next().filter(|first| first.name != node.name);
    match first {
        Some(first) => all.extend(["--server".into(), first.url()]),
        None if cluster.has_etcd() => all.push("--cluster-init".into()),
        None => {}
    }
    if node.is_server {
        all.extend(["--https-port".into(), API_PORT.to_string()]);
        all.extend(cluster.server_arguments.iter().cloned());
    } else {
        all.extend(cluster.agent_arguments.iter().cloned())
    }
    all
}

fn write_token(cluster: &Cluster, node: &Node, token: &str) -> anyhow::Result<()> {
    let folder = cluster.node_folder(node).join("data");
    std::fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
    Ok(kube_apiserver::pki::write_private_file(&folder.join(TOKEN_FILE), token)?)
}

async fn start_all(cluster: &Cluster, nodes: &[(&Node, Machine)], progress: &Progress) -> anyhow::Result<()> {
    let starting = nodes.iter().map(|(node, machine)| {
        let (machine, folder) = (*machine, cluster.node_folder(node));
        async move {
            let started = tokio::task::spawn_blocking(move || {
                machine.ask("start").map_err(|error| anyhow!("{error:#}\n{}", machines::last_words(&folder)))
            });
            started.await?.with_context(|| format!("start {}", node.name))?;
            progress.step(&format!("{} runs", node.name));
            anyhow::Ok(())
        }
    });
    future::try_join_all(starting).await.map(drop)
}

/// The administrator's, for use from the host.
pub fn kubeconfig(cluster: &Cluster, server: &Node) -> anyhow::Result<String> {
    let file = cluster.node_folder(server).join("data/admin.kubeconfig");
    let text = std::fs::read_to_string(&file)
        .with_context(|| format!("{} is not a server of {}: read {}", server.name, cluster.name, file.display()))?;
    Ok(from_outside(&text, &server.url(), &format!("knarr-{}", cluster.name)))
}

/// The server's own kubeconfig, with an address that is good elsewhere and a name that can stand beside others.
fn from_outside(text: &str, url: &str, name: &str) -> String {
    let lines = text.lines().map(|line| {
        let (key, value) = line.split_once(": ").unwrap_or((line, ""));
        match (key.trim_start_matches([' ', '-']), value) {
            ("server", _) => format!("{key}: {url}\n"),
            ("name" | "cluster" | "user" | "current-context", "default") => format!("{key}: {name}\n"),
            _ => format!("{line}\n"),
        }
    });
    lines.collect()
}

/// An administrator of the cluster, from the host.
pub async fn client(cluster: &Cluster) -> anyhow::Result<kube::Client> {
    let config = Kubeconfig::read_from(cluster.kubeconfig()).context("read kubeconfig of the cluster")?;
    let mut config = kube::Config::from_custom_kubeconfig(config, &Default::default()).await?;
    // A proxy for elsewhere is none for here.
    config.proxy_url = None;
    kube::Client::try_from(config).context("create client")
}

async fn wait_ready(cluster: &Cluster, nodes: &[Node], progress: &Progress) -> anyhow::Result<()> {
    let ready = tokio::time::timeout(READY_TIMEOUT, all_ready(cluster, nodes, progress)).await;
    ready.map_err(|_| anyhow!("nodes were not ready within {} s", READY_TIMEOUT.as_secs()))?
}

/// Waits until the API says of these nodes that they are ready.
async fn all_ready(cluster: &Cluster, nodes: &[Node], progress: &Progress) -> anyhow::Result<()> {
    let client = client(cluster).await?;
    let mut waiting: BTreeSet<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
    let mut note = |node: &NodeObject| {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        if is_ready(node) && waiting.remove(name) {
            progress.step(&format!("{name} is ready"));
        }
        waiting.is_empty()
    };
    let mut watching = Watching::<NodeObject>::fields(client, None, String::new());
    while let Some(seen) = watching.next().await {
        match seen {
            Seen::Listed(node) | Seen::Put(node) if note(&node) => break,
            Seen::Failed(error) => bail!("list nodes: {error}"),
            _ => {}
        }
    }
    Ok(())
}

/// Ready, and no longer marked as one that is not: only then it gets pods.
fn is_ready(node: &NodeObject) -> bool {
    let conditions = node.status.iter().filter_map(|status| status.conditions.as_ref()).flatten();
    let says_so = conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True");
    let taints = node.spec.iter().filter_map(|spec| spec.taints.as_ref()).flatten();
    says_so && !taints.into_iter().any(|taint| taint.key == "node.kubernetes.io/not-ready")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_node_is_told_how_to_join() {
        let range = "172.30.7.0/24".parse().unwrap();
        let words = |servers: u8, index: usize| {
            let cluster = Cluster::new(std::path::Path::new("/dir"), "t", 3, servers, false, range);
            arguments(&cluster, &cluster.nodes[index]).join(" ")
        };
        let alone = words(1, 0);
        assert!(alone.starts_with("server ") && !alone.contains("--cluster-init") && !alone.contains("--server "));
        assert!(words(3, 0).contains("--cluster-init"));
        for (line, role) in [(words(3, 1), "server "), (words(1, 2), "agent ")] {
            assert!(line.starts_with(role) && line.contains("--server https://172.30.7.1:6443"), "{line}");
            assert!(!line.contains("--cluster-init"), "{line}");
        }
        assert!(words(1, 2).contains("--cgroup-root /knarr-t-node-3 "));
    }

    #[test]
    fn a_kubeconfig_for_the_host() {
        let own = "clusters:\n- name: default\n  cluster:\n    server: \"https://127.0.0.1:6443\"\ncontexts:\n- name: default\n  context:\n    cluster: default\n    user: default\ncurrent-context: default\n";
        let text = from_outside(own, "https://172.30.7.1:6443", "knarr-t");
        assert_eq!(
            text,
            "clusters:\n- name: knarr-t\n  cluster:\n    server: https://172.30.7.1:6443\ncontexts:\n- name: knarr-t\n  context:\n    cluster: knarr-t\n    user: knarr-t\ncurrent-context: knarr-t\n"
        );
    }
}
