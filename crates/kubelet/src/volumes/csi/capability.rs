//! What a driver is told about how a volume will be used, and who gives its files to the pod's group.

use csi::Capabilities;
use csi::v1::VolumeCapability;
use csi::v1::volume_capability::access_mode::Mode;
use csi::v1::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};
use k8s_openapi::api::storage::v1::CSIDriver;

use super::error::LifecycleError;
use super::selinux;
use super::wanted::{Lifecycle, Wanted};

pub(super) fn of(wanted: &Wanted, capabilities: Capabilities, group: Option<u32>) -> VolumeCapability {
    let access_type = if wanted.is_block {
        AccessType::Block(BlockVolume {})
    } else {
        AccessType::Mount(MountVolume {
            fs_type: wanted.fs_type.clone(),
            mount_flags: mount_flags(wanted),
            volume_mount_group: group
                .filter(|_| capabilities.volume_mount_group)
                .map(|group| group.to_string())
                .unwrap_or_default(),
        })
    };
    let mode = mode(wanted.access_mode(), capabilities.single_node_multi_writer);
    VolumeCapability { access_type: Some(access_type), access_mode: Some(AccessMode { mode: mode as i32 }) }
}

fn mount_flags(wanted: &Wanted) -> Vec<String> {
    let label = wanted.label.as_deref().map(selinux::mount_option);
    wanted.mount_options.iter().cloned().chain(label).collect()
}

fn mode(mode: &str, knows_single_writers: bool) -> Mode {
    match mode {
        "ReadWriteOnce" if knows_single_writers => Mode::SingleNodeMultiWriter,
        "ReadWriteOncePod" if knows_single_writers => Mode::SingleNodeSingleWriter,
        "ReadWriteOnce" | "ReadWriteOncePod" => Mode::SingleNodeWriter,
        "ReadOnlyMany" => Mode::MultiNodeReaderOnly,
        "ReadWriteMany" => Mode::MultiNodeMultiWriter,
        _ => Mode::Unknown,
    }
}

/// Whether the kubelet itself changes the group of the volume's files after it was published.
pub(super) fn gives_to_group(wanted: &Wanted, driver: Option<&CSIDriver>, capabilities: Capabilities) -> bool {
    if wanted.read_only || wanted.is_block || capabilities.volume_mount_group {
        return false;
    }
    let policy = driver.and_then(|driver| driver.spec.fs_group_policy.as_deref());
    match policy.unwrap_or("ReadWriteOnceWithFSType") {
        "None" => false,
        "File" => true,
        _ if wanted.fs_type.is_empty() => false,
        _ => match wanted.lifecycle {
            Lifecycle::Ephemeral => true,
            Lifecycle::Persistent => wanted.access_modes.iter().any(|mode| mode == "ReadWriteOnce"),
        },
    }
}

/// A driver may be for volumes of one kind only.
pub(super) fn check_lifecycle(wanted: &Wanted, driver: Option<&CSIDriver>) -> Result<(), LifecycleError> {
    let (mode, name) = (wanted.lifecycle, wanted.driver.as_str());
    let Some(driver) = driver else {
        return match mode {
            Lifecycle::Persistent => Ok(()),
            Lifecycle::Ephemeral => Err(LifecycleError::NoObject { mode: mode.name(), driver: name.to_owned() }),
        };
    };
    let modes = driver.spec.volume_lifecycle_modes.clone().unwrap_or_default();
    if modes.iter().any(|known| known == mode.name()) {
        Ok(())
    } else {
        Err(LifecycleError::Other { mode: mode.name(), driver: name.to_owned(), modes })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn wanted(modes: &[&str], fs_type: &str) -> Wanted {
        let object = json!({"metadata": {"name": "pv"}, "spec": {
            "accessModes": modes, "mountOptions": ["noatime"],
            "csi": {"driver": "d", "volumeHandle": "h", "fsType": fs_type}}});
        Wanted::persistent(&serde_json::from_value(object).unwrap(), false)
    }

    #[test]
    fn modes_as_the_driver_knows_them() {
        let check = |name: &str, plain: Mode, exact: Mode| {
            assert_eq!(mode(name, false), plain, "{name}");
            assert_eq!(mode(name, true), exact, "{name}");
        };
        check("ReadWriteOnce", Mode::SingleNodeWriter, Mode::SingleNodeMultiWriter);
        check("ReadWriteOncePod", Mode::SingleNodeWriter, Mode::SingleNodeSingleWriter);
        check("ReadOnlyMany", Mode::MultiNodeReaderOnly, Mode::MultiNodeReaderOnly);
        check("ReadWriteMany", Mode::MultiNodeMultiWriter, Mode::MultiNodeMultiWriter);
        check("x", Mode::Unknown, Mode::Unknown);
    }

    #[test]
    fn the_group_goes_to_drivers_that_take_it() {
        let takes = Capabilities { volume_mount_group: true, ..Capabilities::default() };
        let told = |capabilities| match of(&wanted(&["ReadWriteOnce"], "ext4"), capabilities, Some(5)).access_type {
            Some(AccessType::Mount(mount)) => {
                assert_eq!((mount.fs_type.as_str(), mount.mount_flags), ("ext4", vec!["noatime".to_owned()]));
                mount.volume_mount_group
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(told(takes), "5");
        assert_eq!(told(Capabilities::default()), "");
    }

    #[test]
    fn who_changes_the_group() {
        let check = |policy: &str, modes: &[&str], fs_type: &str, expected: bool| {
            let driver: Option<CSIDriver> = (!policy.is_empty())
                .then(|| serde_json::from_value(json!({"spec": {"fsGroupPolicy": policy}})).unwrap());
            let found = gives_to_group(&wanted(modes, fs_type), driver.as_ref(), Capabilities::default());
            assert_eq!(found, expected, "{policy} {modes:?} {fs_type}");
        };
        check("", &["ReadWriteOnce"], "ext4", true);
        check("", &["ReadWriteOnce"], "", false);
        check("", &["ReadWriteMany"], "ext4", false);
        check("ReadWriteOnceWithFSType", &["ReadWriteMany", "ReadWriteOnce"], "ext4", true);
        check("File", &["ReadWriteMany"], "", true);
        check("None", &["ReadWriteOnce"], "ext4", false);
        let takes = Capabilities { volume_mount_group: true, ..Capabilities::default() };
        assert!(!gives_to_group(&wanted(&["ReadWriteOnce"], "ext4"), None, takes));
        let read_only = Wanted { read_only: true, ..wanted(&["ReadWriteOnce"], "ext4") };
        assert!(!gives_to_group(&read_only, None, Capabilities::default()));
    }

    #[test]
    fn drivers_for_one_kind_of_volumes() {
        let driver: CSIDriver =
            serde_json::from_value(json!({"spec": {"volumeLifecycleModes": ["Ephemeral"]}})).unwrap();
        let persistent = wanted(&[], "");
        assert!(check_lifecycle(&persistent, None).is_ok());
        assert_eq!(
            check_lifecycle(&persistent, Some(&driver)).unwrap_err().to_string(),
            "volume mode \"Persistent\" not supported by driver d (only supports [\"Ephemeral\"])"
        );
        let inline = Wanted { lifecycle: Lifecycle::Ephemeral, ..persistent };
        assert!(check_lifecycle(&inline, Some(&driver)).is_ok());
        assert_eq!(
            check_lifecycle(&inline, None).unwrap_err().to_string(),
            "volume mode \"Ephemeral\" not supported by driver d (no CSIDriver object)"
        );
    }
}
