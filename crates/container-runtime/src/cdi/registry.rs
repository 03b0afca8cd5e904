//! All devices that vendors describe on this machine, by their names.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::Error;
use super::file::{Edits, File};

/// More files than any machine has vendors.
const FILES_MAX: usize = 1024;

/// Where a device is described: which file, and which of its devices.
#[derive(Clone, Copy, Debug)]
struct Place {
    file: usize,
    device: usize,
    /// Of its folder.
    priority: usize,
}

pub(super) struct Registry {
    files: Vec<File>,
    devices: BTreeMap<String, Place>,
}

impl Registry {
    /// Files that are broken are told of and left out. A device that two files of a folder describe is nobody's; one of a later folder
    /// stands before that of an earlier.
    pub fn read(folders: &[&Path]) -> Registry {
        let mut registry = Registry { files: Vec::new(), devices: BTreeMap::new() };
        let mut conflicts: BTreeMap<String, usize> = BTreeMap::new();
        for (priority, folder) in folders.iter().enumerate() {
            for path in files(folder) {
                match File::read(&path) {
                    Ok(file) => registry.add(file, priority, &path, &mut conflicts),
                    Err(error) => {
                        tracing::warn!(%error, file = %path.display(), "ignoring invalid CDI spec file");
                    }
                }
            }
        }
        // Only a later folder settles a conflict.
        registry.devices.retain(|name, place| conflicts.get(name).is_none_or(|priority| place.priority > *priority));
        registry
    }

    fn add(&mut self, file: File, priority: usize, path: &Path, conflicts: &mut BTreeMap<String, usize>) {
        for (device, one) in file.devices.iter().enumerate() {
            let name = format!("{}={}", file.kind, one.name);
            let place = Place { file: self.files.len(), device, priority };
            let before = self.devices.insert(name.clone(), place);
            if before.is_some_and(|before| before.priority == priority) {
                tracing::warn!(device = name, file = %path.display(), "conflicting CDI device: two spec files describe it");
                conflicts.insert(name, priority);
            }
        }
        self.files.push(file);
    }

    /// What the named devices want, with what their files want for all their devices, each once.
    pub fn resolve(&self, names: &[String]) -> Result<Vec<(String, &Edits)>, Error> {
        let missing: Vec<String> = names.iter().filter(|name| !self.devices.contains_key(*name)).cloned().collect();
        if !missing.is_empty() {
            return Err(Error::Unresolvable(missing));
        }
        let mut edits = Vec::new();
        let mut seen = BTreeSet::new();
        for name in names {
            let Some(place) = self.devices.get(name) else { continue };
            let file = &self.files[place.file];
            if seen.insert(place.file) {
                edits.push((name.clone(), &file.container_edits));
            }
            edits.push((name.clone(), &file.devices[place.device].container_edits));
        }
        Ok(edits)
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_ours = |path: &PathBuf| path.extension().is_some_and(|end| end == "json" || end == "yaml");
    let mut files: Vec<PathBuf> = entries.filter(is_ours).take(FILES_MAX).collect();
    files.sort();
    files
}
