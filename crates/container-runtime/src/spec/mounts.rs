//! Mounts of a container: the kernel's file systems, the pod's files, the volumes.

use std::path::{Path, PathBuf};

use cri::v1;
use linux::cgroup::Hierarchy;
use linux::volume_mount::MountPoint;
use oci_spec::runtime::{Mount, MountBuilder};

use super::{Input, build, cgroups_path, devices, invalid};

pub(super) fn mounts(input: &Input, security: &v1::LinuxContainerSecurityContext) -> cri::Result<Vec<Mount>> {
    let mut mounts = kernel_mounts(input, security)?;
    let mut bound: Vec<Mount> = input.config.mounts.iter().map(bind).collect::<cri::Result<_>>()?;
    bound.extend(pod_files(input, security)?);
    for (host_path, container_path) in devices::binds(input)? {
        bound.push(mount("bind", host_path, container_path, &["bind", "rprivate", "rw"])?);
    }
    // A volume inside another must come after it, whatever the order in the pod.
    bound.sort_by_key(|mount| mount.destination().components().count());
    // A volume over one of the kernel's file systems replaces it, as `hostPath: /sys` of monitoring agents does.
    // One at `/dev` brings all that is below it, as with containerd.
    let is_brought = |path: &Path| bound.iter().any(|mount| mount.destination() == path);
    let brings_dev = is_brought(Path::new("/dev"));
    mounts.retain(|mount| {
        let path = mount.destination();
        let is_below_dev = brings_dev && path.starts_with("/dev");
        !is_brought(path) && !is_below_dev
    });
    mounts.extend(bound);
    Ok(mounts)
}

/// How mounts on this machine reach the container's own namespace at first. Each mount is then set to what it asked for by
/// [`super::Confinement::prepare`], since libcontainer 0.7 leaves the propagation of single mounts as it is.
pub(super) fn rootfs_propagation(config: &v1::ContainerConfig) -> &'static str {
    let asks = |propagation| config.mounts.iter().any(|mount| mount.propagation() == propagation);
    if asks(v1::MountPropagation::PropagationBidirectional) {
        "shared"
    } else if asks(v1::MountPropagation::PropagationHostToContainer) {
        "slave"
    } else {
        "private"
    }
}

/// Refuses a propagation that the machine's own mounts could not give: the pod would wait for mounts that never come.
pub(crate) fn check_propagation(mounts: &[v1::Mount]) -> cri::Result<()> {
    for mount in mounts.iter().filter(|mount| mount.propagation() != v1::MountPropagation::PropagationPrivate) {
        let path = Path::new(&mount.host_path);
        let failed =
            |error: std::io::Error| cri::Error::unknown(format!("find the mount of {}: {error}", path.display()));
        if let Some(found) = linux::volume_mount::mount_of(path).map_err(failed)?
            && let Some(problem) = refusal(mount.propagation(), &found)
        {
            let (path, at) = (&mount.host_path, found.path.display());
            return Err(cri::Error::unknown(format!("path {path:?} is mounted on \"{at}\" but it is not {problem}")));
        }
    }
    Ok(())
}

/// What the mount would have to be, in containerd's words.
fn refusal(asked: v1::MountPropagation, found: &MountPoint) -> Option<&'static str> {
    match asked {
        v1::MountPropagation::PropagationPrivate => None,
        v1::MountPropagation::PropagationHostToContainer => {
            (!found.is_shared && !found.is_slave).then_some("a shared or slave mount")
        }
        v1::MountPropagation::PropagationBidirectional => (!found.is_shared).then_some("a shared mount"),
    }
}

/// Where a path of the container lies on this machine: in the deepest volume that holds it, or in the root file system.
/// The first is the folder that must not be left, the second the path below it.
pub fn place_of<'a>(mounts: &[v1::Mount], rootfs: &'a Path, path: &'a Path) -> (PathBuf, PathBuf) {
    let holding = mounts
        .iter()
        .filter(|mount| path.starts_with(&mount.container_path))
        .max_by_key(|mount| Path::new(&mount.container_path).components().count());
    match holding {
        Some(mount) => {
            let rest = path.strip_prefix(&mount.container_path).unwrap_or(path);
            (PathBuf::from(&mount.host_path), rest.to_owned())
        }
        None => (rootfs.to_owned(), path.strip_prefix("/").unwrap_or(path).to_owned()),
    }
}

