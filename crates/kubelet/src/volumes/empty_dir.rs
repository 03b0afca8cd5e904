//! `emptyDir`: a folder that lives as long as the pod, on disk, in memory or in huge pages.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use futures::FutureExt;
use k8s_openapi::api::core::v1::{EmptyDirVolumeSource, Pod};
use k8s_openapi::apimachinery::pkg::api::resource;
use machinery::quantity::Quantity;

use super::folders::{Folders, make_folder};
use super::{Error, Problem, Request, Type, Volume, blocking, ownership};

pub(super) static TYPE: Type =
    Type { is: |volume| volume.empty_dir.is_some(), mount: |request| mount(request).boxed() };

pub(super) const PLUGIN: &str = "kubernetes.io~empty-dir";
/// Everybody may write.
const MODE: u32 = 0o777;
/// In memory also with the sticky bit, as kernels make such file systems and upstream leaves them.
const MEMORY_MODE: u32 = 0o1777;

/// Where the content of an emptyDir is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Medium {
    Disk,
    Memory { bytes_max: Option<u64> },
    HugePages { page_size: u64 },
}

/// What an emptyDir takes now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Used {
    pub volume: String,
    pub bytes: u64,
    pub inodes: u64,
    /// `sizeLimit`; a pod that takes more is evicted.
    pub limit: Option<u64>,
    pub in_memory: bool,
}

async fn mount(request: Request<'_>) -> Result<Volume, Problem> {
    let source = request.volume.empty_dir.clone().unwrap_or_default();
    let medium = medium(&request, &source).await?;
    let (path, mark) = (request.path(PLUGIN), request.ready_mark(PLUGIN));
    let group = ownership::fs_group(request.pod);
    let folder = path.clone();
    blocking(move || {
        // Once it is ready its content and permissions are the containers' own affair.
        if mark.exists() && is_there(&folder, medium)? {
            return Ok(());
        }
        make(&folder, medium)?;
        ownership::give(&folder, group, false)?;
        mark_ready(&mark)
    })
    .await
    .map_err(|source| Error::Step { step: "emptyDir".to_owned(), source })?;
    Ok(Volume::Path { path, read_only: false, relabel: true })
}

/// A folder on the given medium that everybody may write to; also the ground of secret and projected volumes.
pub(super) fn make(folder: &Path, medium: Medium) -> io::Result<()> {
    if let Some(parent) = folder.parent() {
        make_folder(parent)?;
    }
    match std::fs::create_dir(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    if !is_there(folder, medium)? {
        match medium {
            Medium::Disk => {}
            Medium::Memory { bytes_max } => linux::volume_mount::mount_tmpfs(folder, bytes_max, MEMORY_MODE)?,
            Medium::HugePages { page_size } => linux::volume_mount::mount_hugetlbfs(folder, page_size)?,
        }
    }
    let mode = if matches!(medium, Medium::Memory { .. }) { MEMORY_MODE } else { MODE };
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(mode))
}

/// Whether the right file system is mounted there; after a restart of the machine it is not.
fn is_there(folder: &Path, medium: Medium) -> io::Result<bool> {
    let wished = match medium {
        Medium::Disk => return Ok(folder.is_dir()),
        Medium::Memory { .. } => "tmpfs",
        Medium::HugePages { .. } => "hugetlbfs",
    };
    Ok(linux::volume_mount::file_system_at(folder)?.as_deref() == Some(wished))
}

pub(super) fn mark_ready(mark: &Path) -> io::Result<()> {
    if let Some(parent) = mark.parent() {
        make_folder(parent)?;
    }
    linux::file::write(mark, "", 0o600)
}

async fn medium(request: &Request<'_>, source: &EmptyDirVolumeSource) -> Result<Medium, Problem> {
    match source.medium.as_deref().unwrap_or_default() {
        "" => Ok(Medium::Disk),
        "Memory" => Ok(memory(request, source.size_limit.as_ref()).await),
        name if name.starts_with("HugePages") => {
            Ok(Medium::HugePages { page_size: huge_page_size(request.pod, name)? })
        }
        name => Err(Error::Medium(name.to_owned()).into()),
    }
}

