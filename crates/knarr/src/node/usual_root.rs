//! `/var/lib/kubelet`, where published storage drivers look for the kubelet: a link to ours, as long as nobody else has the place.

use std::io;
use std::path::{Path, PathBuf};

const USUAL: &str = "/var/lib/kubelet";
/// The data folder of a machine that knarr serves as a whole; others on it have folders of their own and take nothing else.
const DATA_DIR: &str = "/var/lib/knarr";

/// The kubelet's folder by the name that drivers are told.
pub(super) fn make(data_dir: &Path, root: &Path) -> PathBuf {
    if data_dir != Path::new(DATA_DIR) {
        return root.to_owned();
    }
    match link(root, Path::new(USUAL)) {
        Ok(true) => USUAL.into(),
        Ok(false) => {
            tracing::warn!(path = USUAL, root = %root.display(), "cannot link the kubelet folder at its default path: the path is in use; configure CSI drivers with the folder itself");
            root.to_owned()
        }
        Err(error) => {
            tracing::warn!(%error, path = USUAL, "cannot link the kubelet folder at its default path; configure CSI drivers with the folder itself");
            root.to_owned()
        }
    }
}

/// Takes the link away, if it is ours.
pub fn remove(data_dir: &Path) -> io::Result<()> {
    if data_dir != Path::new(DATA_DIR) {
        return Ok(());
    }
    unlink(&data_dir.join("kubelet"), Path::new(USUAL))
}

/// Whether `usual` leads to `root` now. Only an empty folder is replaced, as a hostPath volume of a driver may have made it.
fn link(root: &Path, usual: &Path) -> io::Result<bool> {
    match std::fs::symlink_metadata(usual) {
        Ok(found) if found.is_symlink() => return Ok(std::fs::read_link(usual)? == root),
        Ok(found) if found.is_dir() => match std::fs::remove_dir(usual) {
            Ok(()) => {}
            // Something is in it, or mounted on it.
            Err(error) if matches!(error.kind(), io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::ResourceBusy) => {
                return Ok(false);
            }
            Err(error) => return Err(error),
        },
        Ok(_) => return Ok(false),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    std::os::unix::fs::symlink(root, usual)?;
    Ok(true)
}

fn unlink(root: &Path, usual: &Path) -> io::Result<()> {
    match std::fs::read_link(usual) {
        Ok(target) if target == root => std::fs::remove_file(usual),
        // Another's link or folder, or nothing.
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_link_is_made_where_nobody_is() {
        let folder = tempfile::tempdir().unwrap();
        let (root, usual) = (folder.path().join("ours"), folder.path().join("kubelet"));
        assert!(link(&root, &usual).unwrap());
        assert!(link(&root, &usual).unwrap(), "our own is found again");
        assert_eq!(std::fs::read_link(&usual).unwrap(), root);
        unlink(&root, &usual).unwrap();
        assert!(!usual.exists() && std::fs::symlink_metadata(&usual).is_err());
        std::fs::create_dir(&usual).unwrap();
        assert!(link(&root, &usual).unwrap(), "an empty folder is nobody's");
        unlink(&root, &usual).unwrap();
        std::fs::create_dir_all(usual.join("pods")).unwrap();
        assert!(!link(&root, &usual).unwrap(), "another kubelet's stays");
        unlink(&root, &usual).unwrap();
        assert!(usual.join("pods").exists());
        std::fs::remove_dir_all(&usual).unwrap();
        std::os::unix::fs::symlink("/elsewhere", &usual).unwrap();
        assert!(!link(&root, &usual).unwrap(), "another's link stays");
        unlink(&root, &usual).unwrap();
        assert_eq!(std::fs::read_link(&usual).unwrap(), Path::new("/elsewhere"));
    }
}
