//! Real etcd, one member, in a folder of its own.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use tempfile::TempDir;

pub struct Etcd {
    child: Child,
    _folder: TempDir,
    pub endpoint: String,
}

impl Etcd {
    /// None where the machine has no etcd.
    pub fn start() -> anyhow::Result<Option<Etcd>> {
        let folder = tempfile::Builder::new().prefix("knarr-etcd-").tempdir()?;
        let (client, peer) = (free_port()?, free_port()?);
        let (endpoint, peer) = (format!("http://127.0.0.1:{client}"), format!("http://127.0.0.1:{peer}"));
        let child = Command::new("etcd")
            .args(["--name", "one", "--listen-client-urls", &endpoint, "--advertise-client-urls", &endpoint])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("one={peer}"), "--data-dir"])
            .arg(folder.path().join("data"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let child = match child {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            child => child.context("start etcd")?,
        };
        let etcd = Etcd { child, _folder: folder, endpoint };
        let until = Instant::now() + Duration::from_secs(20);
        while std::net::TcpStream::connect(etcd.endpoint.trim_start_matches("http://")).is_err() {
            if Instant::now() > until {
                bail!("etcd does not listen");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(Some(etcd))
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        // Both fail only where it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
