//! The cgroups of a container, seen from the shim: joining them, counting OOM kills, ending all that is in them.

use std::io;
use std::path::{Path, PathBuf};

/// Folders of one container, one per hierarchy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Groups(Vec<PathBuf>);

impl Groups {
    /// Those of this name that exist, in all hierarchies that are mounted.
    pub fn named(name: &Path) -> io::Result<Groups> {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo")?;
        Ok(Groups(folders(name, &mounts).into_iter().filter(|folder| folder.is_dir()).collect()))
    }

    pub fn join(&self, pid: u32) -> io::Result<()> {
        for folder in &self.0 {
            std::fs::write(folder.join("cgroup.procs"), pid.to_string())?;
        }
        Ok(())
    }

    /// Joins the trees without controllers, such as systemd's, which libcontainer leaves out.
    pub(crate) fn join_named(name: &Path, pid: u32) -> io::Result<()> {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo")?;
        let named: String = mounts
            .lines()
            .filter(|line| line.split([',', ' ']).any(|word| word.starts_with("name=")))
            .map(|line| format!("{line}\n"))
            .collect();
        Groups(folders(name, &named).into_iter().filter(|folder| folder.is_dir()).collect()).join(pid)
    }

    pub fn processes(&self) -> Vec<i32> {
        let mut all = Vec::new();
        for folder in &self.0 {
            let listed = std::fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
            all.extend(listed.lines().filter_map(|line| line.parse::<i32>().ok()).filter(|pid| *pid > 1));
        }
        all.sort_unstable();
        all.dedup();
        all
    }

    /// How often the kernel killed something in here because memory ran out.
    pub fn oom_kills(&self) -> u64 {
        let count = |file: &str| -> u64 {
            self.0
                .iter()
                .filter_map(|folder| std::fs::read_to_string(folder.join(file)).ok())
                .flat_map(|text| {
                    text.lines()
                        .filter_map(|line| line.strip_prefix("oom_kill ").and_then(|count| count.trim().parse().ok()))
                        .collect::<Vec<u64>>()
                })
                .sum()
        };
        count("memory.events") + count("memory.oom_control")
    }

    /// Kills until nothing is left, or nothing more can be done.
    pub(crate) fn kill_all(&self) {
        const ROUNDS_MAX: usize = 50;
        for _ in 0..ROUNDS_MAX {
            if self.0.iter().any(|folder| std::fs::write(folder.join("cgroup.kill"), "1").is_ok()) {
                return;
            }
            let processes = self.processes();
            if processes.is_empty() {
                return;
            }
            for pid in processes {
                // It may have ended since it was listed.
                let _ = linux::process::kill(pid, 9);
            }
        }
    }

    /// Takes the folders away. What is still dying in them keeps them a moment; false then.
    pub fn remove(&self) -> bool {
        // Each is tried, also after one that cannot be removed.
        self.0.iter().filter(|folder| !remove_tree(folder)).count() == 0
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn remove_tree(folder: &Path) -> bool {
    // A program inside may have made groups of its own.
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_tree(&entry.path());
        }
    }
    match std::fs::remove_dir(folder) {
        Ok(()) => true,
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

/// The folder of a group in every hierarchy. The root group is none of a container's.
fn folders(name: &Path, mounts: &str) -> Vec<PathBuf> {
    let inside = name.strip_prefix("/").unwrap_or(name);
    if inside.as_os_str().is_empty() || inside.components().any(|part| part.as_os_str() == "..") {
        return Vec::new();
    }
    let mut found: Vec<PathBuf> = mounts.lines().filter_map(hierarchy).map(|mount| mount.join(inside)).collect();
    found.dedup();
    found
}

/// The mount point, if this line of `mountinfo` is one of cgroups.
fn hierarchy(line: &str) -> Option<&Path> {
    let (left, right) = line.split_once(" - ")?;
    let kind = right.split(' ').next()?;
    if kind != "cgroup" && kind != "cgroup2" {
        return None;
    }
    left.split(' ').nth(4).map(Path::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_both_versions() {
        let name = Path::new("/kubepods/pod1/c");
        let v2 = "23 1 0:20 / /sys rw - sysfs sysfs rw\n\
                  30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
        assert_eq!(folders(name, v2), [PathBuf::from("/sys/fs/cgroup/kubepods/pod1/c")]);
        let hybrid = "31 23 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n\
                      32 23 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
                      33 23 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
        let expected = ["unified", "cpu,cpuacct", "memory"]
            .map(|hierarchy| PathBuf::from(format!("/sys/fs/cgroup/{hierarchy}/kubepods/pod1/c")));
        assert_eq!(folders(name, hybrid), expected);
        assert!(folders(Path::new("/"), v2).is_empty(), "the root group holds the whole machine");
        assert!(folders(Path::new("/a/../.."), v2).is_empty());
    }
}
