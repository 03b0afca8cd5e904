//! One cgroup: its folders, its processes, its removal.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{Cgroups, Error, Hierarchy, Result};

/// How long processes may take to vanish after SIGKILL; one in an uninterruptible wait can take longer.
const KILL_PATIENCE: Duration = Duration::from_secs(5);
const KILL_PAUSE: Duration = Duration::from_millis(2);
/// A group stays busy for a moment after its last process was reaped.
const REMOVE_PATIENCE: Duration = Duration::from_secs(2);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    pub(super) cgroups: Cgroups,
    /// Relative to the roots.
    pub(super) path: PathBuf,
}

impl Group {
    pub(super) fn new(cgroups: Cgroups, path: &Path) -> Result<Group> {
        let relative = path.strip_prefix("/").unwrap_or(path);
        let plain = relative.components().all(|part| matches!(part, Component::Normal(_)));
        if !plain || relative.as_os_str().is_empty() {
            return Err(Error::Path { path: path.to_owned() });
        }
        Ok(Group { cgroups, path: relative.to_owned() })
    }

    pub fn hierarchy(&self) -> Hierarchy {
        self.cgroups.hierarchy
    }

    /// The path, from the root.
    pub fn path(&self) -> PathBuf {
        Path::new("/").join(&self.path)
    }

    /// The group's folder in the tree of a controller, if there is such a tree.
    pub fn folder(&self, controller: &str) -> Option<PathBuf> {
        self.cgroups.tree(controller).map(|tree| tree.join(&self.path))
    }

    /// The group's folder in every tree.
    pub fn folders(&self) -> Vec<PathBuf> {
        self.cgroups.mounts().iter().map(|(_, tree)| tree.join(&self.path)).collect()
    }

    pub fn child(&self, name: &str) -> Result<Group> {
        Group::new(self.cgroups.clone(), &self.path.join(name))
    }

    /// Names of the groups directly below, in any tree.
    pub fn children(&self) -> Vec<String> {
        let mut names = BTreeSet::new();
        for folder in self.folders() {
            let last = |path: &PathBuf| Some(path.file_name()?.to_str()?.to_owned());
            names.extend(children(&folder).iter().filter_map(last));
        }
        names.into_iter().collect()
    }

    /// In every tree, so that a group whose creation was interrupted is made whole.
    pub fn exists(&self) -> bool {
        self.folders().iter().all(|folder| folder.is_dir())
    }

    /// Makes the group and those above it in all trees.
    pub fn create(&self) -> Result<()> {
        match self.cgroups.hierarchy {
            Hierarchy::V1 => self.create_v1(),
            Hierarchy::V2 => self.create_v2(),
        }
    }

    fn create_v1(&self) -> Result<()> {
        for (name, tree) in self.cgroups.mounts() {
            let cpuset = name.split(',').any(|one| one == "cpuset");
            let mut folder = tree.clone();
            for part in self.path.components() {
                let parent = folder.clone();
                folder.push(part);
                make(&folder)?;
                if cpuset {
                    inherit_cpuset(&parent, &folder)?;
                }
            }
        }
        Ok(())
    }

    /// A controller works in a group only when all groups above hand it on.
    fn create_v2(&self) -> Result<()> {
        let Some((_, root)) = self.cgroups.mounts().first() else { return Ok(()) };
        let mut folder = root.clone();
        for part in self.path.components() {
            hand_on_controllers(&folder)?;
            folder.push(part);
            make(&folder)?;
        }
        Ok(())
    }

    /// Moves a process (all its threads) into the group.
    pub fn add(&self, pid: u32) -> Result<()> {
        for folder in self.folders() {
            write(&folder.join("cgroup.procs"), &pid.to_string())?;
        }
        Ok(())
    }

    /// All processes of the group and of those below it. What does not exist has none.
    pub fn procs(&self) -> Result<Vec<u32>> {
        let mut found = BTreeSet::new();
        for folder in self.folders() {
            collect_procs(&folder, &mut found)?;
        }
        Ok(found.into_iter().collect())
    }

    /// Stops or continues every process of the group and below.
    pub fn freeze(&self, frozen: bool) -> Result<()> {
        match self.cgroups.hierarchy {
            Hierarchy::V1 => {
                let Some(folder) = self.folder("freezer") else { return Ok(()) };
                let state = if frozen { "FROZEN" } else { "THAWED" };
                write_if_there(&folder.join("freezer.state"), state)
            }
            Hierarchy::V2 => {
                let Some(folder) = self.folder("") else { return Ok(()) };
                write_if_there(&folder.join("cgroup.freeze"), if frozen { "1" } else { "0" })
            }
        }
    }

    /// Ends every process of the group and below, and waits until they are gone. None can fork its way out.
    pub fn kill(&self) -> Result<()> {
        let deadline = Instant::now() + KILL_PATIENCE;
        loop {
            let pids = self.procs()?;
            if pids.is_empty() {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(Error::StillRunning { path: self.path() });
            }
            if !self.kill_at_once()? {
                // Frozen processes cannot fork while they are signalled; the signal takes effect when they thaw.
                self.freeze(true)?;
                for pid in self.procs()? {
                    end(pid);
                }
                self.freeze(false)?;
            }
            thread::sleep(KILL_PAUSE);
        }
    }

