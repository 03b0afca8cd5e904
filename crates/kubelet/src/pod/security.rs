//! Under which identity and with which rights containers run: the pod's and the container's security contexts together.

use std::path::Path;

use cri::v1;
use k8s_openapi::api::core::v1::{AppArmorProfile, Container, Pod, SELinuxOptions, SeccompProfile};

use super::spec;

/// What upstream hides from containers below /proc and /sys.
static MASKED_PATHS: &[&str] = &[
    "/proc/asound",
    "/proc/acpi",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
];
static READ_ONLY_PATHS: &[&str] = &["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// The part of a security context that the pod gives and the container may override.
#[derive(Clone, Debug, Default)]
pub struct Effective {
    pub run_as_user: Option<i64>,
    pub run_as_group: Option<i64>,
    pub run_as_non_root: Option<bool>,
}

pub fn effective(pod: &Pod, container: &Container) -> Effective {
    let of_pod = spec::wishes(pod).security_context.clone().unwrap_or_default();
    let own = container.security_context.clone().unwrap_or_default();
    Effective {
        run_as_user: own.run_as_user.or(of_pod.run_as_user),
        run_as_group: own.run_as_group.or(of_pod.run_as_group),
        run_as_non_root: own.run_as_non_root.or(of_pod.run_as_non_root),
    }
}

/// A container that must not be root and would be, or may be; shown to the user.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RootError {
    #[error("container's runAsUser breaks non-root policy {0}")]
    User(String),
    #[error("container has runAsNonRoot and image will run as root {0}")]
    Image(String),
    #[error(
        "container has runAsNonRoot and image has non-numeric user ({name}), cannot verify user is non-root {container}"
    )]
    Name { name: String, container: String },
}

/// Refuses a container that must not be root and would be.
pub(crate) fn verify_non_root(pod: &Pod, container: &Container, image: &v1::Image) -> Result<(), RootError> {
    let context = effective(pod, container);
    if context.run_as_non_root != Some(true) {
        return Ok(());
    }
    let about = format!("(pod: \"{}\", container: {})", spec::full_name(pod), container.name);
    if let Some(user) = context.run_as_user {
        if user == 0 {
            return Err(RootError::User(about));
        }
        return Ok(());
    }
    match (&image.uid, image.username.as_str()) {
        (Some(uid), _) if uid.value == 0 => Err(RootError::Image(about)),
        (Some(_), _) => Ok(()),
        // An image that names nobody runs as root.
        (None, "") => Err(RootError::Image(about)),
        (None, name) => Err(RootError::Name { name: name.to_owned(), container: about }),
    }
}

/// The ids that a pod with `hostUsers: false` gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserRange {
    pub first: u32,
    pub length: u32,
}

