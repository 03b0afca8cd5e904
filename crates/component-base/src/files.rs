//! Files that are there as a whole or not at all.

use std::ffi::OsString;
use std::fs::{File, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Whether a file must outlive a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keep {
    Durably,
    WhileRunning,
}

/// Replaces a file so that a crash or a power cut leaves the old content or the new one, never a part: the content is on disk
/// before the name leads to it, and the name is on disk when this returns.
pub fn write_durably(path: &Path, content: impl AsRef<[u8]>, mode: u32) -> io::Result<()> {
    write(path, content.as_ref(), mode, Keep::Durably)
}

/// Replaces a file so that readers, and a process killed at any step, find the old content or the new one. Nothing is forced to
/// disk: for what is of no use after a power cut.
pub fn write_whole(path: &Path, content: impl AsRef<[u8]>, mode: u32) -> io::Result<()> {
    write(path, content.as_ref(), mode, Keep::WhileRunning)
}

/// Where the new content stands until it is complete. A crash can leave it behind; the next write replaces it.
pub fn unfinished(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(".new");
    name.into()
}

/// Has the disk keep the names in a folder.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    File::open(folder)?.sync_all()
}

fn write(path: &Path, content: &[u8], mode: u32, keep: Keep) -> io::Result<()> {
    let unfinished = unfinished(path);
    let written = fill(&unfinished, content, mode, keep).and_then(|()| std::fs::rename(&unfinished, path));
    if written.is_err() {
        // It takes room on a disk that may be full. Where even this fails, the next write replaces it.
        let _ = std::fs::remove_file(&unfinished);
    }
    written?;
    if keep == Keep::Durably {
        sync_folder(path.parent().unwrap_or(Path::new("/")))?;
    }
    Ok(())
}

fn fill(path: &Path, content: &[u8], mode: u32, keep: Keep) -> io::Result<()> {
    // A leftover may have any mode, or be a link to somewhere else; a file that is made here is neither.
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = File::options().write(true).create_new(true).mode(mode).open(path)?;
    // The mask of this process does not decide.
    file.set_permissions(Permissions::from_mode(mode))?;
    file.write_all(content)?;
    if keep == Keep::Durably {
        file.sync_all()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_with_its_mode_and_leaves_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.json");
        for (content, mode) in [("a", 0o644), ("bb", 0o600)] {
            // What a crash has left, with another mode.
            std::fs::write(unfinished(&path), "half").unwrap();
            write_durably(&path, content, mode).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), content);
            assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777, mode);
        }
        write_whole(&path, "c", 0o600).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "c");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_link_in_the_way_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (path, other) = (folder.path().join("state"), folder.path().join("other"));
        std::fs::write(&other, "untouched").unwrap();
        std::os::unix::fs::symlink(&other, unfinished(&path)).unwrap();
        write_durably(&path, "new", 0o600).unwrap();
        assert_eq!(std::fs::read_to_string(&other).unwrap(), "untouched");
    }

    #[test]
    fn what_cannot_be_put_in_place_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("taken");
        std::fs::create_dir(&path).unwrap();
        assert!(write_durably(&path, "x", 0o600).is_err());
        assert!(!unfinished(&path).exists());
    }
}
