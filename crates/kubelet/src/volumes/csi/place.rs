//! Paths of CSI volumes on the node: upstream's paths, which drivers and tools know.

use std::io;
use std::path::{Path, PathBuf};

use super::record::Record;
use super::wanted::{Wanted, hex};
use crate::volumes::folders::is_safe_name;

pub(super) const PLUGIN: &str = "kubernetes.io~csi";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Filesystem,
    Block,
}

/// The places of one volume for one pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub mode: Mode,
    /// The folder of the pod's record.
    pub record: PathBuf,
    /// Where the driver shows it to the pod.
    pub target: PathBuf,
    /// The folder of the node's record.
    pub stage_record: PathBuf,
    /// Where the driver shows it once for the whole node.
    pub staging: PathBuf,
    /// For devices: a link in the pod's folder that says which one it uses.
    pub link: Option<PathBuf>,
}

#[derive(Clone, Debug)]
pub(super) struct Places {
    root: PathBuf,
    root_of_drivers: PathBuf,
}

impl Places {
    pub fn new(root: &Path, root_of_drivers: &Path) -> Places {
        Places { root: root.to_owned(), root_of_drivers: root_of_drivers.to_owned() }
    }

    /// Nothing when a name would lead elsewhere.
    pub fn of(&self, uid: &str, wanted: &Wanted) -> Option<Place> {
        let mode = if wanted.is_block { Mode::Block } else { Mode::Filesystem };
        self.place(uid, mode, &wanted.name, &wanted.driver, &wanted.handle)
    }

    pub fn place(&self, uid: &str, mode: Mode, name: &str, driver: &str, handle: &str) -> Option<Place> {
        if ![uid, name, driver].into_iter().all(is_safe_name) || handle.is_empty() {
            return None;
        }
        let pod = self.root.join("pods").join(uid);
        let plugin = self.root.join("plugins/kubernetes.io/csi");
        Some(match mode {
            Mode::Filesystem => {
                let record = pod.join("volumes").join(PLUGIN).join(name);
                let stage_record = plugin.join(driver).join(hex(handle));
                Place {
                    mode,
                    target: record.join("mount"),
                    record,
                    staging: stage_record.join("globalmount"),
                    stage_record,
                    link: None,
                }
            }
            Mode::Block => {
                let devices = plugin.join("volumeDevices");
                Place {
                    mode,
                    record: pod.join("plugins").join(PLUGIN).join(name),
                    target: devices.join("publish").join(name).join(uid),
                    stage_record: devices.join(name).join("data"),
                    staging: devices.join("staging").join(name),
                    link: Some(pod.join("volumeDevices").join(PLUGIN).join(name)),
                }
            }
        })
    }

    /// The path as drivers know it.
    pub(crate) fn for_driver(&self, path: &Path) -> String {
        let path = match path.strip_prefix(&self.root) {
            Ok(below) => self.root_of_drivers.join(below),
            Err(_) => path.to_owned(),
        };
        path.to_string_lossy().into_owned()
    }

    /// A pod's records: the volume's name, how it is used and what is known. One that cannot be read is an error: what it
    /// stands for must not be taken to be gone.
    pub(crate) fn records_of(&self, uid: &str) -> io::Result<Vec<(String, Mode, Record)>> {
        let pod = self.root.join("pods").join(uid);
        let mut found = Vec::new();
        for (folder, mode) in [("volumes", Mode::Filesystem), ("plugins", Mode::Block)] {
            for name in names(&pod.join(folder).join(PLUGIN))? {
                if let Some(record) = Record::load(&pod.join(folder).join(PLUGIN).join(&name))? {
                    found.push((name, mode, record));
                }
            }
        }
        Ok(found)
    }

    /// The records of all pods. Those that cannot be read are told of and left out.
    pub fn records(&self) -> Vec<(String, Mode, Record)> {
        let mut found = Vec::new();
        for uid in names(&self.root.join("pods")).unwrap_or_default() {
            match self.records_of(&uid) {
                Ok(records) => found.extend(records.into_iter().map(|(_, mode, record)| (uid.clone(), mode, record))),
                Err(error) => tracing::warn!(%error, pod_uid = uid, "cannot read CSI volume records of pod"),
            }
        }
        found
    }
}

fn names(folder: &Path) -> io::Result<Vec<String>> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    Ok(names.filter(|name| is_safe_name(name)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_upstreams() {
        let places = Places::new(Path::new("/data/kubelet"), Path::new("/var/lib/kubelet"));
        let place = places.place("u1", Mode::Filesystem, "pv", "d.io", "h").unwrap();
        let hash = "aaa9402664f1a41f40ebbc52c9993eb66aeb366602958fdfaa283b71e64db123";
        assert_eq!(
            places.for_driver(&place.staging),
            format!("/var/lib/kubelet/plugins/kubernetes.io/csi/d.io/{hash}/globalmount")
        );
        assert_eq!(places.for_driver(&place.target), "/var/lib/kubelet/pods/u1/volumes/kubernetes.io~csi/pv/mount");
        let place = places.place("u1", Mode::Block, "pv", "d.io", "h").unwrap();
        let devices = "/var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices";
        assert_eq!(places.for_driver(&place.staging), format!("{devices}/staging/pv"));
        assert_eq!(places.for_driver(&place.target), format!("{devices}/publish/pv/u1"));
        for (uid, name, driver) in [("..", "pv", "d"), ("u", "../x", "d"), ("u", "pv", "a/b"), ("u", "", "d")] {
            assert_eq!(places.place(uid, Mode::Filesystem, name, driver, "h"), None);
        }
    }
}
