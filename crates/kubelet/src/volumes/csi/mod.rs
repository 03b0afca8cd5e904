//! Volumes of storage drivers: staged once on the node, published for each pod that uses them, and both taken back.
//!
//! What is about to be asked of a driver is written down first (`record`), so that a kubelet that is killed at any step finds out what
//! may have happened, and a step that is known to be done is not done again. A pod's record is the first thing written and the last one
//! removed: as long as it is there, the volume counts as used on this node.

mod error;
mod wanted;
mod capability;
mod place;
mod record;
mod attach;
mod context;
mod selinux;
mod show;
mod take_down;
mod expand;
mod statistics;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::{Arc, Weak};

use component_base::Clock;
use futures::FutureExt;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use parking_lot::Mutex;

use super::{Problem, Request, Type, Volume};
use crate::drivers::Drivers;
use crate::node::Health;
use error::Error;
use place::Places;
use statistics::Shown;
use wanted::Wanted;

pub use statistics::{Amount, Amounts, Measured};

/// Inline volumes of a pod, which live and die with it.
pub(super) static TYPE: Type = Type {
    is: |volume| volume.csi.is_some(),
    mount: |request| {
        async move { show::show(request, &Wanted::inline(request.pod, request.volume), None).await }.boxed()
    },
};

/// The volume of a claim.
pub(super) async fn mount(
    request: Request<'_>,
    volume: &PersistentVolume,
    claim: &PersistentVolumeClaim,
    read_only: bool,
) -> Result<Volume, Problem> {
    show::show(request, &Wanted::persistent(volume, read_only), Some(claim)).await
}

/// How often a driver that wants it is told to publish again what is published, as upstream's kubelet looks at each pod.
const REPUBLISH_EVERY: SignedDuration = SignedDuration::from_secs(90);

/// What all volumes of drivers share.
pub(super) struct Csi {
    drivers: Arc<Drivers>,
    health: Arc<Health>,
    places: Places,
    boot_id: String,
    /// One operation at a time for each volume, by driver and handle. A driver that hangs delays only who uses the same volume.
    locks: Mutex<HashMap<String, Weak<tokio::sync::Mutex<()>>>>,
    /// Which pods use which attached volume, by the volume's name in the Node's status.
    in_use: Mutex<BTreeMap<String, BTreeSet<String>>>,
    /// The volumes that pods have, by uid and name.
    shown: Mutex<HashMap<String, BTreeMap<String, Shown>>>,
    /// When volumes of a pod are to be looked at again: published anew, or expanded.
    look_again: Mutex<HashMap<String, Timestamp>>,
    clock: Clock,
}

impl Csi {
    pub fn new(drivers: Arc<Drivers>, health: Arc<Health>, root: &Path, root_of_drivers: &Path, clock: Clock) -> Csi {
        let places = Places::new(root, root_of_drivers);
        let csi = Csi {
            drivers,
            health,
            boot_id: crate::node::machine::read().boot_id,
            locks: Mutex::default(),
            in_use: Mutex::default(),
            shown: Mutex::default(),
            look_again: Mutex::default(),
            places,
            clock,
        };
        csi.remember_uses();
        csi
    }

    /// What was in use when the kubelet last ran is so still.
    fn remember_uses(&self) {
        let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (uid, _, record) in self.places.records() {
            if record.is_attached() {
                found.entry(unique_name(record.driver(), record.handle())).or_default().insert(uid);
            }
        }
        *self.in_use.lock() = found;
        self.tell_uses();
    }

    fn uses(&self, volume: String, uid: &str) {
        self.in_use.lock().entry(volume).or_default().insert(uid.to_owned());
        self.tell_uses();
    }

    /// The pod uses none of these any more; with no name, none at all.
    fn uses_no_more(&self, volume: Option<&str>, uid: &str) {
        self.in_use.lock().retain(|name, users| {
            if volume.is_none_or(|volume| volume == name) {
                users.remove(uid);
            }
            !users.is_empty()
        });
        self.tell_uses();
    }

    fn tell_uses(&self) {
        self.health.set_volumes_in_use(self.in_use.lock().keys().cloned().collect());
    }

    fn lock(&self, volume: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut locks = self.locks.lock();
        locks.retain(|_, lock| lock.strong_count() > 0);
        if let Some(lock) = locks.get(volume).and_then(Weak::upgrade) {
            return lock;
        }
        let lock = Arc::new(tokio::sync::Mutex::new(()));
        locks.insert(volume.to_owned(), Arc::downgrade(&lock));
        lock
    }

    pub(crate) fn next_refresh(&self, uid: &str) -> Option<Timestamp> {
        self.look_again.lock().get(uid).copied()
    }

    fn look_again_in(&self, uid: &str, time: SignedDuration) {
        self.look_again.lock().insert(uid.to_owned(), self.clock.now() + time);
    }
}

/// What a volume is called in the Node's status.
fn unique_name(driver: &str, handle: &str) -> String {
    format!("kubernetes.io/csi/{driver}^{handle}")
}

fn no_driver(step: &'static str, driver: &str) -> Error {
    Error::NoDriver { step, driver: driver.to_owned() }
}
