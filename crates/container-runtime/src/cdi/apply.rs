//! Applies the edits of CDI devices to the OCI spec of a container.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use oci_spec::runtime::{
    Hook as OciHook, HookBuilder, Hooks, LinuxDevice, LinuxDeviceBuilder, LinuxDeviceCgroupBuilder, LinuxDeviceType,
    MountBuilder, Spec,
};

use super::Error;
use super::file::{Edits, Hook, Mount, Node};

/// Hooks without a limit of their own end after this: a container that never starts helps nobody.
const HOOK_SECONDS_MAX: i64 = 60;
/// libcontainer makes devices below here and nowhere else.
const DEVICES: &str = "/dev";

pub(super) fn apply(spec: &mut Spec, device: &str, edits: &Edits) -> Result<(), Error> {
    let unsupported = |what| Err(Error::Unsupported { device: device.to_owned(), what });
    if !edits.net_devices.is_empty() {
        return unsupported("network interfaces of the machine (netDevices)");
    }
    if edits.intel_rdt.is_some() {
        return unsupported("Intel RDT");
    }
    environment(spec, &edits.env);
    for node in &edits.device_nodes {
        add_node(spec, device, node)?;
    }
    for mount in &edits.mounts {
        add_mount(spec, device, mount)?;
    }
    for hook in &edits.hooks {
        add_hook(spec, device, hook)?;
    }
    groups(spec, &edits.additional_gids);
    Ok(())
}

/// A variable of the device stands instead of the container's own.
fn environment(spec: &mut Spec, variables: &[String]) {
    let Some(process) = spec.process_mut() else { return };
    let mut all = process.env().clone().unwrap_or_default();
    for variable in variables {
        let name = variable.split('=').next().unwrap_or_default();
        all.retain(|other| other.split('=').next() != Some(name));
        all.push(variable.clone());
    }
    process.set_env(Some(all));
}

fn groups(spec: &mut Spec, gids: &[u32]) {
    let Some(process) = spec.process_mut() else { return };
    let mut user = process.user().clone();
    let mut all = user.additional_gids().clone().unwrap_or_default();
    // The interface leaves out root's group.
    for gid in gids.iter().filter(|gid| **gid != 0) {
        if !all.contains(gid) {
            all.push(*gid);
        }
    }
    user.set_additional_gids(Some(all));
    process.set_user(user);
}

fn add_node(spec: &mut Spec, device: &str, node: &Node) -> Result<(), Error> {
    let build = |source| Error::Build { device: device.to_owned(), source };
    let made = described(spec, device, node)?;
    if matches!(made.typ(), LinuxDeviceType::B | LinuxDeviceType::C | LinuxDeviceType::U) {
        let access = node.permissions.as_deref().filter(|text| !text.is_empty()).unwrap_or("rwm");
        let rule = LinuxDeviceCgroupBuilder::default().allow(true).typ(made.typ()).access(access);
        let rule = rule.major(made.major()).minor(made.minor()).build().map_err(build)?;
        if let Some(resources) = spec.linux_mut().as_mut().and_then(|linux| linux.resources_mut().as_mut()) {
            let mut rules = resources.devices().clone().unwrap_or_default();
            rules.push(rule);
            resources.set_devices(Some(rules));
        }
    }
    if !made.path().starts_with(DEVICES) {
        let host_path = node.host_path.as_deref().unwrap_or(&node.path).to_owned();
        let options = vec!["bind".to_owned(), "rprivate".to_owned(), "rw".to_owned()];
        let mount = Mount { host_path, container_path: node.path.clone(), options, kind: Some("bind".to_owned()) };
        return add_mount(spec, device, &mount);
    }
    if let Some(linux) = spec.linux_mut() {
        let mut devices = linux.devices().clone().unwrap_or_default();
        devices.retain(|other| other.path() != made.path());
        devices.push(made);
        linux.set_devices(Some(devices));
    }
    Ok(())
}

