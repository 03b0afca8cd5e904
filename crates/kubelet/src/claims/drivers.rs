//! The drivers of claimed devices that have registered, and the end of what those offered that went.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use devices::{Driver, Version};
use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::health::{Following, Healths};
use crate::drivers::Registrant;
use crate::node::Seen;

/// A driver that is being replaced comes back within this, as upstream believes.
const WIPE_AFTER: Duration = Duration::from_secs(30);
const WIPE_RETRY: Duration = Duration::from_secs(1);
const WIPE_RETRY_MAX: Duration = Duration::from_secs(5 * 60);
/// While one is being replaced there are two of a driver; more are nobody's plan.
const OF_A_DRIVER_MAX: usize = 16;

/// Why a driver is not registered, in upstream's words.
#[derive(Debug, thiserror::Error)]
pub enum RegisterError {
    #[error(
        "invalid supported gRPC versions of DRA driver plugin {name} at endpoint {endpoint}: empty list of supported gRPC services (aka supported versions)"
    )]
    NoServices { name: String, endpoint: String },
    #[error(
        "invalid supported gRPC versions of DRA driver plugin {name} at endpoint {endpoint}: none of services supported by the plugin ({services:?}) are supported by the kubelet ([\"v1.DRAPlugin\" \"v1beta1.DRAPlugin\"])"
    )]
    Services { name: String, endpoint: String, services: Vec<String> },
    #[error("endpoint {endpoint} already registered for DRA driver plugin {name}")]
    Taken { name: String, endpoint: String },
    #[error("DRA driver name {0:?} is not a DNS name of at most 63 characters")]
    Name(String),
    #[error("endpoint {0} is not an absolute path")]
    Relative(String),
    #[error("there are {OF_A_DRIVER_MAX} plugins of DRA driver {0} already")]
    TooMany(String),
}

struct Registered {
    by: Registrant,
    driver: Driver,
    _health: Following,
}

pub(super) struct Drivers {
    client: kube::Client,
    node_name: String,
    /// In the order in which they came; the newest is asked.
    registered: Mutex<BTreeMap<String, Vec<Registered>>>,
    wiping: Mutex<BTreeMap<String, AbortOnDropHandle<()>>>,
    healths: Arc<Healths>,
}

impl Drivers {
    pub fn new(client: kube::Client, node_name: &str, healths: Arc<Healths>) -> Drivers {
        let node_name = node_name.to_owned();
        Drivers { client, node_name, registered: Mutex::default(), wiping: Mutex::default(), healths }
    }

    pub fn get(&self, name: &str) -> Option<Driver> {
        self.registered.lock().get(name)?.last().map(|registered| registered.driver.clone())
    }

    pub fn names(&self) -> Vec<String> {
        self.registered.lock().keys().cloned().collect()
    }

    pub fn register(
        &self,
        name: &str,
        services: &[String],
        endpoint: &Path,
        by: &Registrant,
    ) -> Result<(), RegisterError> {
        let driver = checked(name, services, endpoint)?;
        let mut registered = self.registered.lock();
        let all = registered.entry(name.to_owned()).or_default();
        // The same plugin, restarted, has the same registration socket; another cannot take its place.
        all.retain(|other| other.by.socket != by.socket);
        if all.iter().any(|other| other.driver.socket() == endpoint) {
            return Err(RegisterError::Taken { name: name.to_owned(), endpoint: endpoint.display().to_string() });
        }
        if all.len() >= OF_A_DRIVER_MAX {
            return Err(RegisterError::TooMany(name.to_owned()));
        }
        let health = self.healths.follow(name, driver.clone());
        all.push(Registered { by: by.clone(), driver, _health: health });
        self.wiping.lock().remove(name);
        Ok(())
    }

    /// The plugin's socket is gone. What its driver offered goes too, unless another is there or comes in time.
    pub fn unregister(self: &Arc<Drivers>, name: &str, by: &Registrant) {
        let mut registered = self.registered.lock();
        let Some(all) = registered.get_mut(name) else { return };
        let before = all.len();
        all.retain(|other| other.by != *by);
        if all.len() == before || !all.is_empty() {
            return;
        }
        registered.remove(name);
        let (drivers, driver) = (self.clone(), name.to_owned());
        let wiping = component_base::tasks::spawn(async move {
            tokio::time::sleep(WIPE_AFTER).await;
            drivers.wipe(Some(&driver)).await;
        });
        self.wiping.lock().insert(name.to_owned(), AbortOnDropHandle::new(wiping));
    }

