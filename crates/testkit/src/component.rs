//! A component of knarr as a process of its own against a server's API: a scheduler, a controller manager, hollow nodes.

use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use crate::Server;
use crate::server::binary;

const END_TIMEOUT: Duration = Duration::from_secs(30);

pub struct Component {
    process: Child,
    log: PathBuf,
    pub name: String,
}

impl Component {
    /// Starts `knarr COMMAND --kubeconfig ...`; what it logs is kept under that name in the server's folder.
    pub fn start(server: &Server, name: &str, command: &str, arguments: &[&str]) -> anyhow::Result<Component> {
        let log = server.data_dir().join(format!("{name}.log"));
        let output = std::fs::File::options().create(true).append(true).open(&log)?;
        let mut knarr = Command::new(binary()?);
        knarr.arg(command).arg("--kubeconfig").arg(server.kubeconfig()).args(arguments);
        // Several of them share this machine's ports.
        if matches!(command, "kube-scheduler" | "kube-controller-manager") {
            knarr.arg("--secure-port=0");
        }
        knarr.stdin(Stdio::null()).stdout(Stdio::null()).stderr(output);
        let process = knarr.spawn().with_context(|| format!("start knarr {command}"))?;
        Ok(Component { process, log, name: name.into() })
    }

    /// What it has logged so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// SIGKILL: it can do nothing more.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        self.process.kill()?;
        self.process.wait()?;
        Ok(())
    }

    /// SIGTERM, and how it then ended.
    pub fn terminate(&mut self) -> anyhow::Result<ExitStatus> {
        let pid = rustix::process::Pid::from_child(&self.process);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
        let until = Instant::now() + END_TIMEOUT;
        while Instant::now() < until {
            if let Some(status) = self.process.try_wait()? {
                return Ok(status);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        bail!("{} did not end within {END_TIMEOUT:?}", self.name)
    }
}

impl Drop for Component {
    fn drop(&mut self) {
        // Both fail only where it has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
        if std::thread::panicking() {
            let log = self.log();
            let tail: Vec<&str> = log.lines().rev().take(15).collect();
            eprintln!("the last words of {}:", self.name);
            tail.iter().rev().for_each(|line| eprintln!("  {line}"));
        }
    }
}
