//! Volumes on real folders and mounts, with an API that is a function.

use std::path::PathBuf;

/// A folder of one test.
pub(super) struct Folder(pub PathBuf);

impl Folder {
    pub fn new(name: &str) -> Folder {
        let path =
            std::env::temp_dir().join(format!("kubelet-{name}-{}-{:08x}", std::process::id(), rand::random::<u32>()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(linux::tree::remove_tree(&self.0));
    }
}
