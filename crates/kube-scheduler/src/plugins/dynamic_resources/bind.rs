//! Writes what was chosen for a pod's claims, waits until the devices are ready for it, and takes it back when the pod is not bound after
//! all.

use std::sync::OnceLock;
use std::time::Duration;

use k8s_openapi::api::resource::v1::{AllocationResult, ResourceClaim};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Api;
use kube::api::{DeleteParams, PostParams, Preconditions};
use reconcile::{Clock, Key, reason};
use serde_json::json;
use tokio::time::Instant;

use super::conditions::{self, NotReady};
use super::{FINALIZER, user};
use crate::framework::{DeviceClaim, DeviceClaimState, Reservation};
use crate::objects::Objects;
use crate::pod_info::PodInfo;
use crate::writes::{patch_status, said};

/// Somebody else may write a claim at the same time; so often it is read and written again.
const TRIES_MAX: usize = 10;

/// Why the pod is not bound after all. The texts are those of upstream's PreBind.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    #[error("{step} claim {claim}: {}", said(.source))]
    Api { step: Step, claim: Key, source: Box<kube::Error> },
    #[error("create claim for extended resources {namespace}/: {}", said(.source))]
    Create { namespace: String, source: Box<kube::Error> },
    #[error("update pod {pod} ExtendedResourceClaimStatus: {}", said(.source))]
    Status { pod: Key, source: Box<kube::Error> },
    #[error("claim {0} got deleted in the meantime")]
    Deleted(Key),
    #[error("claim {0} got allocated elsewhere in the meantime")]
    Allocated(Key),
    #[error("claim {0} got deallocated elsewhere in the meantime")]
    Deallocated(Key),
    #[error("claim {0} is written by others all the time")]
    Conflicts(Key),
    #[error("timed out waiting for the condition")]
    TimedOut,
    #[error(transparent)]
    NotReady(#[from] NotReady),
}

/// What was done with a claim.
#[derive(Clone, Copy, Debug, thiserror::Error)]
pub enum Step {
    #[error("get")]
    Get,
    #[error("add finalizer to")]
    Finalizer,
    #[error("add allocation and reservation to")]
    Allocate,
    #[error("add reservation to")]
    Reserve,
}

/// How a pod waited for its devices, as the metrics count it.
#[derive(Debug, PartialEq)]
pub struct Waited {
    pub status: &'static str,
    pub took: Duration,
    /// The driver of each device, and whether that device had conditions.
    pub devices: Vec<(String, bool)>,
}

/// Writes the claims of one pod.
pub struct Binder<'a> {
    pub client: &'a kube::Client,
    pub objects: &'a Objects,
    pub pod: &'a PodInfo,
    pub clock: &'a Clock,
    /// The claim that was created for the pod's extended resources.
    pub created: OnceLock<Key>,
}

