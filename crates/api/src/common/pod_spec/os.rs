//! Validation of pods by operating system and user namespace.

use machinery::field::Errors;
use machinery::node::Node;

const LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

pub(super) fn os(errors: &mut Errors, spec: &Node) {
    let os = spec.at("os");
    if !os.exists() {
        return;
    }
    match os.text("name") {
        "" => errors.required(&os.at("name"), ""),
        "linux" => linux(errors, spec),
        "windows" => windows(errors, spec),
        name => {
            let at = Node::new(&os.value["name"], os.path.clone());
            debug_assert_eq!(at.str(), name);
            errors.not_supported(&at, &["linux", "windows"]);
        }
    }
}

fn linux(errors: &mut Errors, spec: &Node) {
    let contexts = LISTS.into_iter().flat_map(|list| spec.each(list)).map(|container| container.at("securityContext"));
    for context in std::iter::once(spec.at("securityContext")).chain(contexts) {
        if context.has("windowsOptions") {
            errors.forbidden(&context.at("windowsOptions"), "windows options cannot be set for a linux pod");
        }
    }
}

fn windows(errors: &mut Errors, spec: &Node) {
    const REFUSAL: &str = "cannot be set for a windows pod";
    let context = spec.at("securityContext");
    // The order is upstream's, which keeps all of these in one structure.
    for field in [
        context.at("appArmorProfile"),
        context.at("seLinuxOptions"),
        spec.at("hostUsers"),
        spec.at("hostPID"),
        spec.at("hostIPC"),
        context.at("seccompProfile"),
        context.at("fsGroup"),
        context.at("fsGroupChangePolicy"),
        context.at("sysctls"),
        spec.at("shareProcessNamespace"),
        context.at("runAsUser"),
        context.at("runAsGroup"),
        context.at("supplementalGroups"),
        context.at("supplementalGroupsPolicy"),
        context.at("seLinuxChangePolicy"),
    ] {
        if field.exists() {
            errors.forbidden(&field, REFUSAL);
        }
    }
    for container in LISTS.into_iter().flat_map(|list| spec.each(list)) {
        let context = container.at("securityContext");
        for field in [
            "appArmorProfile",
            "seLinuxOptions",
            "seccompProfile",
            "capabilities",
            "readOnlyRootFilesystem",
            "privileged",
            "allowPrivilegeEscalation",
            "procMount",
            "runAsUser",
            "runAsGroup",
        ] {
            if context.has(field) {
                errors.forbidden(&context.at(field), REFUSAL);
            }
        }
    }
}

/// Windows host-process containers: all of them or none, and only in the network of the host.
pub(super) fn host_process(errors: &mut Errors, spec: &Node) {
    let options = |context: &Node| context.at("windowsOptions").at("hostProcess").bool();
    let pod_context = spec.at("securityContext");
    let pod_choice = options(&pod_context);
    let (mut total, mut host) = (0, 0);
    for container in LISTS.into_iter().flat_map(|list| spec.each(list)) {
        total += 1;
        let at = container.at("securityContext").at("windowsOptions").at("hostProcess");
        if let (Some(own), Some(pod)) = (at.bool(), pod_choice)
            && own != pod
        {
            errors.invalid(&at, format!("pod hostProcess value must be identical if both are specified, was {pod}"));
        }
        if at.bool().or(pod_choice) == Some(true) {
            host += 1;
            if !spec.flag("hostNetwork") {
                errors.invalid_value(
                    &spec.path.child("hostNetwork"),
                    &false.into(),
                    "hostNetwork must be true if pod contains any hostProcess containers",
                );
            }
        }
    }
    if host > 0 && host != total {
        errors.invalid_value(
            &spec.path,
            &"".into(),
            "If pod contains any hostProcess containers then all containers must be HostProcess containers",
        );
    }
}

/// A user namespace of its own does not go with the other namespaces of the host.
pub(super) fn user_namespace(errors: &mut Errors, spec: &Node) {
    const REFUSAL: &str = "when `hostUsers` is false";
    if spec.at("hostUsers").bool() != Some(false) {
        return;
    }
    for (field, shown) in [("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")] {
        if spec.flag(field) {
            errors.forbidden(&Node::new(&spec.value[field], spec.path.child(shown)), REFUSAL);
        }
    }
    // Ids in the device's own file system would be those of the host.
    for container in LISTS.into_iter().flat_map(|list| spec.each(list)) {
        let devices = container.at("volumeDevices");
        if !devices.is_empty() {
            errors.forbidden(&devices, REFUSAL);
        }
    }
}
