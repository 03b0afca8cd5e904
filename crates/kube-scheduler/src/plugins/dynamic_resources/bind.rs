//! Writes what was chosen for a pod's claims, and takes it back when the pod is not bound after all.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::Api;
use kube::api::PostParams;
use reconcile::{Key, reason};

use super::FINALIZER;
use crate::framework::Reservation;
use crate::objects::Objects;
use crate::pod_info::PodInfo;

/// Somebody else may write a claim at the same time; so often it is read and written again.
const TRIES_MAX: usize = 10;

/// Why the pod is not bound after all.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    #[error("claim {claim}: {source}")]
    Claim { claim: Key, source: ClaimError },
    #[error("timed out waiting for the condition")]
    TimedOut,
}

/// Why a claim was not written.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    #[error("{}", crate::writes::said(.0))]
    Api(#[from] kube::Error),
    #[error("it is another one by now")]
    Other,
    #[error("it got other devices in the meantime")]
    Allocated,
    #[error("it is being deleted")]
    Deleted,
    #[error("it is written by others all the time")]
    Conflicts,
}

/// Each claim gets its devices and the pod as their user; then waits until the copy knows.
pub async fn bind(
    client: &kube::Client,
    objects: &Objects,
    reservation: &Reservation,
    timeout: Duration,
) -> Result<(), BindError> {
    let mut written = Vec::new();
    for claim in &reservation.devices {
        let key = Key::of(&claim.metadata);
        let revision = write(client, &key, claim).await;
        let revision = revision.map_err(|source| BindError::Claim { claim: key.clone(), source })?;
        written.push((key, revision));
    }
    // As long as the copy shows a claim without its devices, others would take them for free.
    let mut changes = objects.device_claims.changes();
    let seen = async {
        loop {
            changes.mark_unchanged();
            let is_seen = |(key, written): &(Key, u64)| {
                objects.device_claims.get(key).is_none_or(|one| revision(&one) >= *written)
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

async fn write(client: &kube::Client, key: &Key, wanted: &ResourceClaim) -> Result<u64, ClaimError> {
    let claims: Api<ResourceClaim> = Api::namespaced(client.clone(), &key.namespace);
    let parameters = PostParams::default();
    for _ in 0..TRIES_MAX {
        let mut current = claims.get(&key.name).await?;
        if current.metadata.uid != wanted.metadata.uid {
            return Err(ClaimError::Other);
        }
        let wanted_status = wanted.status.clone().unwrap_or_default();
        let allocation = current.status.as_ref().and_then(|status| status.allocation.as_ref());
        if allocation.is_some() && allocation != wanted_status.allocation.as_ref() {
            return Err(ClaimError::Allocated);
        }
        if !current.metadata.finalizers.iter().flatten().any(|one| one == FINALIZER) {
            if current.metadata.deletion_timestamp.is_some() {
                return Err(ClaimError::Deleted);
            }
            current.metadata.finalizers.get_or_insert_default().push(FINALIZER.to_owned());
            match claims.replace(&key.name, &parameters, &current).await {
                Ok(stored) => current = stored,
                Err(error) if reason(&error) == "Conflict" => continue,
                Err(error) => return Err(error.into()),
            }
        }
        let status = current.status.get_or_insert_default();
        status.allocation = wanted_status.allocation;
        let users = status.reserved_for.get_or_insert_default();
        // The last one is the pod of this decision.
        let user = wanted_status.reserved_for.and_then(|mut users| users.pop());
        users.extend(user.filter(|user| !users.iter().any(|one| one.uid == user.uid)));
        match claims.replace_status(&key.name, &parameters, &current).await {
            Ok(stored) => return Ok(revision(&stored)),
            Err(error) if reason(&error) == "Conflict" => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(ClaimError::Conflicts)
}

/// The pod uses the claims no longer. What stays allocated is freed when it gets in somebody's way.
pub(crate) async fn unreserve(client: &kube::Client, pod: &PodInfo, claims: &[Arc<ResourceClaim>]) {
    for claim in claims {
        let key = Key::of(&claim.metadata);
        let api: Api<ResourceClaim> = Api::namespaced(client.clone(), &key.namespace);
        let Ok(mut current) = api.get(&key.name).await else { continue };
        let Some(users) = current.status.as_mut().and_then(|status| status.reserved_for.as_mut()) else { continue };
        let before = users.len();
        users.retain(|user| user.uid != pod.uid);
        if users.len() == before {
            continue;
        }
        if let Err(error) = api.replace_status(&key.name, &PostParams::default(), &current).await {
            // The pod is tried again and finds itself among the users, which does no harm.
            tracing::debug!(claim = %key, %error, "cannot remove reservation of ResourceClaim");
        }
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

fn revision(claim: &ResourceClaim) -> u64 {
    claim.metadata.resource_version.as_deref().and_then(|version| version.parse().ok()).unwrap_or(0)
}
