use std::io::Write;
use std::process::Command;

use serde_json::json;

use super::*;

#[test]
fn no_project_is_given_twice() {
    assert_eq!(choose(&BTreeSet::new(), |_| true), Some(FIRST));
    assert_eq!(choose(&BTreeSet::from([FIRST, FIRST + 2]), |_| true), Some(FIRST + 1));
    // Another program's.
    assert_eq!(choose(&BTreeSet::from([FIRST]), |id| id > FIRST + 4), Some(FIRST + 5));
    assert_eq!(choose(&BTreeSet::new(), |_| false), None);
}

#[test]
fn only_volumes_of_the_class_have_limits() {
    let volume = |provisioner: &str, size: &str, source: &str| -> PersistentVolume {
        let object = json!({
            "metadata": {"name": "pv", "annotations": {PROVISIONED_BY: provisioner}},
            "spec": {"capacity": {"storage": size}, source: {"path": "/storage/pv_a_b"}},
        });
        serde_json::from_value(object).expect("a volume")
    };
    let place = PathBuf::from("/storage/pv_a_b");
    assert_eq!(of(&volume("knarr.dev/local-path", "1Ki", "hostPath")), Some((place.clone(), 1024)));
    assert_eq!(of(&volume("rancher.io/local-path", "1M", "hostPath")), Some((place, 1_000_000)));
    assert_eq!(of(&volume("example.com/other", "1Ki", "hostPath")), None);
    assert_eq!(of(&volume("knarr.dev/local-path", "0", "hostPath")), None);
    assert_eq!(of(&volume("knarr.dev/local-path", "1Ki", "local")), None);
}

/// A file system in a file, mounted as its tests need it, and gone with them.
struct Disk(tempfile::TempDir);

impl Disk {
    /// None where this machine cannot have one.
    fn with_projects() -> Option<Disk> {
        let disk = Disk(tempfile::tempdir().expect("a folder"));
        let (image, place) = (disk.0.path().join("image"), disk.storage());
        std::fs::create_dir(&place).expect("a folder");
        let run = |program: &str, arguments: &[&str]| {
            let output = Command::new(program).args(arguments).output();
            output.is_ok_and(|output| output.status.success())
        };
        let (image, place) = (image.to_str().expect("a path"), place.to_str().expect("a path"));
        let made = run("truncate", &["-s", "64M", image])
            && run("mke2fs", &["-q", "-F", "-t", "ext4", "-O", "quota,project", "-E", "quotatype=prjquota", image])
            && run("mount", &["-o", "loop,prjquota", image, place]);
        made.then_some(disk)
    }

    fn storage(&self) -> PathBuf {
        self.0.path().join("storage")
    }

    fn folder(&self, name: &str) -> PathBuf {
        let folder = self.storage().join(name);
        std::fs::create_dir(&folder).expect("a folder");
        folder
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.storage()).output();
    }
}

/// What writing so much says, as containers write: the right to pass over limits (CAP_SYS_RESOURCE) is none of theirs.
fn fill(folder: &Path, mib: usize) -> String {
    let to = format!("of={}", folder.join("fill").display());
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set", "-sys_resource", "dd", "if=/dev/zero", "bs=1M", "conv=fsync"]);
    let output = command.arg(format!("count={mib}")).arg(to).env("LC_ALL", "C").output().expect("setpriv");
    if output.status.success() { String::new() } else { String::from_utf8_lossy(&output.stderr).into_owned() }
}

#[test]
fn a_folder_holds_no_more_than_its_claim_asks_for() {
    let Some(disk) = Disk::with_projects() else {
        let _ = writeln!(std::io::stderr(), "skipped: this machine cannot mount ext4 with prjquota from a file");
        return;
    };
    let root = tempfile::tempdir().expect("a folder");
    let (one, two) = (disk.folder("one"), disk.folder("two"));
    let projects = Projects::new(root.path());
    projects.limit(&one, 8 << 20).expect("a limit");
    projects.limit(&two, 16 << 20).expect("a limit");
    let id = |folder: &Path| Folder::open(folder).expect("open").expect("projects").id().expect("a project");
    assert_eq!((id(&one), id(&two)), (Some(FIRST), Some(FIRST + 1)));
    assert_eq!(fill(&two, 12), "", "room enough");
    let refused = fill(&one, 12);
    // The first is what XFS says of a project, the second ext4.
    assert!(refused.contains("No space left on device") || refused.contains("Disk quota exceeded"), "{refused}");
    // `df` in the pod says the size of the volume, not that of the disk.
    let seen = rustix::fs::statvfs(&one).expect("statvfs");
    assert_eq!(seen.f_blocks * seen.f_frsize, 8 << 20);

    // Another kubelet, and the claim has grown.
    let again = Projects::new(root.path());
    again.limit(&one, 24 << 20).expect("another limit");
    assert_eq!(fill(&one, 12), "", "room enough now");
    let three = disk.folder("three");
    again.limit(&three, 1 << 20).expect("a limit");
    assert_eq!((id(&one), id(&three)), (Some(FIRST), Some(FIRST + 2)));

    // With the folder its limit goes, and the project is free for another.
    std::fs::remove_dir_all(&one).expect("removed");
    again.forget_gone().expect("forgotten");
    let counted = Folder::open(&disk.storage()).expect("open").expect("projects");
    assert_eq!(counted.project(FIRST).expect("a project").bytes_max, 0);
    let four = disk.folder("four");
    again.limit(&four, 1 << 20).expect("a limit");
    assert_eq!((id(&four), again.read().expect("read").len()), (Some(FIRST), 3));

    // What was there before there were limits has none.
    let old = disk.folder("old");
    std::fs::write(old.join("data"), "text").expect("data");
    again.limit(&old, 1 << 20).expect("no limit");
    assert_eq!(id(&old), None);
}

#[test]
fn a_file_system_that_does_not_count_gets_no_limit() {
    let root = tempfile::tempdir().expect("a folder");
    let projects = Projects::new(root.path());
    projects
        .limit(Path::new("/proc/self"), 1 << 20)
        .expect_err("no folder that can be opened without following a link");
    projects.limit(Path::new("/proc"), 1 << 20).expect("no limit");
    projects.forget_gone().expect("nothing to forget");
    assert!(!root.path().join(FILE).exists());
}
