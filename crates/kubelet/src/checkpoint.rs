//! Small files that must survive whoever writes them: as they were, or as they are to be, whatever happens in between.

use std::io::{self, Write};
use std::path::Path;

/// Nobody has so many pods with devices.
const BYTES_MAX: u64 = 64 << 20;

/// Nothing where there is no such file yet.
pub(crate) fn read(folder: &Path, name: &str) -> io::Result<Option<Vec<u8>>> {
    match linux::file::read_regular(&folder.join(name), BYTES_MAX) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

pub(crate) fn write(folder: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let unfinished = folder.join(format!(".{name}.new"));
    let mut file = linux::file::create(&unfinished, 0o600)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&unfinished, folder.join(name))?;
    std::fs::File::open(folder)?.sync_all()
}
