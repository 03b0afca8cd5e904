//! A cluster that `knarr cluster` made on this machine, and what tests and measurements ask of it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::hub::Hub;
use crate::kubectl::{self, Kubectl};
use crate::machine::connect_within;

/// A cluster that is gone when the test is over, however that ends.
pub struct LocalCluster {
    dir: TempDir,
    pub name: String,
    /// The network that is the host's, where it is not this machine's.
    host: Option<Arc<Hub>>,
}

impl LocalCluster {
    /// Nothing is made yet, only a name that nobody else has.
    pub fn named(host: Option<Arc<Hub>>) -> LocalCluster {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let dir = tempfile::Builder::new().prefix("knarr-test-").tempdir().unwrap();
        LocalCluster { dir, name: format!("e2e-{}-{number}", std::process::id()), host }
    }

    pub fn create(arguments: &[&str]) -> LocalCluster {
        let cluster = LocalCluster::named(None);
        cluster.ok(&[&["create", &cluster.name], arguments].concat());
        cluster
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let program = crate::server::binary().unwrap();
        let mut command = match &self.host {
            None => Command::new(program),
            Some(hub) => hub.command(program),
        };
        command.args(["cluster", "--dir"]).arg(self.dir.path()).args(arguments).stdin(Stdio::null());
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("knarr runs")
    }

    pub fn ok(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let (said, complained) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{arguments:?}: {said}{complained}");
        said.into_owned()
    }

    /// `ip` on the network that is the host's.
    pub fn ip(&self, arguments: &[&str]) -> String {
        let mut command = match &self.host {
            None => Command::new("ip"),
            Some(hub) => hub.command("ip"),
        };
        String::from_utf8_lossy(&command.args(arguments).output().expect("ip runs").stdout).into_owned()
    }

    pub fn folder(&self) -> PathBuf {
        self.dir.path().join(&self.name)
    }

    pub fn kubectl(&self) -> Kubectl {
        let program = kubectl::programs().pop().expect("there is a kubectl: run `make tools`");
        Kubectl::new(&program, &self.folder().join("kubeconfig"))
    }

    pub fn status(&self) -> String {
        let list = self.ok(&["list"]);
        let line = list.lines().find(|line| line.starts_with(&self.name)).unwrap_or_default();
        line.split_whitespace().nth(1).unwrap_or_default().to_owned()
    }

    pub fn description(&self) -> Value {
        serde_json::from_slice(&std::fs::read(self.folder().join("cluster.json")).unwrap()).unwrap()
    }

    /// The network of a node's machine.
    pub fn network(&self, node: &str) -> PathBuf {
        let folder = self.folder().join(node);
        let first = machines(&folder).into_iter().find(|pid| {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            status.lines().any(|line| line.starts_with("NSpid:") && line.ends_with("\t1"))
        });
        format!("/proc/{}/ns/net", first.expect("the machine runs")).into()
    }
}

impl Drop for LocalCluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for node in ["node-1", "node-2", "node-3"] {
                let log = std::fs::read_to_string(self.folder().join(node).join("log/knarr.log")).unwrap_or_default();
                let lines: Vec<&str> = log.lines().collect();
                eprintln!("{node}:\n{}", lines[lines.len().saturating_sub(15)..].join("\n"));
            }
        }
        if self.folder().exists() {
            self.run(&["delete", &self.name]);
        }
    }
}

/// Processes that were started to be the machine of this folder.
pub fn machines(folder: &Path) -> Vec<u32> {
    let pids =
        std::fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_machine = |pid: &u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
        words.get(1) == Some(&&b"cluster-machine"[..]) && words.get(2) == Some(&folder.as_os_str().as_encoded_bytes())
    };
    pids.filter(is_machine).collect()
}

/// Which pod answers there, seen from that network.
pub fn who_answers(network: &Path, address: &str) -> Option<String> {
    let mut stream: TcpStream = connect_within(network, &format!("{address}:80")).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    stream.write_all(b"GET / HTTP/1.0\r\nHost: web\r\nConnection: close\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    text.lines().find_map(|line| line.strip_prefix("pod: ")).map(str::to_owned)
}
