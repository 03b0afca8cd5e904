//! Security contexts of pods and containers.

use std::collections::BTreeSet;

use machinery::field::{Errors, FieldError, Problem};
use machinery::names;
use machinery::node::Node;

use super::text::{descending_path, go_struct, identity, one_of_if_set};

const LOCALHOST_PROFILE_MAX: usize = 4095;
const SYSCTL_NAME_MAX: usize = 253;
const SYSCTL_PATTERN: &str = "^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";

pub(super) fn pod_context(errors: &mut Errors, spec: &Node) {
    let context = spec.at("securityContext");
    if !context.exists() {
        return;
    }
    for field in ["fsGroup", "runAsUser", "runAsGroup"] {
        identity(errors, &context.at(field));
    }
    for group in context.each("supplementalGroups") {
        identity(errors, &group);
    }
    if spec.flag("shareProcessNamespace") && spec.flag("hostPID") {
        errors.invalid_value(
            &context.path.child("shareProcessNamespace"),
            &true.into(),
            "ShareProcessNamespace and HostPID cannot both be enabled",
        );
    }
    sysctls(errors, spec, &context.at("sysctls"));
    one_of_if_set(errors, &context.at("fsGroupChangePolicy"), &["Always", "OnRootMismatch"]);
    seccomp(errors, &context.at("seccompProfile"));
    windows_options(errors, &context.at("windowsOptions"));
    apparmor(errors, &context.at("appArmorProfile"));
    one_of_if_set(errors, &context.at("supplementalGroupsPolicy"), &["Merge", "Strict"]);
    one_of_if_set(errors, &context.at("seLinuxChangePolicy"), &["MountOption", "Recursive"]);
}

pub(super) fn container_context(errors: &mut Errors, context: &Node, host_users: bool) {
    if !context.exists() {
        return;
    }
    identity(errors, &context.at("runAsUser"));
    identity(errors, &context.at("runAsGroup"));
    let mount = context.at("procMount");
    if mount.exists() {
        one_of_if_set(errors, &mount, &["Default", "Unmasked"]);
        if host_users && mount.str() == "Unmasked" {
            errors.invalid(&mount, "`hostUsers` must be false to use `Unmasked`");
        }
    }
    seccomp(errors, &context.at("seccompProfile"));
    if context.at("allowPrivilegeEscalation").bool() == Some(false) {
        if context.flag("privileged") {
            escalation(errors, context, "cannot set `allowPrivilegeEscalation` to false and `privileged` to true");
        }
        if context.at("capabilities").each("add").any(|name| name.str() == "CAP_SYS_ADMIN") {
            let detail = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
            escalation(errors, context, detail);
        }
    }
    windows_options(errors, &context.at("windowsOptions"));
    apparmor(errors, &context.at("appArmorProfile"));
}

/// Upstream shows the whole security context under its Go names.
fn escalation(errors: &mut Errors, context: &Node, detail: &str) {
    const FIELDS: &[(&str, &str)] = &[
        ("Capabilities", "capabilities"),
        ("Privileged", "privileged"),
        ("SELinuxOptions", "seLinuxOptions"),
        ("WindowsOptions", "windowsOptions"),
        ("RunAsUser", "runAsUser"),
        ("RunAsGroup", "runAsGroup"),
        ("RunAsNonRoot", "runAsNonRoot"),
        ("ReadOnlyRootFilesystem", "readOnlyRootFilesystem"),
        ("AllowPrivilegeEscalation", "allowPrivilegeEscalation"),
        ("ProcMount", "procMount"),
        ("SeccompProfile", "seccompProfile"),
        ("AppArmorProfile", "appArmorProfile"),
    ];
    errors.push(FieldError::new(Problem::Invalid, &context.path, go_struct(context.value, FIELDS), detail));
}

fn sysctls(errors: &mut Errors, spec: &Node, list: &Node) {
    let mut seen = BTreeSet::new();
    for sysctl in list.items() {
        let name = sysctl.at("name");
        if name.str().is_empty() {
            errors.required(&name, "");
        } else if !is_sysctl(name.str()) {
            let detail = format!("must have at most {SYSCTL_NAME_MAX} characters and match regex {SYSCTL_PATTERN}");
            errors.invalid(&name, detail);
        } else if seen.contains(name.str()) {
            errors.duplicate(&name);
        }
        match sysctl_namespace(name.str()) {
            Some("net") if spec.flag("hostNetwork") => {
                errors.invalid(&name, "may not be specified when 'hostNetwork' is true")
            }
            Some("ipc") if spec.flag("hostIPC") => errors.invalid(&name, "may not be specified when 'hostIPC' is true"),
            _ => {}
        }
        seen.insert(name.str());
    }
}

fn is_sysctl(name: &str) -> bool {
    let edge = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let part = |text: &str| {
        let bytes = text.as_bytes();
        bytes.first().is_some_and(edge)
            && bytes.last().is_some_and(edge)
            && bytes.iter().all(|byte| edge(byte) || matches!(byte, b'-' | b'_'))
    };
    name.len() <= SYSCTL_NAME_MAX && name.split(['.', '/']).all(part)
}

