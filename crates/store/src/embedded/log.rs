//! The log on disk as the writer sees it: a row of segments, of which the last one grows.
//!
//! Room is allocated before it is written, so a full disk is met before a batch is begun. When a write fails, the
//! part that was written is cut away again. When a sync fails, nobody can know what the disk holds: the segment is
//! not trusted any more, and the writer starts over with a checkpoint and a new segment.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use super::files;
use super::record::{HEADER_BYTES, encode_mark};
use crate::Revision;

pub(super) const SEGMENT_MARK: &[u8; 8] = b"knarrlog";

pub(super) struct Log {
    dir: PathBuf,
    segment_bytes: u64,
    allocate_bytes: u64,
    /// All but the active one, in ascending order.
    sealed: Vec<Sealed>,
    active: Segment,
    /// In ascending order.
    checkpoints: Vec<Revision>,
    /// How much was written since the last checkpoint.
    pub bytes_since_checkpoint: u64,
    trusted: bool,
    #[cfg(test)]
    pub faults: std::sync::Arc<super::tests::Faults>,
}

/// What recovery knows of a segment that is no longer written to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sealed {
    pub number: u32,
    pub first_revision: Revision,
}

pub(super) struct Segment {
    pub file: File,
    pub number: u32,
    pub first_revision: Revision,
    /// Where the next batch goes.
    pub end: u64,
    /// Where the allocated room ends.
    pub allocated: u64,
}

