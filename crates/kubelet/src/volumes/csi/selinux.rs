//! Whether a volume is mounted with the SELinux label of the pod that has it to itself, so that its files need not be labelled one by one.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Pod, SELinuxOptions};
use k8s_openapi::api::storage::v1::CSIDriver;
use linux::selinux::{Contexts, Options};

use super::wanted::{Lifecycle, Wanted};

/// One volume cannot be mounted with two labels.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("multiple SELinux labels found: {}", .0.join(","))]
pub(super) struct ManyLabels(pub Vec<String>);

/// The label to mount with. None where SELinux is off (`contexts`), where the driver cannot, where others may have the volume as well,
/// where the pod wants its files relabelled, and where no container that uses the volume says its level: the runtime chooses it then.
pub(super) fn mount_label(
    contexts: Option<&Contexts>,
    pod: &Pod,
    volume: &str,
    wanted: &Wanted,
    driver: Option<&CSIDriver>,
) -> Result<Option<String>, ManyLabels> {
    let Some(contexts) = contexts.filter(|_| is_for_one_pod(wanted)) else { return Ok(None) };
    let labels: BTreeSet<String> =
        asked(pod, volume).iter().filter_map(|options| file_label(contexts, options)).collect();
    if labels.len() > 1 {
        return Err(ManyLabels(labels.into_iter().collect()));
    }
    let supports = driver.is_some_and(|driver| driver.spec.se_linux_mount == Some(true));
    let context = pod.spec.as_ref().and_then(|spec| spec.security_context.as_ref());
    let policy = context.and_then(|context| context.se_linux_change_policy.as_deref());
    Ok(labels.into_iter().next().filter(|_| supports && policy != Some("Recursive")))
}

/// As upstream while its gate SELinuxMount is closed.
fn is_for_one_pod(wanted: &Wanted) -> bool {
    wanted.lifecycle == Lifecycle::Persistent && !wanted.is_block && wanted.access_modes == ["ReadWriteOncePod"]
}

/// What the containers that mount the volume ask for, their own wishes or the pod's.
fn asked<'a>(pod: &'a Pod, volume: &str) -> Vec<&'a SELinuxOptions> {
    let Some(spec) = &pod.spec else { return Vec::new() };
    let of_pod = spec.security_context.as_ref().and_then(|context| context.se_linux_options.as_ref());
    let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    let plain = containers.map(|container| (&container.volume_mounts, &container.security_context));
    let ephemeral = spec.ephemeral_containers.iter().flatten();
    let all = plain.chain(ephemeral.map(|container| (&container.volume_mounts, &container.security_context)));
    let users = all.filter(|(mounts, _)| mounts.iter().flatten().any(|mount| mount.name == volume));
    users.filter_map(|(_, own)| own.as_ref().and_then(|own| own.se_linux_options.as_ref()).or(of_pod)).collect()
}

fn file_label(contexts: &Contexts, asked: &SELinuxOptions) -> Option<String> {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let (user, role, kind, level) = (text(&asked.user), text(&asked.role), text(&asked.type_), text(&asked.level));
    if level.is_empty() {
        return None;
    }
    let options = Options { user, role, kind, level };
    Some(contexts.labels(&options, "").1.to_string())
}

/// The option of `mount`. Quoted, because a label has commas.
pub(super) fn mount_option(label: &str) -> String {
    format!("context=\"{label}\"")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn contexts() -> Contexts {
        let policy = "process=system_u:system_r:container_t:s0\nfile=system_u:object_r:container_file_t:s0\n";
        Contexts::parse(policy).unwrap()
    }

    fn wanted(modes: &[&str]) -> Wanted {
        let object = json!({"metadata": {"name": "pv"}, "spec": {
            "accessModes": modes, "csi": {"driver": "d", "volumeHandle": "h"}}});
        Wanted::persistent(&serde_json::from_value(object).unwrap(), false)
    }

    fn driver(supports: bool) -> CSIDriver {
        serde_json::from_value(json!({"metadata": {"name": "d"}, "spec": {"seLinuxMount": supports}})).unwrap()
    }

    /// Of the pod, of a container that uses the volume, of a second one, and of one that does not use it.
    fn pod(context: Value, levels: [Option<&str>; 3]) -> Pod {
        let container = |name: &str, level: Option<&str>, volume: &str| {
            let own = level.map(|level| json!({"seLinuxOptions": {"level": level}}));
            json!({"name": name, "volumeMounts": [{"name": volume, "mountPath": "/v"}], "securityContext": own})
        };
        serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": {
            "securityContext": context,
            "initContainers": [container("a", levels[0], "data")],
            "containers": [container("b", levels[1], "data"), container("c", levels[2], "other")],
        }}))
        .unwrap()
    }

    #[test]
    fn a_volume_of_one_pod_is_mounted_with_the_pods_label() {
        let level = json!({"seLinuxOptions": {"level": "s0:c1,c2"}});
        let none = [None, None, None];
        let label = "system_u:object_r:container_file_t:s0:c1,c2";
        let one = ["ReadWriteOncePod"];
        let check = |pod: Pod, modes: &[&str], supports: bool, expected: Option<&str>| {
            let found = mount_label(Some(&contexts()), &pod, "data", &wanted(modes), Some(&driver(supports)));
            assert_eq!(found.unwrap().as_deref(), expected);
        };
        check(pod(level.clone(), none), &one, true, Some(label));
        check(pod(json!({}), [None, Some("s0:c1,c2"), Some("s0:c3")]), &one, true, Some(label));
        check(pod(level.clone(), none), &one, false, None);
        check(pod(level.clone(), none), &["ReadWriteOnce"], true, None);
        check(pod(level.clone(), none), &["ReadWriteOncePod", "ReadOnlyMany"], true, None);
        check(pod(json!({}), none), &one, true, None);
        check(pod(json!({"seLinuxOptions": {"type": "t"}}), none), &one, true, None);
        let policy = |policy: &str| json!({"seLinuxOptions": {"level": "s0:c1,c2"}, "seLinuxChangePolicy": policy});
        check(pod(policy("Recursive"), none), &one, true, None);
        check(pod(policy("MountOption"), none), &one, true, Some(label));
        let (pod, wanted) = (pod(level, none), wanted(&one));
        assert_eq!(mount_label(None, &pod, "data", &wanted, Some(&driver(true))), Ok(None), "no SELinux");
        assert_eq!(mount_label(Some(&contexts()), &pod, "data", &wanted, None), Ok(None), "no CSIDriver");
        assert_eq!(mount_option(label), "context=\"system_u:object_r:container_file_t:s0:c1,c2\"");
    }

    #[test]
    fn two_labels_for_one_volume_are_refused() {
        let two = pod(json!({}), [Some("s0:c1,c2"), Some("s0:c3,c4"), None]);
        let found = |modes: &[&str]| mount_label(Some(&contexts()), &two, "data", &wanted(modes), Some(&driver(true)));
        let error = found(&["ReadWriteOncePod"]).unwrap_err();
        let label = "system_u:object_r:container_file_t";
        assert_eq!(error.to_string(), format!("multiple SELinux labels found: {label}:s0:c1,c2,{label}:s0:c3,c4"));
        assert_eq!(found(&["ReadWriteOnce"]), Ok(None));
    }
}
