//! A real `knarr server` process with its own folder and port.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use tempfile::TempDir;

use crate::client::Client;

const READY_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Clone, Debug, Default)]
pub struct Options {
    /// More arguments of `knarr server`.
    pub arguments: Vec<String>,
}

pub struct Server {
    child: Option<Child>,
    folder: TempDir,
    options: Options,
    pub url: String,
}

impl Server {
    pub fn start() -> anyhow::Result<Server> {
        Server::start_with(Options::default())
    }

    pub fn start_with(options: Options) -> anyhow::Result<Server> {
        Server::start_in(tempfile::Builder::new().prefix("knarr-test-").tempdir()?, options)
    }

    /// Starts on a folder that may hold something already.
    pub fn start_in(folder: TempDir, options: Options) -> anyhow::Result<Server> {
        let mut server = Server { child: None, folder, options, url: String::new() };
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
        self.child.as_ref().map_or(0, Child::id)
    }

    /// A client with the administrator's certificate.
    pub fn client(&self) -> anyhow::Result<Client> {
        Client::with_certificate(&self.url, &self.data_dir().join("tls"), "admin")
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

    /// SIGKILL: as if the power was cut, for the process.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        if let Some(mut child) = self.child.take() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }

    /// SIGTERM, and whether the server then ended by itself with success.
    pub fn terminate(&mut self) -> anyhow::Result<bool> {
        let Some(mut child) = self.child.take() else { return Ok(false) };
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

    fn spawn(&mut self, port: &str) -> anyhow::Result<()> {
        let log = std::fs::File::options().create(true).append(true).open(self.data_dir().join("log"))?;
        let mut child = Command::new(binary()?)
            .args(["server", "--bind-address", "127.0.0.1", "--disable-agent", "--https-port", port, "--data-dir"])
            .arg(self.data_dir())
            .args(&self.options.arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .context("start knarr server")?;
        let stdout = child.stdout.take().context("the server's output")?;
        self.child = Some(child);
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        let Some(url) = line.split_whitespace().find(|word| word.starts_with("https://")) else {
            let log = std::fs::read_to_string(self.data_dir().join("log")).unwrap_or_default();
            bail!("the server did not become ready: {line:?}\n{log}");
        };
        self.url = url.to_string();
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
