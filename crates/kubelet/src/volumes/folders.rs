//! Paths of a pod's directories, as upstream: `<root>/pods/<uid>/volumes/<plugin>/<name>`.

use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

#[derive(Clone, Debug)]
pub(super) struct Folders {
    pods: PathBuf,
    plugins: PathBuf,
}

/// Those whose folders are named after persistent volumes.
const PERSISTENT: [&str; 3] = ["kubernetes.io~csi", "kubernetes.io~local-volume", "kubernetes.io~nfs"];

/// Others on the node have no business in here.
const MODE: u32 = 0o750;

impl Folders {
    pub fn new(root: &Path) -> Folders {
        Folders { pods: root.join("pods"), plugins: root.join("plugins") }
    }

    pub fn pod(&self, uid: &str) -> PathBuf {
        self.pods.join(uid)
    }

    pub fn volume(&self, uid: &str, plugin: &str, name: &str) -> PathBuf {
        self.pod(uid).join("volumes").join(plugin).join(name)
    }

    pub fn device(&self, uid: &str, plugin: &str, name: &str) -> PathBuf {
        self.pod(uid).join("volumeDevices").join(plugin).join(name)
    }

    pub fn plugin(&self, uid: &str, plugin: &str, name: &str) -> PathBuf {
        self.pod(uid).join("plugins").join(plugin).join(name)
    }

    pub fn sub_path(&self, uid: &str, volume: &str, container: &str, index: usize) -> PathBuf {
        self.pod(uid).join("volume-subpaths").join(volume).join(container).join(index.to_string())
    }

    /// Where the devices that a plugin mounts itself are mounted once for all pods, as upstream has it.
    pub(crate) fn device_mounts(&self, plugin: &str) -> PathBuf {
        self.plugins.join(plugin.replace('~', "/")).join("mounts")
    }

    /// Whether the folder of any pod has such a volume.
    pub fn is_used(&self, plugin: &str, name: &str) -> bool {
        self.uids().iter().any(|uid| self.volume(uid, plugin, name).exists())
    }

    /// Whether another pod has this persistent volume, as files or as a device.
    pub(super) fn is_used_by_another(&self, uid: &str, volume: &str) -> bool {
        let has = |other: &String| {
            let mut places = PERSISTENT
                .iter()
                .flat_map(|plugin| [self.volume(other, plugin, volume), self.device(other, plugin, volume)]);
            places.any(|place| place.exists())
        };
        self.uids().iter().filter(|other| *other != uid).any(has)
    }

    /// The pod's folder and the ones every pod has.
    pub fn make(&self, uid: &str) -> io::Result<()> {
        if !is_safe_name(uid) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("invalid pod uid {uid:?}")));
        }
        make_folder(&self.pod(uid).join("volumes"))?;
        make_folder(&self.pod(uid).join("plugins"))
    }

    /// Takes down the parts of volumes that containers were shown.
    pub(crate) fn unmount_sub_paths(&self, uid: &str) -> io::Result<()> {
        if !is_safe_name(uid) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("invalid pod uid {uid:?}")));
        }
        let folder = self.pod(uid).join("volume-subpaths");
        // Most pods have none, and the mounts of a node are many.
        if folder.exists() { linux::volume_mount::unmount_below(&folder) } else { Ok(()) }
    }

    /// Takes down what is mounted in the pod's folder and removes it.
    pub fn remove(&self, uid: &str) -> io::Result<()> {
        if !is_safe_name(uid) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("invalid pod uid {uid:?}")));
        }
        let folder = self.pod(uid);
        linux::volume_mount::unmount_below(&folder)?;
        linux::tree::remove_tree(&folder)
    }

    pub fn uids(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.pods).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        names.filter(|name| is_safe_name(name)).collect()
    }
}

/// Makes a folder and its parents, for the node's eyes only.
pub(super) fn make_folder(path: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(MODE).create(path)
}

/// Whether a name can stand in a path as one plain component.
pub(super) fn is_safe_name(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('.') && name.len() <= 255 && !name.contains(['/', '\0'])
}
