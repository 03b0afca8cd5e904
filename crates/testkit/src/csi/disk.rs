//! Folders and loop devices as volumes. Everything may be done twice.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags};

/// The size of a device.
const BYTES: u64 = 1 << 20;

pub(super) fn show_folder(content: &Path, target: &Path, read_only: bool) -> io::Result<()> {
    std::fs::create_dir_all(content)?;
    std::fs::create_dir_all(target)?;
    if is_mount_point(target)? {
        return Ok(());
    }
    bind(content, target, read_only)
}

pub(super) fn bind(content: &Path, target: &Path, read_only: bool) -> io::Result<()> {
    linux::volume_mount::bind(content, target)?;
    if read_only {
        let flags = rustix::mount::MountFlags::BIND | rustix::mount::MountFlags::RDONLY;
        rustix::mount::mount_remount(target, flags, "")?;
    }
    Ok(())
}

/// The device of a volume, bound to a file.
pub(super) fn show_device(content: &Path, target: &Path) -> io::Result<()> {
    let device = attach(content)?;
    if is_mount_point(target)? {
        return Ok(());
    }
    std::fs::File::create(target)?;
    linux::volume_mount::bind(&device, target)
}

/// Takes down one mount, and the place with it once nothing is mounted there.
pub(super) fn hide(target: &Path) -> io::Result<()> {
    if is_mount_point(target)? {
        // As `umount` does: what is in use stays, and the call fails.
        rustix::mount::unmount(target, rustix::mount::UnmountFlags::NOFOLLOW)?;
    }
    if is_mount_point(target)? {
        return Ok(());
    }
    match std::fs::symlink_metadata(target) {
        Ok(found) if found.is_dir() => std::fs::remove_dir(target),
        Ok(_) => std::fs::remove_file(target),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// The kernel is asked about the place itself: the machine's `/proc` does not know this thread.
fn is_mount_point(path: &Path) -> io::Result<bool> {
    match rustix::fs::statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BASIC_STATS) {
        Ok(found) => Ok(found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)),
        Err(rustix::io::Errno::NOENT) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn image(content: &Path) -> PathBuf {
    content.with_extension("img")
}

/// The loop device of a volume, made if there is none yet.
pub(super) fn attach(content: &Path) -> io::Result<PathBuf> {
    let image = image(content);
    if !image.exists() {
        std::fs::File::create(&image)?.set_len(BYTES)?;
    }
    if let Some(device) = devices(&image)?.into_iter().next() {
        return Ok(device);
    }
    let made = losetup(&["--show", "--find", &image.to_string_lossy()])?;
    Ok(PathBuf::from(made.trim()))
}

pub(super) fn detach(content: &Path) -> io::Result<()> {
    let image = image(content);
    if !image.exists() {
        return Ok(());
    }
    for device in devices(&image)? {
        losetup(&["--detach", &device.to_string_lossy()])?;
    }
    Ok(())
}

/// Every device whose content is in this folder; a test that failed leaves them.
pub(super) fn detach_all(data: &Path) {
    for entry in std::fs::read_dir(data).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|end| end == "img") {
            // The machine is going away as well.
            let _ = detach(&path);
        }
    }
}

fn devices(image: &Path) -> io::Result<Vec<PathBuf>> {
    let text = losetup(&["--noheadings", "--output", "NAME", "--associated", &image.to_string_lossy()])?;
    Ok(text.lines().map(|line| PathBuf::from(line.trim())).filter(|path| path.is_absolute()).collect())
}

fn losetup(arguments: &[&str]) -> io::Result<String> {
    let done = Command::new("losetup").args(arguments).output()?;
    match done.status.success() {
        true => Ok(String::from_utf8_lossy(&done.stdout).into_owned()),
        false => Err(io::Error::other(format!("losetup: {}", String::from_utf8_lossy(&done.stderr)))),
    }
}
