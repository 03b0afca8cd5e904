//! A real `knarr agent` process on a machine of its own, and clusters of several machines.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use tempfile::TempDir;

use crate::hub::{Hub, Place};
use crate::machine::{Inside, Machine};
use crate::server::{Options, Server, binary};

const END_TIMEOUT: Duration = Duration::from_secs(30);

pub struct Agent {
    process: Option<Inside>,
    folder: TempDir,
    machine: Arc<Machine>,
    pub name: String,
    arguments: Vec<String>,
}

impl Agent {
    /// Joins the cluster of that server, with the token it keeps.
    pub fn join(server: &Server, machine: Arc<Machine>, name: &str, arguments: &[&str]) -> anyhow::Result<Agent> {
        let token = server.data_dir().join("server/node-token").display().to_string();
        let url = server.url.replace("127.0.0.1", &server.machine().address());
        let mut all = vec!["--server".to_owned(), url, "--token-file".into(), token];
        all.extend(arguments.iter().map(|argument| argument.to_string()));
        Agent::start(machine, name, all)
    }

    /// With these arguments only.
    pub fn start(machine: Arc<Machine>, name: &str, arguments: Vec<String>) -> anyhow::Result<Agent> {
        let folder = tempfile::Builder::new().prefix("knarr-test-").tempdir()?;
        let mut agent = Agent { process: None, folder, machine, name: name.to_owned(), arguments };
        agent.spawn()?;
        Ok(agent)
    }

    pub fn machine(&self) -> &Arc<Machine> {
        &self.machine
    }

    pub fn data_dir(&self) -> &Path {
        self.folder.path()
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.data_dir().join("log")).unwrap_or_default()
    }

    pub fn pid(&self) -> u32 {
        self.process.as_ref().map_or(0, Inside::pid)
    }

    /// SIGKILL; its containers go on running.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        if let Some(mut process) = self.process.take() {
            // It may have ended by itself.
            let _ = process.signal(rustix::process::Signal::KILL);
            process.wait(END_TIMEOUT)?;
        }
        Ok(())
    }

    /// Starts again on the same folder. What it needed the first time, it knows by now.
    pub fn restart(&mut self) -> anyhow::Result<()> {
        self.kill()?;
        self.spawn()
    }

    /// The arguments of the next start.
    pub fn set_arguments(&mut self, arguments: Vec<String>) {
        self.arguments = arguments;
    }

    fn spawn(&mut self) -> anyhow::Result<()> {
        let log = std::fs::File::options().create(true).append(true).open(self.data_dir().join("log"))?;
        let mut command = self.machine.command(binary()?);
        command.args(["agent", "--config=/dev/null", "--data-dir"]).arg(self.data_dir());
        command.args(["--node-ip", &self.machine.address(), "--node-name", &self.name, "--cgroup-root"]);
        command.arg(format!("/{}", self.machine.name()));
        if !self.arguments.iter().any(|argument| argument.starts_with("--eviction-hard")) {
            command.arg("--eviction-hard=memory.available<10Mi");
        }
        command.args(&self.arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        let mut child = command.spawn().context("start knarr agent")?;
        let output = child.stdout.take().context("the agent's output")?;
        self.process = Some(Inside::new(child)?);
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        if !line.contains("is a node") {
            bail!("the agent did not become a node: {line:?}\n{}", self.log());
        }
        Ok(())
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let killed = self.kill();
        if std::thread::panicking() {
            let log = self.log();
            let tail: Vec<&str> = log.lines().rev().take(30).collect();
            eprintln!("the last words of {} ({killed:?}):", self.name);
            tail.iter().rev().for_each(|line| eprintln!("  {line}"));
        }
    }
}

/// One server, which is `node-1`, and agents `node-2`, `node-3` and so on, each on a machine of its own.
pub struct Cluster {
    pub agents: Vec<Agent>,
    pub server: Server,
    pub hub: Arc<Hub>,
}

impl Cluster {
    /// Nodes are dealt to the links in turn. The arguments are those of server and agents.
    pub fn start(nodes: u8, links: u8, arguments: &[&str]) -> anyhow::Result<Cluster> {
        let hub = Arc::new(Hub::start(links)?);
        let machine = |index: u8| {
            let place = Place { link: index % links, host: index + 1 };
            Machine::start_on(&hub, place).map(Arc::new)
        };
        let server = Server::start_with(Options {
            arguments: arguments.iter().map(|argument| argument.to_string()).collect(),
            machine: Some(machine(0)?),
        })?;
        let mut cluster = Cluster { agents: Vec::new(), server, hub: hub.clone() };
        for index in 1..nodes {
            let agent = Agent::join(&cluster.server, machine(index)?, &format!("node-{}", index + 1), arguments)?;
            cluster.agents.push(agent);
        }
        Ok(cluster)
    }

    /// The machine of `node-<number>`.
    pub fn machine(&self, number: usize) -> &Arc<Machine> {
        match number {
            1 => self.server.machine(),
            _ => self.agents[number - 2].machine(),
        }
    }
}
