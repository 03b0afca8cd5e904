//! Gives volumes and claims to each other, and waits until the volume controller has done its part.

use std::time::Duration;

use component_helpers::volumes::{SELECTED_NODE, annotation, is_bound, volume_name};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::Api;
use kube::api::PostParams;
use reconcile::Key;

use crate::framework::Reservation;
use crate::objects::Objects;

/// Why the pod is not bound after all. The texts are those of upstream's PreBind.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    #[error("{0}")]
    Write(Box<kube::Error>),
    #[error("persistentvolumeclaim {0:?} not found")]
    ClaimGone(String),
    #[error("provisioning failed for PVC {0:?}")]
    NotProvisioned(String),
    #[error("timed out waiting for the condition")]
    TimedOut,
}

pub async fn bind(
    client: &kube::Client,
    objects: &Objects,
    reservation: &Reservation,
    timeout: Duration,
) -> Result<(), BindError> {
    let written = write(client, reservation).await.map_err(|error| BindError::Write(Box::new(error)))?;
    let (mut claims, mut volumes) = (objects.claims.changes(), objects.volumes.changes());
    let bound = async {
        loop {
            claims.mark_unchanged();
            volumes.mark_unchanged();
            if are_bound(objects, reservation, &written)? {
                return Ok(());
            }
            // The senders live as long as the caches. Either may bring what was missing: they are two watches.
            tokio::select! {
                _ = claims.changed() => {}
                _ = volumes.changed() => {}
            }
        }
    };
    tokio::time::timeout(timeout, bound).await.unwrap_or(Err(BindError::TimedOut))
}

/// The revisions of the claims that were written: what the copy said before them counts for nothing.
async fn write(client: &kube::Client, reservation: &Reservation) -> Result<Vec<(Key, u64)>, kube::Error> {
    let parameters = PostParams::default();
    for volume in &reservation.volumes {
        let name = volume.metadata.name.as_deref().unwrap_or_default();
        Api::all(client.clone()).replace(name, &parameters, &**volume).await?;
    }
    let mut written = Vec::new();
    for claim in &reservation.claims {
        let key = Key::of(&claim.metadata);
        let api: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), &key.namespace);
        let answer = api.replace(&key.name, &parameters, claim).await?;
        written.push((key, revision(&answer)));
    }
    Ok(written)
}

fn revision(claim: &PersistentVolumeClaim) -> u64 {
    claim.metadata.resource_version.as_deref().and_then(|version| version.parse().ok()).unwrap_or(0)
}

fn are_bound(objects: &Objects, reservation: &Reservation, written: &[(Key, u64)]) -> Result<bool, BindError> {
    let mut all = true;
    for key in &reservation.awaited {
        let claim = objects.claims.get(key).ok_or_else(|| BindError::ClaimGone(key.name.clone()))?;
        let bound = is_bound(&claim)
            && volume_name(&claim).is_some_and(|name| objects.volumes.get(&Key::cluster(name)).is_some());
        let own = written.iter().find(|(other, _)| other == key);
        // The provisioner takes the node back when it cannot make the volume there.
        let given_up = own.is_some_and(|(_, written)| {
            revision(&claim) >= *written && annotation(&claim.metadata, SELECTED_NODE).is_none()
        });
        if !bound && given_up {
            return Err(BindError::NotProvisioned(key.name.clone()));
        }
        all &= bound;
    }
    Ok(all)
}
