//! Pods: making, stopping and removing them, and finding them again after a start.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use component_base::tasks;
use cri::{Addresses, SandboxNetwork, v1};
use parking_lot::Mutex;

use crate::client::{self, CallError, Client, News};
use crate::records::{Folder, SandboxRecord};
use crate::runtime::Inner;
use crate::shim::protocol::{Answer, Call, ContainerState, IdRange, Pod, Ready, SETUP, Share, UserMapping};
use crate::shim::{now, write_json};

/// Of the memory file system at `/dev/shm`, which the containers of a pod share: as upstream.
const SHM_SIZE: u64 = 64 * 1024 * 1024;

pub(crate) struct Sandbox {
    pub id: String,
    /// What survives.
    pub folder: Folder,
    /// What is gone after a reboot.
    pub state_folder: PathBuf,
    pub record: Mutex<SandboxRecord>,
    pub shim: Mutex<Option<Shim>>,
    /// One change at a time.
    pub gate: tokio::sync::Mutex<()>,
    /// The end of the connection is wanted.
    pub closing: AtomicBool,
}

#[derive(Clone)]
pub(crate) struct Shim {
    pub client: Arc<Client>,
    pub ready: Ready,
}

impl Sandbox {
    pub fn new(inner: &Inner, record: SandboxRecord) -> Sandbox {
        Sandbox {
            folder: inner.sandbox_folder(&record.id),
            state_folder: inner.config.state_dir.join(&record.id),
            id: record.id.clone(),
            record: Mutex::new(record),
            shim: Mutex::new(None),
            gate: tokio::sync::Mutex::new(()),
            closing: AtomicBool::new(false),
        }
    }

    pub fn config(&self) -> v1::PodSandboxConfig {
        self.record.lock().config.clone()
    }

    pub fn is_foreign(&self) -> bool {
        self.record.lock().foreign
    }

    pub fn is_ready(&self) -> bool {
        self.record.lock().ready && self.shim.lock().is_some()
    }

    pub fn shim(&self) -> cri::Result<Shim> {
        self.shim
            .lock()
            .clone()
            .ok_or_else(|| cri::Error::unknown(format!("sandbox container {:?} is not running", self.id)))
    }

    pub fn shm(&self) -> PathBuf {
        match modes(&self.config()).ipc {
            Share::Host => PathBuf::from("/dev/shm"),
            _ => self.state_folder.join("shm"),
        }
    }

    fn network(&self, netns: PathBuf) -> SandboxNetwork {
        let config = self.config();
        let metadata = config.metadata.unwrap_or_default();
        SandboxNetwork {
            sandbox: self.id.clone(),
            namespace: metadata.namespace,
            name: metadata.name,
            uid: metadata.uid,
            netns,
            port_mappings: config.port_mappings,
            annotations: config.annotations,
        }
    }

    pub fn status(&self) -> v1::PodSandboxStatus {
        let record = self.record.lock().clone();
        let ready = record.ready && self.shim.lock().is_some();
        let mut ips = record.addresses.ips.iter().map(ToString::to_string);
        let namespaces = record
            .config
            .linux
            .as_ref()
            .and_then(|linux| linux.security_context.as_ref())
            .and_then(|context| context.namespace_options.clone());
        v1::PodSandboxStatus {
            id: record.id,
            metadata: record.config.metadata,
            state: state(ready) as i32,
            created_at: record.created_at,
            network: Some(v1::PodSandboxNetworkStatus {
                ip: ips.next().unwrap_or_default(),
                additional_ips: ips.map(|ip| v1::PodIp { ip }).collect(),
            }),
            linux: Some(v1::LinuxPodSandboxStatus {
                namespaces: Some(v1::Namespace { options: Some(namespaces.unwrap_or_default()) }),
            }),
            labels: record.config.labels,
            annotations: record.config.annotations,
            runtime_handler: record.handler,
        }
    }

    pub fn summary(&self) -> v1::PodSandbox {
        let status = self.status();
        v1::PodSandbox {
            id: status.id,
            metadata: status.metadata,
            state: status.state,
            created_at: status.created_at,
            labels: status.labels,
            annotations: status.annotations,
            runtime_handler: status.runtime_handler,
        }
    }
}

fn state(ready: bool) -> v1::PodSandboxState {
    if ready { v1::PodSandboxState::SandboxReady } else { v1::PodSandboxState::SandboxNotready }
}

