//! Takes a pod's volumes back from it: unpublished, and unstaged once no pod of the node uses them.

use std::io;
use std::path::Path;

use super::place::{Mode, Place};
use super::record::{Record, Step, is_mounted};
use super::{Csi, Error, no_driver, unique_name};
use crate::volumes::blocking;

impl Csi {
    /// Everything that drivers have made for the pod. All are tried; the error is the first that came up.
    pub async fn take_down(&self, uid: &str) -> Result<(), Error> {
        self.look_again.lock().remove(uid);
        self.shown.lock().remove(uid);
        let (places, pod) = (self.places.clone(), uid.to_owned());
        let records = blocking(move || places.records_of(&pod)).await;
        let records = records.map_err(Error::Records)?;
        let mut outcome = Ok(());
        for (name, mode, record) in records {
            let Some(place) = self.places.place(uid, mode, &name, record.driver(), record.handle()) else {
                outcome = outcome.and(Err(Error::NoVolume(name)));
                continue;
            };
            let done = self.take_back(uid, &place, record).await;
            outcome = outcome.and(done.map_err(|error| Error::Volume { name, source: Box::new(error) }));
        }
        if outcome.is_ok() {
            self.uses_no_more(None, uid);
        }
        outcome
    }

    async fn take_back(&self, uid: &str, place: &Place, record: Record) -> Result<(), Error> {
        let volume = unique_name(record.driver(), record.handle());
        let lock = self.lock(&volume);
        let _one_at_a_time = lock.lock().await;
        self.unpublish(place, &record).await?;
        self.unstage(uid, place, &record).await?;
        forget_pod(place).map_err(|source| Error::RemoveRecord { path: place.record.clone(), source })?;
        self.uses_no_more(Some(&volume), uid);
        Ok(())
    }

    async fn unpublish(&self, place: &Place, record: &Record) -> Result<(), Error> {
        if matches!(record.step(), Step::Noted | Step::Undone) {
            return Ok(());
        }
        let Some(driver) = self.drivers.get(record.driver()) else {
            return Err(no_driver("Unmounter.TearDownAt failed to get CSI client", record.driver()));
        };
        let undone = driver.unpublish(record.handle(), &self.places.for_driver(&place.target)).await;
        undone.map_err(Error::Unpublish)?;
        if is_mounted(&place.target) {
            return Err(still_mounted(record, "unpublished", &place.target));
        }
        remove_target(place).map_err(|source| Error::RemoveTarget { target: place.target.clone(), source })?;
        let saved = record.clone().at(Step::Undone, &self.boot_id).save(&place.record);
        saved.map_err(|source| Error::WriteRecord { path: place.record.clone(), source })
    }

    async fn unstage(&self, uid: &str, place: &Place, record: &Record) -> Result<(), Error> {
        if self.is_used_by_others(uid, place.mode, record).await? {
            return Ok(());
        }
        let staged = Record::load(&place.stage_record);
        let staged = staged.map_err(|source| Error::ReadRecord { path: place.stage_record.clone(), source })?;
        if staged.is_some() {
            let Some(driver) = self.drivers.get(record.driver()) else {
                let step = "attacher.UnmountDevice failed to create newCsiDriverClient";
                return Err(no_driver(step, record.driver()));
            };
            let undone = driver.unstage(record.handle(), &self.places.for_driver(&place.staging)).await;
            undone.map_err(Error::Unstage)?;
            if is_mounted(&place.staging) {
                return Err(still_mounted(record, "unstaged", &place.staging));
            }
        }
        forget_stage(place).map_err(|source| Error::RemoveStage { path: place.stage_record.clone(), source })
    }

    async fn is_used_by_others(&self, uid: &str, mode: Mode, record: &Record) -> Result<bool, Error> {
        let (places, own, wanted) = (self.places.clone(), uid.to_owned(), record.clone());
        let used = blocking(move || {
            Ok(places.records().into_iter().any(|(uid, other_mode, other)| {
                let same = other.driver() == wanted.driver() && other.handle() == wanted.handle();
                uid != own && other_mode == mode && same
            }))
        });
        used.await.map_err(Error::Users)
    }
}

fn still_mounted(record: &Record, step: &'static str, target: &Path) -> Error {
    Error::StillMounted { driver: record.driver().to_owned(), step, target: target.to_path_buf() }
}

/// Drivers are to remove it themselves; some do not. Only what is empty goes.
pub(super) fn remove_target(place: &Place) -> io::Result<()> {
    match std::fs::symlink_metadata(&place.target) {
        Ok(found) if found.is_dir() => std::fs::remove_dir(&place.target),
        Ok(_) => std::fs::remove_file(&place.target),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// The node's folder of the volume and its record, the record last.
pub(super) fn forget_stage(place: &Place) -> io::Result<()> {
    if is_mounted(&place.staging) {
        return Err(io::Error::other(format!("{} is mounted", place.staging.display())));
    }
    linux::tree::remove_tree(&place.staging)?;
    Record::remove(&place.stage_record)?;
    remove_empty(&place.stage_record)?;
    if place.mode == Mode::Block {
        // `publish/<volume>` and `<volume>` hold what is left of nobody.
        place.target.parent().map_or(Ok(()), remove_empty)?;
        place.stage_record.parent().map_or(Ok(()), remove_empty)?;
    }
    Ok(())
}

fn forget_pod(place: &Place) -> io::Result<()> {
    if let Some(link) = &place.link {
        match std::fs::remove_file(link) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Record::remove(&place.record)?;
    remove_empty(&place.record)
}

/// A folder that others still use stays.
fn remove_empty(folder: &Path) -> io::Result<()> {
    match std::fs::remove_dir(folder) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::DirectoryNotEmpty) => Ok(()),
        other => other,
    }
}
