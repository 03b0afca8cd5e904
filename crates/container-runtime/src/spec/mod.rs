//! From a container's CRI configuration to the OCI runtime specification. Data in, data out.

use std::path::PathBuf;

use cri::v1;
use oci_spec::runtime::Spec;

use crate::image::ImageConfig;

/// Everything that decides how a container is set up.
pub struct Input<'a> {
    pub id: &'a str,
    pub config: &'a v1::ContainerConfig,
    pub sandbox: &'a v1::PodSandboxConfig,
    pub image: &'a ImageConfig,
    /// The mounted root file system.
    pub rootfs: PathBuf,
    /// `/etc/passwd` and `/etc/group` of the image, for names of users and groups.
    pub passwd: &'a str,
    pub group: &'a str,
    pub namespaces: &'a Namespaces,
    pub host: &'a Host,
    /// Files the runtime gives every container: path in the container, path here.
    pub resolv_conf: PathBuf,
    pub hostname_file: PathBuf,
    pub dev_shm: PathBuf,
}

/// The pod's namespaces, as paths that `setns` takes. What is absent is the host's, or made for the container (`pid`).
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Namespaces {
    pub network: Option<PathBuf>,
    pub ipc: Option<PathBuf>,
    pub uts: Option<PathBuf>,
    pub pid: Option<PathBuf>,
    pub user: Option<PathBuf>,
}

/// What this machine has.
#[derive(Clone, Debug)]
pub struct Host {
    pub cgroup: linux::cgroup::Hierarchy,
    pub apparmor: bool,
    /// All devices below `/dev`, for privileged containers.
    pub devices: Vec<oci_spec::runtime::LinuxDevice>,
}

pub fn spec(input: &Input) -> cri::Result<Spec> {
    let _ = input;
    Ok(Spec::default())
}