/// Whose namespaces a pod has.
pub(crate) struct Modes {
    pub network: Share,
    pub ipc: Share,
    pub pid: Share,
    pub users: Option<UserMapping>,
}

pub(crate) fn modes(config: &v1::PodSandboxConfig) -> Modes {
    let options = config
        .linux
        .as_ref()
        .and_then(|linux| linux.security_context.as_ref())
        .and_then(|context| context.namespace_options.clone())
        .unwrap_or_default();
    let share = |mode: v1::NamespaceMode| match mode {
        v1::NamespaceMode::Node => Share::Host,
        v1::NamespaceMode::Pod => Share::Pod,
        v1::NamespaceMode::Container | v1::NamespaceMode::Target => Share::Container,
    };
    let ranges = |mappings: &[v1::IdMapping]| {
        mappings
            .iter()
            .map(|mapping| IdRange { container: mapping.container_id, host: mapping.host_id, length: mapping.length })
            .collect()
    };
    let users = options
        .userns_options
        .as_ref()
        .filter(|users| users.mode() == v1::NamespaceMode::Pod)
        .map(|users| UserMapping { uids: ranges(&users.uids), gids: ranges(&users.gids) });
    Modes { network: share(options.network()), ipc: share(options.ipc()), pid: share(options.pid()), users }
}

pub(crate) async fn run(
    inner: &Arc<Inner>,
    config: v1::PodSandboxConfig,
    handler: &str,
    foreign: bool,
) -> cri::Result<String> {
    let program = crate::handlers::program(&inner.config, handler)?;
    if program.is_some() && modes(&config).users.is_some() {
        return Err(cri::Error::unknown(format!("RuntimeClass handler {handler:?} does not support user namespaces")));
    }
    let selinux = crate::selinux::of_sandbox(inner, &config)?;
    let record = SandboxRecord {
        id: crate::runtime::new_id(),
        config,
        handler: handler.to_string(),
        created_at: now(),
        addresses: Addresses::default(),
        ready: false,
        foreign,
        selinux,
    };
    let sandbox = Arc::new(Sandbox::new(inner, record));
    let result = make(inner, &sandbox).await;
    if let Err(error) = result {
        if let Err(left) = clean_up(inner, &sandbox).await {
            tracing::warn!(sandbox = sandbox.id, error = %left, "cannot clean up sandbox that failed to start");
        }
        release_level(inner, &sandbox);
        return Err(error);
    }
    inner.table.lock().sandboxes.insert(sandbox.id.clone(), sandbox.clone());
    inner.send_event(&sandbox, &sandbox.id, v1::ContainerEventType::ContainerCreatedEvent);
    inner.send_event(&sandbox, &sandbox.id, v1::ContainerEventType::ContainerStartedEvent);
    Ok(sandbox.id.clone())
}

async fn make(inner: &Arc<Inner>, sandbox: &Arc<Sandbox>) -> cri::Result<()> {
    let failed = |error: io::Error| cri::Error::unknown(format!("failed to start sandbox: {error}"));
    let config = sandbox.config();
    let modes = modes(&config);
    let worker = sandbox.clone();
    let program = inner.shim_program.clone();
    let own_network = modes.network != Share::Host;
    let ready = tokio::task::spawn_blocking(move || -> io::Result<Ready> {
        linux::file::make_private_folder(&worker.folder.0)?;
        make_state_folder(&worker.state_folder, modes.users.as_ref())?;
        worker.folder.write_sandbox(&worker.record.lock())?;
        write_files(&worker, &config)?;
        if modes.ipc != Share::Host {
            let shm = worker.state_folder.join("shm");
            std::fs::create_dir_all(&shm)?;
            let label = worker.record.lock().selinux.as_ref().map(|labels| labels.mount.clone());
            linux::mount::tmpfs(&shm, SHM_SIZE, 0o1777, label.as_deref())?;
        }
        let sysctls = config.linux.as_ref().map(|linux| linux.sysctls.clone()).unwrap_or_default();
        let pod = Pod {
            folder: worker.state_folder.clone(),
            records: worker.folder.0.clone(),
            hostname: config.hostname.clone(),
            network: modes.network,
            ipc: modes.ipc,
            pid: modes.pid,
            users: modes.users,
            sysctls: sysctls.into_iter().collect::<BTreeMap<_, _>>(),
        };
        write_json(&worker.state_folder.join(SETUP), &pod)?;
        use std::os::fd::AsFd;
        client::spawn(program.as_fd(), &worker.state_folder)
    })
    .await
    .map_err(|error| cri::Error::unknown(error.to_string()))?
    .map_err(failed)?;
    let netns = ready.namespaces.network.clone();
    adopt(inner, sandbox, Some(ready)).await.map_err(failed)?;
    if own_network && let Some(netns) = netns {
        let addresses = inner.config.network.attach(&sandbox.network(netns)).await.map_err(|error| {
            cri::Error::new(error.code, format!("failed to setup network for sandbox {:?}: {error}", sandbox.id))
        })?;
        sandbox.record.lock().addresses = addresses;
    }
    let record = {
        let mut record = sandbox.record.lock();
        record.ready = true;
        record.clone()
    };
    sandbox.folder.write_sandbox(&record).map_err(failed)
}

