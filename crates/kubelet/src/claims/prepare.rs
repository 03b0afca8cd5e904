//! Asks drivers to prepare what a pod has claimed, and to take it back after the last pod that uses it.

use std::collections::BTreeMap;
use std::sync::Arc;

use devices::Driver;
use devices::dra::v1;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::Api;
use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;

use super::Claims;
use super::metrics::Operation;
use super::names::{self, ClaimError};
use super::state::{Claim, Key};
use crate::objects::in_words;
use crate::pod::spec;

/// Why a pod's claims are not prepared, or not taken back. The words are upstream's.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    #[error(transparent)]
    Claim(#[from] ClaimError),
    #[error("fetch ResourceClaim {claim}: {}", in_words(.source))]
    Fetch {
        claim: String,
        #[source]
        source: Box<kube::Error>,
    },
    #[error("DRA driver {0} is not registered")]
    NoDriver(String),
    #[error(
        "old ResourceClaim with same name {claim} and different UID {uid} still exists (previous pod force-deleted?!)"
    )]
    Replaced { claim: String, uid: String },
    #[error("checkpoint ResourceClaim state: {0}")]
    Checkpoint(#[from] std::io::Error),
    #[error("{call}: {source}")]
    Call {
        call: Call,
        #[source]
        source: devices::Error,
    },
    #[error("{call} returned result for unknown claim UID {uid}")]
    UnknownClaim { call: Call, uid: String },
    #[error("{call} failed for ResourceClaim {claim}: {message}")]
    Failed { call: Call, claim: String, message: String },
    #[error("{call} skipped {count} ResourceClaims")]
    Skipped { call: Call, count: usize },
}

#[derive(Clone, Copy, Debug)]
pub enum Call {
    NodePrepareResources,
    NodeUnprepareResources,
}

impl std::fmt::Display for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self:?}")
    }
}

/// Claims by the driver that is to be asked about them.
type Batches = BTreeMap<String, Vec<v1::Claim>>;

impl Claims {
    /// Before the pod's sandbox is made. Nothing is noted unless all is as it should be, so that a pod that never came so far can go.
    pub(crate) async fn prepare(&self, pod: &Pod) -> Result<(), PrepareError> {
        let began = Instant::now();
        let prepared = self.prepare_all(pod).await;
        self.metrics.operation(Operation::PrepareResources, prepared.is_err(), began.elapsed());
        prepared
    }

    async fn prepare_all(&self, pod: &Pod) -> Result<(), PrepareError> {
        let mut wanted = Vec::new();
        for named in names::of_pod(pod)? {
            let api: Api<ResourceClaim> = Api::namespaced(self.client.clone(), spec::namespace(pod));
            let fetched = api.get(&named.name).await;
            let claim =
                fetched.map_err(|error| PrepareError::Fetch { claim: named.name.clone(), source: Box::new(error) })?;
            let drivers = names::drivers(pod, &named, &claim)?;
            for driver in &drivers {
                self.driver(driver)?;
            }
            let uid = claim.metadata.uid.as_deref().unwrap_or_default();
            wanted.push(Claim::new(spec::namespace(pod), &named.name, uid, &drivers));
        }
        if wanted.is_empty() {
            return Ok(());
        }
        let _busy = self.lock(wanted.iter().map(Claim::key).collect()).await;
        let batches = self.note(spec::uid(pod), &wanted)?;
        for (driver, claims) in &batches {
            self.prepare_batch(driver, claims).await?;
        }
        for claim in &wanted {
            if let Some(known) = self.known.lock().get_mut(&claim.key()) {
                known.prepared = true;
            }
        }
        Ok(self.save()?)
    }

    /// On disk before anybody is asked. Those that are prepared already need no more.
    fn note(&self, pod: &str, wanted: &[Claim]) -> Result<Batches, PrepareError> {
        let mut batches = Batches::new();
        {
            let mut known = self.known.lock();
            for claim in wanted {
                let replaced = known.get(&claim.key()).filter(|other| other.uid != claim.uid);
                if let Some(other) = replaced {
                    return Err(PrepareError::Replaced { claim: claim.name.clone(), uid: other.uid.clone() });
                }
            }
            for claim in wanted {
                let entry = known.entry(claim.key()).or_insert_with(|| claim.clone());
                entry.add_pod(pod);
                if entry.prepared {
                    continue;
                }
                for driver in entry.drivers.keys() {
                    batches.entry(driver.clone()).or_default().push(entry.as_asked());
                }
            }
        }
        self.save()?;
        Ok(batches)
    }

