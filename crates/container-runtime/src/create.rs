//! Making a container: its root, its specification, and the process that it will run.

use std::borrow::Cow;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cri::v1;
use nix::sys::signal::Signal;
use oci_spec::runtime::{LinuxNamespaceType, PosixRlimitType, Spec};

use crate::container::{Container, START, State};
use crate::image::{Image, Snapshot};
use crate::records::ContainerRecord;
use crate::runtime::{Inner, new_id};
use crate::sandbox::Sandbox;
use crate::shim::protocol::{CONFIG, ImageMount, Limit, LogFile, PROCESS, Process, ROOTFS, Start};
use crate::shim::{now, write_json};
use crate::spec;

pub(crate) async fn create(
    inner: &Arc<Inner>,
    sandbox: &Arc<Sandbox>,
    config: v1::ContainerConfig,
    sandbox_config: v1::PodSandboxConfig,
) -> cri::Result<String> {
    if !sandbox.is_ready() {
        return Err(cri::Error::unknown(format!("sandbox container {:?} is not running", sandbox.id)));
    }
    let name = config.image.as_ref().map(|image| image.image.clone()).unwrap_or_default();
    let image = inner
        .images
        .get(&name)
        .ok_or_else(|| cri::Error::not_found(format!("failed to resolve image {name:?}: image not found")))?;
    let id = new_id();
    let mut snapshots = vec![id.clone()];
    let made = prepare(inner, sandbox, &id, config, &sandbox_config, &image, &mut snapshots).await;
    let (record, start) = match made {
        Ok(made) => made,
        Err(error) => {
            for snapshot in &snapshots {
                // The first error is the one to show.
                let _ = inner.images.release(snapshot).await;
            }
            let _ = std::fs::remove_dir_all(sandbox.state_folder.join(&id));
            return Err(error);
        }
    };
    let container = Arc::new(Container::new(sandbox.clone(), record, State::Created));
    *container.start.lock() = Some(start);
    inner.table.lock().containers.insert(id.clone(), container);
    inner.send_event(sandbox, &id, v1::ContainerEventType::ContainerCreatedEvent);
    Ok(id)
}

async fn prepare(
    inner: &Arc<Inner>,
    sandbox: &Arc<Sandbox>,
    id: &str,
    config: v1::ContainerConfig,
    sandbox_config: &v1::PodSandboxConfig,
    image: &Image,
    snapshots: &mut Vec<String>,
) -> cri::Result<(ContainerRecord, Start)> {
    let failed = |error: io::Error| cri::Error::unknown(format!("failed to create container: {error}"));
    let folder = sandbox.state_folder.join(id);
    let users = crate::sandbox::modes(sandbox_config).users;
    crate::sandbox::make_state_folder(&folder, users.as_ref()).map_err(failed)?;
    std::fs::create_dir_all(folder.join(ROOTFS)).map_err(failed)?;
    let snapshot = inner.images.prepare(&image.id, id).await?;
    spec::mounts::check_propagation(&config.mounts)?;
    let (bound, images) = image_mounts(inner, id, &folder, &config, snapshots).await?;
    let shim = sandbox.shim()?;
    let (passwd, group) =
        (crate::rootfs::read_file(&snapshot, "/etc/passwd"), crate::rootfs::read_file(&snapshot, "/etc/group"));
    let mut namespaces = shim.ready.namespaces.clone();
    namespaces.pid = pid_namespace(inner, &bound, namespaces.pid)?;
    let host = host(inner, &bound);
    let labels = crate::selinux::prepare(inner, sandbox, &bound).await?;
    let input = spec::Input {
        id,
        config: &bound,
        sandbox: sandbox_config,
        image: &image.config,
        rootfs: folder.join(ROOTFS),
        passwd: &passwd,
        group: &group,
        namespaces: &namespaces,
        host: &host,
        resolv_conf: sandbox.folder.resolv_conf(),
        hostname_file: sandbox.folder.hostname(),
        dev_shm: sandbox.shm(),
        labels: labels.as_ref(),
    };
    let mut spec = spec::spec(&input)?;
    give_devices(&mut spec, &bound)?;
    let program = crate::handlers::program(&inner.config, &sandbox.record.lock().handler)?;
    let process = save_spec(inner, spec, &folder, program.is_some())?;
    let log_path = log_path(sandbox_config, &config);
    let record = ContainerRecord {
        id: id.to_string(),
        sandbox: sandbox.id.clone(),
        image: shown_name(image),
        image_id: image.id.clone(),
        image_ref: image.repo_digests.first().unwrap_or(&image.id).clone(),
        created_at: now(),
        cgroup: process.cgroup.clone(),
        log_path: log_path.clone(),
        stop_signal: stop_signal(&config, image),
        user: Some(v1::LinuxContainerUser {
            uid: process.uid.into(),
            gid: process.gid.into(),
            supplemental_groups: process.groups.iter().map(|group| i64::from(*group)).collect(),
        }),
        snapshots: snapshots.clone(),
        started: false,
        failure: None,
        config,
    };
    sandbox.folder.write_container(&record).map_err(failed)?;
    let start = Start {
        container: id.to_string(),
        folder,
        snapshot,
        images,
        log: LogFile { path: log_path, size_max: inner.config.log_max_size, files_max: inner.config.log_max_files },
        stdin: record.config.stdin,
        stdin_once: record.config.stdin_once,
        tty: record.config.tty,
        program,
        mount_label: labels.map(|labels| labels.mount),
    };
    write_json(&start.folder.join(START), &start).map_err(failed)?;
    Ok((record, start))
}

