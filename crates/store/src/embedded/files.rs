//! The names of the files in the store's directory, and the steps that make a file appear there durably.

use std::fs::File;
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use component_base::files::sync_folder;
use rustix::fs::FlockOperation;

use crate::{Revision, StoreError};

const LOCK: &str = "lock";
const SEGMENT_SUFFIX: &str = ".log";
const CHECKPOINT_SUFFIX: &str = ".checkpoint";
/// Files that were not finished. They are removed when the store opens.
const UNFINISHED_SUFFIX: &str = ".unfinished";

pub(super) fn segment_path(dir: &Path, number: u32) -> PathBuf {
    dir.join(format!("{number:010}{SEGMENT_SUFFIX}"))
}

pub(super) fn checkpoint_path(dir: &Path, revision: Revision) -> PathBuf {
    dir.join(format!("{:020}{CHECKPOINT_SUFFIX}", revision.0))
}

/// What the directory holds, in ascending order.
#[derive(Debug, Default)]
pub(super) struct Listing {
    pub segments: Vec<u32>,
    pub checkpoints: Vec<Revision>,
}

/// Lists the directory, and removes what a crash left unfinished.
pub(super) fn list(dir: &Path) -> io::Result<Listing> {
    let mut listing = Listing::default();
    for found in std::fs::read_dir(dir)? {
        let found = found?;
        let name = found.file_name();
        let Some(name) = name.to_str() else { continue };
        if name.ends_with(UNFINISHED_SUFFIX) {
            std::fs::remove_file(found.path())?;
        } else if let Some(number) = name.strip_suffix(SEGMENT_SUFFIX).and_then(|number| number.parse().ok()) {
            listing.segments.push(number);
        } else if let Some(revision) = name.strip_suffix(CHECKPOINT_SUFFIX).and_then(|number| number.parse().ok()) {
            listing.checkpoints.push(Revision(revision));
        }
    }
    listing.segments.sort_unstable();
    listing.checkpoints.sort_unstable();
    Ok(listing)
}

/// Keeps every other process out of the directory for as long as the file is held.
pub(super) fn lock(dir: &Path) -> Result<File, StoreError> {
    let path = dir.join(LOCK);
    let file = owner_only()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .map_err(|error| failed("open", &path, &error))?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => {
            Err(StoreError::Other(format!("store in {} is in use by another process", dir.display())))
        }
        Err(error) => Err(failed("lock", &path, &error.into())),
    }
}

/// Makes the store's directory, durably. What is in it is as secret as a Secret.
pub(super) fn create_dir(dir: &Path) -> Result<(), StoreError> {
    let missing: Vec<_> = dir.ancestors().take_while(|dir| !dir.as_os_str().is_empty() && !dir.exists()).collect();
    for dir in missing.into_iter().rev() {
        std::fs::DirBuilder::new()
            .mode(0o700)
            .create(dir)
            .and_then(|()| sync_folder(dir.parent().unwrap_or(dir)))
            .map_err(|error| failed("create", dir, &error))?;
    }
    Ok(())
}

fn owner_only() -> std::fs::OpenOptions {
    let mut options = File::options();
    options.mode(0o600);
    options
}

/// Makes a file that is either there in full or not at all: `fill` writes it under another name, it is synced,
/// renamed, and the directory is synced.
pub(super) fn create_whole(path: &Path, fill: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<File> {
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(UNFINISHED_SUFFIX);
    let unfinished = PathBuf::from(unfinished);
    let made = (|| {
        let mut file = owner_only().create(true).truncate(true).read(true).write(true).open(&unfinished)?;
        fill(&mut file)?;
        file.sync_all()?;
        std::fs::rename(&unfinished, path)?;
        sync_folder(path.parent().unwrap_or(Path::new(".")))?;
        Ok(file)
    })();
    if made.is_err() {
        // It takes room on a disk that may be full. Where even this fails, the next start removes it.
        let _ = std::fs::remove_file(&unfinished);
    }
    made
}

pub(super) fn failed(step: &str, path: &Path, error: &io::Error) -> StoreError {
    StoreError::Other(format!("{step} {}: {error}", path.display()))
}

pub(super) fn damaged(path: &Path, offset: u64, why: impl Into<String>) -> StoreError {
    StoreError::Damaged { file: path.display().to_string(), offset, why: why.into() }
}

/// What the files of a folder take. One that is removed meanwhile counts nothing.
pub fn size_of(folder: &Path) -> u64 {
    let Ok(files) = std::fs::read_dir(folder) else { return 0 };
    files.filter_map(|file| file.ok()?.metadata().ok()).filter(|file| file.is_file()).map(|file| file.len()).sum()
}
