//! A real `knarr server` process with its own folder and port.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use tempfile::TempDir;

use crate::client::Client;
use crate::kubectl::{self, Kubectl};
use crate::machine::{Inside, Machine};

/// In the place of an argument: the server is not told its node's address, as on most machines.
pub const FIND_ADDRESSES: &str = "(find addresses)";

const READY_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Clone, Default)]
pub struct Options {
    /// More arguments of `knarr server`.
    pub arguments: Vec<String>,
    /// Where it runs as a node too. Without one it is the control plane only.
    pub machine: Option<Arc<Machine>>,
}

enum Process {
    Here(Child),
    OnMachine(Inside),
}

pub struct Server {
    process: Option<Process>,
    folder: TempDir,
    options: Options,
    /// Its environment, besides what it inherits.
    variables: Vec<(String, String)>,
    pub url: String,
}

impl Server {
    pub fn start() -> anyhow::Result<Server> {
        Server::start_with(Options::default())
    }

    pub fn start_with(options: Options) -> anyhow::Result<Server> {
        Server::start_in(tempfile::Builder::new().prefix("knarr-test-").tempdir()?, options)
    }

    /// The API server with those controllers only without which no pod can be made and no namespace deleted: nothing else
    /// changes what a test has written.
    pub fn start_api(arguments: &[&str]) -> anyhow::Result<Server> {
        let mut all = vec![
            "--disable=kube-scheduler,cloud-controller-manager,local-storage,dns,metrics-server".to_string(),
            "--controllers=serviceaccount-controller,root-ca-certificate-publisher-controller,namespace-controller"
                .into(),
            "--controllers=garbage-collector-controller,clusterrole-aggregation-controller".into(),
        ];
        all.extend(arguments.iter().map(|argument| argument.to_string()));
        Server::start_with(Options { arguments: all, ..Options::default() })
    }

    /// Control plane and node on a machine of its own.
    pub fn start_node(arguments: &[&str]) -> anyhow::Result<Server> {
        let arguments = arguments.iter().map(|argument| argument.to_string()).collect();
        Server::start_with(Options { arguments, machine: Some(Arc::new(Machine::start()?)) })
    }

    /// The machine it runs on, if it is a node.
    pub fn machine(&self) -> &Arc<Machine> {
        self.options.machine.as_ref().expect("the server was started as a node")
    }

    /// The newest kubectl here, as the administrator, on the server's network.
    pub fn kubectl(&self) -> Kubectl {
        let program = kubectl::programs().pop().expect("there is a kubectl: run `make tools`");
        self.kubectl_of(&program)
    }

    /// A program on the server's network.
    pub fn beside(&self, program: &str) -> Command {
        let Some(machine) = &self.options.machine else { return Command::new(program) };
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", machine.network().display())).args(["--", program]);
        command
    }

    pub fn kubectl_of(&self, program: &Path) -> Kubectl {
        let network = self.options.machine.as_ref().map(|machine| machine.network());
        Kubectl::new(program, &self.kubeconfig()).within(network)
    }

    /// Starts on a folder that may hold something already.
    pub fn start_in(folder: TempDir, options: Options) -> anyhow::Result<Server> {
        Server::start_told(folder, options, &[])
    }

    /// The same with variables of its environment.
    pub fn start_told(folder: TempDir, options: Options, variables: &[(&str, &str)]) -> anyhow::Result<Server> {
        let variables = variables.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        let mut server = Server { process: None, folder, options, variables, url: String::new() };
        server.spawn("0")?;
        Ok(server)
    }

    pub fn data_dir(&self) -> &Path {
        self.folder.path()
    }

    pub fn kubeconfig(&self) -> PathBuf {
        self.data_dir().join("admin.kubeconfig")
    }

    pub fn pid(&self) -> u32 {
        match &self.process {
            Some(Process::Here(child)) => child.id(),
            Some(Process::OnMachine(inside)) => inside.pid(),
            None => 0,
        }
    }

    /// A client with the administrator's certificate.
    pub fn client(&self) -> anyhow::Result<Client> {
        let network = self.options.machine.as_ref().map(|machine| machine.network());
        Ok(Client::with_certificate(&self.url, &self.data_dir().join("tls"), "admin")?.within(network))
    }

    /// A client that shows no certificate.
    pub fn anonymous(&self) -> anyhow::Result<Client> {
        Client::without_certificate(&self.url, &self.data_dir().join("tls"))
    }

    /// Sees to it that pods can be made in a namespace at once: the account they use is there, whoever was first to make it.
    pub fn default_account(&self, namespace: &str) -> anyhow::Result<()> {
        let client = self.client()?;
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
        let account = serde_json::json!({"metadata": {"name": "default"}});
        // A thread of its own: the caller may or may not be inside a runtime.
        let made = std::thread::scope(|scope| {
            let posting = scope.spawn(|| {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
                runtime.block_on(client.post(&path, &account))
            });
            posting.join().expect("the request does not panic")
        })?;
        if !matches!(made.code, 201 | 409) {
            bail!("make the default account of {namespace}: {}", made.text());
        }
        Ok(())
    }

