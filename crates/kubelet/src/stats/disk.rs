//! Usage of filesystems and directories.

use std::collections::HashSet;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::types::FsStats;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub bytes: u64,
    pub inodes: u64,
}

/// The filesystem that holds a path.
pub fn filesystem(path: &Path, time: &str) -> Option<FsStats> {
    let fs = rustix::fs::statvfs(path).ok()?;
    Some(FsStats {
        time: time.to_owned(),
        available_bytes: Some(fs.f_bavail * fs.f_frsize),
        capacity_bytes: Some(fs.f_blocks * fs.f_frsize),
        used_bytes: Some((fs.f_blocks - fs.f_bfree) * fs.f_frsize),
        inodes_free: Some(fs.f_ffree),
        inodes: Some(fs.f_files),
        inodes_used: Some(fs.f_files.saturating_sub(fs.f_ffree)),
    })
}

/// What lies below a folder on its own filesystem, links to one file counted once. Files may come and go meanwhile.
pub fn usage(folder: &Path) -> Usage {
    let mut usage = Usage::default();
    let Ok(top) = std::fs::symlink_metadata(folder) else { return usage };
    let mut linked = HashSet::new();
    let mut waiting = vec![(folder.to_owned(), top.clone())];
    while let Some((path, metadata)) = waiting.pop() {
        if metadata.dev() != top.dev() || (metadata.nlink() > 1 && !metadata.is_dir() && !linked.insert(metadata.ino()))
        {
            continue;
        }
        usage.bytes += metadata.blocks() * 512;
        usage.inodes += 1;
        if metadata.is_dir() {
            let entries = std::fs::read_dir(&path).into_iter().flatten().flatten();
            waiting.extend(entries.filter_map(|entry| {
                let metadata = std::fs::symlink_metadata(entry.path()).ok()?;
                Some((entry.path(), metadata))
            }));
        }
    }
    usage
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_counted_by_blocks_and_links_once() {
        let folder = tempfile::tempdir().unwrap();
        let empty = usage(folder.path());
        std::fs::create_dir(folder.path().join("a")).unwrap();
        std::fs::write(folder.path().join("a/f"), vec![1; 100_000]).unwrap();
        std::fs::hard_link(folder.path().join("a/f"), folder.path().join("g")).unwrap();
        std::os::unix::fs::symlink("/", folder.path().join("link")).unwrap();
        let full = usage(folder.path());
        assert_eq!(full.inodes - empty.inodes, 3, "a folder, a file, a link");
        assert!((100_000..150_000).contains(&(full.bytes - empty.bytes)), "{full:?}");
        assert_eq!(usage(&folder.path().join("gone")), Usage::default());
        assert!(filesystem(folder.path(), "now").unwrap().capacity_bytes > Some(0));
    }
}
