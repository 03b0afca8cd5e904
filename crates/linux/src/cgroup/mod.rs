//! Control groups, v1 (each controller its own tree), v2, and both beside each other.
//!
//! A [`Group`] is one path in all trees. Where the trees are mounted is found once ([`Cgroups::detect`]) or told, so that
//! everything that only reads and writes files can be tried on a folder.

mod group;
mod resources;
mod stats;
mod oom;
mod devices;
#[cfg(test)]
mod tests;

use std::fs;
use std::path::{Path, PathBuf};

pub use devices::{DeviceKind, DeviceRule};
pub use group::Group;
pub use resources::{HugepageLimit, Resources};
pub use stats::{Cpu, Io, Memory, Pids, Pressure, Psi, PsiLine, Stats};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{step} {}", path.display())]
    Io {
        step: &'static str,
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("processes of {} do not end", path.display())]
    StillRunning { path: PathBuf },
    #[error("{} is not a path of a control group", path.display())]
    Path { path: PathBuf },
}

pub type Result<T> = std::result::Result<T, Error>;

/// How this machine's control groups are mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Hierarchy {
    V1,
    V2,
}

impl Hierarchy {
    pub fn detect() -> Hierarchy {
        Cgroups::detect().hierarchy
    }
}

/// The trees of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cgroups {
    pub hierarchy: Hierarchy,
    /// On v1 the name of each tree and its folder (`cpu,cpuacct` in one tree is there under the whole name); on v2 the one
    /// tree, without a name.
    mounts: Vec<(String, PathBuf)>,
}

impl Cgroups {
    pub fn detect() -> Cgroups {
        let mountinfo = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        Cgroups::from_mountinfo(&mountinfo)
    }

    pub fn v1(mounts: Vec<(String, PathBuf)>) -> Cgroups {
        Cgroups { hierarchy: Hierarchy::V1, mounts }
    }

    pub fn v2(root: impl Into<PathBuf>) -> Cgroups {
        Cgroups { hierarchy: Hierarchy::V2, mounts: vec![(String::new(), root.into())] }
    }

    /// One path in all trees. It is absolute or relative to the root, and stays below it.
    pub fn group(&self, path: impl AsRef<Path>) -> Result<Group> {
        Group::new(self.clone(), path.as_ref())
    }

    /// Names and folders of the trees.
    pub fn mounts(&self) -> &[(String, PathBuf)] {
        &self.mounts
    }

    /// Whether a controller can be used.
    pub fn has(&self, controller: &str) -> bool {
        match self.hierarchy {
            Hierarchy::V1 => self.tree(controller).is_some(),
            Hierarchy::V2 => self.controllers().iter().any(|name| name == controller),
        }
    }

    pub fn limits_swap(&self) -> bool {
        match self.hierarchy {
            Hierarchy::V1 => self.tree("memory").is_some_and(|tree| tree.join("memory.memsw.limit_in_bytes").exists()),
            // The root has no such file; without swap accounting no group has it, and writing is then skipped.
            Hierarchy::V2 => self.has("memory"),
        }
    }

    /// The folder of the tree that has a controller.
    pub(crate) fn tree(&self, controller: &str) -> Option<&Path> {
        match self.hierarchy {
            Hierarchy::V1 => self
                .mounts
                .iter()
                .find(|(name, _)| name.split(',').any(|one| one == controller))
                .map(|(_, folder)| folder.as_path()),
            Hierarchy::V2 => self.mounts.first().map(|(_, folder)| folder.as_path()),
        }
    }

    /// On v2: what the root offers.
    pub(crate) fn controllers(&self) -> Vec<String> {
        let Some((_, root)) = self.mounts.first() else { return Vec::new() };
        let text = fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
        text.split_whitespace().map(str::to_owned).collect()
    }

    /// Lines are `id parent major:minor root mountpoint options - type source superoptions`. A v2 tree beside trees of v1
    /// has no controllers, so v1 counts.
    fn from_mountinfo(text: &str) -> Cgroups {
        let mut v1 = Vec::new();
        let mut v2 = None;
        for line in text.lines() {
            let Some((before, after)) = line.split_once(" - ") else { continue };
            let Some(folder) = before.split(' ').nth(4).map(PathBuf::from) else { continue };
            let mut after = after.split(' ');
            match after.next() {
                Some("cgroup") => {
                    let name = tree_name(after.nth(1).unwrap_or_default());
                    if !name.is_empty() && !v1.iter().any(|(other, _)| *other == name) {
                        v1.push((name, folder));
                    }
                }
                Some("cgroup2") if v2.is_none() => v2 = Some(folder),
                _ => {}
            }
        }
        let controllers = v1.iter().any(|(name, _)| name == "memory");
        match v2 {
            Some(root) if !controllers => Cgroups::v2(root),
            _ => Cgroups::v1(v1),
        }
    }
}

/// From the mount's options: its controllers. A tree that only has a name (`name=systemd`) limits nothing and is left to
/// whoever made it.
fn tree_name(options: &str) -> String {
    let words = options.split(',').filter(|word| !PLAIN_OPTIONS.contains(word) && !word.contains('='));
    words.collect::<Vec<_>>().join(",")
}

const PLAIN_OPTIONS: &[&str] =
    &["rw", "ro", "xattr", "noprefix", "clone_children", "cpuset_v2_mode", "favordynmods", "seclabel", "all", "none"];