/// Where a batch is going to stand; its records carry both numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub segment: u32,
    pub offset: u32,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum LogError {
    /// Nothing of the batch is on the disk.
    #[error("{step} {file}: {source}")]
    Refused { step: &'static str, file: String, source: io::Error },
    /// The batch may be on the disk or not.
    #[error("{step} {file}: {source}")]
    Unknown { step: &'static str, file: String, source: io::Error },
}

impl Log {
    pub(super) fn new(
        config: &super::Config,
        sealed: Vec<Sealed>,
        active: Segment,
        checkpoints: Vec<Revision>,
        bytes_since_checkpoint: u64,
    ) -> Log {
        Log {
            dir: config.dir.clone(),
            segment_bytes: config.segment_bytes,
            allocate_bytes: config.allocate_bytes,
            sealed,
            active,
            checkpoints,
            bytes_since_checkpoint,
            trusted: true,
            #[cfg(test)]
            faults: config.faults.clone(),
        }
    }

    /// False after a failed sync, until `start_over`.
    pub(super) fn trusted(&self) -> bool {
        self.trusted
    }

    /// Makes room for a batch of that size whose first record makes that revision.
    pub(super) fn prepare(&mut self, bytes: u64, first_revision: Revision) -> Result<Place, LogError> {
        let full = self.active.end + bytes > self.segment_bytes && self.active.end > HEADER_BYTES as u64;
        if full {
            self.rotate(first_revision, bytes)?;
        } else if self.active.end + bytes > self.active.allocated {
            let wanted = self.active.end + bytes;
            allocate(&self.active.file, self.active.allocated, wanted, self.allocate_bytes)
                .map(|allocated| self.active.allocated = allocated)
                .map_err(|source| self.refused("preallocate", source))?;
        }
        Ok(Place { segment: self.active.number, offset: self.active.end as u32 })
    }

    /// Writes the batch where `prepare` said, and makes it durable.
    pub(super) fn commit(&mut self, batch: &[u8]) -> Result<(), LogError> {
        if let Err(source) = self.write(batch) {
            return Err(match self.cut_back() {
                Ok(()) => self.refused("write to", source),
                Err(_) => self.unknown("write to", source),
            });
        }
        if let Err(source) = self.sync() {
            return Err(self.unknown("sync", source));
        }
        self.active.end += batch.len() as u64;
        self.bytes_since_checkpoint += batch.len() as u64;
        Ok(())
    }

    /// Goes on in a new segment after a checkpoint of everything at that revision has been written: whatever the
    /// untrusted segment holds after it is ignored from now on.
    pub(super) fn start_over(&mut self, revision: Revision) -> Result<(), LogError> {
        self.rotate(Revision(revision.0 + 1), 0)?;
        self.checkpointed(revision);
        self.trusted = true;
        Ok(())
    }

    pub(super) fn checkpointed(&mut self, revision: Revision) {
        if self.checkpoints.last() != Some(&revision) {
            self.checkpoints.push(revision);
        }
    }

    /// Files that no recovery needs any more, the order in which to remove them, given that the history starts at
    /// that revision. The newest checkpoint before it stays, so that a watch can resume after a restart.
    pub(super) fn take_obsolete(&mut self, history_starts: Revision) -> Vec<PathBuf> {
        let Some(base) = self.checkpoints.iter().rposition(|revision| *revision <= history_starts) else {
            return Vec::new();
        };
        let mut paths: Vec<PathBuf> =
            self.checkpoints.drain(..base).map(|revision| files::checkpoint_path(&self.dir, revision)).collect();
        let base = self.checkpoints[0];
        // A segment is covered where the next one starts no later than right behind the checkpoint.
        let starts = self.sealed.iter().map(|segment| segment.first_revision).chain([self.active.first_revision]);
        let covered = starts.skip(1).take_while(|next_starts| next_starts.0 <= base.0 + 1).count();
        paths.extend(self.sealed.drain(..covered).map(|segment| files::segment_path(&self.dir, segment.number)));
        paths
    }

    fn rotate(&mut self, first_revision: Revision, bytes: u64) -> Result<(), LogError> {
        let number = self.active.number + 1;
        let next = Segment::create(&self.dir, number, first_revision, bytes, self.allocate_bytes)
            .map_err(|source| self.refused("create the segment after", source))?;
        let full = std::mem::replace(&mut self.active, next);
        self.sealed.push(Sealed { number: full.number, first_revision: full.first_revision });
        // Gives back the room that was not used. The records end there either way.
        if self.trusted
            && let Err(error) = full.file.set_len(full.end)
        {
            tracing::warn!(segment = full.number, %error, "cannot trim full log segment");
        }
        Ok(())
    }

    /// Removes what a failed write left behind, durably: these writers are told that nothing happened.
    fn cut_back(&mut self) -> io::Result<()> {
        self.active.file.set_len(self.active.end)?;
        self.active.allocated = self.active.end;
        self.active.file.sync_all()
    }

    fn write(&self, batch: &[u8]) -> io::Result<()> {
        #[cfg(test)]
        if let Some(error) = self.faults.take_write() {
            // As a real disk may: half of the batch is there.
            self.active.file.write_all_at(&batch[..batch.len() / 2], self.active.end)?;
            return Err(error);
        }
        self.active.file.write_all_at(batch, self.active.end)
    }

    fn sync(&self) -> io::Result<()> {
        #[cfg(test)]
        if let Some(error) = self.faults.take_sync() {
            return Err(error);
        }
        self.active.file.sync_data()
    }

    fn refused(&self, step: &'static str, source: io::Error) -> LogError {
        LogError::Refused { step, file: self.active_name(), source }
    }

    fn unknown(&mut self, step: &'static str, source: io::Error) -> LogError {
        self.trusted = false;
        LogError::Unknown { step, file: self.active_name(), source }
    }

    fn active_name(&self) -> String {
        files::segment_path(&self.dir, self.active.number).display().to_string()
    }
}

impl Segment {
    pub(super) fn create(
        dir: &Path,
        number: u32,
        first_revision: Revision,
        bytes: u64,
        allocate_bytes: u64,
    ) -> io::Result<Segment> {
        let end = HEADER_BYTES as u64;
        let mut allocated = 0;
        let file = files::create_whole(&files::segment_path(dir, number), |file| {
            allocated = allocate(file, 0, end + bytes, allocate_bytes)?;
            file.write_all_at(&encode_mark(SEGMENT_MARK, u64::from(number), first_revision.0), 0)
        })?;
        Ok(Segment { file, number, first_revision, end, allocated })
    }
}

/// Extends the allocated room from `allocated` to at least `wanted`, by whole steps where the disk has them.
fn allocate(file: &File, allocated: u64, wanted: u64, step: u64) -> io::Result<u64> {
    let whole = wanted.next_multiple_of(step.max(1));
    let extend = |to: u64| rustix::fs::fallocate(file, FallocateFlags::empty(), allocated, to - allocated).map(|()| to);
    match extend(whole).or_else(|_| extend(wanted)) {
        Ok(to) => Ok(to),
        // Some filesystems cannot; there the write itself finds out, and is cut back.
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(wanted),
        Err(error) => Err(error.into()),
    }
}