impl Binder<'_> {
    /// Each claim gets its devices and the pod as their user; then waits until the copy knows.
    pub async fn bind(&self, reservation: &Reservation, timeout: Duration) -> Result<(), BindError> {
        let mut written = Vec::new();
        for claimed in &reservation.devices {
            let DeviceClaimState::Uncreated(mappings) = &claimed.state else {
                let key = Key::of(&claimed.claim.metadata);
                let revision = self.write(&key, claimed).await?;
                written.push((key, revision));
                continue;
            };
            let (key, created) = self.create(&claimed.claim).await?;
            let revision = self.write(&key, &created).await?;
            let status = json!({"requestMappings": mappings, "resourceClaimName": key.name});
            let status = json!({"extendedResourceClaimStatus": status});
            let patched = patch_status(self.client, self.pod, &status).await;
            patched.map_err(|source| BindError::Status { pod: self.pod.key.clone(), source: Box::new(source) })?;
            written.push((key, revision));
        }
        // As long as the copy shows a claim without its devices, others would take them for free.
        let mut changes = self.objects.device_claims.changes();
        let seen = async {
            loop {
                changes.mark_unchanged();
                let is_seen = |(key, written): &(Key, u64)| {
                    let known = self.objects.device_claims.get(key);
                    // A claim that is not known is gone, or still to come.
                    known.map_or(self.created.get() != Some(key), |one| revision(&one) >= *written)
                };
                if written.iter().all(is_seen) {
                    return;
                }
                // The sender lives as long as the cache.
                let _ = changes.changed().await;
            }
        };
        tokio::time::timeout(timeout, seen).await.map_err(|_| BindError::TimedOut)
    }

    /// Makes the claim, and answers with what it is to get.
    async fn create(&self, wanted: &ResourceClaim) -> Result<(Key, DeviceClaim), BindError> {
        let namespace = self.pod.key.namespace.clone();
        let claims: Api<ResourceClaim> = Api::namespaced(self.client.clone(), &namespace);
        let bare = ResourceClaim { status: None, ..wanted.clone() };
        let created = claims.create(&PostParams::default(), &bare).await;
        let mut created = created.map_err(|source| BindError::Create { namespace, source: Box::new(source) })?;
        let key = Key::of(&created.metadata);
        // A binder binds one pod once, which has at most one such claim.
        let _ = self.created.set(key.clone());
        created.status.clone_from(&wanted.status);
        Ok((key, DeviceClaim { claim: created.into(), state: DeviceClaimState::Chosen }))
    }

    /// The claims of the pod that exist.
    fn keys(&self, reservation: &Reservation) -> Vec<Key> {
        let keys = reservation.devices.iter().filter_map(|one| match one.state {
            DeviceClaimState::Uncreated(_) => self.created.get().cloned(),
            DeviceClaimState::Allocated | DeviceClaimState::Chosen => Some(Key::of(&one.claim.metadata)),
        });
        keys.collect()
    }

    async fn write(&self, key: &Key, claimed: &DeviceClaim) -> Result<u64, BindError> {
        let claims: Api<ResourceClaim> = Api::namespaced(self.client.clone(), &key.namespace);
        let parameters = PostParams::default();
        let failed = |step| move |error| BindError::Api { step, claim: key.clone(), source: Box::new(error) };
        for _ in 0..TRIES_MAX {
            let mut current = claims.get(&key.name).await.map_err(failed(Step::Get))?;
            let same = current.metadata.uid == claimed.claim.metadata.uid;
            if !same || current.metadata.deletion_timestamp.is_some() {
                return Err(BindError::Deleted(key.clone()));
            }
            let stored = current.status.as_ref().and_then(|status| status.allocation.as_ref());
            let mut allocation = allocation(key, claimed, stored)?;
            if stored.is_none() && !current.metadata.finalizers.iter().flatten().any(|one| one == FINALIZER) {
                current.metadata.finalizers.get_or_insert_default().push(FINALIZER.to_owned());
                match claims.replace(&key.name, &parameters, &current).await {
                    Ok(stored) => current = stored,
                    Err(error) if reason(&error) == "Conflict" => continue,
                    Err(error) => return Err(failed(Step::Finalizer)(error)),
                }
            }
            let is_new = current.status.as_ref().is_none_or(|status| status.allocation.is_none());
            let status = current.status.get_or_insert_default();
            let users = status.reserved_for.get_or_insert_default();
            if users.iter().any(|one| one.uid == self.pod.uid) && !is_new {
                return Ok(revision(&current));
            }
            users.extend((!users.iter().any(|one| one.uid == self.pod.uid)).then(|| user(self.pod)));
            allocation.allocation_timestamp.get_or_insert_with(|| Time(self.clock.now()));
            status.allocation = Some(allocation);
            match claims.replace_status(&key.name, &parameters, &current).await {
                Ok(stored) => return Ok(revision(&stored)),
                Err(error) if reason(&error) == "Conflict" => {}
                Err(error) => return Err(failed(if is_new { Step::Allocate } else { Step::Reserve })(error)),
            }
        }
        Err(BindError::Conflicts(key.clone()))
    }

    /// Waits until all devices are ready for the pod, if any of them has to be made so; says how that went.
    pub(crate) async fn until_ready(
        &self,
        reservation: &Reservation,
        timeout: Duration,
    ) -> (Result<(), NotReady>, Waited) {
        let began = Instant::now();
        let keys = self.keys(reservation);
        let mut changes = self.objects.device_claims.changes();
        let outcome = loop {
            changes.mark_unchanged();
            let pending = match self.first_pending(&keys) {
                Ok(None) => break Ok(()),
                Ok(Some(pending)) => pending,
                Err(error) => break Err(error),
            };
            // The claim may have been allocated for another pod, long before this one.
            let left = conditions::deadline(&pending, timeout).map(|at| at.duration_since(self.clock.now()));
            let left = left.map_or(timeout, |left| Duration::try_from(left).unwrap_or_default());
            let left = left.min(timeout.saturating_sub(began.elapsed()));
            if tokio::time::timeout(left, changes.changed()).await.is_err() {
                break Err(NotReady::TimedOut { claim: conditions::name(&pending) });
            }
        };
        let claims: Vec<_> = keys.iter().filter_map(|key| self.objects.device_claims.get(key)).collect();
        let results = claims.iter().flat_map(|claim| conditions::results(claim));
        let devices = results.map(|result| (result.driver.clone(), conditions::is_conditional(result)));
        let status = outcome.as_ref().err().map_or("success", NotReady::status);
        let waited = Waited { status, took: began.elapsed(), devices: devices.collect() };
        (outcome, waited)
    }

    fn first_pending(&self, keys: &[Key]) -> Result<Option<std::sync::Arc<ResourceClaim>>, NotReady> {
        for key in keys {
            let claim = self.objects.device_claims.get(key).ok_or_else(|| NotReady::Gone(key.name.clone()))?;
            if !conditions::is_ready(&claim)? {
                return Ok(Some(claim));
            }
        }
        Ok(None)
    }

    /// The pod uses the claims no longer. What stays allocated is freed when it gets in somebody's way.
    pub(crate) async fn unreserve(&self, reservation: &Reservation) {
        for key in self.keys(reservation) {
            if self.created.get() == Some(&key) {
                if let Err(error) = delete(self.client, &key).await {
                    // The next decision about the pod finds it, and tries again.
                    tracing::warn!(claim = %key, %error, "cannot delete ResourceClaim for extended resources");
                }
                continue;
            }
            let api: Api<ResourceClaim> = Api::namespaced(self.client.clone(), &key.namespace);
            let Ok(mut current) = api.get(&key.name).await else { continue };
            let Some(users) = current.status.as_mut().and_then(|status| status.reserved_for.as_mut()) else { continue };
            let before = users.len();
            users.retain(|user| user.uid != self.pod.uid);
            if users.len() == before {
                continue;
            }
            if let Err(error) = api.replace_status(&key.name, &PostParams::default(), &current).await {
                // The pod is tried again and finds itself among the users, which does no harm.
                tracing::debug!(claim = %key, %error, "cannot remove reservation of ResourceClaim");
            }
        }
    }
}

