//! Which sockets there are below a folder.

use std::collections::BTreeMap;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Deeper folders are not looked into.
const DEPTH_MAX: usize = 4;
/// No node has more plugins; what is beyond is not looked at.
const SOCKETS_MAX: usize = 256;

/// Tells a socket from a later one at the same place: a plugin that restarts removes its socket and makes it anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    device: u64,
    inode: u64,
    changed: (i64, i64),
}

/// All sockets, by their paths. Every folder on the way is told to `watch` before it is read. Names with a leading dot are not
/// plugins, as upstream.
pub(super) fn find(folder: &Path, watch: impl Fn(&Path)) -> BTreeMap<PathBuf, Identity> {
    let mut found = BTreeMap::new();
    let mut open = vec![(folder.to_owned(), 0)];
    while let Some((folder, depth)) = open.pop() {
        watch(&folder);
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with('.') || found.len() >= SOCKETS_MAX {
                continue;
            }
            // Links are not followed: a plugin puts its socket here itself.
            let Ok(metadata) = entry.metadata() else { continue };
            if metadata.is_dir() && depth < DEPTH_MAX {
                open.push((entry.path(), depth + 1));
            } else if metadata.file_type().is_socket() {
                let changed = (metadata.ctime(), metadata.ctime_nsec());
                let identity = Identity { device: metadata.dev(), inode: metadata.ino(), changed };
                found.insert(entry.path(), identity);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn sockets_are_found_and_told_from_later_ones() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path();
        std::fs::create_dir(place.join("below")).unwrap();
        std::fs::write(place.join("file"), "").unwrap();
        let first = UnixListener::bind(place.join("below/a.sock")).unwrap();
        let _hidden = UnixListener::bind(place.join(".b.sock")).unwrap();
        let watched = RefCell::new(Vec::new());
        let before = find(place, |folder| watched.borrow_mut().push(folder.to_owned()));
        assert_eq!(before.keys().collect::<Vec<_>>(), [&place.join("below/a.sock")]);
        assert_eq!(*watched.borrow(), [place.to_owned(), place.join("below")]);
        drop(first);
        std::fs::remove_file(place.join("below/a.sock")).unwrap();
        assert!(find(place, |_| {}).is_empty());
        std::thread::sleep(std::time::Duration::from_millis(20));
        let _second = UnixListener::bind(place.join("below/a.sock")).unwrap();
        assert_ne!(find(place, |_| {}), before);
    }
}