/// Writes what the container is made of, and how its process begins.
fn save_spec(inner: &Arc<Inner>, mut spec: Spec, folder: &Path, is_foreign: bool) -> cri::Result<Process> {
    let failed = |error: io::Error| cri::Error::unknown(format!("failed to create container: {error}"));
    let whole = is_foreign.then(|| spec.clone());
    let process = take_process(&mut spec, inner)?;
    // A runtime of the host does all that the specification says.
    let spec = whole.unwrap_or(spec);
    // It holds what the environment holds; what is written over keeps its mode.
    linux::file::create(&folder.join(CONFIG), 0o600).map_err(failed)?;
    spec.save(folder.join(CONFIG)).map_err(|error| cri::Error::unknown(error.to_string()))?;
    write_json(&folder.join(PROCESS), &process).map_err(failed)?;
    Ok(process)
}

/// The machine as it is now, where the container names something that may have changed since the start.
fn host<'a>(inner: &'a Inner, config: &v1::ContainerConfig) -> Cow<'a, spec::Host> {
    let security = config.linux.as_ref().and_then(|linux| linux.security_context.as_ref());
    let profile = security.and_then(|security| security.apparmor.as_ref());
    let mut host = Cow::Borrowed(&inner.host);
    if profile.is_some_and(|profile| profile.profile_type() == v1::security_profile::ProfileType::Localhost) {
        host.to_mut().read_apparmor_profiles();
    }
    if !config.devices.is_empty() || security.is_some_and(|security| security.privileged) {
        host.to_mut().read_devices();
    }
    host
}

/// The PID namespace of another container, when an ephemeral one is aimed at it.
fn pid_namespace(inner: &Inner, config: &v1::ContainerConfig, pod: Option<PathBuf>) -> cri::Result<Option<PathBuf>> {
    let options = config
        .linux
        .as_ref()
        .and_then(|linux| linux.security_context.as_ref())
        .and_then(|context| context.namespace_options.clone())
        .unwrap_or_default();
    if options.pid() != v1::NamespaceMode::Target {
        return Ok(pod);
    }
    let target = inner.container(&options.target_id)?;
    match &*target.state.borrow() {
        State::Running { pid, .. } => Ok(Some(PathBuf::from(format!("/proc/{pid}/ns/pid")))),
        _ => Err(cri::Error::unknown(format!("invalid target container: container {:?} is not running", target.id))),
    }
}