pub fn container_context(
    pod: &Pod,
    container: &Container,
    image: &v1::Image,
    target: Option<&str>,
    users: Option<UserRange>,
    seccomp_folder: &Path,
) -> v1::LinuxContainerSecurityContext {
    let wishes = spec::wishes(pod);
    let of_pod = wishes.security_context.clone().unwrap_or_default();
    let own = container.security_context.clone().unwrap_or_default();
    let identity = effective(pod, container);
    let privileged = own.privileged == Some(true);
    let unmasked = privileged || own.proc_mount.as_deref() == Some("Unmasked");
    let paths = |all: &[&str]| if unmasked { Vec::new() } else { all.iter().map(|path| (*path).to_owned()).collect() };
    let mut namespaces = namespaces(pod, users);
    if let Some(target) = target {
        namespaces.pid = v1::NamespaceMode::Target as i32;
        namespaces.target_id = target.to_owned();
    }
    let username = match identity.run_as_user {
        None if image.uid.is_none() => image.username.clone(),
        _ => String::new(),
    };
    let user = identity.run_as_user.or(image.uid.as_ref().map(|uid| uid.value));
    let armor = own.app_armor_profile.as_ref().or(of_pod.app_armor_profile.as_ref());
    v1::LinuxContainerSecurityContext {
        capabilities: own.capabilities.map(|wished| v1::Capability {
            add_capabilities: wished.add.unwrap_or_default(),
            drop_capabilities: wished.drop.unwrap_or_default(),
            ..Default::default()
        }),
        privileged,
        namespace_options: Some(namespaces),
        selinux_options: own.se_linux_options.as_ref().or(of_pod.se_linux_options.as_ref()).map(selinux),
        run_as_user: user.map(|value| v1::Int64Value { value }),
        run_as_group: identity.run_as_group.map(|value| v1::Int64Value { value }),
        run_as_username: username,
        readonly_rootfs: own.read_only_root_filesystem == Some(true),
        supplemental_groups: groups(pod),
        supplemental_groups_policy: groups_policy(pod),
        no_new_privs: own.allow_privilege_escalation == Some(false),
        masked_paths: paths(MASKED_PATHS),
        readonly_paths: paths(READ_ONLY_PATHS),
        seccomp: Some(seccomp(own.seccomp_profile.as_ref().or(of_pod.seccomp_profile.as_ref()), seccomp_folder)),
        apparmor: armor.map(apparmor),
        ..Default::default()
    }
}

pub(crate) fn sandbox_context(
    pod: &Pod,
    users: Option<UserRange>,
    seccomp_folder: &Path,
) -> v1::LinuxSandboxSecurityContext {
    let wishes = spec::wishes(pod);
    let of_pod = wishes.security_context.clone().unwrap_or_default();
    let all = spec::init_containers(pod).chain(spec::regular_containers(pod));
    let privileged =
        all.filter_map(|container| container.security_context.as_ref()).any(|context| context.privileged == Some(true));
    // The sandbox itself always runs with the runtime's filter, unless the pod says otherwise.
    let default = SeccompProfile { type_: "RuntimeDefault".to_owned(), localhost_profile: None };
    v1::LinuxSandboxSecurityContext {
        namespace_options: Some(namespaces(pod, users)),
        selinux_options: of_pod.se_linux_options.as_ref().map(selinux),
        run_as_user: of_pod.run_as_user.map(|value| v1::Int64Value { value }),
        run_as_group: of_pod.run_as_group.map(|value| v1::Int64Value { value }),
        supplemental_groups: groups(pod),
        supplemental_groups_policy: groups_policy(pod),
        privileged,
        seccomp: Some(seccomp(of_pod.seccomp_profile.as_ref().or(Some(&default)), seccomp_folder)),
        apparmor: of_pod.app_armor_profile.as_ref().map(apparmor),
        ..Default::default()
    }
}

fn namespaces(pod: &Pod, users: Option<UserRange>) -> v1::NamespaceOption {
    let wishes = spec::wishes(pod);
    let node_or =
        |wish: Option<bool>, otherwise| (if wish == Some(true) { v1::NamespaceMode::Node } else { otherwise }) as i32;
    let own_pid = match wishes.share_process_namespace {
        Some(true) => v1::NamespaceMode::Pod,
        _ => v1::NamespaceMode::Container,
    };
    let mapped = |range: UserRange| v1::IdMapping { host_id: range.first, container_id: 0, length: range.length };
    let userns = users.map(|range| v1::UserNamespace {
        mode: v1::NamespaceMode::Pod as i32,
        uids: vec![mapped(range)],
        gids: vec![mapped(range)],
    });
    v1::NamespaceOption {
        network: node_or(wishes.host_network, v1::NamespaceMode::Pod),
        pid: node_or(wishes.host_pid, own_pid),
        ipc: node_or(wishes.host_ipc, v1::NamespaceMode::Pod),
        target_id: String::new(),
        userns_options: userns,
    }
}

fn groups(pod: &Pod) -> Vec<i64> {
    let of_pod = spec::wishes(pod).security_context.as_ref();
    let own = of_pod.and_then(|context| context.fs_group);
    let more = of_pod.and_then(|context| context.supplemental_groups.clone()).unwrap_or_default();
    own.into_iter().chain(more).collect()
}

