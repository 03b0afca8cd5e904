//! A working folder that the image lacks is made, as runc does: `workingDir: /work` of a pod needs no image made for it.

use std::io;
use std::path::{Path, PathBuf};

use libcontainer::oci_spec::runtime::{Mount, Spec};

use super::protocol::CONFIG;
use crate::rootfs::Users;

const MODE: u32 = 0o755;

/// Makes it in the root file system or in the volume that holds it. Links never lead out of either. What cannot be made is left
/// to the start, which then says what is wrong.
pub fn make(folder: &Path, rootfs: &Path, cwd: &str, users: Option<&Users>) -> io::Result<()> {
    let spec = Spec::load(folder.join(CONFIG)).map_err(io::Error::other)?;
    let mounts = spec.mounts().clone().unwrap_or_default();
    let Some((root, inside)) = place(&mounts, rootfs, Path::new(cwd)) else { return Ok(()) };
    let owner = users.map(|users| users.root);
    // In a volume, owners are moved by its mount, and root here is nobody there.
    if owner.is_some() && root != rootfs {
        return Ok(());
    }
    linux::path::make_folders_inside(&root, &inside, MODE, owner)
}

/// Where the folder lies here: the root that must not be left, and the path below it. Nowhere where the kernel's own file systems
/// or what may not be written to hold it.
fn place(mounts: &[Mount], rootfs: &Path, cwd: &Path) -> Option<(PathBuf, PathBuf)> {
    let holding = mounts
        .iter()
        .filter(|mount| cwd.starts_with(mount.destination()))
        .max_by_key(|mount| mount.destination().components().count());
    let Some(mount) = holding else {
        return Some((rootfs.to_owned(), cwd.strip_prefix("/").unwrap_or(cwd).to_owned()));
    };
    let read_only = mount.options().iter().flatten().any(|option| option == "ro");
    let source = mount.source().clone().filter(|source| source.is_dir())?;
    let is_bind = mount.typ().as_deref() == Some("bind");
    (is_bind && !read_only).then(|| (source, cwd.strip_prefix(mount.destination()).unwrap_or(cwd).to_owned()))
}

#[cfg(test)]
mod tests {
    use libcontainer::oci_spec::runtime::MountBuilder;

    use super::*;

    #[test]
    fn the_folder_lies_in_the_deepest_volume() {
        let volume = tempfile::tempdir().unwrap();
        let mount = |to: &str, kind: &str, options: &[&str]| {
            let options: Vec<String> = options.iter().map(|option| option.to_string()).collect();
            MountBuilder::default().destination(to).typ(kind).source(volume.path()).options(options).build().unwrap()
        };
        let mounts = [mount("/proc", "proc", &[]), mount("/data", "bind", &["rw"]), mount("/fixed", "bind", &["ro"])];
        let root = Path::new("/root-of-it");
        let check = |cwd: &str, expected: Option<(&Path, &str)>| {
            let found = place(&mounts, root, Path::new(cwd));
            assert_eq!(found, expected.map(|(root, inside)| (root.to_owned(), PathBuf::from(inside))), "{cwd}");
        };
        check("/work/a", Some((root, "work/a")));
        check("/data/a", Some((volume.path(), "a")));
        check("/fixed/a", None);
        check("/proc/a", None);
    }
}