/// Volumes that are images get snapshots of their own, and become binds of where these will be mounted.
async fn image_mounts(
    inner: &Inner,
    id: &str,
    folder: &std::path::Path,
    config: &v1::ContainerConfig,
    snapshots: &mut Vec<String>,
) -> cri::Result<(v1::ContainerConfig, Vec<ImageMount>)> {
    let mut config = config.clone();
    let mut images: Vec<ImageMount> = Vec::new();
    for mount in &mut config.mounts {
        let Some(image) = mount.image.as_ref().filter(|image| !image.image.is_empty()) else { continue };
        let sub_path = mount.image_sub_path.clone();
        let image = inner.images.get(&image.image).ok_or_else(|| {
            cri::Error::not_found(format!("failed to resolve image volume {:?}: image not found", image.image))
        })?;
        let name = format!("{id}-volume-{}", images.len());
        snapshots.push(name.clone());
        let snapshot: Snapshot = inner.images.prepare(&image.id, &name).await?;
        let target = folder.join(format!("volume-{}", images.len()));
        std::fs::create_dir_all(&target).map_err(|error| cri::Error::unknown(error.to_string()))?;
        mount.host_path = target.display().to_string();
        mount.readonly = true;
        images.push(ImageMount { snapshot, target, sub_path });
    }
    Ok((config, images))
}

/// Devices by name. To start without would leave the pod without what it waits for.
fn give_devices(spec: &mut Spec, config: &v1::ContainerConfig) -> cri::Result<()> {
    let named: Vec<String> = config.cdi_devices.iter().map(|device| device.name.clone()).collect();
    crate::cdi::inject(spec, &named)
        .map_err(|error| cri::Error::new(cri::Code::InvalidArgument, format!("CDI device injection failed: {error}")))
}

/// What libcontainer leaves to us is taken out of the specification.
fn take_process(spec: &mut Spec, inner: &Inner) -> cri::Result<Process> {
    let confinement = spec::Confinement::take(spec, &inner.programs)?;
    let selinux = spec::selinux::take(spec);
    if let Some(linux) = spec.linux_mut() {
        // The shim joins these itself.
        let joined = [LinuxNamespaceType::Network, LinuxNamespaceType::Ipc, LinuxNamespaceType::Uts];
        let namespaces = linux.namespaces().iter().flatten().filter(|namespace| !joined.contains(&namespace.typ()));
        linux.set_namespaces(Some(namespaces.cloned().collect()));
    }
    let cgroup = spec.linux().as_ref().and_then(|linux| linux.cgroups_path().clone()).unwrap_or_default();
    let missing = || cri::Error::unknown("the OCI spec has no process");
    let process = spec.process_mut().as_mut().ok_or_else(missing)?;
    let tty = process.terminal().unwrap_or(false);
    process.set_terminal(Some(false));
    let user = process.user();
    Ok(Process {
        args: process.args().clone().unwrap_or_default(),
        env: process.env().clone().unwrap_or_default(),
        cwd: process.cwd().display().to_string(),
        tty,
        uid: user.uid(),
        gid: user.gid(),
        groups: user.additional_gids().clone().unwrap_or_default(),
        umask: user.umask(),
        confinement,
        apparmor: process.apparmor_profile().clone(),
        selinux,
        oom_score_adj: process.oom_score_adj(),
        limits: process
            .rlimits()
            .iter()
            .flatten()
            .map(|limit| Limit { resource: number(limit.typ()), soft: limit.soft(), hard: limit.hard() })
            .collect(),
        cgroup,
    })
}

/// The kernel's number of a limit.
fn number(limit: PosixRlimitType) -> u32 {
    use nix::sys::resource::Resource;
    let resource = match limit {
        PosixRlimitType::RlimitCpu => Resource::RLIMIT_CPU,
        PosixRlimitType::RlimitFsize => Resource::RLIMIT_FSIZE,
        PosixRlimitType::RlimitData => Resource::RLIMIT_DATA,
        PosixRlimitType::RlimitStack => Resource::RLIMIT_STACK,
        PosixRlimitType::RlimitCore => Resource::RLIMIT_CORE,
        PosixRlimitType::RlimitRss => Resource::RLIMIT_RSS,
        PosixRlimitType::RlimitNproc => Resource::RLIMIT_NPROC,
        PosixRlimitType::RlimitNofile => Resource::RLIMIT_NOFILE,
        PosixRlimitType::RlimitMemlock => Resource::RLIMIT_MEMLOCK,
        PosixRlimitType::RlimitAs => Resource::RLIMIT_AS,
        PosixRlimitType::RlimitLocks => Resource::RLIMIT_LOCKS,
        PosixRlimitType::RlimitSigpending => Resource::RLIMIT_SIGPENDING,
        PosixRlimitType::RlimitMsgqueue => Resource::RLIMIT_MSGQUEUE,
        PosixRlimitType::RlimitNice => Resource::RLIMIT_NICE,
        PosixRlimitType::RlimitRtprio => Resource::RLIMIT_RTPRIO,
        PosixRlimitType::RlimitRttime => Resource::RLIMIT_RTTIME,
    };
    resource as u32
}

