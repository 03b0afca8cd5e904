//! The process: started again whenever it ends, and found again when knarr was the one that ended.

use std::fs::File;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context;
use component_base::tasks;
use reconcile::Shutdown;
use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, PidfdFlags, Signal};

use super::members::{self, Place};
use super::{CLIENT_PORT, Config, certificates, follow, url};

const BACKOFF_MIN: Duration = Duration::from_millis(250);
const BACKOFF_MAX: Duration = Duration::from_secs(8);
/// Below this a member that has ended is not started again.
const ROOM_BYTES_MIN: u64 = 32 << 20;
const LOOK_FOR_ROOM: Duration = Duration::from_millis(500);
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
const LOG_BYTES_MAX: u64 = 16 << 20;

/// Runs it until the shutdown, or until the others have removed it; the handle ends when it has stopped.
pub fn supervise(
    config: Config,
    place: Place,
    removed: Shutdown,
    shutdown: Shutdown,
) -> anyhow::Result<tokio::task::JoinHandle<()>> {
    let mut running = match left_behind(&config) {
        Some(running) => {
            tracing::info!("etcd is already running");
            Some(running)
        }
        // The others go on without this one; it would only fail, perhaps after they have made it their leader.
        None if config.has_data() && !has_room(&config) => None,
        None => Some(start(&config, &place)?),
    };
    Ok(tasks::spawn(async move {
        let mut backoff = BACKOFF_MIN;
        loop {
            if let Some(mut running) = running.take() {
                let began = tokio::time::Instant::now();
                tokio::select! {
                    () = running.ended() => {}
                    () = shutdown.cancelled() => return running.stop().await,
                }
                if began.elapsed() > BACKOFF_MAX {
                    backoff = BACKOFF_MIN;
                }
                tracing::error!(log = %config.folder().join("log").display(), again_ms = backoff.as_millis(), "etcd exited; restarting");
                if is_removed(&config).await {
                    return removed.cancel();
                }
            }
            tokio::select! {
                () = async { tokio::time::sleep(backoff).await; until_room(&config).await } => {}
                () = shutdown.cancelled() => return,
            }
            backoff = (backoff * 2).min(BACKOFF_MAX);
            match start(&config, &place) {
                Ok(started) => running = Some(started),
                Err(error) => tracing::error!(error = format!("{error:#}"), "cannot start etcd"),
            }
        }
    }))
}

/// Until its disk is not full.
async fn until_room(config: &Config) {
    if has_room(config) {
        return;
    }
    let (folder, room_mib) = (config.folder(), ROOM_BYTES_MIN >> 20);
    tracing::error!(folder = %folder.display(), room_mib, "disk full: etcd stopped until there is space; the other members go on");
    while !has_room(config) {
        tokio::time::sleep(LOOK_FOR_ROOM).await;
    }
    tracing::info!("disk has space again; starting etcd");
}

/// etcd ends when it hears that it was removed; the others know for sure.
async fn is_removed(config: &Config) -> bool {
    let Ok(files) = certificates::kept(&config.data_dir) else { return false };
    let mut config = config.clone();
    let own = config.client_url();
    config.others = follow::kept(&config.data_dir).into_iter().filter(|other| *other != own).collect();
    members::was_removed(&config, &files).await
}

fn has_room(config: &Config) -> bool {
    rustix::fs::statvfs(config.folder()).map_or(true, |found| found.f_bavail * found.f_frsize >= ROOM_BYTES_MIN)
}

/// Any process, a child or not.
pub struct Running {
    pid: Pid,
    /// Says so when it has ended.
    ended: tokio::sync::oneshot::Receiver<()>,
}

impl Running {
    fn new(pid: Pid, child: Option<std::process::Child>) -> anyhow::Result<Running> {
        let handle = rustix::process::pidfd_open(pid, PidfdFlags::empty()).context("watch etcd process")?;
        let (tell, ended) = tokio::sync::oneshot::channel();
        // A thread of its own: knarr's end does not wait for it.
        std::thread::Builder::new().name("etcd".into()).spawn(move || {
            let mut readable = [PollFd::new(&handle, PollFlags::IN)];
            while rustix::event::poll(&mut readable, None) == Err(rustix::io::Errno::INTR) {}
            if let Some(mut child) = child {
                let _ = child.wait();
            }
            let _ = tell.send(());
        })?;
        Ok(Running { pid, ended })
    }

    async fn ended(&mut self) {
        let _ = (&mut self.ended).await;
    }

    pub async fn stop(mut self) {
        let _ = rustix::process::kill_process(self.pid, Signal::TERM);
        if tokio::time::timeout(STOP_TIMEOUT, self.ended()).await.is_err() {
            tracing::warn!("etcd did not stop in time; leaving it running");
        }
    }
}

