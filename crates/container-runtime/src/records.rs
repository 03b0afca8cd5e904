//! Records of sandboxes and containers on disk, from which a restarted runtime reloads them.

use std::io;
use std::path::{Path, PathBuf};

use cri::{Addresses, v1};
use serde::{Deserialize, Serialize};

use crate::selinux::PodLabels;
use crate::shim::protocol::{Exit, exit_record};
use crate::shim::{read_json, write_json};

const SANDBOX: &str = "sandbox.json";

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SandboxRecord {
    pub id: String,
    pub config: v1::PodSandboxConfig,
    pub handler: String,
    pub created_at: i64,
    pub addresses: Addresses,
    /// False while it is being made, and when it has been stopped.
    pub ready: bool,
    /// Made through the CRI socket: the kubelet of this node neither sees nor removes it.
    #[serde(default)]
    pub foreign: bool,
    /// Where the machine has SELinux.
    #[serde(default)]
    pub selinux: Option<PodLabels>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ContainerRecord {
    pub id: String,
    pub sandbox: String,
    pub config: v1::ContainerConfig,
    /// The name under which the image is shown, its id, and the reference by which it can be found again.
    pub image: String,
    pub image_id: String,
    pub image_ref: String,
    pub created_at: i64,
    pub cgroup: PathBuf,
    pub log_path: Option<PathBuf>,
    pub stop_signal: i32,
    pub user: Option<v1::LinuxContainerUser>,
    /// Image volumes hold snapshots of their own under these names.
    pub snapshots: Vec<String>,
    /// It was asked to start; what is not running any more has then ended.
    pub started: bool,
    /// Why it could not be started.
    pub failure: Option<Failure>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Failure {
    pub code: i32,
    pub reason: String,
    pub message: String,
    pub at: i64,
}

/// The folder of one sandbox below `<root>/sandboxes`.
#[derive(Clone, Debug)]
pub(crate) struct Folder(pub PathBuf);

impl Folder {
    pub fn resolv_conf(&self) -> PathBuf {
        self.0.join("resolv.conf")
    }

    pub fn hostname(&self) -> PathBuf {
        self.0.join("hostname")
    }

    pub(crate) fn write_sandbox(&self, record: &SandboxRecord) -> io::Result<()> {
        write_json(&self.0.join(SANDBOX), record)
    }

    pub(crate) fn write_container(&self, record: &ContainerRecord) -> io::Result<()> {
        write_json(&self.container(&record.id), record)
    }

    pub fn exit(&self, container: &str) -> Option<Exit> {
        read_json(&self.0.join(exit_record(container))).ok()
    }

    pub fn remove_container(&self, container: &str) -> io::Result<()> {
        for file in [self.0.join(exit_record(container)), self.container(container)] {
            match std::fs::remove_file(file) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    fn container(&self, id: &str) -> PathBuf {
        self.0.join(format!("{id}.json"))
    }
}

/// All sandboxes with their containers. What cannot be read is said and left out, so that one broken file does not take
/// the node away.
pub(crate) fn load(sandboxes: &Path) -> io::Result<Vec<(Folder, SandboxRecord, Vec<ContainerRecord>)>> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(sandboxes)? {
        let folder = Folder(entry?.path());
        let sandbox: SandboxRecord = match read_json(&folder.0.join(SANDBOX)) {
            Ok(record) => record,
            Err(error) => {
                tracing::warn!(folder = %folder.0.display(), %error, "cannot read sandbox record; removing the sandbox");
                let _ = std::fs::remove_dir_all(&folder.0);
                continue;
            }
        };
        let mut containers = Vec::new();
        for file in std::fs::read_dir(&folder.0)? {
            let path = file?.path();
            if path.extension().is_none_or(|extension| extension != "json") || path.ends_with(SANDBOX) {
                continue;
            }
            match read_json(&path) {
                Ok(record) => containers.push(record),
                Err(error) => tracing::warn!(file = %path.display(), %error, "cannot read container record"),
            }
        }
        all.push((folder, sandbox, containers));
    }
    Ok(all)
}
