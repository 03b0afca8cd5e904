//! Usage of CSI volumes, as NodeGetVolumeStats reports it. A request is answered from the last report and does not wait for the driver;
//! a task asks the driver for the next one.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use component_base::tasks;
use csi::v1::{VolumeUsage, volume_usage};
use tokio::time::Instant;

use super::{Csi, Request, Wanted};

/// What is known may be so old, as upstream's kubelet asks once a minute.
const AGE_MAX: Duration = Duration::from_secs(60);
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// A volume that a pod has.
#[derive(Clone)]
pub(super) struct Shown {
    claim: Option<String>,
    driver: String,
    handle: String,
    target: PathBuf,
    asked: Option<Instant>,
    amounts: Option<Amounts>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amounts {
    pub bytes: Option<Amount>,
    pub inodes: Option<Amount>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Amount {
    pub total: u64,
    pub used: u64,
    pub available: u64,
}

/// What a driver has said about one volume of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measured {
    pub volume: String,
    pub claim: Option<String>,
    pub amounts: Amounts,
}

impl Csi {
    pub(super) fn note_shown(&self, request: &Request<'_>, wanted: &Wanted, target: PathBuf) {
        let claim = request.volume.persistent_volume_claim.as_ref().map(|source| source.claim_name.clone());
        let own = || format!("{}-{}", request.pod.metadata.name.as_deref().unwrap_or_default(), request.volume.name);
        let claim = claim.or_else(|| request.volume.ephemeral.as_ref().map(|_| own()));
        let (driver, handle) = (wanted.driver.clone(), wanted.handle.clone());
        let mut shown = self.shown.lock();
        let of_pod = shown.entry(request.uid().to_owned()).or_default();
        let entry = Shown { claim, driver, handle, target, asked: None, amounts: None };
        // What was measured before stays.
        of_pod.entry(request.volume.name.clone()).or_insert(entry);
    }

    /// What drivers have last said about a pod's volumes.
    pub fn measured(self: &Arc<Self>, uid: &str) -> Vec<Measured> {
        let mut shown = self.shown.lock();
        let Some(of_pod) = shown.get_mut(uid) else { return Vec::new() };
        for (volume, entry) in of_pod.iter_mut() {
            if entry.asked.is_none_or(|at| at.elapsed() > AGE_MAX) {
                entry.asked = Some(Instant::now());
                tasks::spawn(ask(self.clone(), uid.to_owned(), volume.clone(), entry.clone()));
            }
        }
        let told = |(volume, entry): (&String, &Shown)| {
            let (volume, claim) = (volume.clone(), entry.claim.clone());
            entry.amounts.map(|amounts| Measured { volume, claim, amounts })
        };
        of_pod.iter().filter_map(told).collect()
    }
}

async fn ask(csi: Arc<Csi>, uid: String, volume: String, entry: Shown) {
    let Some(driver) = csi.drivers.get(&entry.driver) else { return };
    let driver = driver.within(ANSWER_WITHIN);
    if !driver.capabilities().await.is_ok_and(|capabilities| capabilities.volume_stats) {
        return;
    }
    match driver.volume_stats(&entry.handle, &csi.places.for_driver(&entry.target)).await {
        Ok(answer) => {
            let found = amounts(&answer.usage);
            if let Some(entry) = csi.shown.lock().get_mut(&uid).and_then(|of_pod| of_pod.get_mut(&volume)) {
                entry.amounts = Some(found);
            }
        }
        Err(error) => tracing::warn!(%error, driver = entry.driver, volume, "cannot get statistics of CSI volume"),
    }
}

fn amounts(usage: &[VolumeUsage]) -> Amounts {
    let positive = |number: i64| u64::try_from(number).unwrap_or(0);
    let of = |unit: volume_usage::Unit| {
        let found = usage.iter().find(|usage| usage.unit == unit as i32)?;
        let (total, used) = (positive(found.total), positive(found.used));
        Some(Amount { total, used, available: positive(found.available) })
    };
    Amounts { bytes: of(volume_usage::Unit::Bytes), inodes: of(volume_usage::Unit::Inodes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_make_no_sense_are_nothing() {
        let usage = |unit: i32, total: i64| VolumeUsage { total, used: 1, available: -5, unit };
        let found = amounts(&[usage(1, 10), usage(7, 3), usage(2, -1)]);
        assert_eq!(found.bytes, Some(Amount { total: 10, used: 1, available: 0 }));
        assert_eq!(found.inodes, Some(Amount { total: 0, used: 1, available: 0 }));
        assert_eq!(amounts(&[]), Amounts::default());
    }
}