/// Memory, limited by what is asked for, what the pod may use and what the node has.
pub(super) async fn memory(request: &Request<'_>, limit: Option<&resource::Quantity>) -> Medium {
    // A node whose size is not known yet sets no limit.
    let allocatable = request.objects.allocatable(request.node_name).await.unwrap_or_default();
    let amounts = [allocatable.get("memory").and_then(bytes), memory_limit(request.pod), limit.and_then(bytes)];
    Medium::Memory { bytes_max: amounts.into_iter().flatten().filter(|amount| *amount > 0).min() }
}

fn bytes(amount: &resource::Quantity) -> Option<u64> {
    u64::try_from(Quantity::parse(&amount.0).ok()?.value()).ok()
}

/// The pod's memory limit: its own, or the sum of its containers' (init containers count as far as they need more).
fn memory_limit(pod: &Pod) -> Option<u64> {
    let spec = pod.spec.as_ref()?;
    let of = |limits: Option<&BTreeMap<String, resource::Quantity>>| limits?.get("memory").and_then(bytes);
    if let Some(whole) = of(spec.resources.as_ref().and_then(|resources| resources.limits.as_ref())) {
        return Some(whole);
    }
    let limit = |container: &k8s_openapi::api::core::v1::Container| {
        of(container.resources.as_ref().and_then(|resources| resources.limits.as_ref())).unwrap_or(0)
    };
    let mut sidecars = 0;
    let mut start_max = 0;
    for container in spec.init_containers.iter().flatten() {
        match container.restart_policy.as_deref() {
            Some("Always") => {
                sidecars += limit(container);
                start_max = start_max.max(sidecars);
            }
            _ => start_max = start_max.max(sidecars + limit(container)),
        }
    }
    let running: u64 = spec.containers.iter().map(limit).sum::<u64>() + sidecars;
    Some(running.max(start_max)).filter(|limit| *limit > 0)
}

/// The page size that `HugePages-<size>` names, or the only one that the pod's containers ask for.
fn huge_page_size(pod: &Pod, medium: &str) -> Result<u64, Error> {
    let parse = |text: &str| {
        let size = Quantity::parse(text).ok().and_then(|size| u64::try_from(size.value()).ok());
        size.ok_or_else(|| Error::HugePageSize(text.to_owned()))
    };
    if let Some(size) = medium.strip_prefix("HugePages-") {
        return parse(size);
    }
    let spec = pod.spec.as_ref();
    let containers = spec.into_iter().flat_map(|spec| spec.init_containers.iter().flatten().chain(&spec.containers));
    let requests = containers.filter_map(|container| container.resources.as_ref()?.requests.as_ref());
    let sizes: std::collections::BTreeSet<&str> =
        requests.flat_map(|requests| requests.keys()).filter_map(|name| name.strip_prefix("hugepages-")).collect();
    match Vec::from_iter(sizes).as_slice() {
        [one] => parse(one),
        [] => Err(Error::NoHugePages),
        _ => Err(Error::SeveralHugePages),
    }
}

/// What each emptyDir of the pod takes. One that cannot be measured is said and left out.
pub(super) fn usage(folders: &Folders, pod: &Pod) -> Vec<Used> {
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref()).unwrap_or_default();
    let mut all = Vec::new();
    for volume in volumes {
        let Some(source) = &volume.empty_dir else { continue };
        let path = folders.volume(uid, PLUGIN, &volume.name);
        match linux::tree::usage(&path) {
            Ok(used) => all.push(Used {
                volume: volume.name.clone(),
                bytes: used.bytes,
                inodes: used.inodes,
                limit: source.size_limit.as_ref().and_then(bytes).filter(|limit| *limit > 0),
                in_memory: source.medium.as_deref() == Some("Memory"),
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => tracing::warn!(%error, path = %path.display(), "cannot measure emptyDir"),
        }
    }
    all
}