fn kernel_mounts(input: &Input, security: &v1::LinuxContainerSecurityContext) -> cri::Result<Vec<Mount>> {
    let access = if security.privileged { "rw" } else { "ro" };
    let mut mounts = vec![
        mount("proc", "proc", "/proc", &["nosuid", "noexec", "nodev"])?,
        mount("tmpfs", "tmpfs", "/dev", &["nosuid", "strictatime", "mode=755", "size=65536k"])?,
        mount(
            "devpts",
            "devpts",
            "/dev/pts",
            &["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"],
        )?,
        mount("mqueue", "mqueue", "/dev/mqueue", &["nosuid", "noexec", "nodev"])?,
        mount("sysfs", "sysfs", "/sys", &["nosuid", "noexec", "nodev", access])?,
    ];
    match input.host.cgroup {
        Hierarchy::V2 => {
            let options = ["nosuid", "noexec", "nodev", "relatime", access];
            mounts.push(mount("cgroup", "cgroup", "/sys/fs/cgroup", &options)?);
        }
        // The library would mount the trees of v1 writable, so that a container could raise its own limits: each is bound
        // here instead, from the container's own group down.
        Hierarchy::V1 => {
            mounts.push(mount("tmpfs", "tmpfs", "/sys/fs/cgroup", &["nosuid", "noexec", "nodev", "mode=755"])?);
            let own = cgroups_path(input.sandbox, input.id);
            let own = own.strip_prefix("/").unwrap_or(&own);
            for (name, place) in &input.host.cgroup_mounts {
                let destination = Path::new("/sys/fs/cgroup").join(name);
                let options = ["bind", "nosuid", "noexec", "nodev", access];
                mounts.push(mount("bind", place.join(own), destination, &options)?);
            }
        }
    }
    Ok(mounts)
}

/// The runtime's own files, unless the configuration brings the same.
fn pod_files(input: &Input, security: &v1::LinuxContainerSecurityContext) -> cri::Result<Vec<Mount>> {
    let access = if security.readonly_rootfs { "ro" } else { "rw" };
    let files = [
        ("/etc/hostname", &input.hostname_file, access),
        ("/etc/resolv.conf", &input.resolv_conf, access),
        ("/dev/shm", &input.dev_shm, "rw"),
    ];
    let mut mounts = Vec::new();
    for (path, source, access) in files {
        let brought = input.config.mounts.iter().any(|mount| clean(&mount.container_path) == Path::new(path));
        if !brought && !source.as_os_str().is_empty() {
            mounts.push(mount("bind", source.clone(), path, &["rbind", "rprivate", access])?);
        }
    }
    Ok(mounts)
}

fn bind(asked: &v1::Mount) -> cri::Result<Mount> {
    let propagation = match asked.propagation() {
        v1::MountPropagation::PropagationPrivate => "rprivate",
        v1::MountPropagation::PropagationHostToContainer => "rslave",
        v1::MountPropagation::PropagationBidirectional => "rshared",
    };
    if asked.recursive_read_only && !asked.readonly {
        return Err(invalid(format!("mount {:?} must be read-only to be so recursively", asked.container_path)));
    }
    if asked.recursive_read_only && propagation != "rprivate" {
        return Err(invalid(format!("mount {:?} must be private to be recursively read-only", asked.container_path)));
    }
    let access = match (asked.recursive_read_only, asked.readonly) {
        (true, _) => "rro",
        (false, true) => "ro",
        (false, false) => "rw",
    };
    mount("bind", &asked.host_path, clean(&asked.container_path), &["rbind", propagation, access])
}

/// Relative paths start at the root, and double or closing slashes say nothing.
fn clean(path: &str) -> PathBuf {
    Path::new("/").components().chain(Path::new(path.trim_start_matches('/')).components()).collect()
}

fn mount(
    kind: &str,
    source: impl Into<PathBuf>,
    destination: impl Into<PathBuf>,
    options: &[&str],
) -> cri::Result<Mount> {
    MountBuilder::default()
        .typ(kind)
        .source(source)
        .destination(destination)
        .options(options.iter().map(|option| (*option).to_owned()).collect::<Vec<_>>())
        .build()
        .map_err(build)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn propagation_needs_a_mount_that_has_it() {
        use v1::MountPropagation::{PropagationBidirectional, PropagationHostToContainer, PropagationPrivate};
        let check = |asked, is_shared, is_slave, expected: Option<&str>| {
            let found = MountPoint { path: "/".into(), file_system: "ext4".into(), is_shared, is_slave };
            assert_eq!(refusal(asked, &found), expected, "{asked:?} {is_shared} {is_slave}");
        };
        check(PropagationPrivate, false, false, None);
        check(PropagationHostToContainer, true, false, None);
        check(PropagationHostToContainer, false, true, None);
        check(PropagationHostToContainer, false, false, Some("a shared or slave mount"));
        check(PropagationBidirectional, true, true, None);
        check(PropagationBidirectional, false, true, Some("a shared mount"));
    }
}
