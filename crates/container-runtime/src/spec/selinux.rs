//! SELinux labels in the specification: set for every runtime, taken out again where libcontainer is the one.

use oci_spec::runtime::Spec;

/// The labels of one container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Labels {
    /// Of its processes. Privileged ones keep the runtime's domain, from which the policy takes them where it likes.
    pub process: Option<String>,
    /// Of all files in its root and in what is mounted for it alone.
    pub mount: String,
}

pub(super) fn set(spec: &mut Spec, labels: Option<&Labels>) {
    let Some(labels) = labels else { return };
    if let Some(process) = spec.process_mut() {
        process.set_selinux_label(labels.process.clone());
    }
    if let Some(linux) = spec.linux_mut() {
        linux.set_mount_label(Some(labels.mount.clone()));
    }
}

/// libcontainer 0.7 labels no process, and gives the mount label to `mqueue` as well, whose file system the IPC namespace has
/// without one already, so that the kernel refuses the mount. The label of the process is returned; the mounts that a
/// container has to itself are told theirs one by one.
pub(crate) fn take(spec: &mut Spec) -> Option<String> {
    let label = spec.linux().as_ref().and_then(|linux| linux.mount_label().clone());
    if let Some(linux) = spec.linux_mut() {
        linux.set_mount_label(None);
    }
    if let Some(label) = label {
        for mount in spec.mounts_mut().iter_mut().flatten() {
            if matches!(mount.typ().as_deref(), Some("tmpfs" | "devpts")) {
                let options = mount.options().iter().flatten().cloned();
                let options = options.chain([format!("context={label}")]).collect();
                mount.set_options(Some(options));
            }
        }
    }
    let process = spec.process_mut().as_mut()?;
    let label = process.selinux_label().clone();
    process.set_selinux_label(None);
    label
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn example() -> Spec {
        serde_json::from_value(json!({
            "ociVersion": "1.2.0",
            "process": {"user": {"uid": 0, "gid": 0}, "cwd": "/", "args": ["run"]},
            "mounts": [
                {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid"]},
                {"destination": "/dev/pts", "type": "devpts", "source": "devpts"},
                {"destination": "/dev/mqueue", "type": "mqueue", "source": "mqueue", "options": ["nodev"]},
                {"destination": "/data", "type": "bind", "source": "/data", "options": ["rbind"]},
            ],
            "linux": {},
        }))
        .expect("a specification")
    }

    #[test]
    fn libcontainer_is_told_of_mounts_that_the_container_has_to_itself() {
        let labels = Labels { process: Some("u:r:container_t:s0:c1,c2".into()), mount: "u:r:file_t:s0:c1,c2".into() };
        let mut spec = example();
        set(&mut spec, Some(&labels));
        let written = serde_json::to_value(&spec).unwrap();
        assert_eq!(written["process"]["selinuxLabel"], json!("u:r:container_t:s0:c1,c2"));
        assert_eq!(written["linux"]["mountLabel"], json!("u:r:file_t:s0:c1,c2"));
        assert_eq!(take(&mut spec), labels.process);
        let written = serde_json::to_value(&spec).unwrap();
        assert_eq!(written["process"]["selinuxLabel"], json!(null));
        assert_eq!(written["linux"]["mountLabel"], json!(null));
        let options = |place: usize| written["mounts"][place]["options"].clone();
        assert_eq!(options(0), json!(["nosuid", "context=u:r:file_t:s0:c1,c2"]));
        assert_eq!(options(1), json!(["context=u:r:file_t:s0:c1,c2"]));
        assert_eq!((options(2), options(3)), (json!(["nodev"]), json!(["rbind"])));
    }

    #[test]
    fn without_labels_nothing_changes() {
        let (mut spec, before) = (example(), example());
        set(&mut spec, None);
        assert_eq!(take(&mut spec), None);
        assert_eq!(spec, before);
    }
}
