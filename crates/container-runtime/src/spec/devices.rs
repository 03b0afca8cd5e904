//! Device nodes and device cgroup rules of a container.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use cri::v1;
use linux::cgroup::{DeviceKind, DeviceRule};
use oci_spec::runtime::{
    LinuxDevice, LinuxDeviceBuilder, LinuxDeviceCgroup, LinuxDeviceCgroupBuilder, LinuxDeviceType, Spec,
};

use super::{Input, build, invalid};

/// Where libcontainer makes devices. It refuses every other place.
const FOLDER: &str = "/dev";

/// Made in the container beside `/dev/null` and its kin, which libcontainer always makes.
pub(super) fn devices(input: &Input, security: &v1::LinuxContainerSecurityContext) -> cri::Result<Vec<LinuxDevice>> {
    let mut devices = if security.privileged { input.host.devices.clone() } else { Vec::new() };
    for device in asked(input)?.into_iter().filter(|asked| asked.device.path().starts_with(FOLDER)) {
        devices.retain(|other: &LinuxDevice| other.path() != device.device.path());
        devices.push(device.device);
    }
    Ok(devices)
}

/// Devices that a container wants elsewhere, as the `devicePath` of a volume may be anywhere: what is on the machine, and where
/// it is bound to. Whether it may be opened is up to the same rules as for the others.
pub(super) fn binds(input: &Input) -> cri::Result<Vec<(PathBuf, PathBuf)>> {
    let elsewhere = asked(input)?.into_iter().filter(|asked| !asked.device.path().starts_with(FOLDER));
    Ok(elsewhere.map(|asked| (asked.host_path, asked.device.path().clone())).collect())
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
    for Asked { device, permissions, .. } in asked(input)? {
        rules.push(rule(true, device.typ(), Some(device.major()), Some(device.minor()), &permissions)?);
    }
    Ok(rules)
}

/// The rules of a specification together with what every container may use, for groups that libcontainer does not restrict.
pub(super) fn group_rules(spec: &Spec) -> Vec<DeviceRule> {
    let resources = spec.linux().as_ref().and_then(|linux| linux.resources().as_ref());
    let asked = resources.and_then(|resources| resources.devices().as_ref()).into_iter().flatten().map(|rule| {
        let kind = match rule.typ() {
            Some(LinuxDeviceType::B) => DeviceKind::Block,
            Some(LinuxDeviceType::C | LinuxDeviceType::U) => DeviceKind::Character,
            _ => DeviceKind::All,
        };
        // A negative number is every number, as in the specification.
        let number = |number: Option<i64>| number.and_then(|number| u32::try_from(number).ok());
        let access = rule.access().as_deref().unwrap_or("rwm");
        device_rule(rule.allow(), kind, number(rule.major()), number(rule.minor()), access)
    });
    let mut rules: Vec<DeviceRule> = asked.collect();
    for (kind, major, minor, access) in ALWAYS_ALLOWED {
        rules.push(device_rule(true, *kind, *major, *minor, access));
    }
    rules
}

/// Any device can be made, since making is not opening; null, zero, full, random, urandom, tty, console, ptmx and the
/// terminals can be opened.
static ALWAYS_ALLOWED: &[(DeviceKind, Option<u32>, Option<u32>, &str)] = &[
    (DeviceKind::Character, None, None, "m"),
    (DeviceKind::Block, None, None, "m"),
    (DeviceKind::Character, Some(1), Some(3), "rwm"),
    (DeviceKind::Character, Some(1), Some(5), "rwm"),
    (DeviceKind::Character, Some(1), Some(7), "rwm"),
    (DeviceKind::Character, Some(1), Some(8), "rwm"),
    (DeviceKind::Character, Some(1), Some(9), "rwm"),
    (DeviceKind::Character, Some(5), Some(0), "rwm"),
    (DeviceKind::Character, Some(5), Some(1), "rwm"),
    (DeviceKind::Character, Some(5), Some(2), "rwm"),
    (DeviceKind::Character, Some(136), None, "rwm"),
];

fn device_rule(allow: bool, kind: DeviceKind, major: Option<u32>, minor: Option<u32>, access: &str) -> DeviceRule {
    let has = |letter: char| access.contains(letter);
    DeviceRule { allow, kind, major, minor, read: has('r'), write: has('w'), make: has('m') }
}

/// All devices below a folder, and the links to them. Terminals and shared memory belong to whoever mounted them.
pub(crate) fn host_devices(folder: &Path) -> (Vec<LinuxDevice>, BTreeMap<PathBuf, PathBuf>) {
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
    /// As it is to be in the container.
    device: LinuxDevice,
    host_path: PathBuf,
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
            let host_path = device.path().clone();
            let mut device = device.clone();
            device.set_path(place);
            let permissions = if wanted.permissions.is_empty() { "rwm" } else { &wanted.permissions };
            found.push(Asked { device, host_path, permissions: permissions.to_owned() });
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