/// The node as the file says, and where it says nothing, as the machine's own is.
fn described(spec: &Spec, device: &str, node: &Node) -> Result<LinuxDevice, Error> {
    let host_path = PathBuf::from(node.host_path.as_deref().unwrap_or(&node.path));
    let said = match node.kind.as_deref() {
        Some("b") => Some(LinuxDeviceType::B),
        Some("c") => Some(LinuxDeviceType::C),
        Some("u") => Some(LinuxDeviceType::U),
        Some("p") => Some(LinuxDeviceType::P),
        _ => None,
    };
    let complete = said == Some(LinuxDeviceType::P) || (said.is_some() && node.major.is_some() && node.minor.is_some());
    let found = if complete { None } else { Some(look(device, &host_path)?) };
    let (kind, major, minor) = match (&found, said) {
        (Some(found), said) => {
            (said.unwrap_or(found.kind), node.major.unwrap_or(found.major), node.minor.unwrap_or(found.minor))
        }
        (None, said) => (said.unwrap_or(LinuxDeviceType::C), node.major.unwrap_or(0), node.minor.unwrap_or(0)),
    };
    // What the container's user cannot open would be of no use to it.
    let user = spec.process().as_ref().map(|process| (process.user().uid(), process.user().gid())).unwrap_or_default();
    let own = |id: u32| Some(id).filter(|id| *id > 0);
    let builder = LinuxDeviceBuilder::default().path(&node.path).typ(kind).major(major).minor(minor);
    let mut made = builder.build().map_err(|source| Error::Build { device: device.to_owned(), source })?;
    made.set_file_mode(node.file_mode.or(found.map(|found| found.mode)));
    made.set_uid(node.uid.or(own(user.0)));
    made.set_gid(node.gid.or(own(user.1)));
    Ok(made)
}

struct Found {
    kind: LinuxDeviceType,
    major: i64,
    minor: i64,
    mode: u32,
}

fn look(device: &str, path: &Path) -> Result<Found, Error> {
    let metadata = std::fs::metadata(path).map_err(|source| Error::Node {
        device: device.to_owned(),
        path: path.to_owned(),
        source,
    })?;
    let kind = metadata.file_type();
    let kind = if kind.is_char_device() {
        LinuxDeviceType::C
    } else if kind.is_block_device() {
        LinuxDeviceType::B
    } else {
        return Err(Error::NoDevice { device: device.to_owned(), path: path.to_owned() });
    };
    let number = metadata.rdev();
    let (major, minor) = (i64::from(rustix::fs::major(number)), i64::from(rustix::fs::minor(number)));
    Ok(Found { kind, major, minor, mode: metadata.mode() & 0o7777 })
}

/// Mounts are in the order in which they must be made: what is inside of another comes after it.
fn add_mount(spec: &mut Spec, device: &str, mount: &Mount) -> Result<(), Error> {
    let mut options = mount.options.clone();
    let is_bind = options.iter().any(|option| option == "bind" || option == "rbind");
    let kind = match mount.kind.as_deref() {
        None | Some("") => "bind",
        Some(kind) => kind,
    };
    if kind == "bind" && !is_bind {
        options.push("rbind".to_owned());
    }
    let builder = MountBuilder::default().typ(kind).source(&mount.host_path).destination(&mount.container_path);
    let made = builder.options(options).build();
    let made = made.map_err(|source| Error::Build { device: device.to_owned(), source })?;
    let mut mounts = spec.mounts().clone().unwrap_or_default();
    mounts.retain(|other| other.destination() != made.destination());
    let deep = |path: &Path| path.components().count();
    let place = mounts.iter().rposition(|other| deep(other.destination()) <= deep(made.destination()));
    mounts.insert(place.map_or(0, |place| place + 1), made);
    spec.set_mounts(Some(mounts));
    Ok(())
}

fn add_hook(spec: &mut Spec, device: &str, hook: &Hook) -> Result<(), Error> {
    let build = |source| Error::Build { device: device.to_owned(), source };
    let timeout = hook.timeout.filter(|seconds| *seconds > 0).unwrap_or(HOOK_SECONDS_MAX);
    let mut made = HookBuilder::default().path(&hook.path).timeout(timeout).build().map_err(build)?;
    made.set_args(Some(hook.args.clone()).filter(|args| !args.is_empty()));
    made.set_env(Some(hook.env.clone()).filter(|env| !env.is_empty()));
    let mut hooks = spec.hooks().clone().unwrap_or_default();
    match hook.hook_name.as_str() {
        // The old name for what runs at the same moment.
        "prestart" | "createRuntime" => push(&mut hooks, made, Hooks::create_runtime, Hooks::set_create_runtime),
        "createContainer" => push(&mut hooks, made, Hooks::create_container, Hooks::set_create_container),
        "startContainer" => push(&mut hooks, made, Hooks::start_container, Hooks::set_start_container),
        "poststart" => push(&mut hooks, made, Hooks::poststart, Hooks::set_poststart),
        _ => {
            let what = "hooks that run after the container (poststop)";
            return Err(Error::Unsupported { device: device.to_owned(), what });
        }
    }
    spec.set_hooks(Some(hooks));
    Ok(())
}

fn push(
    hooks: &mut Hooks,
    hook: OciHook,
    get: fn(&Hooks) -> &Option<Vec<OciHook>>,
    set: fn(&mut Hooks, Option<Vec<OciHook>>) -> &mut Hooks,
) {
    let mut list = get(hooks).clone().unwrap_or_default();
    list.push(hook);
    set(hooks, Some(list));
}