fn write_files(sandbox: &Sandbox, config: &v1::PodSandboxConfig) -> io::Result<()> {
    let hostname = if config.hostname.is_empty() {
        std::fs::read_to_string("/proc/sys/kernel/hostname")?.trim().to_string()
    } else {
        config.hostname.clone()
    };
    linux::file::write(&sandbox.folder.hostname(), format!("{hostname}\n"), POD_FILE)?;
    let resolv_conf = match &config.dns_config {
        Some(dns) => resolv_conf(dns),
        None => std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default(),
    };
    linux::file::write(&sandbox.folder.resolv_conf(), resolv_conf, POD_FILE)
}

/// What containers see: whatever user theirs is, it may read it.
const POD_FILE: u32 = 0o644;

/// A folder of what runs: for root alone, or also for the root of a pod with users of its own.
pub(crate) fn make_state_folder(path: &std::path::Path, users: Option<&UserMapping>) -> io::Result<()> {
    match users.and_then(|users| users.gids.iter().find(|range| range.container == 0)) {
        Some(range) => linux::file::make_folder_for_group(path, range.host),
        None => linux::file::make_private_folder(path),
    }
}

fn resolv_conf(dns: &v1::DnsConfig) -> String {
    let mut text = String::new();
    if !dns.searches.is_empty() {
        text += &format!("search {}\n", dns.searches.join(" "));
    }
    for server in &dns.servers {
        text += &format!("nameserver {server}\n");
    }
    if !dns.options.is_empty() {
        text += &format!("options {}\n", dns.options.join(" "));
    }
    text
}

/// Connects to the shim, a new one or one that lived on, and learns what its containers do.
pub(crate) async fn adopt(
    inner: &Arc<Inner>,
    sandbox: &Arc<Sandbox>,
    ready: Option<Ready>,
) -> io::Result<Vec<ContainerState>> {
    let weak = Arc::downgrade(inner);
    let id = sandbox.id.clone();
    let client = Client::connect(&sandbox.state_folder, inner.config.shim_answers_within, move |news| {
        let Some(inner) = weak.upgrade() else { return };
        let Some(sandbox) = inner.table.lock().sandboxes.get(&id).cloned() else { return };
        match news {
            News::Event(event) => inner.handle_shim_event(&sandbox, event),
            News::Gone if sandbox.closing.load(Ordering::Relaxed) => {}
            News::Gone => {
                tasks::spawn(crate::container::shim_died(inner, sandbox));
            }
        }
    })
    .await?;
    let (ready, containers) = match ready {
        Some(ready) => (ready, Vec::new()),
        None => match client.call(Call::State, &[]).await {
            Ok((Answer::State { ready, containers }, _)) => (ready, containers),
            Ok((other, _)) => return Err(io::Error::other(format!("unexpected answer {other:?}"))),
            Err(error) => {
                if matches!(error, CallError::Silent(_)) {
                    client.kill();
                }
                return Err(io::Error::other(error));
            }
        },
    };
    *sandbox.shim.lock() = Some(Shim { client, ready });
    Ok(containers)
}