fn shown_name(image: &Image) -> String {
    image.repo_tags.first().or(image.repo_digests.first()).unwrap_or(&image.id).clone()
}

fn log_path(sandbox: &v1::PodSandboxConfig, config: &v1::ContainerConfig) -> Option<PathBuf> {
    let named = !sandbox.log_directory.is_empty() && !config.log_path.is_empty();
    named.then(|| PathBuf::from(&sandbox.log_directory).join(&config.log_path))
}

fn stop_signal(config: &v1::ContainerConfig, image: &Image) -> i32 {
    let asked = match config.stop_signal() {
        v1::Signal::RuntimeDefault => image.config.stop_signal.clone(),
        // Real-time signals are words there: `SIGRTMINPLUS3`.
        signal => Some(signal.as_str_name().replace("PLUS", "+").replace("MINUS", "-")),
    };
    asked.as_deref().and_then(parse_signal).unwrap_or(Signal::SIGTERM as i32)
}

/// A signal as the interface calls it.
pub(crate) fn named_signal(number: i32) -> v1::Signal {
    let all =
        (v1::Signal::Sigabrt as i32..=v1::Signal::Sigrtmax as i32).filter_map(|value| v1::Signal::try_from(value).ok());
    let is_it = |signal: &v1::Signal| {
        let name = signal.as_str_name().replace("PLUS", "+").replace("MINUS", "-");
        parse_signal(&name) == Some(number)
    };
    all.into_iter().find(is_it).unwrap_or(v1::Signal::RuntimeDefault)
}

/// `SIGUSR1`, `USR1`, `SIGRTMIN+3` or a number.
fn parse_signal(text: &str) -> Option<i32> {
    const REAL_TIME_FIRST: i32 = 34;
    const LAST: i32 = 64;
    let name = text.trim().to_uppercase();
    let name = match name.strip_prefix("SIG").unwrap_or(&name) {
        // Other names of the same.
        "CLD" => "CHLD",
        "IOT" => "ABRT",
        "POLL" => "IO",
        name => name,
    };
    if let Some(offset) = name.strip_prefix("RTMIN") {
        let offset = if offset.is_empty() { 0 } else { offset.strip_prefix('+')?.parse().ok()? };
        return Some(REAL_TIME_FIRST + offset).filter(|signal| *signal <= LAST);
    }
    if let Some(offset) = name.strip_prefix("RTMAX") {
        let offset = if offset.is_empty() { 0 } else { offset.strip_prefix('-')?.parse::<i32>().ok()? };
        return Some(LAST - offset).filter(|signal| *signal >= REAL_TIME_FIRST);
    }
    name.parse::<i32>()
        .ok()
        .filter(|number| (1..=LAST).contains(number))
        .or_else(|| format!("SIG{name}").parse::<Signal>().ok().map(|signal| signal as i32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_signal_of_the_interface_is_one_of_the_kernel() {
        for number in (1..=31).chain(34..=64) {
            let name = named_signal(number).as_str_name().replace("PLUS", "+").replace("MINUS", "-");
            assert_eq!(parse_signal(&name), Some(number), "{name}");
        }
        assert_eq!(named_signal(37), v1::Signal::Sigrtminplus3);
        assert_eq!(named_signal(0), v1::Signal::RuntimeDefault);
    }

    #[test]
    fn signals_are_known_by_name_and_number() {
        for (text, signal) in [
            ("SIGTERM", Some(15)),
            ("usr1", Some(10)),
            ("9", Some(9)),
            ("SIGRTMIN+3", Some(37)),
            ("SIGIOT", Some(6)),
            ("SIGPOLL", Some(29)),
            ("RTMAX-1", Some(63)),
            ("SIGNOPE", None),
            ("99", None),
            ("", None),
        ] {
            assert_eq!(parse_signal(text), signal, "{text}");
        }
    }
}
