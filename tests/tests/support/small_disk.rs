//! Nodes on a disk of their own that is soon full.

#![allow(dead_code, reason = "every test program uses its own part of this")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use testkit::{Machine, Options, Server};

use crate::node::Node;

/// A file system of its own, with the data of a node on it.
pub struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(folder: &Path, size: &str) -> SmallDisk {
        let options = format!("size={size},mode=755");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &options, "knarr-test"]).arg(folder).status();
        assert!(mounted.unwrap().success());
        SmallDisk(folder.into())
    }

    pub fn free(&self) -> u64 {
        let found = rustix::fs::statvfs(&self.0).unwrap();
        found.f_bavail * found.f_frsize
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// A node on a disk that is soon full. In this order, so that the disk goes after the node.
pub fn on_small_disk(size: &str, arguments: &[&str]) -> (SmallDisk, Node) {
    let folder = tempfile::Builder::new().prefix("knarr-test-").tempdir().unwrap();
    let disk = SmallDisk::mount(folder.path(), size);
    let arguments = arguments.iter().map(|argument| argument.to_string()).collect();
    let options = Options { arguments, machine: Some(Arc::new(Machine::start().unwrap())) };
    (disk, Node::on(Server::start_in(folder, options).unwrap()))
}