/// Whether a claim of the reservation has devices that must be made ready.
pub(crate) fn has_conditions(reservation: &Reservation) -> bool {
    reservation.devices.iter().any(|one| conditions::has_conditions(&one.claim))
}

/// What the claim gets, or has.
fn allocation(
    key: &Key,
    claimed: &DeviceClaim,
    stored: Option<&AllocationResult>,
) -> Result<AllocationResult, BindError> {
    let wanted = claimed.claim.status.as_ref().and_then(|status| status.allocation.as_ref());
    match (stored, wanted, &claimed.state) {
        (Some(stored), _, DeviceClaimState::Allocated) => Ok(stored.clone()),
        // Another pod of the same decision may have written it first.
        (Some(stored), Some(wanted), DeviceClaimState::Chosen) if stored.devices == wanted.devices => {
            Ok(stored.clone())
        }
        (Some(_), ..) => Err(BindError::Allocated(key.clone())),
        (None, Some(wanted), DeviceClaimState::Chosen) => Ok(wanted.clone()),
        (None, ..) => Err(BindError::Deallocated(key.clone())),
    }
}

/// Takes a claim's devices away, if it is still as it was seen.
pub async fn free(client: &kube::Client, claim: &ResourceClaim) -> Result<(), kube::Error> {
    let mut claim = claim.clone();
    let status = claim.status.get_or_insert_default();
    (status.allocation, status.reserved_for, status.devices) = (None, None, None);
    let key = Key::of(&claim.metadata);
    let api: Api<ResourceClaim> = Api::namespaced(client.clone(), &key.namespace);
    api.replace_status(&key.name, &PostParams::default(), &claim).await.map(|_| ())
}

/// Deletes a claim that was made for the extended resources of a pod, with what keeps it.
pub(crate) async fn delete(client: &kube::Client, key: &Key) -> Result<(), kube::Error> {
    let api: Api<ResourceClaim> = Api::namespaced(client.clone(), &key.namespace);
    for _ in 0..TRIES_MAX {
        let Some(mut claim) = api.get_opt(&key.name).await? else { return Ok(()) };
        claim.metadata.finalizers.get_or_insert_default().retain(|one| one != FINALIZER);
        match api.replace(&key.name, &PostParams::default(), &claim).await {
            Ok(_) => {}
            Err(error) if reason(&error) == "Conflict" => continue,
            Err(error) if reason(&error) == "NotFound" => return Ok(()),
            Err(error) => return Err(error),
        }
        let same = Preconditions { uid: claim.metadata.uid.clone(), resource_version: None };
        let parameters = DeleteParams { preconditions: Some(same), ..DeleteParams::default() };
        return match api.delete(&key.name, &parameters).await {
            Err(error) if reason(&error) != "NotFound" => Err(error),
            _ => Ok(()),
        };
    }
    tracing::warn!(claim = %key, tries = TRIES_MAX, "cannot delete ResourceClaim: others write it all the time");
    Ok(())
}

fn revision(claim: &ResourceClaim) -> u64 {
    claim.metadata.resource_version.as_deref().and_then(|version| version.parse().ok()).unwrap_or(0)
}
