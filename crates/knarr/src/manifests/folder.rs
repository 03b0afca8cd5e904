//! The folder itself: which files it holds, and when something there changes.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::anyhow;
use component_base::inotify::{Watcher, What};
use serde_json::Value;

use super::plan::{self, Reference};
use super::{digest, read};

/// No manifest is larger.
const BYTES_MAX: u64 = 10 << 20;
/// Deeper folders are not looked into.
const DEPTH_MAX: usize = 8;

/// A manifest, as it was read.
#[derive(Debug)]
pub struct File {
    /// Below the folder, with `/` between its parts.
    pub path: String,
    text: std::io::Result<Vec<u8>>,
}

impl File {
    /// The objects it holds, in their order.
    pub fn objects(&self) -> anyhow::Result<Vec<Value>> {
        read::objects(self.text.as_ref().map_err(|error| anyhow!("{error}"))?)
    }

    /// What it asks for, as far as it can be read.
    pub fn references(&self) -> Vec<Reference> {
        self.objects().unwrap_or_default().iter().filter_map(Reference::of).collect()
    }

    /// Tells one text from another.
    pub fn digest(&self) -> String {
        match &self.text {
            Ok(bytes) => digest(bytes),
            Err(error) => error.to_string(),
        }
    }
}

/// Every manifest below the folder, by name. One that cannot be read is there as well, with the reason.
pub fn files(folder: &Path) -> Vec<File> {
    let mut paths = Vec::new();
    walk(folder, 0, &mut paths);
    let below = |path: &PathBuf| Some(path.strip_prefix(folder).ok()?.to_str()?.to_owned());
    let names: Vec<String> = paths.iter().filter_map(below).collect();
    let file = |path: String| File { text: text(&folder.join(&path)), path };
    plan::manifests(names).into_iter().map(file).collect()
}

/// Whether anything there was written so lately that somebody may still be at it.
pub fn was_written_within(folder: &Path, time: Duration) -> bool {
    let mut paths = Vec::new();
    walk(folder, 0, &mut paths);
    let age = |path: &PathBuf| std::fs::metadata(path).and_then(|file| file.modified()).ok()?.elapsed().ok();
    paths.iter().filter_map(age).any(|age| age < time)
}

fn walk(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() && depth < DEPTH_MAX => walk(&entry.path(), depth + 1, found),
            Ok(kind) if kind.is_dir() => {}
            _ => found.push(entry.path()),
        }
    }
}

fn text(path: &Path) -> std::io::Result<Vec<u8>> {
    linux::file::read_followed(path, BYTES_MAX)
}

/// The kernel tells when something changes; nothing polls.
pub struct Watch(Watcher);

impl Watch {
    pub fn open() -> std::io::Result<Watch> {
        Ok(Watch(Watcher::new()?))
    }

    /// The folder and those below it; those that are watched already stay so.
    pub fn add(&mut self, folder: &Path) -> std::io::Result<()> {
        // A folder that was deleted is made again, so that there is something to watch.
        linux::file::make_private_folder(folder)?;
        self.add_below(folder, 0)
    }

    fn add_below(&self, folder: &Path, depth: usize) -> std::io::Result<()> {
        let what = What::CLOSE_WRITE
            | What::CREATE
            | What::DELETE
            | What::MOVED_FROM
            | What::MOVED_TO
            | What::DELETE_SELF
            | What::MOVE_SELF;
        if !self.0.add_if_there(folder, what)? {
            return Ok(());
        }
        if depth == DEPTH_MAX {
            return Ok(());
        }
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                self.add_below(&entry.path(), depth + 1)?;
            }
        }
        Ok(())
    }

    pub async fn changed(&mut self) -> std::io::Result<()> {
        self.0.changed().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn changes_are_noticed_in_folders_below_too() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("b")).unwrap();
        let mut watch = Watch::open().unwrap();
        watch.add(folder.path()).unwrap();
        for path in ["a.yaml", "b/c.json", "b/note.txt"] {
            std::fs::write(folder.path().join(path), "kind: X").unwrap();
            tokio::time::timeout(Duration::from_secs(10), watch.changed()).await.expect(path).unwrap();
        }
        assert!(was_written_within(folder.path(), Duration::from_secs(60)));
        assert!(!was_written_within(folder.path(), Duration::ZERO));
        let paths: Vec<String> = files(folder.path()).into_iter().map(|file| file.path).collect();
        assert_eq!(paths, ["a.yaml", "b/c.json"]);
    }

    #[test]
    fn what_cannot_be_read_is_an_error_of_that_file_alone() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("good.yaml"), "").unwrap();
        std::os::unix::fs::symlink("nowhere", folder.path().join("bad.yaml")).unwrap();
        let files = files(folder.path());
        assert!(files[0].objects().is_err() && files[1].objects().unwrap().is_empty());
    }
}
