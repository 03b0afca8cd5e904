//! The host's own `etcd`, run and looked after by knarr (`--cluster-init`), so that three machines make a cluster with three
//! commands. Its members know each other by certificates of an authority of their own.

mod certificates;
mod members;
pub mod migrate;
mod process;
pub mod snapshots;

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use reconcile::Shutdown;

use self::members::Place;

const CLIENT_PORT: u16 = 2379;
const PEER_PORT: u16 = 2380;
const READY_TIMEOUT: Duration = Duration::from_secs(120);

/// Which member this machine is.
#[derive(Clone)]
pub struct Config {
    pub data_dir: PathBuf,
    pub name: String,
    pub address: IpAddr,
    /// The members there are already; empty for the first.
    pub others: Vec<String>,
}

/// A member that runs.
pub struct Etcd {
    pub store: store::etcd::Config,
    ended: tokio::task::JoinHandle<()>,
}

impl Config {
    /// How API servers reach this member.
    pub fn client_url(&self) -> String {
        url(self.address, CLIENT_PORT)
    }

    fn peer_url(&self) -> String {
        url(self.address, PEER_PORT)
    }

    fn folder(&self) -> PathBuf {
        self.data_dir.join("etcd")
    }

    fn has_data(&self) -> bool {
        self.folder().join("data/member").is_dir()
    }
}

/// Whether a member of etcd was started here before.
pub fn is_member(data_dir: &Path) -> bool {
    data_dir.join("etcd/data/member").is_dir()
}

/// Ends a member that outlived its knarr.
pub async fn end_left_behind(data_dir: &Path) {
    let address = IpAddr::from([127, 0, 0, 1]);
    let config = Config { data_dir: data_dir.to_owned(), name: String::new(), address, others: Vec::new() };
    if let Some(member) = process::left_behind(&config) {
        member.stop().await;
    }
}

fn url(address: IpAddr, port: u16) -> String {
    format!("https://{}", std::net::SocketAddr::new(address, port))
}

impl Etcd {
    /// Starts the member, or finds the one that an earlier knarr left running, and waits until the cluster answers.
    pub async fn start(config: Config, shutdown: Shutdown) -> anyhow::Result<Etcd> {
        if let Err(error) = std::process::Command::new("etcd").arg("--version").output() {
            bail!(
                "--cluster-init runs the `etcd` of this host, which does not start ({error}); on Debian: apt install etcd-server"
            );
        }
        std::fs::create_dir_all(config.folder()).context("create the folder of etcd")?;
        let files = certificates::ensure(&config)?;
        let place = match (config.has_data(), config.others.is_empty()) {
            // What was written at the first start counts; these flags are then ignored.
            (true, _) | (false, true) => Place::first(&config.name, &config.peer_url()),
            (false, false) => members::add(&config, &files).await.context("become a member of the servers' etcd")?,
        };
        let mut endpoints = vec![config.client_url()];
        endpoints.extend(config.others.iter().filter(|other| **other != config.client_url()).cloned());
        let store = store::etcd::Config {
            endpoints,
            ca: Some(files.authority.clone().into()),
            cert: Some(files.pair.certificate_pem.clone().into()),
            key: Some(files.pair.key_pem.clone().into()),
            ..Default::default()
        };
        tokio::spawn(certificates::keep(config.clone(), shutdown.clone()));
        let running = process::supervise(config.clone(), place, shutdown.clone())?;
        let ready = tokio::time::timeout(READY_TIMEOUT, members::until_member(&config, &files)).await;
        if ready.is_err() {
            let log = config.folder().join("log");
            bail!("etcd does not answer; see {}", log.display());
        }
        Ok(Etcd { store, ended: running })
    }

    /// Until it has stopped, after the shutdown.
    pub async fn ended(self) {
        let _ = self.ended.await;
    }
}
