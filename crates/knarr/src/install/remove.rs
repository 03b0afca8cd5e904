//! Takes away what a node has left on its machine: pods with their processes, mounts, devices, rules and groups.

use std::collections::BTreeSet;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use container_runtime::ContainerRuntime;
use cri::Runtime;
use futures::{StreamExt, TryStreamExt};

use crate::network::PodNetwork;
use crate::progress::Progress;

/// How long containers have to end.
const GRACE_SECONDS: i64 = 10;
const ENDED_AT_ONCE: usize = 16;
const LOG_DIRS: [&str; 2] = ["/var/log/pods", "/var/log/containers"];

/// What the service was told.
pub struct Node {
    pub data_dir: PathBuf,
    pub flags: crate::node::Flags,
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
pub async fn node(node: &Node) -> anyhow::Result<()> {
    wait_for_end(node).await?;
    crate::etcd::end_left_behind(&node.data_dir).await;
    let state_dir = crate::node::state_dir(&node.data_dir);
    let mut pods = pods_of(&node.data_dir);
    if state_dir.exists() || node.data_dir.join("runtime").exists() {
        pods.extend(end_pods(node, &pods).await.context("stop pods")?);
    }
    cni::remove(&cni::Config::new(state_dir.join("network"))).await.context("remove pod network")?;
    kube_proxy::remove().await.context("remove Service rules")?;
    for folder in ["kubelet", "runtime"] {
        unmount_below(&node.data_dir.join(folder))?;
    }
    crate::node::usual_root::remove(&node.data_dir).context("remove link at the kubelet's default path")?;
    remove_groups(&node.flags.cgroup_root, &pods).context("remove cgroups")?;
    remove_logs(&pods)?;
    remove_state(&state_dir)
}

/// What is of no use after a reboot. Servers with other data folders have theirs in folders of sixteen digits below the
/// usual one, and may be running.
fn remove_state(state_dir: &Path) -> anyhow::Result<()> {
    let names = std::fs::read_dir(state_dir).into_iter().flatten().flatten();
    let names: Vec<String> = names.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    let (others, own): (Vec<_>, Vec<_>) = names.into_iter().partition(|name| is_others(name));
    if others.is_empty() {
        // Containers of other servers run under it, too.
        container_runtime::apparmor::unload().context("unload AppArmor profile")?;
        unmount_below(state_dir)?;
        return linux::tree::remove_tree(state_dir).with_context(|| format!("remove {}", state_dir.display()));
    }
    for path in own.iter().filter(|name| !name.ends_with(".lock")).map(|name| state_dir.join(name)) {
        unmount_below(&path)?;
        linux::tree::remove_tree(&path).with_context(|| format!("remove {}", path.display()))?;
    }
    Ok(())
}

fn is_others(name: &str) -> bool {
    name.len() == 16 && name.chars().all(|character| character.is_ascii_hexdigit())
}

/// A server that somebody started by hand would make everything again.
async fn wait_for_end(node: &Node) -> anyhow::Result<()> {
    const PATIENCE: u32 = 50;
    for _ in 0..PATIENCE {
        if UnixStream::connect(node.data_dir.join("node.sock")).is_err() {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    ensure!(false, "knarr is running with {}: stop it first", node.data_dir.display());
    Ok(())
}

/// By their uids: each has a folder.
fn pods_of(data_dir: &Path) -> BTreeSet<String> {
    let folders = std::fs::read_dir(data_dir.join("kubelet/pods")).into_iter().flatten().flatten();
    folders.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// Ends and removes them; answers their uids.
async fn end_pods(node: &Node, pods: &BTreeSet<String>) -> anyhow::Result<Vec<String>> {
    let (runtime, is_ours): (Arc<dyn Runtime>, bool) = match &node.flags.container_runtime_endpoint {
        Some(endpoint) => (Arc::new(cri::remote::Remote::connect(endpoint).await?), false),
        None => {
            let network = PodNetwork::to_leave(&node.flags, &crate::node::state_dir(&node.data_dir))?;
            let config = crate::node::runtime_config(&node.flags, &node.data_dir, network)?;
            // All of it goes, also what others made through the CRI socket.
            (Arc::new(ContainerRuntime::start(config).await?.for_socket()), true)
        }
    };
    let mut sandboxes = runtime.list_pod_sandboxes(None).await?;
    // Somebody else's runtime may have pods of others.
    sandboxes.retain(|sandbox| is_ours || sandbox.metadata.as_ref().is_some_and(|meta| pods.contains(&meta.uid)));
    let uids = sandboxes.iter().filter_map(|sandbox| Some(sandbox.metadata.as_ref()?.uid.clone())).collect();
    if sandboxes.is_empty() {
        return Ok(uids);
    }
    let progress = Progress::new(sandboxes.len());
    let ending = sandboxes.into_iter().map(|sandbox| {
        let (runtime, progress) = (runtime.clone(), &progress);
        async move {
            let filter = cri::v1::ContainerFilter { pod_sandbox_id: sandbox.id.clone(), ..Default::default() };
            let containers = runtime.list_containers(Some(filter)).await?;
            let stopping = containers.iter().map(|container| runtime.stop_container(&container.id, GRACE_SECONDS));
            for stopped in futures::future::join_all(stopping).await {
                stopped?;
            }
            runtime.stop_pod_sandbox(&sandbox.id).await?;
            runtime.remove_pod_sandbox(&sandbox.id).await?;
            let name = sandbox.metadata.map(|meta| format!("{}/{}", meta.namespace, meta.name)).unwrap_or_default();
            progress.step(&format!("pod {name} has ended"));
            anyhow::Ok(())
        }
    });
    futures::stream::iter(ending).buffer_unordered(ENDED_AT_ONCE).try_collect::<Vec<()>>().await?;
    progress.end();
    Ok(uids)
}

/// Those of this node's pods; the groups above them only where nobody else uses them.
fn remove_groups(cgroup_root: &str, pods: &BTreeSet<String>) -> anyhow::Result<()> {
    let (all, groups) = (linux::cgroup::Cgroups::detect(), Path::new("/").join(cgroup_root.trim_matches('/')));
    let above = groups.join("kubepods");
    for class in [above.join("besteffort"), above.join("burstable"), above] {
        for uid in pods {
            all.group(class.join(format!("pod{uid}")))?.remove()?;
        }
        for folder in all.group(&class)?.folders() {
            // One that is not empty is another's.
            let _ = std::fs::remove_dir(folder);
        }
    }
    Ok(())
}

/// Volumes, roots of containers, memory file systems; the last that was mounted goes first.
fn unmount_below(folder: &Path) -> anyhow::Result<()> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").context("read mounts")?;
    for mount in mounts_below(&mounts, folder).into_iter().rev() {
        linux::mount::unmount(&mount).with_context(|| format!("unmount {}", mount.display()))?;
    }
    Ok(())
}

/// In the order in which they were mounted. `mountinfo` writes blanks as `\040`.
fn mounts_below(mounts: &str, folder: &Path) -> Vec<PathBuf> {
    let points = mounts.lines().filter_map(|line| line.split(' ').nth(4));
    let plain = points.map(|point| point.replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\"));
    plain.map(PathBuf::from).filter(|point| point.starts_with(folder)).collect()
}

/// Only those of this node's pods: another runtime may keep its own beside them.
fn remove_logs(pods: &BTreeSet<String>) -> anyhow::Result<()> {
    let [logs, links] = LOG_DIRS.map(Path::new);
    for entry in std::fs::read_dir(logs).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.rsplit_once('_').is_some_and(|(_, uid)| pods.contains(uid)) {
            linux::tree::remove_tree(&entry.path()).with_context(|| format!("remove {}", entry.path().display()))?;
        }
    }
    for entry in std::fs::read_dir(links).into_iter().flatten().flatten() {
        let target = std::fs::read_link(entry.path()).unwrap_or_default();
        if target.starts_with(logs) && !target.exists() {
            std::fs::remove_file(entry.path()).with_context(|| format!("remove {}", entry.path().display()))?;
        }
    }
    for folder in [links, logs] {
        // One that is not empty is another's.
        let _ = std::fs::remove_dir(folder);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_of_others_are_left_alone() {
        let mounts = "\
36 25 0:31 / /run/knarr rw - tmpfs tmpfs rw
40 36 0:40 / /run/knarr/a\\040b/shm rw - tmpfs shm rw
41 25 0:41 / /run/knarr-else rw - tmpfs tmpfs rw
";
        let found = mounts_below(mounts, Path::new("/run/knarr"));
        assert_eq!(found, [PathBuf::from("/run/knarr"), PathBuf::from("/run/knarr/a b/shm")]);
    }
}