    /// The kernel's own way, on v2 since 5.14.
    pub(super) fn kill_at_once(&self) -> Result<bool> {
        if self.cgroups.hierarchy == Hierarchy::V1 {
            return Ok(false);
        }
        let Some(file) = self.folder("").map(|folder| folder.join("cgroup.kill")) else { return Ok(false) };
        if !file.exists() {
            return Ok(false);
        }
        write(&file, "1")?;
        Ok(true)
    }

    /// Removes the group and those below it from all trees. Its processes must have ended. What is gone already is fine.
    pub fn remove(&self) -> Result<()> {
        let deadline = Instant::now() + REMOVE_PATIENCE;
        for folder in self.folders() {
            remove_folder(&folder, deadline)?;
        }
        Ok(())
    }

    /// Reads a file of the group; nothing if this kernel, or this group, has none.
    pub(super) fn read(&self, controller: &str, file: &str) -> Option<String> {
        fs::read_to_string(self.folder(controller)?.join(file)).ok()
    }
}

fn make(folder: &Path) -> Result<()> {
    match fs::create_dir(folder) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(source) => Err(Error::Io { step: "create", path: folder.to_owned(), source }),
    }
}

/// A new group of v1 has no processors, and no process may enter until it has some.
fn inherit_cpuset(parent: &Path, folder: &Path) -> Result<()> {
    for file in ["cpuset.cpus", "cpuset.mems"] {
        let own = fs::read_to_string(folder.join(file)).unwrap_or_default();
        if own.trim().is_empty() {
            let above = fs::read_to_string(parent.join(file)).unwrap_or_default();
            if !above.trim().is_empty() {
                write(&folder.join(file), above.trim())?;
            }
        }
    }
    Ok(())
}

/// Each by itself: one that cannot be handed on (realtime processes and `cpu`) must not hold up the others.
fn hand_on_controllers(folder: &Path) -> Result<()> {
    let list = |file: &str| -> BTreeSet<String> {
        let text = fs::read_to_string(folder.join(file)).unwrap_or_default();
        text.split_whitespace().map(str::to_owned).collect()
    };
    let there = list("cgroup.subtree_control");
    for controller in list("cgroup.controllers").difference(&there) {
        if !WANTED.contains(&controller.as_str()) {
            continue;
        }
        match write(&folder.join("cgroup.subtree_control"), &format!("+{controller}")) {
            Ok(()) => {}
            Err(Error::Io { source, .. }) if may_stay_behind(&source) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Controllers that limits or statistics are made of.
const WANTED: &[&str] = &["cpu", "cpuset", "memory", "pids", "io", "hugetlb", "misc", "rdma"];

fn may_stay_behind(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error().map(Errno::from_raw),
        Some(Errno::EINVAL | Errno::EBUSY | Errno::EOPNOTSUPP | Errno::ENOENT)
    )
}

fn collect_procs(folder: &Path, found: &mut BTreeSet<u32>) -> Result<()> {
    match fs::read_to_string(folder.join("cgroup.procs")) {
        Ok(text) => {
            found.extend(text.lines().filter_map(|line| line.trim().parse::<u32>().ok()).filter(|pid| *pid != 0))
        }
        Err(error) if gone(&error) => return Ok(()),
        // A threaded group of v2 shows its processes in the group above only.
        Err(error) if error.raw_os_error() == Some(Errno::EOPNOTSUPP as i32) => {}
        Err(source) => return Err(Error::Io { step: "read", path: folder.join("cgroup.procs"), source }),
    }
    for child in children(folder) {
        collect_procs(&child, found)?;
    }
    Ok(())
}

/// Groups below, one level. What vanishes meanwhile is passed over.
fn children(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    entries
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect()
}

fn remove_folder(folder: &Path, deadline: Instant) -> Result<()> {
    for child in children(folder) {
        remove_folder(&child, deadline)?;
    }
    loop {
        match fs::remove_dir(folder) {
            Ok(()) => return Ok(()),
            Err(error) if gone(&error) => return Ok(()),
            Err(error) if error.raw_os_error() == Some(Errno::EBUSY as i32) && Instant::now() < deadline => {
                thread::sleep(KILL_PAUSE);
            }
            Err(source) => return Err(Error::Io { step: "remove", path: folder.to_owned(), source }),
        }
    }
}

/// ENODEV is what reading a file of a removed group gives.
fn gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(Errno::ENODEV as i32)
}

fn end(pid: u32) {
    // It may have ended by itself meanwhile.
    let _ = kill(Pid::from_raw(pid as i32), Signal::SIGKILL);
}

pub(super) fn write(path: &Path, value: &str) -> Result<()> {
    let io = |source| Error::Io { step: "write to", path: path.to_owned(), source };
    let mut file = fs::OpenOptions::new().write(true).open(path).map_err(io)?;
    // One write call: the kernel takes each as a whole value.
    io::Write::write_all(&mut file, value.as_bytes()).map_err(io)
}

/// A kernel without the file has nothing to limit there.
pub(super) fn write_if_there(path: &Path, value: &str) -> Result<()> {
    match write(path, value) {
        Err(Error::Io { source, .. }) if gone(&source) => Ok(()),
        result => result,
    }
}
