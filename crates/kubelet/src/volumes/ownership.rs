//! Ownership of volume files: `fsGroup` and the user that all containers run as.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use k8s_openapi::api::core::v1::Pod;

const READ_WRITE: u32 = 0o660;
const READ_ONLY: u32 = 0o440;
/// New files in a folder get its group, and the group may enter it.
const FOLDER: u32 = 0o2110;

pub(super) fn fs_group(pod: &Pod) -> Option<u32> {
    pod.spec.as_ref()?.security_context.as_ref()?.fs_group.and_then(|group| u32::try_from(group).ok())
}

/// The user that every container of the pod runs as, when it is the same for all and said in the pod.
pub(super) fn fs_user(pod: &Pod) -> Option<u32> {
    let spec = pod.spec.as_ref()?;
    let of_pod = spec.security_context.as_ref().and_then(|context| context.run_as_user);
    let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    let own = containers.map(|container| container.security_context.as_ref().and_then(|context| context.run_as_user));
    let ephemeral = spec.ephemeral_containers.iter().flatten();
    let of_ephemeral = ephemeral.map(|container| container.security_context.as_ref()?.run_as_user);
    let mut users = own.chain(of_ephemeral).map(|user| user.or(of_pod));
    let first = users.next()??;
    users.all(|user| user == Some(first)).then(|| u32::try_from(first).ok())?
}

/// Gives a volume to the pod's `fsGroup`, if it has one.
pub(super) fn give(path: &Path, group: Option<u32>, read_only: bool) -> io::Result<()> {
    let Some(group) = group else { return Ok(()) };
    let file = if read_only { READ_ONLY } else { READ_WRITE };
    linux::tree::give_to_group(path, group, file, file | FOLDER)
}

/// Whether `fsGroupChangePolicy` lets the volume be as it is: the root is right, so the rest is taken to be.
pub(super) fn may_skip(pod: &Pod, path: &Path, group: Option<u32>, read_only: bool) -> io::Result<bool> {
    let context = pod.spec.as_ref().and_then(|spec| spec.security_context.as_ref());
    let policy = context.and_then(|context| context.fs_group_change_policy.as_deref());
    let Some(group) = group.filter(|_| policy == Some("OnRootMismatch")) else { return Ok(false) };
    let root = std::fs::metadata(path)?;
    let needed = FOLDER | if read_only { READ_ONLY } else { READ_WRITE };
    Ok(root.gid() == group && root.mode() & needed == needed)
}
