//! Devices that pods have claimed (dynamic resource allocation): drivers register, prepare what the scheduler has given a pod before its
//! sandbox is made, and hear when its last pod has ended. What is about to be asked of them is on disk first, so that nothing is
//! forgotten, whoever is killed when.

mod names;
mod state;
mod health;
mod metrics;
mod drivers;
mod prepare;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Pod, ResourceHealth, ResourceStatus};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::drivers::Registrant;
use crate::node::Seen;
use crate::pod::spec;
use crate::pods::Pods;
use drivers::Drivers;
use health::Healths;
use state::{Claim, Key};

pub use drivers::RegisterError;
pub use names::ClaimError;
pub use prepare::PrepareError;

pub struct Claims {
    client: kube::Client,
    folder: PathBuf,
    drivers: Arc<Drivers>,
    known: Arc<Mutex<BTreeMap<Key, Claim>>>,
    healths: Arc<Healths>,
    metrics: metrics::Metrics,
    /// One at a time prepares or takes back a claim, so that a pod that comes and one that goes do not undo each other's work.
    busy: Mutex<BTreeMap<Key, Arc<tokio::sync::Mutex<()>>>>,
    /// One at a time writes the file, and what is written later is newer.
    writing: Mutex<()>,
}

/// A claimed device of a container, as others ask for it.
pub(crate) struct Claimed {
    pub namespace: String,
    pub claim: String,
    pub devices: Vec<ClaimedDevice>,
}

