//! Checkpoint files of the kubelet: written atomically, so that a crash leaves the old content or the new one.

use std::io;
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
    component_base::files::write_durably(&folder.join(name), bytes, 0o600)
}

/// Upstream's checksum: 32 bits of FNV-1a over how Go's printer for hashes shows the content.
pub(crate) fn fnv(text: &str) -> u64 {
    u64::from(text.bytes().fold(0x811c_9dc5, |hash: u32, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)))
}
