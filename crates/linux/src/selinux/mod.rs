//! SELinux: whether the machine has it, the labels of files, and the label of the next program. A machine without it has no labels,
//! and nothing here is called there but the question.

mod label;

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

pub use label::{Contexts, Label, Levels, Options, is_level};
use rustix::fs::XattrFlags;

const FILE_SYSTEM: &str = "/sys/fs/selinux";
const FILE_SYSTEM_TYPE: u32 = 0xf97c_ff8c;
const PROC_TYPE: u32 = 0x9fa0;
const CONFIG: &str = "/etc/selinux/config";
/// What packages of container policies bring; else the policy's own file counts.
const CONTEXTS: &str = "/usr/share/containers/selinux/contexts";
const ATTRIBUTE: &str = "security.selinux";
/// Labels are shorter.
const LABEL_BYTES_MAX: usize = 4096;
/// Folders of the machine that no pod may have relabelled: programs that run would lose their files.
static NEVER_RELABELLED: &[&str] = &[
    "/",
    "/bin",
    "/boot",
    "/dev",
    "/etc",
    "/etc/passwd",
    "/etc/pki",
    "/etc/shadow",
    "/home",
    "/lib",
    "/lib64",
    "/media",
    "/opt",
    "/proc",
    "/root",
    "/run",
    "/sbin",
    "/srv",
    "/sys",
    "/tmp",
    "/usr",
    "/var",
    "/var/lib",
    "/var/log",
];

/// Whether the kernel has SELinux and a policy is loaded. Before that everything is labelled `kernel`.
pub fn is_enabled() -> bool {
    let Ok(found) = rustix::fs::statfs(FILE_SYSTEM) else { return false };
    let is_writable = rustix::fs::statvfs(FILE_SYSTEM)
        .is_ok_and(|found| !found.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY));
    found.f_type as u32 == FILE_SYSTEM_TYPE && is_writable && current().is_some_and(|label| label != "kernel")
}

/// The label of this process.
pub fn current() -> Option<String> {
    let text = std::fs::read_to_string("/proc/thread-self/attr/current").ok()?;
    Some(text.trim_end_matches(['\0', '\n']).to_owned())
}

/// The labels of containers, where SELinux is on and its policy knows containers.
pub fn contexts() -> Option<Contexts> {
    if !is_enabled() {
        return None;
    }
    let read = |path: &Path| std::fs::read_to_string(path).ok();
    let text = read(Path::new(CONTEXTS)).or_else(|| {
        let config = read(Path::new(CONFIG))?;
        let policy = PathBuf::from("/etc/selinux").join(label::policy_name(&config)?);
        read(&policy.join("contexts/lxc_contexts"))
    });
    Contexts::parse(&text?).filter(|contexts| is_known(&contexts.process) && is_known(&contexts.file))
}

/// Whether the policy that is loaded has the types of a label. Debian's names labels of containers and lacks their types.
fn is_known(label: &Label) -> bool {
    std::fs::write(Path::new(FILE_SYSTEM).join("context"), label.to_string()).is_ok()
}

/// Says how the program that this process becomes next is labelled. Refused where `/proc` is not the kernel's: a volume in its
/// place would leave the program with the label that it has.
pub fn set_exec_label(label: &str) -> io::Result<()> {
    write_attribute("exec", label)
}

/// Does something that makes keys, which get the label. Kernels that label no keys are fine.
pub fn with_key_label(label: Option<&str>, work: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    let Some(label) = label else { return work() };
    match write_attribute("keycreate", label) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return work(),
        other => other?,
    }
    let done = work();
    // An empty line takes it back.
    write_attribute("keycreate", "\n")?;
    done
}

fn write_attribute(name: &str, text: &str) -> io::Result<()> {
    let mut file = File::options().write(true).open(format!("/proc/thread-self/attr/{name}"))?;
    if rustix::fs::fstatfs(&file)?.f_type as u32 != PROC_TYPE {
        return Err(io::Error::other("/proc is not procfs"));
    }
    file.write_all(text.as_bytes())
}

/// The label of a file, of a link itself.
pub fn label_of(path: &Path) -> io::Result<String> {
    let mut value = vec![0; LABEL_BYTES_MAX];
    let length = rustix::fs::lgetxattr(path, ATTRIBUTE, &mut value)?;
    value.truncate(length);
    Ok(String::from_utf8_lossy(&value).trim_end_matches('\0').to_owned())
}

pub fn set_label(path: &Path, label: &str) -> io::Result<()> {
    Ok(rustix::fs::lsetxattr(path, ATTRIBUTE, label.as_bytes(), XattrFlags::empty())?)
}

/// Labels a file, or a folder with all in it that is not a mount of its own. A file system without labels is left as it is.
pub fn relabel(path: &Path, label: &str) -> io::Result<()> {
    let path = std::fs::canonicalize(path)?;
    if may_not_be_relabelled(&path) {
        return Err(io::Error::other(format!("SELinux relabeling of {} is not allowed", path.display())));
    }
    let done = if std::fs::symlink_metadata(&path)?.is_dir() {
        // Whoever finds the folder itself right finds most of the rest right as well.
        let is_right = label_of(&path).is_ok_and(|found| found == label);
        crate::tree::visit(&path, &mut |entry| {
            if is_right && label_of(entry).is_ok_and(|found| found == label) {
                return Ok(());
            }
            set_label(entry, label)
        })
        .and_then(|()| set_label(&path, label))
    } else {
        set_label(&path, label)
    };
    match done {
        Err(error) if error.raw_os_error() == Some(libc::ENOTSUP) => Ok(()),
        other => other,
    }
}

fn may_not_be_relabelled(path: &Path) -> bool {
    NEVER_RELABELLED.iter().any(|known| Path::new(known) == path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_the_machine_are_never_relabelled() {
        for path in ["/", "/etc", "/usr/", "/tmp/../var"] {
            let error = relabel(Path::new(path), "u:object_r:t:s0").unwrap_err();
            assert!(error.to_string().ends_with("is not allowed"), "{path}: {error}");
        }
        assert!(!may_not_be_relabelled(Path::new("/var/lib/knarr/kubelet")));
    }

    #[test]
    fn a_tree_is_labelled_without_following_links() {
        if is_enabled() {
            // The kernel asks its policy then, which need not know these types.
            return;
        }
        let folder = std::env::temp_dir().join(format!("knarr-test-relabel-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("inside/below")).unwrap();
        std::fs::write(folder.join("inside/below/file"), "").unwrap();
        std::fs::write(folder.join("outside"), "").unwrap();
        std::os::unix::fs::symlink(folder.join("outside"), folder.join("inside/link")).unwrap();
        let label = "system_u:object_r:container_file_t:s0:c1,c2";
        let done = relabel(&folder.join("inside"), label);
        // Without SELinux the kernel keeps the attribute for who has the right to set it, as on a disk that is moved.
        let found = |path: &str| label_of(&folder.join(path)).ok();
        let seen = ["inside", "inside/below", "inside/below/file", "outside"].map(found);
        let _ = std::fs::remove_dir_all(&folder);
        done.unwrap();
        if seen[0].is_some() {
            assert_eq!(seen, [Some(label.to_owned()), Some(label.to_owned()), Some(label.to_owned()), None]);
        }
    }
}