fn groups_policy(pod: &Pod) -> i32 {
    let policy =
        spec::wishes(pod).security_context.as_ref().and_then(|context| context.supplemental_groups_policy.as_deref());
    (match policy {
        Some("Strict") => v1::SupplementalGroupsPolicy::Strict,
        _ => v1::SupplementalGroupsPolicy::Merge,
    }) as i32
}

fn seccomp(profile: Option<&SeccompProfile>, folder: &Path) -> v1::SecurityProfile {
    use v1::security_profile::ProfileType;
    let (kind, reference) = match profile {
        Some(profile) if profile.type_ == "RuntimeDefault" => (ProfileType::RuntimeDefault, String::new()),
        Some(profile) if profile.type_ == "Localhost" => {
            let file = folder.join(profile.localhost_profile.as_deref().unwrap_or_default());
            (ProfileType::Localhost, file.to_string_lossy().into_owned())
        }
        _ => (ProfileType::Unconfined, String::new()),
    };
    v1::SecurityProfile { profile_type: kind as i32, localhost_ref: reference }
}

fn apparmor(profile: &AppArmorProfile) -> v1::SecurityProfile {
    use v1::security_profile::ProfileType;
    let kind = match profile.type_.as_str() {
        "RuntimeDefault" => ProfileType::RuntimeDefault,
        "Localhost" => ProfileType::Localhost,
        _ => ProfileType::Unconfined,
    };
    let reference = profile.localhost_profile.clone().unwrap_or_default();
    v1::SecurityProfile { profile_type: kind as i32, localhost_ref: reference }
}

pub(crate) fn apparmor_enabled() -> bool {
    // A kernel without it has no such file.
    std::fs::read_to_string("/sys/module/apparmor/parameters/enabled").is_ok_and(|text| text.trim() == "Y")
}

/// Whether any container of the pod is to be confined by AppArmor.
pub(crate) fn wants_apparmor(pod: &Pod) -> bool {
    let confines = |profile: &AppArmorProfile| profile.type_ != "Unconfined";
    let of_pod = spec::wishes(pod).security_context.as_ref().and_then(|context| context.app_armor_profile.as_ref());
    let containers = spec::init_containers(pod).chain(spec::regular_containers(pod));
    let mut own =
        containers.map(|container| container.security_context.as_ref().and_then(|it| it.app_armor_profile.as_ref()));
    own.any(|own| own.or(of_pod).is_some_and(confines))
}

fn selinux(options: &SELinuxOptions) -> v1::SeLinuxOption {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    v1::SeLinuxOption {
        user: text(&options.user),
        role: text(&options.role),
        r#type: text(&options.type_),
        level: text(&options.level),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_found_out() {
        let pod: Pod = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "p", "namespace": "n", "uid": "u"},
            "spec": {"securityContext": {"runAsNonRoot": true}, "containers": [{"name": "c"}]}
        }))
        .expect("a pod");
        let container = spec::wishes(&pod).containers[0].clone();
        let check = |uid: Option<i64>, username: &str, expected: Result<(), &str>| {
            let image = v1::Image {
                uid: uid.map(|value| v1::Int64Value { value }),
                username: username.to_owned(),
                ..Default::default()
            };
            let found = verify_non_root(&pod, &container, &image).map_err(|error| error.to_string());
            assert_eq!(found, expected.map_err(str::to_owned));
        };
        let root = "container has runAsNonRoot and image will run as root (pod: \"p_n(u)\", container: c)";
        check(Some(0), "", Err(root));
        check(None, "", Err(root));
        check(Some(7), "", Ok(()));
        check(
            None,
            "nginx",
            Err(
                "container has runAsNonRoot and image has non-numeric user (nginx), cannot verify user is non-root (pod: \"p_n(u)\", container: c)",
            ),
        );
    }
}
