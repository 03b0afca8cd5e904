//! The volumes of a pod with users of its own: bound to places that its root can reach, their owners moved as its users are.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use libcontainer::oci_spec::runtime::Spec;

use super::protocol::CONFIG;
use crate::rootfs::Users;

/// Binds every volume below the container's folder and lets the specification take it from there. libcontainer looks at
/// sources only when it is somebody else already, who may not pass through the folders above them.
///
/// Called where the process has mounts of its own, so that nothing is left when it ends.
pub fn place(folder: &Path, users: &Users) -> io::Result<()> {
    let mut spec = Spec::load(folder.join(CONFIG)).map_err(io::Error::other)?;
    let mut mounts = spec.mounts().clone().unwrap_or_default();
    for (number, mount) in mounts.iter_mut().enumerate().filter(|(_, mount)| mount.typ().as_deref() == Some("bind")) {
        let Some(source) = mount.source().clone() else { continue };
        let place = folder.join(format!("mount-{number}"));
        let failed = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", source.display()));
        if std::fs::metadata(&source).map_err(failed)?.is_dir() {
            std::fs::create_dir_all(&place)?
        } else {
            linux::file::make_if_missing(&place, 0o600)?
        }
        match linux::idmap::bind(&source, &place, users.namespace.as_fd()) {
            Ok(()) => {}
            // Some file systems cannot move owners: the kernel's own, and some over the network. There, everybody is nobody.
            Err(_) => linux::mount::bind(&source, &place).map_err(failed)?,
        }
        mount.set_source(Some(place));
    }
    spec.set_mounts(Some(mounts));
    spec.save(folder.join(CONFIG)).map_err(io::Error::other)
}
