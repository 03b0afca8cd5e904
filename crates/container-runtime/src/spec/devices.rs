//! Which devices a container has, and which it may open.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use cri::v1;
use oci_spec::runtime::{
    LinuxDevice, LinuxDeviceBuilder, LinuxDeviceCgroup, LinuxDeviceCgroupBuilder, LinuxDeviceType,
};

use super::{Input, build, invalid};

/// Made in the container beside `/dev/null` and its kin, which libcontainer always makes.
pub(super) fn devices(input: &Input, security: &v1::LinuxContainerSecurityContext) -> cri::Result<Vec<LinuxDevice>> {
    let mut devices = if security.privileged { input.host.devices.clone() } else { Vec::new() };
    for device in asked(input)? {
        devices.retain(|other: &LinuxDevice| other.path() != device.device.path());
        devices.push(device.device);
    }
    Ok(devices)
}

/// Everything is denied, then what the pod has is allowed; the kernel takes the rules in this order.
pub(super) fn rules(
    input: &Input,
    security: &v1::LinuxContainerSecurityContext,
) -> cri::Result<Vec<LinuxDeviceCgroup>> {
    if security.privileged {
        return Ok(vec![rule(true, LinuxDeviceType::A, None, None, "rwm")?]);
    }
    let mut rules = vec![rule(false, LinuxDeviceType::A, None, None, "rwm")?];
    for Asked { device, permissions } in asked(input)? {
        rules.push(rule(true, device.typ(), Some(device.major()), Some(device.minor()), &permissions)?);
    }
    Ok(rules)
}

/// All devices below a folder, and the links to them. Terminals and shared memory belong to whoever mounted them.
pub fn host_devices(folder: &Path) -> (Vec<LinuxDevice>, BTreeMap<PathBuf, PathBuf>) {
    let mut devices = Vec::new();
    let mut links = BTreeMap::new();
    walk(folder, &mut devices, &mut links);
    devices.sort_by(|one, other| one.path().cmp(other.path()));
    (devices, links)
}

/// Folders below `/dev` that are file systems of their own, and `/dev/console`, which a container gets itself.
const PASSED_OVER: &[&str] = &["pts", "shm", "fd", "mqueue", ".lxc", ".lxd-mounts", ".udev", "console"];

fn walk(folder: &Path, devices: &mut Vec<LinuxDevice>, links: &mut BTreeMap<PathBuf, PathBuf>) {
    // A folder that went away, or may not be read, holds nothing for containers.
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        if entry.file_name().to_str().is_some_and(|name| PASSED_OVER.contains(&name)) {
            continue;
        }
        let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
        if metadata.is_dir() {
            walk(&path, devices, links);
        } else if metadata.is_symlink() {
            if let Ok(target) = fs::canonicalize(&path) {
                links.insert(path, target);
            }
        } else if let Some(device) = device(&path, &metadata) {
            devices.push(device);
        }
    }
}

fn device(path: &Path, metadata: &fs::Metadata) -> Option<LinuxDevice> {
    let kind = metadata.file_type();
    let kind = if kind.is_char_device() {
        LinuxDeviceType::C
    } else if kind.is_block_device() {
        LinuxDeviceType::B
    } else {
        return None;
    };
    let number = metadata.rdev();
    LinuxDeviceBuilder::default()
        .path(path)
        .typ(kind)
        .major(i64::from(rustix::fs::major(number)))
        .minor(i64::from(rustix::fs::minor(number)))
        .file_mode(metadata.mode() & 0o7777)
        .uid(metadata.uid())
        .gid(metadata.gid())
        .build()
        .ok()
}

struct Asked {
    device: LinuxDevice,
    permissions: String,
}

/// The devices the configuration names. A folder stands for all devices in it.
fn asked(input: &Input) -> cri::Result<Vec<Asked>> {
    let mut found = Vec::new();
    for wanted in &input.config.devices {
        let named = Path::new(&wanted.host_path);
        let host_path = input.host.device_links.get(named).map_or(named, PathBuf::as_path);
        let before = found.len();
        for device in input.host.devices.iter().filter(|device| device.path().starts_with(host_path)) {
            let rest = device.path().strip_prefix(host_path).unwrap_or(Path::new(""));
            let container_path = Path::new(&wanted.container_path);
            let place = if rest.as_os_str().is_empty() { container_path.to_owned() } else { container_path.join(rest) };
            let mut device = device.clone();
            device.set_path(place);
            let permissions = if wanted.permissions.is_empty() { "rwm" } else { &wanted.permissions };
            found.push(Asked { device, permissions: permissions.to_owned() });
        }
        if found.len() == before {
            return Err(invalid(format!("error gathering device information while adding custom device {named:?}")));
        }
    }
    Ok(found)
}

fn rule(
    allow: bool,
    kind: LinuxDeviceType,
    major: Option<i64>,
    minor: Option<i64>,
    access: &str,
) -> cri::Result<LinuxDeviceCgroup> {
    let mut rule = LinuxDeviceCgroupBuilder::default().allow(allow).typ(kind).access(access).build().map_err(build)?;
    rule.set_major(major);
    rule.set_minor(minor);
    Ok(rule)
}
