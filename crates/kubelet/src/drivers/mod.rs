//! The storage drivers of this node, by their names: registered through their sockets, and announced in CSINode and Node.

mod version;
mod announce;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use csi::Driver;
use csi::pluginregistration::PluginInfo;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::node::Seen;
use announce::{AnnounceError, Announced, Objects};
use version::{Version, VersionError};

/// Waits between tries to write what a driver says of the node.
const RETRY: Duration = Duration::from_millis(100);
const TRIES_MAX: u32 = 5;
const UNANNOUNCE_RETRY_MAX: Duration = Duration::from_secs(60);

/// A name is a DNS name of at most so many letters.
const NAME_MAX: usize = 63;

pub struct Drivers {
    registered: Mutex<BTreeMap<String, Registered>>,
    objects: Objects,
    /// One at a time writes the objects, so that a driver that goes and one that comes do not undo each other's work.
    writing: tokio::sync::Mutex<()>,
}

/// Who registers a driver: a socket, and which one of those that were at this place one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Registrant {
    pub socket: PathBuf,
    pub number: u64,
}

/// Why a driver is not taken in. It goes to the driver and into the log.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RegisterError {
    #[error(
        "RegisterPlugin error -- plugin validation failed with err: validation failed for CSI Driver {name} at endpoint {}: {source}",
        .endpoint.display()
    )]
    Invalid { name: String, endpoint: PathBuf, source: InvalidDriver },
    #[error("RegisterPlugin error -- plugin registration failed with err: {0}")]
    Info(#[from] csi::Error),
    #[error("RegisterPlugin error -- plugin registration failed with err: {0}")]
    Announce(#[from] AnnounceError),
}

/// What of a driver's registration cannot be taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InvalidDriver {
    #[error("driver name {0:?} is not a DNS name of at most {NAME_MAX} characters")]
    Name(String),
    #[error("endpoint {} is not an absolute path", .0.display())]
    Endpoint(PathBuf),
    #[error(transparent)]
    Version(#[from] VersionError),
    #[error(
        "kubernetes.io/csi: ValidatePlugin for CSI driver {name:?} failed. Another driver with the same name is already registered with a higher supported version: \"{version}\""
    )]
    Taken { name: String, version: Version },
}

struct Registered {
    driver: Driver,
    version: Version,
    by: Registrant,
    announced: Option<Announced>,
}

impl Drivers {
    pub fn new(client: kube::Client, node_name: &str) -> Drivers {
        Drivers {
            registered: Mutex::default(),
            objects: Objects::new(client, node_name),
            writing: tokio::sync::Mutex::default(),
        }
    }

    pub fn get(&self, name: &str) -> Option<Driver> {
        self.registered.lock().get(name).map(|registered| registered.driver.clone())
    }

    /// Takes a driver in and announces what it says of this node. The error goes to the driver and into the log.
    pub(crate) async fn register(&self, info: &PluginInfo, by: &Registrant) -> Result<(), RegisterError> {
        let driver = self.note(info, by).map_err(|source| {
            let (name, endpoint) = (info.name.clone(), endpoint(info, &by.socket));
            RegisterError::Invalid { name, endpoint, source }
        })?;
        let outcome = self.ask_and_announce(info, &driver).await;
        if outcome.is_err() {
            self.unregister(&info.name, by).await;
        }
        outcome
    }

    async fn ask_and_announce(&self, info: &PluginInfo, driver: &Driver) -> Result<(), RegisterError> {
        let announced = Announced::of(&info.name, &driver.info().await?)?;
        Ok(self.announce(&info.name, announced).await?)
    }

    /// Whether it may have this name, and from then on whom calls go to.
    fn note(&self, info: &PluginInfo, by: &Registrant) -> Result<Driver, InvalidDriver> {
        let name = info.name.as_str();
        check_name(name)?;
        let endpoint = endpoint(info, &by.socket);
        if !endpoint.is_absolute() {
            return Err(InvalidDriver::Endpoint(endpoint));
        }
        let version = version::highest_supported(name, &info.supported_versions)?;
        let mut registered = self.registered.lock();
        if let Some(known) =
            registered.get(name).filter(|known| known.by.socket != by.socket && known.version >= version)
        {
            return Err(InvalidDriver::Taken { name: name.to_owned(), version: known.version.clone() });
        }
        let driver = Driver::new(&endpoint);
        let entry = Registered { driver: driver.clone(), version, by: by.clone(), announced: None };
        registered.insert(name.to_owned(), entry);
        Ok(driver)
    }

    async fn announce(&self, name: &str, announced: Announced) -> Result<(), AnnounceError> {
        let _writing = self.writing.lock().await;
        let mut tries = 1;
        while let Err(error) = self.objects.announce(&announced).await {
            if tries >= TRIES_MAX {
                return Err(error);
            }
            tokio::time::sleep(RETRY * 2_u32.pow(tries)).await;
            tries += 1;
        }
        if let Some(registered) = self.registered.lock().get_mut(name) {
            registered.announced = Some(announced);
        }
        Ok(())
    }

