//! Reading and writing the files of the folder: whole or not at all, and keys for their owner's eyes only.

use std::fs::{self, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

use super::Error;

pub(super) fn make_private_dir(dir: &Path) -> Result<(), Error> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(dir);
    // The folder may be older than knarr, or the parent's mode may have widened it.
    made.and_then(|()| fs::set_permissions(dir, Permissions::from_mode(0o700))).map_err(file_error("make", dir))
}

/// `None` where there is no such file.
pub(super) fn read(path: &Path) -> Result<Option<String>, Error> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(file_error("read", path)(error)),
    }
}

pub fn write_private(path: &Path, text: &str) -> Result<(), Error> {
    write(path, text, 0o600)
}

pub(super) fn write_public(path: &Path, text: &str) -> Result<(), Error> {
    write(path, text, 0o644)
}

/// A crash leaves the old file or the new one: the text is on disk before the name points to it.
pub fn write(path: &Path, text: &str, mode: u32) -> Result<(), Error> {
    component_base::files::write_durably(path, text, mode).map_err(file_error("write", path))
}

fn file_error(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    let path = path.to_path_buf();
    move |source| Error::File { action, path, source }
}