pub(crate) struct ClaimedDevice {
    pub driver: String,
    pub pool: String,
    pub name: String,
    pub share: Option<String>,
    pub cdi: Vec<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum GetError {
    #[error(transparent)]
    Claim(#[from] ClaimError),
    #[error("internal error: unable to get claim info for ResourceClaim {claim} in namespace {namespace}")]
    Unknown { namespace: String, claim: String },
}

impl Claims {
    /// As the last kubelet left it.
    pub fn new(client: kube::Client, root: &Path, node_name: &str, pods: Arc<Pods>) -> Claims {
        let known = Arc::new(Mutex::new(restore(root)));
        let healths = Arc::new(Healths::new(known.clone(), pods));
        Claims {
            drivers: Arc::new(Drivers::new(client.clone(), node_name, healths.clone())),
            client,
            folder: root.to_owned(),
            known,
            healths,
            metrics: metrics::Metrics::default(),
            busy: Mutex::default(),
            writing: Mutex::default(),
        }
    }

    /// Takes back what drivers offered to an earlier kubelet of this node.
    pub async fn wipe(&self, node: watch::Receiver<Seen>) {
        self.drivers.wipe_all(node).await;
    }

    pub(crate) fn register(
        &self,
        name: &str,
        services: &[String],
        endpoint: &Path,
        by: &Registrant,
    ) -> Result<(), RegisterError> {
        self.drivers.register(name, services, endpoint, by)
    }

    pub(crate) fn unregister(&self, name: &str, by: &Registrant) {
        self.drivers.unregister(name, by);
    }

    /// The same for one that went before its name was known.
    pub(crate) fn unregister_all(&self, by: &Registrant) {
        for name in self.drivers.names() {
            self.drivers.unregister(&name, by);
        }
    }

    /// The CDI names of what a container has claimed.
    pub(crate) fn cdi_of(&self, pod: &Pod, container: &Container) -> Result<Vec<String>, GetError> {
        let known = self.known.lock();
        let mut found: Vec<String> = Vec::new();
        for (name, requests) in names::of_container(pod, container)? {
            let claim = known.get(&(spec::namespace(pod).to_owned(), name.clone()));
            let unknown = || GetError::Unknown { namespace: spec::namespace(pod).to_owned(), claim: name.clone() };
            let claim = claim.ok_or_else(unknown)?;
            for cdi in requests.iter().flat_map(|request| claim.cdi(request)) {
                // Two requests may be for one device, which is given once.
                if !found.contains(cdi) {
                    found.push(cdi.clone());
                }
            }
        }
        Ok(found)
    }

    /// What a container has claimed, for whoever asks.
    pub(crate) fn of_container(&self, pod: &Pod, container: &Container) -> Vec<Claimed> {
        let used = names::of_container(pod, container).unwrap_or_default();
        let known = self.known.lock();
        let claims = used.keys().filter_map(|name| known.get(&(spec::namespace(pod).to_owned(), name.clone())));
        claims.map(|claim| claimed(claim, &used)).collect()
    }

    /// How the devices are that a container has claimed, as its status shows them.
    pub(crate) fn health_of(&self, pod: &Pod, container: &Container) -> Vec<ResourceStatus> {
        let known = self.known.lock();
        let listed = container.resources.iter().flat_map(|resources| resources.claims.iter().flatten());
        let of_claim = |listed: &k8s_openapi::api::core::v1::ResourceClaim| {
            let key = (spec::namespace(pod).to_owned(), names::of_entry(pod, &listed.name)?);
            let request = listed.request.as_deref().unwrap_or_default();
            let resources = self.health_of_claim(known.get(&key)?, request);
            let name = match request {
                "" => format!("claim:{}", listed.name),
                request => format!("claim:{}/{request}", listed.name),
            };
            (!resources.is_empty()).then_some(ResourceStatus { name, resources: Some(resources) })
        };
        listed.filter_map(of_claim).collect()
    }

    fn health_of_claim(&self, claim: &Claim, request: &str) -> Vec<ResourceHealth> {
        let mut shown: Vec<ResourceHealth> = Vec::new();
        for (driver, of_driver) in &claim.drivers {
            for device in of_driver.devices().filter(|device| device.is_for(request)) {
                let by_name = || format!("{driver}/{}/{}", device.pool, device.name);
                let resource_id = device.cdi().next().cloned().unwrap_or_else(by_name);
                // Two devices may stand for one.
                if shown.iter().any(|other| other.resource_id == resource_id) {
                    continue;
                }
                let (health, message) = self.healths.get(driver, &device.pool, &device.name);
                shown.push(ResourceHealth { health: Some(health.as_str().to_owned()), message, resource_id });
            }
        }
        shown
    }

    /// Whether drivers must still hear of this pod's end.
    pub(crate) fn holds(&self, uid: &str) -> bool {
        self.known.lock().values().any(|claim| claim.is_of(uid))
    }

    /// Pods that drivers have prepared something for, as far as is known here.
    pub(crate) fn uids(&self) -> BTreeSet<String> {
        state::pods(&self.known.lock())
    }

    fn save(&self) -> std::io::Result<()> {
        let _writing = self.writing.lock();
        let bytes = state::write(&self.known.lock())?;
        crate::checkpoint::write(&self.folder, state::FILE, &bytes)
    }
}

fn claimed(claim: &Claim, used: &BTreeMap<String, Vec<String>>) -> Claimed {
    let requests = used.get(&claim.name).cloned().unwrap_or_default();
    let devices = claim.drivers.iter().flat_map(|(driver, state)| {
        let own = state.devices().filter(|device| requests.iter().any(|request| device.is_for(request)));
        own.map(|device| ClaimedDevice {
            driver: driver.clone(),
            pool: device.pool.clone(),
            name: device.name.clone(),
            share: device.share.clone(),
            cdi: device.cdi().cloned().collect(),
        })
    });
    Claimed { namespace: claim.namespace.clone(), claim: claim.name.clone(), devices: devices.collect() }
}

/// Without its file nothing is known of what drivers prepared: told, because somebody has to look after the machine then.
fn restore(root: &Path) -> BTreeMap<Key, Claim> {
    let bytes = match crate::checkpoint::read(root, state::FILE) {
        Ok(Some(bytes)) => bytes,
        Ok(None) => return BTreeMap::new(),
        Err(error) => {
            tracing::error!(%error, "cannot read checkpoint of ResourceClaims");
            return BTreeMap::new();
        }
    };
    state::read(&bytes).unwrap_or_else(|error| {
        tracing::error!(%error, "cannot use the checkpoint of claimed devices; drain the node and remove {}", state::FILE);
        BTreeMap::new()
    })
}
