//! Volumes of the built-in class `local-path`: folders of this node that hold no more than their claim asks for, where the file
//! system counts by project. What is in use is written down, so that no two folders share a project and none keeps its limit when its
//! folder is gone.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use component_helpers::volumes::{LOCAL_PATH_PROVISIONERS, PROVISIONED_BY, annotation, volume_size};
use k8s_openapi::api::core::v1::PersistentVolume;
use linux::quota::Folder;
use parking_lot::Mutex;

use super::blocking;

/// As upstream's kubelet counts, above what administrators choose.
const FIRST: u32 = 1_048_577;
/// So many volumes with a limit a node can have.
const PROJECTS_MAX: u32 = 1 << 20;
const FILE: &str = "local-path-projects.json";
const FILE_BYTES_MAX: u64 = 64 << 20;

/// The projects of this node's folders.
pub(super) struct Projects {
    file: PathBuf,
    /// One change at a time.
    gate: Mutex<()>,
}

impl Projects {
    pub fn new(root: &Path) -> Projects {
        Projects { file: root.join(FILE), gate: Mutex::default() }
    }

    /// Gives the folder of a volume its limit, or another one.
    fn limit(&self, folder: &Path, bytes_max: u64) -> io::Result<()> {
        let _gate = self.gate.lock();
        let Some(counted) = Folder::open(folder)? else { return Ok(()) };
        let id = match counted.id()? {
            Some(id) => id,
            // Whatever is in it belongs to no project: a volume from before there were limits stays without.
            None if !is_empty(folder)? => return Ok(()),
            None => self.begin(folder, &counted)?,
        };
        if self.read()?.get(folder) != Some(&id) {
            // Somebody else's, who sets the limit as well.
            return Ok(());
        }
        if counted.project(id)?.bytes_max != bytes_max.next_multiple_of(1024) {
            counted.set_limit(id, bytes_max)?;
        }
        Ok(())
    }

    /// Written down first: after a crash the folder gets the same project again.
    fn begin(&self, folder: &Path, counted: &Folder) -> io::Result<u32> {
        let mut known = self.read()?;
        let id = match known.get(folder) {
            Some(id) => *id,
            None => {
                let used: BTreeSet<u32> = known.values().copied().collect();
                let is_idle = |id: u32| counted.project(id).is_ok_and(|found| found == Default::default());
                let id = choose(&used, is_idle).ok_or_else(|| io::Error::other("every project is in use"))?;
                known.insert(folder.to_owned(), id);
                self.write(&known)?;
                id
            }
        };
        counted.set_id(id)?;
        Ok(id)
    }

    /// Takes limits away whose folders are gone.
    fn forget_gone(&self) -> io::Result<()> {
        let _gate = self.gate.lock();
        let mut known = self.read()?;
        let gone: Vec<(PathBuf, u32)> =
            known.iter().filter(|(folder, _)| is_gone(folder)).map(|(folder, id)| (folder.clone(), *id)).collect();
        for (folder, id) in &gone {
            // The folder above is on the same file system, unless its disk is not mounted: then it is tried again.
            let Some(parent) = folder.parent() else { continue };
            if let Ok(Some(counted)) = Folder::open(parent)
                && counted.project(*id).is_ok_and(|found| found.inodes_used == 0)
            {
                counted.set_limit(*id, 0)?;
                known.remove(folder);
            }
        }
        if gone.is_empty() { Ok(()) } else { self.write(&known) }
    }

    fn read(&self) -> io::Result<BTreeMap<PathBuf, u32>> {
        match linux::file::read_regular(&self.file, FILE_BYTES_MAX) {
            Ok(text) => serde_json::from_slice(&text).map_err(io::Error::other),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(BTreeMap::new()),
            Err(error) => Err(error),
        }
    }

    fn write(&self, known: &BTreeMap<PathBuf, u32>) -> io::Result<()> {
        let text = serde_json::to_vec(known).map_err(io::Error::other)?;
        component_base::files::write_durably(&self.file, text, 0o600)
    }
}

/// The first project that no folder has and that holds nothing of anybody's.
fn choose(used: &BTreeSet<u32>, is_idle: impl Fn(u32) -> bool) -> Option<u32> {
    (FIRST..FIRST + PROJECTS_MAX).find(|id| !used.contains(id) && is_idle(*id))
}

fn is_gone(folder: &Path) -> bool {
    std::fs::symlink_metadata(folder).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

fn is_empty(folder: &Path) -> io::Result<bool> {
    Ok(std::fs::read_dir(folder)?.next().is_none())
}

/// Where the volume's folder is and how much it may hold, if the class made it.
fn of(volume: &PersistentVolume) -> Option<(PathBuf, u64)> {
    let provisioner = annotation(&volume.metadata, PROVISIONED_BY)?;
    let source = volume.spec.as_ref()?.host_path.as_ref()?;
    let bytes = u64::try_from(volume_size(volume).value()).ok().filter(|bytes| *bytes > 0)?;
    LOCAL_PATH_PROVISIONERS.contains(&provisioner).then(|| (PathBuf::from(&source.path), bytes))
}

/// Makes a new folder usable for containers, and sees to its limit. A limit that cannot be set keeps no pod from running.
pub(super) async fn prepare(projects: &std::sync::Arc<Projects>, volume: &PersistentVolume) {
    let Some((folder, bytes)) = of(volume) else { return };
    let (projects, path) = (projects.clone(), folder.clone());
    let done = blocking(move || {
        label(&path)?;
        projects.limit(&path, bytes)
    });
    if let Err(error) = done.await {
        tracing::warn!(%error, folder = %folder.display(), "cannot limit the size of local-path volume");
    }
}

/// Containers of any level may use the folders of the class, as they may those of upstream's hostPath provisioner.
fn label(folder: &Path) -> io::Result<()> {
    match linux::selinux::contexts() {
        Some(contexts) if is_empty(folder)? => linux::selinux::set_label(folder, &contexts.file.to_string()),
        _ => Ok(()),
    }
}

pub(super) async fn forget_gone(projects: &std::sync::Arc<Projects>) {
    let projects = projects.clone();
    if let Err(error) = blocking(move || projects.forget_gone()).await {
        tracing::warn!(%error, "cannot take back the limits of removed local-path volumes");
    }
}

#[cfg(test)]
mod tests;