    /// The arguments of the next start.
    pub fn set_arguments(&mut self, arguments: Vec<String>) {
        self.options.arguments = arguments;
    }

    /// SIGKILL: as if the power was cut, for the process.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        match self.process.take() {
            Some(Process::Here(mut child)) => {
                child.kill()?;
                child.wait()?;
            }
            Some(Process::OnMachine(mut inside)) => {
                // It may have ended by itself.
                let _ = inside.signal(rustix::process::Signal::KILL);
                inside.wait(READY_TIMEOUT)?;
            }
            None => {}
        }
        Ok(())
    }

    /// SIGTERM, and whether the server then ended by itself with success.
    pub fn terminate(&mut self) -> anyhow::Result<bool> {
        let mut child = match self.process.take() {
            Some(Process::Here(child)) => child,
            Some(Process::OnMachine(mut inside)) => {
                inside.signal(rustix::process::Signal::TERM)?;
                return Ok(inside.wait(READY_TIMEOUT)?.is_some_and(|status| status.success()));
            }
            None => return Ok(false),
        };
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
        let until = Instant::now() + READY_TIMEOUT;
        while Instant::now() < until {
            if let Some(status) = child.try_wait()? {
                return Ok(status.success());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        child.kill()?;
        child.wait()?;
        Ok(false)
    }

    /// Starts again on the same folder and port.
    pub fn restart(&mut self) -> anyhow::Result<()> {
        self.kill()?;
        let port = self.url.rsplit(':').next().unwrap_or("0").to_string();
        self.spawn(&port)
    }

    /// Starts again on the same folder and port on a machine that is new: all processes, mounts and links are gone.
    pub fn reboot(&mut self) -> anyhow::Result<()> {
        self.kill()?;
        if let Some(machine) = &mut self.options.machine {
            *machine = Arc::new(machine.successor()?);
        }
        self.restart()
    }

    fn spawn(&mut self, port: &str) -> anyhow::Result<()> {
        let log = std::fs::File::options().create(true).append(true).open(self.data_dir().join("log"))?;
        let mut command = match &self.options.machine {
            None => Command::new(binary()?),
            Some(machine) => machine.command(binary()?),
        };
        command.args(["server", "--config=/dev/null", "--https-port", port, "--data-dir"]).arg(self.data_dir());
        match &self.options.machine {
            None => command.args(["--bind-address", "127.0.0.1", "--disable-agent"]),
            Some(machine) => {
                command.arg("--cgroup-root").arg(format!("/{}", machine.name()));
                if !self.options.arguments.iter().any(|argument| argument == FIND_ADDRESSES) {
                    command.args(["--node-ip", &machine.address()]);
                }
                if !self.options.arguments.iter().any(|argument| argument == "--node-name") {
                    command.args(["--node-name", "node-1"]);
                }
                // How full the disk of this machine is must not decide about a test.
                if !self.options.arguments.iter().any(|argument| argument.starts_with("--eviction-hard")) {
                    command.arg("--eviction-hard=memory.available<10Mi");
                }
                &mut command
            }
        };
        command
            .args(self.options.arguments.iter().filter(|argument| *argument != FIND_ADDRESSES))
            .envs(self.variables.iter().cloned())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log);
        let mut child = command.spawn().context("start knarr server")?;
        let stdout: ChildStdout = child.stdout.take().context("the server's output")?;
        self.process = Some(match &self.options.machine {
            None => Process::Here(child),
            Some(_) => Process::OnMachine(Inside::new(child)?),
        });
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        let Some(url) = line.split_whitespace().find(|word| word.starts_with("https://")) else {
            let log = std::fs::read_to_string(self.data_dir().join("log")).unwrap_or_default();
            bail!("the server did not become ready: {line:?}\n{log}");
        };
        // Who listens everywhere is asked here.
        self.url = url.replace("//0.0.0.0:", "//127.0.0.1:");
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let killed = self.kill();
        if std::thread::panicking() {
            let log = std::fs::read_to_string(self.data_dir().join("log")).unwrap_or_default();
            let tail: Vec<&str> = log.lines().rev().take(30).collect();
            eprintln!("the server's last words ({killed:?}):");
            tail.iter().rev().for_each(|line| eprintln!("  {line}"));
        }
    }
}

/// The program under test, beside the test's own program in the target folder.
pub fn binary() -> anyhow::Result<PathBuf> {
    if let Some(path) = std::env::var_os("KNARR_BINARY") {
        return Ok(path.into());
    }
    let test = std::env::current_exe()?;
    let folder = test.ancestors().find(|folder| folder.join("knarr").is_file());
    folder.map(|folder| folder.join("knarr")).context("knarr is not built: run `cargo build -p knarr` first")
}
