//! The process: started again whenever it ends, and found again when knarr was the one that ended.

use std::fs::File;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context;
use reconcile::Shutdown;
use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, PidfdFlags, Signal};

use super::members::Place;
use super::{CLIENT_PORT, Config, certificates, url};

const BACKOFF_MIN: Duration = Duration::from_secs(1);
const BACKOFF_MAX: Duration = Duration::from_secs(30);
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
const LOG_BYTES_MAX: u64 = 16 << 20;

/// Runs it until the shutdown; the handle ends when it has stopped.
pub fn supervise(config: Config, place: Place, shutdown: Shutdown) -> anyhow::Result<tokio::task::JoinHandle<()>> {
    let mut running = match left_behind(&config) {
        Some(running) => {
            tracing::info!("etcd is running already");
            running
        }
        None => start(&config, &place)?,
    };
    Ok(tokio::spawn(async move {
        let mut backoff = BACKOFF_MIN;
        loop {
            let began = tokio::time::Instant::now();
            tokio::select! {
                () = running.ended() => {}
                () = shutdown.cancelled() => return running.stop().await,
            }
            if began.elapsed() > BACKOFF_MAX {
                backoff = BACKOFF_MIN;
            }
            tracing::error!(log = %config.folder().join("log").display(), again_seconds = backoff.as_secs(), "etcd has ended");
            loop {
                tokio::select! {
                    () = tokio::time::sleep(backoff) => {}
                    () = shutdown.cancelled() => return,
                }
                backoff = (backoff * 2).min(BACKOFF_MAX);
                match start(&config, &place) {
                    Ok(started) => break running = started,
                    Err(error) => tracing::error!(error = format!("{error:#}"), "etcd does not start"),
                }
            }
        }
    }))
}

/// Any process, a child or not.
pub struct Running {
    pid: Pid,
    /// Says so when it has ended.
    ended: tokio::sync::oneshot::Receiver<()>,
}

impl Running {
    fn new(pid: Pid, child: Option<std::process::Child>) -> anyhow::Result<Running> {
        let handle = rustix::process::pidfd_open(pid, PidfdFlags::empty()).context("watch etcd")?;
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
            tracing::warn!("etcd does not stop; it is left to itself");
        }
    }
}

fn pid_file(config: &Config) -> std::path::PathBuf {
    config.folder().join("pid")
}

/// The member that an earlier knarr started, if it lives.
pub fn left_behind(config: &Config) -> Option<Running> {
    let text = std::fs::read_to_string(pid_file(config)).ok()?;
    let pid = Pid::from_raw(text.trim().parse().ok()?)?;
    let line = std::fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).ok()?;
    // Numbers of processes are used again: it must be an etcd, and on this folder.
    let folder = config.folder().join("data");
    let mut words = line.split(|byte| *byte == 0);
    let is_etcd = words.next().is_some_and(|program| Path::new(&*String::from_utf8_lossy(program)).ends_with("etcd"));
    let of_this = words.any(|word| *word == *folder.as_os_str().as_encoded_bytes());
    (is_etcd && of_this).then(|| Running::new(pid, None).ok()).flatten()
}

fn start(config: &Config, place: &Place) -> anyhow::Result<Running> {
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
    // A slow disk is no reason for elections.
    command.args(["--heartbeat-interval", "200", "--election-timeout", "2000", "--quota-backend-bytes", "8589934592"]);
    let log = log(&folder.join("log"))?;
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    // Ctrl-C on a terminal is for knarr, which then stops it in order.
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let child = command.spawn().context("start etcd")?;
    let pid = Pid::from_child(&child);
    std::fs::write(pid_file(config), pid.as_raw_nonzero().to_string()).context("write the process id of etcd")?;
    Running::new(pid, Some(child))
}

fn log(path: &Path) -> anyhow::Result<File> {
    if std::fs::metadata(path).is_ok_and(|metadata| metadata.len() > LOG_BYTES_MAX) {
        std::fs::rename(path, path.with_extension("old")).context("put the old log of etcd aside")?;
    }
    File::options().create(true).append(true).open(path).with_context(|| format!("open {}", path.display()))
}