/// Which namespace of the kernel a sysctl belongs to.
fn sysctl_namespace(name: &str) -> Option<&'static str> {
    // The first separator says which one is used throughout.
    let dotted = match name.find(['.', '/']) {
        Some(place) if name.as_bytes()[place] == b'/' => name
            .chars()
            .map(|c| {
                if c == '/' {
                    '.'
                } else if c == '.' {
                    '/'
                } else {
                    c
                }
            })
            .collect(),
        _ => name.to_string(),
    };
    match dotted.as_str() {
        "kernel.sem" => Some("ipc"),
        _ if dotted.starts_with("net.") => Some("net"),
        _ if ["kernel.shm", "kernel.msg", "fs.mqueue."].iter().any(|prefix| dotted.starts_with(prefix)) => Some("ipc"),
        _ => None,
    }
}

fn seccomp(errors: &mut Errors, profile: &Node) {
    if !profile.exists() {
        return;
    }
    let (kind, local) = (profile.at("type"), profile.at("localhostProfile"));
    match kind.str() {
        "Localhost" | "RuntimeDefault" | "Unconfined" => {}
        "" => errors.required(&kind, "type is required when seccompProfile is set"),
        _ => errors.not_supported(&kind, &["Localhost", "RuntimeDefault", "Unconfined"]),
    }
    match (kind.str() == "Localhost", local.exists()) {
        (true, false) => errors.required(&local, "must be set when seccomp type is Localhost"),
        (true, true) => descending_path(errors, &local.path, local.value),
        (false, true) => {
            let value = go_struct(profile.value, &[("Type", "type"), ("LocalhostProfile", "localhostProfile")]);
            let detail = "can only be set when seccomp type is Localhost";
            errors.push(FieldError::new(Problem::Invalid, &local.path, value, detail));
        }
        (false, false) => {}
    }
}

fn apparmor(errors: &mut Errors, profile: &Node) {
    if !profile.exists() {
        return;
    }
    let (kind, local) = (profile.at("type"), profile.at("localhostProfile"));
    match kind.str() {
        "Localhost" => {
            let text = local.str();
            if text.trim() != text {
                errors.invalid(&local, "must not be padded with whitespace");
            } else if text.is_empty() {
                errors.required(&local, "must be set when AppArmor type is Localhost");
            }
            if text.len() > LOCALHOST_PROFILE_MAX {
                errors.too_long(&local, LOCALHOST_PROFILE_MAX);
            }
        }
        "RuntimeDefault" | "Unconfined" => {
            if local.exists() {
                errors.invalid(&local, "can only be set when AppArmor type is Localhost");
            }
        }
        "" => errors.required(&kind, "type is required when appArmorProfile is set"),
        _ => errors.not_supported(&kind, &["Localhost", "RuntimeDefault", "Unconfined"]),
    }
}

fn windows_options(errors: &mut Errors, options: &Node) {
    const CREDENTIAL_BYTES_MAX: usize = 64 << 10;
    const DOMAIN_MAX: usize = 256;
    const USER_MAX: usize = 104;
    if !options.exists() {
        return;
    }
    let name = options.at("gmsaCredentialSpecName");
    if name.exists() {
        names::dns_subdomain(name.str()).into_iter().for_each(|problem| errors.invalid(&name, problem));
    }
    let credential = options.at("gmsaCredentialSpec");
    if credential.exists() {
        if credential.str().is_empty() {
            errors.invalid(&credential, "gmsaCredentialSpec cannot be an empty string");
        } else if credential.str().len() > CREDENTIAL_BYTES_MAX {
            errors.invalid(&credential, "gmsaCredentialSpec size must be under 64 KiB");
        }
    }
    let user = options.at("runAsUserName");
    if !user.exists() {
        return;
    }
    let text = user.str();
    let parts: Vec<&str> = text.split('\\').collect();
    if text.is_empty() {
        errors.invalid(&user, "runAsUserName cannot be an empty string");
    } else if text.chars().any(char::is_control) {
        errors.invalid(&user, "runAsUserName cannot contain control characters");
    } else if parts.len() > 2 {
        errors.invalid(&user, "runAsUserName cannot contain more than one backslash");
    } else {
        let (domain, account) = match parts.as_slice() {
            [domain, account] => (Some(*domain), *account),
            _ => (None, text),
        };
        if domain.is_some_and(|domain| domain.len() >= DOMAIN_MAX) {
            let detail = format!("runAsUserName's Domain length must be under {DOMAIN_MAX} characters");
            errors.invalid(&user, detail);
        }
        if domain.is_some_and(str::is_empty) {
            errors.invalid(&user, "runAsUserName's Domain doesn't match the NetBios nor the DNS format");
        }
        if account.is_empty() {
            errors.invalid(&user, "runAsUserName's User cannot be empty");
        } else if account.len() > USER_MAX {
            errors.invalid(&user, format!("runAsUserName's User length must not be longer than {USER_MAX} characters"));
        } else if account.chars().all(|c| c == '.' || c == ' ') {
            errors.invalid(&user, "runAsUserName's User cannot contain only periods or spaces");
        } else if account.contains(['"', '/', '\\', '[', ']', ':', ';', '|', '=', ',', '+', '*', '?', '<', '>', '@']) {
            errors.invalid(&user, "runAsUserName's User cannot contain the following characters: \"/\\:;|=,+*?<>@[]");
        }
    }
}
