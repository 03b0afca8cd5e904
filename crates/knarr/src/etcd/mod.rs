//! The host's own `etcd`, run and looked after by knarr (`--cluster-init`), so that three machines make a cluster with three
//! commands. Its members know each other by certificates of an authority of their own.

pub mod access;
mod certificates;
pub mod command;
pub mod controller;
mod follow;
mod members;
pub mod migrate;
mod process;
mod removal;
pub mod reset;
pub mod snapshots;

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use component_base::tasks;
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
    pub config: Config,
    /// Cancelled when the others have removed this member.
    pub removed: Shutdown,
    ended: tokio::task::JoinHandle<()>,
    /// Keeps other servers off this folder.
    _lock: Option<std::fs::File>,
}

impl Config {
    /// The member that this folder was made for.
    pub fn kept(data_dir: &Path) -> anyhow::Result<Config> {
        let pair = certificates::kept(data_dir)?.pair;
        let address = pair.addresses().iter().find(|address| !address.is_loopback()).copied();
        Ok(Config {
            data_dir: data_dir.to_owned(),
            name: pair.common_name().to_owned(),
            address: address.context("the certificate of this etcd member names no address")?,
            others: Vec::new(),
        })
    }

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

    /// What to do with a server that the others have removed.
    pub fn removed_message(&self) -> String {
        format!(
            "this server is no longer a member of the cluster's etcd: its Node was deleted, its member was removed, or the cluster was \
             reset without it. To let it join again, remove {} and start it with --server=https://ANOTHER-SERVER:6443 and --token. To make \
             a cluster of its own from what it has, start it once with --cluster-reset",
            self.folder().display()
        )
    }

    fn has_data(&self) -> bool {
        self.folder().join("data/member").is_dir()
    }
}

/// How the server reaches its own member, as `/flagz` shows it.
pub fn flags(data_dir: &Path, servers: &[String]) -> kube_apiserver::options::Flags {
    let [authority, certificate, key] = certificates::files(data_dir).map(|file| file.display().to_string());
    let flags = [
        ("etcd-servers", servers.join(",")),
        ("etcd-cafile", authority),
        ("etcd-certfile", certificate),
        ("etcd-keyfile", key),
    ];
    flags.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Whether a member of etcd was started here before.
pub fn is_member(data_dir: &Path) -> bool {
    data_dir.join("etcd/data/member").is_dir()
}

/// Two servers on one folder would run two of the same member.
fn lock(folder: &Path) -> anyhow::Result<Option<std::fs::File>> {
    let file = match linux::file::append(&folder.join("lock"), 0o600) {
        Ok(file) => file,
        Err(error) => {
            tracing::warn!(%error, "cannot lock etcd data directory");
            return Ok(None);
        }
    };
    if rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_err() {
        bail!("another server is already running etcd in {}; stop it first", folder.display());
    }
    Ok(Some(file))
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
    pub async fn start(mut config: Config, shutdown: Shutdown) -> anyhow::Result<Etcd> {
        if let Err(error) = std::process::Command::new("etcd").arg("--version").output() {
            bail!(
                "--cluster-init needs the program `etcd`, which cannot be started ({error}); on Debian: apt install etcd-server"
            );
        }
        linux::file::make_private_folder(&config.folder()).context("create etcd data directory")?;
        let lock = lock(&config.folder())?;
        let files = certificates::ensure(&config)?;
        if config.has_data() {
            config.others.extend(follow::kept(&config.data_dir));
        }
        // Where it was a member before, the others may still name it.
        let (own, joins) = (config.client_url(), !config.others.is_empty());
        config.others.retain(|other| *other != own);
        if joins && config.others.is_empty() && !config.has_data() {
            bail!("no other etcd member of the cluster to join is known; start another server first");
        }
        if config.has_data() && members::was_removed(&config, &files).await {
            bail!(config.removed_message());
        }
        let place = match (config.has_data(), config.others.is_empty()) {
            // What was written at the first start counts; these flags are then ignored.
            (true, _) | (false, true) => Place::first(&config.name, &config.peer_url()),
            (false, false) => members::add(&config, &files).await.context("join etcd cluster")?,
        };
        let mut store = store::etcd::Config {
            endpoints: vec![config.client_url()],
            ca: Some(files.authority.clone().into()),
            cert: Some(files.pair.certificate_pem.clone().into()),
            key: Some(files.pair.key_pem.clone().into()),
            ..Default::default()
        };
        tasks::spawn(certificates::keep(config.clone(), shutdown.clone()));
        let removed = Shutdown::new();
        let running = process::supervise(config.clone(), place, removed.clone(), shutdown.clone())?;
        let ready = tokio::time::timeout(READY_TIMEOUT, members::until_member(&config, &files)).await;
        if ready.is_err() {
            let log = config.folder().join("log");
            bail!("etcd is not ready; see {}", log.display());
        }
        store.endpoints = follow::known(&config, &files).await;
        Ok(Etcd { store, config, removed, ended: running, _lock: lock })
    }

    /// Keeps the store's list of members true. While this machine's own does not serve, another one is asked.
    pub fn follow(&self, store: Arc<store::etcd::EtcdStore>, shutdown: Shutdown) {
        tasks::spawn(follow::run(self.config.clone(), store, shutdown));
    }

    /// Until it has stopped, after the shutdown.
    pub async fn ended(self) {
        let _ = self.ended.await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(address: &str) -> Config {
        let address = address.parse().expect("an address");
        Config { data_dir: "/data".into(), name: "n1".into(), address, others: Vec::new() }
    }

    #[test]
    fn members_are_reached_by_both_families() {
        assert_eq!(member("10.0.0.1").client_url(), "https://10.0.0.1:2379");
        assert_eq!(member("10.0.0.1").peer_url(), "https://10.0.0.1:2380");
        assert_eq!(member("fd00::1").client_url(), "https://[fd00::1]:2379");
    }

    #[test]
    fn a_member_that_was_removed_is_told_both_ways_on() {
        let told = member("10.0.0.1").removed_message();
        for part in ["remove /data/etcd and start it", "--server=https://", "--token", "--cluster-reset"] {
            assert!(told.contains(part), "{told}");
        }
    }

    #[test]
    fn a_folder_knows_whether_it_was_a_member() {
        let folder = tempfile::tempdir().expect("a folder");
        assert!(!is_member(folder.path()));
        std::fs::create_dir_all(folder.path().join("etcd/data/member")).expect("folders");
        assert!(is_member(folder.path()));
        let config = Config { data_dir: folder.path().to_owned(), ..member("10.0.0.1") };
        assert!(config.has_data());
    }

    #[test]
    fn a_folder_has_one_server_at_a_time() {
        let folder = tempfile::tempdir().expect("a folder");
        let first = lock(folder.path()).expect("nobody else is here");
        let second = lock(folder.path()).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(second.starts_with("another server is already running etcd in "), "{second}");
        drop(first);
        assert!(lock(folder.path()).is_ok());
    }

    #[test]
    fn the_server_shows_how_it_reaches_its_member() {
        let shown = flags(Path::new("/data"), &["https://a:2379".into(), "https://b:2379".into()]);
        let value = |name: &str| shown.iter().find(|(known, _)| *known == name).map(|(_, value)| value.to_string());
        assert_eq!(value("etcd-servers").as_deref(), Some("https://a:2379,https://b:2379"));
        for name in ["etcd-cafile", "etcd-certfile", "etcd-keyfile"] {
            assert!(value(name).is_some_and(|file| file.starts_with("/data/")), "{name}");
        }
    }
}