/// The member that an earlier knarr started, if it lives. It is found by what it was called with: on a full disk its id
/// could not be written down.
pub fn left_behind(config: &Config) -> Option<Running> {
    let folder = config.folder().join("data");
    let processes = std::fs::read_dir("/proc").ok()?.flatten();
    let mut found = processes.filter_map(|entry| {
        let pid = Pid::from_raw(entry.file_name().to_str()?.parse().ok()?)?;
        let line = std::fs::read(entry.path().join("cmdline")).ok()?;
        is_member(&line, &folder).then(|| Running::new(pid, None).ok()).flatten()
    });
    found.next()
}

/// Whether that is the command line of an etcd on this folder.
fn is_member(line: &[u8], folder: &Path) -> bool {
    let mut words = line.split(|byte| *byte == 0);
    let is_etcd = words.next().is_some_and(|program| Path::new(&*String::from_utf8_lossy(program)).ends_with("etcd"));
    is_etcd && words.any(|word| *word == *folder.as_os_str().as_encoded_bytes())
}

fn start(config: &Config, place: &Place) -> anyhow::Result<Running> {
    start_with(config, place, &[])
}

/// Makes the data of this member those of a cluster of its own.
pub async fn make_alone(config: &Config, until_alone: impl Future<Output = ()>) -> anyhow::Result<()> {
    stop_left_behind(config).await;
    let place = Place::first(&config.name, &config.peer_url());
    let mut running = start_with(config, &place, &["--force-new-cluster"])?;
    let alone = tokio::select! {
        () = until_alone => true,
        () = running.ended() => false,
        () = tokio::time::sleep(super::READY_TIMEOUT) => false,
    };
    running.stop().await;
    anyhow::ensure!(alone, "cannot start etcd as a new cluster; see {}", config.folder().join("log").display());
    Ok(())
}

/// One that an earlier knarr left running.
pub async fn stop_left_behind(config: &Config) {
    if let Some(running) = left_behind(config) {
        running.stop().await;
    }
}

fn start_with(config: &Config, place: &Place, more: &[&str]) -> anyhow::Result<Running> {
    let folder = config.folder();
    let tls = certificates::folder(config);
    let (clients, peers) = (config.client_url(), config.peer_url());
    let local = url(std::net::IpAddr::from([127, 0, 0, 1]), CLIENT_PORT);
    let mut command = std::process::Command::new("etcd");
    command.args(["--name", &config.name, "--data-dir"]).arg(folder.join("data"));
    command.args(["--listen-client-urls", &format!("{clients},{local}"), "--advertise-client-urls", &clients]);
    command.args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers]);
    command.args(["--initial-cluster", &place.initial_cluster]);
    command.args(["--initial-cluster-state", if place.joins { "existing" } else { "new" }]);
    for (ca, certificate, key) in [
        ("--trusted-ca-file", "--cert-file", "--key-file"),
        ("--peer-trusted-ca-file", "--peer-cert-file", "--peer-key-file"),
    ] {
        command.arg(ca).arg(tls.join("etcd-ca.crt"));
        command.arg(certificate).arg(tls.join("etcd-member.crt")).arg(key).arg(tls.join("etcd-member.key"));
    }
    command.args(["--client-cert-auth", "--peer-client-cert-auth", "--logger", "zap", "--log-level", "warn"]);
    // While there is no leader nobody can write; two of these times are what it may take to have another one.
    command.args(["--heartbeat-interval", "100", "--election-timeout", "1000", "--quota-backend-bytes", "8589934592"]);
    // A member that comes back after it was cut off is no reason for an election.
    command.arg("--pre-vote").args(more);
    command.stdin(Stdio::null());
    match log(&folder.join("log")) {
        Ok(log) => _ = command.stdout(log.try_clone()?).stderr(log),
        // A disk that is full takes no log, but may take what etcd has to write in room that it has already.
        Err(error) => {
            tracing::warn!(error = format!("{error:#}"), "cannot open etcd log file; running etcd without it");
            command.stdout(Stdio::null()).stderr(Stdio::null());
        }
    }
    // Ctrl-C on a terminal is for knarr, which then stops it in order.
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let child = command.spawn().context("start etcd")?;
    let pid = Pid::from_child(&child);
    // For who looks.
    let _ = linux::file::write(&config.folder().join("pid"), pid.as_raw_nonzero().to_string(), 0o600);
    Running::new(pid, Some(child))
}

fn log(path: &Path) -> anyhow::Result<File> {
    if std::fs::metadata(path).is_ok_and(|metadata| metadata.len() > LOG_BYTES_MAX) {
        std::fs::rename(path, path.with_extension("old")).context("rename old etcd log")?;
    }
    File::options().create(true).append(true).open(path).with_context(|| format!("open {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_known_by_its_program_and_folder() {
        let folder = Path::new("/data/etcd/data");
        for (line, expected) in [
            ("/usr/bin/etcd\0--data-dir\0/data/etcd/data\0", true),
            ("etcd\0--name\0a\0--data-dir\0/data/etcd/data\0", true),
            ("etcd\0--data-dir\0/other/etcd/data\0", false),
            ("tail\0-f\0/data/etcd/data\0", false),
            ("", false),
        ] {
            assert_eq!(is_member(line.as_bytes(), folder), expected, "{line:?}");
        }
    }
}