    /// When a kubelet starts no driver has registered: nothing is offered until they come back and offer it again.
    pub(crate) async fn wipe_all(&self, mut node: watch::Receiver<Seen>) {
        // Its sender lives as long as the kubelet.
        let _ = node.wait_for(|seen| matches!(seen, Seen::Here(_))).await;
        self.wipe(None).await;
    }

    async fn wipe(&self, driver: Option<&str>) {
        let mut selector = format!("spec.nodeName={}", self.node_name);
        if let Some(driver) = driver {
            selector.push_str(&format!(",spec.driver={driver}"));
        }
        let slices: Api<ResourceSlice> = Api::all(self.client.clone());
        let mut wait = WIPE_RETRY;
        loop {
            let wiped =
                slices.delete_collection(&DeleteParams::default(), &ListParams::default().fields(&selector)).await;
            match wiped {
                Ok(_) => return,
                Err(error) if reconcile::is_not_found(&error) => return,
                Err(error) => tracing::warn!(%error, selector, "cannot delete ResourceSlices; retrying"),
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(WIPE_RETRY_MAX);
        }
    }
}

fn checked(name: &str, services: &[String], endpoint: &Path) -> Result<Driver, RegisterError> {
    if !crate::drivers::is_name(name) {
        return Err(RegisterError::Name(name.to_owned()));
    }
    let (name, shown) = (name.to_owned(), endpoint.display().to_string());
    if !endpoint.is_absolute() {
        return Err(RegisterError::Relative(shown));
    }
    if services.is_empty() {
        return Err(RegisterError::NoServices { name, endpoint: shown });
    }
    let version = Version::choose(services);
    let version =
        version.ok_or_else(|| RegisterError::Services { name, endpoint: shown, services: services.to_vec() })?;
    Ok(Driver::new(endpoint, version))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_newest_plugin_is_asked() {
        let healths = Arc::new(Healths::new(Arc::default(), Arc::default()));
        let drivers = Arc::new(Drivers::new(crate::fake_api::FakeApi::new().client(), "n1", healths));
        let by = |socket: &str, number| Registrant { socket: socket.into(), number };
        let register = |endpoint: &str, by: &Registrant| {
            let services = ["v1.DRAPlugin".to_owned()];
            drivers.register("d.test", &services, Path::new(endpoint), by).map_err(|error| error.to_string())
        };
        let (first, second) = (by("/r/a.sock", 1), by("/r/b.sock", 2));
        register("/p/a.sock", &first).unwrap();
        let taken = register("/p/a.sock", &second).unwrap_err();
        assert_eq!(taken, "endpoint /p/a.sock already registered for DRA driver plugin d.test");
        register("/p/b.sock", &second).unwrap();
        assert_eq!(drivers.get("d.test").unwrap().socket(), Path::new("/p/b.sock"));
        drivers.unregister("d.test", &second);
        assert_eq!(drivers.get("d.test").unwrap().socket(), Path::new("/p/a.sock"));
        register("/p/a.sock", &by("/r/a.sock", 3)).unwrap();
        drivers.unregister("d.test", &first);
        assert!(drivers.get("d.test").is_some(), "its earlier socket takes nothing from it");
        assert!(drivers.wiping.lock().is_empty());
        drivers.unregister("d.test", &by("/r/a.sock", 3));
        assert!(drivers.get("d.test").is_none() && drivers.wiping.lock().contains_key("d.test"));
        register("/p/a.sock", &first).unwrap();
        assert!(drivers.wiping.lock().is_empty(), "it is back in time");
    }

    #[test]
    fn those_who_lie_are_refused() {
        let check = |name: &str, services: &[&str], endpoint: &str, expected: &str| {
            let services: Vec<String> = services.iter().map(|service| service.to_string()).collect();
            let error = checked(name, &services, Path::new(endpoint)).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        };
        check("../x", &["v1.DRAPlugin"], "/p", "is not a DNS name");
        check("d.test", &["v1.DRAPlugin"], "p.sock", "is not an absolute path");
        check("d.test", &[], "/p", "empty list of supported gRPC services");
        check("d.test", &["v9.DRAPlugin"], "/p", "none of services supported by the plugin ([\"v9.DRAPlugin\"])");
    }
}
