//! Root file systems: mounting snapshots, and reading an image's files without mounting it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use crate::image::Snapshot;

/// The users of a pod that has its own.
#[derive(Clone, Copy)]
pub struct Users<'a> {
    pub namespace: &'a OwnedFd,
    /// Who is root there, here.
    pub root: (u32, u32),
}

/// Mounts the root of a container. With users of its own, the layers are seen with their owners mapped: what the image
/// gives to root is the container's root's. What is written is kept as this machine sees it. All files have the SELinux label.
pub fn mount(snapshot: &Snapshot, target: &Path, users: Option<Users>, label: Option<&str>) -> io::Result<()> {
    std::fs::create_dir_all(target)?;
    let writable = Some((snapshot.upper.as_path(), snapshot.work.as_path()));
    let Some(users) = users else {
        return linux::mount::overlay(&snapshot.lower, writable, target, label);
    };
    let mut lower = Vec::new();
    for (number, layer) in snapshot.lower.iter().enumerate() {
        let mut mapped = target.as_os_str().to_owned();
        mapped.push(format!("-layer-{number}"));
        let mapped = PathBuf::from(mapped);
        std::fs::create_dir_all(&mapped)?;
        linux::idmap::bind(layer, &mapped, users.namespace.as_fd())?;
        lower.push(mapped);
    }
    // Not mapped, because the kernel copies files up as the root of this machine, whom the mapping does not know.
    for folder in [&snapshot.upper, &snapshot.work] {
        std::os::unix::fs::chown(folder, Some(users.root.0), Some(users.root.1))?;
    }
    linux::mount::overlay(&lower, writable, target, label)
}

/// Shows an image, or a part of it, at the folder `target`. Links in the image never lead out of it.
pub(crate) fn mount_image(snapshot: &Snapshot, target: &Path, sub_path: &str, label: Option<&str>) -> io::Result<()> {
    if sub_path.is_empty() {
        return mount_read_only(snapshot, target, label);
    }
    let mut whole = target.as_os_str().to_owned();
    whole.push("-whole");
    let whole = PathBuf::from(whole);
    mount_read_only(snapshot, &whole, label)?;
    let part = linux::path::open_inside(linux::path::open_root(&whole)?, Path::new(sub_path))
        .map_err(|error| io::Error::new(error.kind(), format!("{sub_path}: {error}")))?;
    if !part.is_dir()? {
        std::fs::remove_dir(target)?;
        drop(linux::file::create_new(target, 0o600)?);
    }
    linux::mount::bind(&part.magic_path(), target)
}

/// Mounts the layers alone.
fn mount_read_only(snapshot: &Snapshot, target: &Path, label: Option<&str>) -> io::Result<()> {
    std::fs::create_dir_all(target)?;
    match (snapshot.lower.as_slice(), label) {
        // One layer is no overlay.
        ([only], None) => linux::mount::bind(only, target),
        // A bind cannot have a label, so it becomes an overlay with nothing below.
        ([only], Some(_)) => {
            let mut nothing = target.as_os_str().to_owned();
            nothing.push("-nothing");
            let nothing = PathBuf::from(nothing);
            std::fs::create_dir_all(&nothing)?;
            linux::mount::overlay(&[only.clone(), nothing], None, target, label)
        }
        (layers, _) => linux::mount::overlay(layers, None, target, label),
    }
}

/// A small file of the image, such as `/etc/passwd`, as the topmost layer that has it shows it. Links stay inside the
/// layer; what is absent, hidden or no file is empty.
pub fn read_file(snapshot: &Snapshot, path: &str) -> String {
    const SIZE_MAX: u64 = 1 << 20;
    let layers = std::iter::once(&snapshot.upper).chain(&snapshot.lower);
    for layer in layers {
        let path = Path::new(path.trim_start_matches('/'));
        match linux::path::read_inside(layer, path, SIZE_MAX) {
            Ok(content) => return String::from_utf8_lossy(&content).into_owned(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            // A whiteout (a device), which says that the file is gone; or something else that is no file, and is not touched.
            Err(_) => return String::new(),
        }
    }
    String::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_come_from_the_topmost_layer_and_never_from_the_host() {
        let folder = tempfile::tempdir().unwrap();
        let layer = |name: &str, files: &[(&str, &str)]| {
            let root = folder.path().join(name);
            std::fs::create_dir_all(root.join("etc")).unwrap();
            for (file, content) in files {
                std::fs::write(root.join(file), content).unwrap();
            }
            root
        };
        let top = layer("top", &[("etc/passwd", "top")]);
        let bottom = layer("bottom", &[("etc/passwd", "bottom"), ("etc/group", "bottom")]);
        std::os::unix::fs::symlink("/etc/hostname", top.join("etc/link")).unwrap();
        std::os::unix::fs::symlink("../../../../etc/hostname", top.join("etc/climb")).unwrap();
        let snapshot =
            Snapshot { lower: vec![top, bottom], upper: layer("upper", &[]), work: folder.path().join("work") };
        assert_eq!(read_file(&snapshot, "/etc/passwd"), "top");
        assert_eq!(read_file(&snapshot, "/etc/group"), "bottom");
        assert_eq!(read_file(&snapshot, "/etc/link"), "");
        assert_eq!(read_file(&snapshot, "/etc/climb"), "");
        // What is no file is not opened: a pipe would be waited for, a device would do what devices do.
        rustix::fs::mknodat(
            rustix::fs::CWD,
            snapshot.lower[0].join("etc/pipe"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        std::fs::write(snapshot.lower[1].join("etc/pipe"), "hidden by the pipe").unwrap();
        assert_eq!(read_file(&snapshot, "/etc/pipe"), "");
    }
}