/// Ends the pod: its processes, its addresses, its shim.
pub(crate) async fn stop(inner: &Arc<Inner>, id: &str) -> cri::Result<()> {
    let Some(sandbox) = inner.find_sandbox(id) else { return Ok(()) };
    let _gate = sandbox.gate.lock().await;
    for container in inner.containers_of(&sandbox.id) {
        crate::container::stop(inner, &container, 0).await?;
    }
    let was_ready = sandbox.record.lock().ready;
    release(inner, &sandbox).await?;
    let record = {
        let mut record = sandbox.record.lock();
        record.ready = false;
        record.clone()
    };
    sandbox.folder.write_sandbox(&record).map_err(|error| cri::Error::unknown(error.to_string()))?;
    if was_ready {
        inner.send_event(&sandbox, &sandbox.id, v1::ContainerEventType::ContainerStoppedEvent);
    }
    Ok(())
}

pub(crate) async fn remove(inner: &Arc<Inner>, id: &str) -> cri::Result<()> {
    let Some(sandbox) = inner.find_sandbox(id) else { return Ok(()) };
    stop(inner, id).await?;
    for container in inner.containers_of(&sandbox.id) {
        crate::container::remove(inner, &container).await?;
    }
    clean_up(inner, &sandbox).await?;
    inner.table.lock().sandboxes.remove(&sandbox.id);
    release_level(inner, &sandbox);
    inner.send_event(&sandbox, &sandbox.id, v1::ContainerEventType::ContainerDeletedEvent);
    Ok(())
}

/// Another pod may have its SELinux level from now on.
fn release_level(inner: &Inner, sandbox: &Sandbox) {
    // Taken out, so that it is released once however often the sandbox is removed.
    if let Some(level) = sandbox.record.lock().selinux.take().and_then(|labels| labels.level()) {
        inner.levels.lock().release(&level);
    }
}

/// Takes addresses, shim and mounts away. May be repeated.
async fn release(inner: &Arc<Inner>, sandbox: &Sandbox) -> cri::Result<()> {
    let shim = sandbox.shim.lock().clone();
    if modes(&sandbox.config()).network != Share::Host {
        // A dead shim's number may belong to another process by now.
        let gone = sandbox.state_folder.join("netns");
        let netns = shim.as_ref().and_then(|shim| shim.ready.namespaces.network.clone()).unwrap_or(gone);
        inner.config.network.detach(&sandbox.network(netns)).await?;
    }
    if let Some(shim) = shim {
        sandbox.closing.store(true, Ordering::Relaxed);
        // One that is gone already has ended its pod as well; one that does not answer is ended with its pod.
        if let Err(CallError::Silent(_)) = shim.client.call(Call::Shutdown, &[]).await {
            end_silent(inner, sandbox, &shim).await;
        }
        *sandbox.shim.lock() = None;
    }
    let folder = sandbox.state_folder.clone();
    tokio::task::spawn_blocking(move || {
        linux::mount::unmount(&folder.join("shm"))?;
        match std::fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    })
    .await
    .map_err(|error| cri::Error::unknown(error.to_string()))?
    .map_err(|error| cri::Error::unknown(format!("failed to clean up sandbox {:?}: {error}", sandbox.id)))
}

/// Ends a shim that does not answer, and every process of its pod: nobody else could.
pub(crate) async fn end_silent(inner: &Arc<Inner>, sandbox: &Sandbox, shim: &Shim) {
    tracing::warn!(sandbox = sandbox.id, pid = shim.ready.pid, "shim does not answer; killing it with its sandbox");
    shim.client.kill();
    for container in inner.containers_of(&sandbox.id) {
        let cgroup = container.record.lock().cgroup.clone();
        crate::container::end_group(cgroup).await;
    }
}

async fn clean_up(inner: &Arc<Inner>, sandbox: &Sandbox) -> cri::Result<()> {
    release(inner, sandbox).await?;
    match std::fs::remove_dir_all(&sandbox.folder.0) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(cri::Error::unknown(format!("failed to remove sandbox {:?}: {error}", sandbox.id)))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolv_conf_is_written_as_upstream_does() {
        let dns = v1::DnsConfig {
            servers: vec!["10.96.0.10".into()],
            searches: vec!["obs.svc.cluster.local".into(), "svc.cluster.local".into(), "cluster.local".into()],
            options: vec!["ndots:5".into()],
        };
        let expected =
            "search obs.svc.cluster.local svc.cluster.local cluster.local\nnameserver 10.96.0.10\noptions ndots:5\n";
        assert_eq!(resolv_conf(&dns), expected);
    }
}