    async fn prepare_batch(&self, name: &str, claims: &[v1::Claim]) -> Result<(), PrepareError> {
        let call = Call::NodePrepareResources;
        let (driver, began) = (self.driver(name)?, Instant::now());
        let asked = driver.prepare(claims.to_vec()).await;
        self.metrics.call(name, driver.method(&call.to_string()), code_of(&asked), began.elapsed());
        let answers = asked.map_err(|source| PrepareError::Call { call, source })?;
        let count = answers.len();
        for (uid, answer) in answers {
            let claim = checked(call, claims, uid, &answer.error)?;
            let key = (claim.namespace.clone(), claim.name.clone());
            if let Some(known) = self.known.lock().get_mut(&key) {
                known.set_devices(name, answer.devices);
            }
        }
        complete(call, claims, count)
    }

    /// After the pod's last container. It may be asked again and again.
    pub(crate) async fn unprepare(&self, pod: &str) -> Result<(), PrepareError> {
        let began = Instant::now();
        let taken_back = self.unprepare_all(pod).await;
        self.metrics.operation(Operation::UnprepareResources, taken_back.is_err(), began.elapsed());
        taken_back
    }

    async fn unprepare_all(&self, pod: &str) -> Result<(), PrepareError> {
        let of_pod = |known: &BTreeMap<Key, Claim>| -> Vec<Key> {
            known.values().filter(|claim| claim.is_of(pod)).map(Claim::key).collect()
        };
        let keys = of_pod(&self.known.lock());
        if keys.is_empty() {
            return Ok(());
        }
        let _busy = self.lock(keys.clone()).await;
        let mut batches = Batches::new();
        let mut last = Vec::new();
        for key in keys {
            let mut known = self.known.lock();
            let Some(claim) = known.get_mut(&key).filter(|claim| claim.is_of(pod)) else { continue };
            if claim.pods().count() > 1 {
                claim.remove_pod(pod);
                continue;
            }
            for driver in claim.drivers.keys() {
                batches.entry(driver.clone()).or_default().push(claim.as_asked());
            }
            // Whoever comes next must have it prepared again, also if this is not finished.
            claim.prepared = false;
            last.push(key);
        }
        for (driver, claims) in &batches {
            self.unprepare_batch(driver, claims).await?;
        }
        {
            let mut known = self.known.lock();
            let mut busy = self.busy.lock();
            for key in &last {
                known.remove(key);
                // One is the map's and one ours; whoever waits for it has another.
                if busy.get(key).is_some_and(|lock| Arc::strong_count(lock) <= 2) {
                    busy.remove(key);
                }
            }
        }
        Ok(self.save()?)
    }

    async fn unprepare_batch(&self, name: &str, claims: &[v1::Claim]) -> Result<(), PrepareError> {
        let call = Call::NodeUnprepareResources;
        let (driver, began) = (self.driver(name)?, Instant::now());
        let asked = driver.unprepare(claims.to_vec()).await;
        self.metrics.call(name, driver.method(&call.to_string()), code_of(&asked), began.elapsed());
        let answers = asked.map_err(|source| PrepareError::Call { call, source })?;
        let count = answers.len();
        for (uid, answer) in answers {
            checked(call, claims, uid, &answer.error)?;
        }
        complete(call, claims, count)
    }

    fn driver(&self, name: &str) -> Result<Driver, PrepareError> {
        self.drivers.get(name).ok_or_else(|| PrepareError::NoDriver(name.to_owned()))
    }

    /// In one order for everybody, so that nobody waits for who waits for him.
    async fn lock(&self, mut keys: Vec<Key>) -> Vec<OwnedMutexGuard<()>> {
        keys.sort();
        keys.dedup();
        let mut held = Vec::new();
        for key in keys {
            let lock: Arc<tokio::sync::Mutex<()>> = self.busy.lock().entry(key).or_default().clone();
            held.push(lock.lock_owned().await);
        }
        held
    }
}

fn code_of<T>(answer: &devices::Result<T>) -> String {
    answer.as_ref().err().map_or_else(|| "OK".to_owned(), devices::Error::code_name)
}

/// Which of the claims an answer is about.
fn checked<'a>(call: Call, claims: &'a [v1::Claim], uid: String, error: &str) -> Result<&'a v1::Claim, PrepareError> {
    let Some(claim) = claims.iter().find(|claim| claim.uid == uid) else {
        return Err(PrepareError::UnknownClaim { call, uid });
    };
    match error {
        "" => Ok(claim),
        message => Err(PrepareError::Failed { call, claim: claim.name.clone(), message: message.to_owned() }),
    }
}

fn complete(call: Call, claims: &[v1::Claim], answered: usize) -> Result<(), PrepareError> {
    match claims.len().saturating_sub(answered) {
        0 => Ok(()),
        count => Err(PrepareError::Skipped { call, count }),
    }
}
