//! Bringing a saved snapshot back: `restore` makes a new store directory from the file.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use super::{checkpoint, files};
use crate::{Revision, StoreError};

/// With what the file of a snapshot begins.
pub const MARK: &[u8; 8] = checkpoint::START_MARK;

/// Makes a store in `dir`, which must be empty or not exist, from a file that `snapshot_save` wrote. A file with any
/// damage is refused. Answers the revision at which the store goes on.
pub fn restore(file: &Path, dir: &Path) -> Result<Revision, StoreError> {
    let state = checkpoint::read(file)?;
    if let Some(damage) = state.lost.values().next() {
        return Err(damage.error());
    }
    files::create_dir(dir)?;
    let mut found = std::fs::read_dir(dir).map_err(|error| files::failed("list", dir, &error))?;
    if found.next().is_some() {
        return Err(StoreError::Other(format!("restore into {}: the directory is not empty", dir.display())));
    }
    let path = files::checkpoint_path(dir, state.revision);
    checkpoint::write(&path, &state, &AtomicBool::new(false)).map_err(|error| files::failed("write", &path, &error))?;
    Ok(state.revision)
}