    /// Announces the driver again whenever the Node object is another one. Does not end.
    pub(crate) async fn keep_announced(&self, name: &str, mut node: watch::Receiver<Seen>) {
        let mut told = node.borrow_and_update().uid();
        loop {
            if node.changed().await.is_err() {
                return std::future::pending().await;
            }
            let uid = node.borrow_and_update().uid();
            if uid.is_none() || uid == told {
                continue;
            }
            let announced = self.registered.lock().get(name).and_then(|registered| registered.announced.clone());
            let Some(announced) = announced else { continue };
            match self.announce(name, announced).await {
                Ok(()) => told = uid,
                Err(error) => tracing::warn!(%error, driver = name, "cannot announce CSI driver on the new Node"),
            }
        }
    }

    /// The driver of this registrant is no more. One that has taken its place stays.
    pub(crate) async fn unregister(&self, name: &str, by: &Registrant) {
        if !self.forget(by) {
            return;
        }
        let mut wait = RETRY;
        loop {
            let _writing = self.writing.lock().await;
            // Another of the same name may have come meanwhile; what it announced stays.
            if self.registered.lock().contains_key(name) {
                return;
            }
            match self.objects.take_back(name).await {
                Ok(()) => return,
                Err(error) => {
                    tracing::warn!(%error, driver = name, "cannot remove CSI driver from CSINode; retrying")
                }
            }
            drop(_writing);
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(UNANNOUNCE_RETRY_MAX);
        }
    }

    /// The same for one that went before its name was known.
    pub(crate) async fn unregister_all(&self, by: &Registrant) {
        let of_it = |(name, known): (&String, &Registered)| (known.by == *by).then(|| name.clone());
        let names: Vec<String> = self.registered.lock().iter().filter_map(of_it).collect();
        for name in names {
            self.unregister(&name, by).await;
        }
    }

    /// Whether it had registered a driver.
    fn forget(&self, by: &Registrant) -> bool {
        let mut registered = self.registered.lock();
        let before = registered.len();
        registered.retain(|_, known| known.by != *by);
        registered.len() < before
    }
}

pub(crate) fn endpoint(info: &PluginInfo, socket: &Path) -> PathBuf {
    match info.endpoint.as_str() {
        "" => socket.to_owned(),
        endpoint => PathBuf::from(endpoint.strip_prefix("unix://").unwrap_or(endpoint)),
    }
}

fn check_name(name: &str) -> Result<(), InvalidDriver> {
    if is_name(name) { Ok(()) } else { Err(InvalidDriver::Name(name.to_owned())) }
}

/// Names stand in paths, so nothing that leads elsewhere is one.
pub(crate) fn is_name(name: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric();
    let is_inner = |byte: u8| is_letter(byte) || matches!(byte, b'-' | b'.');
    let ends = name.bytes().next().is_some_and(is_letter) && name.bytes().last().is_some_and(is_letter);
    ends && name.len() <= NAME_MAX && name.bytes().all(is_inner) && !name.contains("..")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(name: &str, versions: &[&str]) -> PluginInfo {
        let supported_versions = versions.iter().map(|version| version.to_string()).collect();
        PluginInfo { r#type: "CSIPlugin".into(), name: name.into(), endpoint: String::new(), supported_versions }
    }

    #[tokio::test]
    async fn names_belong_to_who_came_first() {
        let drivers = Drivers::new(crate::fake_api::FakeApi::new().client(), "n1");
        let by = |socket: &str, number| Registrant { socket: socket.into(), number };
        let (first, second) = (by("/r/a.sock", 1), by("/r/b.sock", 2));
        assert!(drivers.note(&info("d.example", &["1.0.0"]), &first).is_ok());
        let refused = drivers.note(&info("d.example", &["1.0.0"]), &second).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "kubernetes.io/csi: ValidatePlugin for CSI driver \"d.example\" failed. Another driver with the same name is already registered with a higher supported version: \"1.0.0\""
        );
        assert_eq!(drivers.get("d.example").unwrap().socket(), first.socket);
        let restarted = by("/r/a.sock", 3);
        assert!(drivers.note(&info("d.example", &["1.0.0"]), &restarted).is_ok(), "the same driver, restarted");
        assert!(!drivers.forget(&first), "its earlier socket takes nothing from it");
        assert!(drivers.note(&info("d.example", &["1.1.0"]), &second).is_ok(), "a newer one takes over, as upstream");
        assert!(!drivers.forget(&restarted), "the earlier one has nothing left to lose");
        assert!(drivers.forget(&second));
        assert!(drivers.get("d.example").is_none());
    }

    #[test]
    fn names_that_lead_elsewhere_are_none() {
        for good in ["hostpath.csi.k8s.io", "a", "A-1.b"] {
            assert!(check_name(good).is_ok(), "{good}");
        }
        for bad in ["", "..", "a/b", "../a", "a..b", ".a", "a-", &"a".repeat(64), "a b"] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
    }
}
