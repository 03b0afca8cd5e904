//! A volume at `/dev`: the devices of the machine, as drivers of storage and of devices ask for them.
//!
//! libcontainer 0.7 makes links and devices in whatever is mounted at `/dev`, and replaces `ptmx`: on a volume it would do so on
//! the machine. It is given an empty `/dev` instead. The volume is held beside it, and takes its place before the program runs;
//! what is mounted below `/dev` comes along.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use libcontainer::oci_spec::runtime::{Mount, MountBuilder, Spec};
use linux::mount::{DetachedTree, Spreading};
use linux::path::Inside;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::protocol::CONFIG;

const DEV: &str = "/dev";

pub(super) struct DevVolume {
    tree: DetachedTree,
    /// Mounts below it, those that hold others first.
    below: Vec<PathBuf>,
}

impl DevVolume {
    /// Takes the volume out of the specification in this folder, if it has one.
    pub fn take(folder: &Path) -> io::Result<Option<DevVolume>> {
        let mut spec = Spec::load(folder.join(CONFIG)).map_err(io::Error::other)?;
        let mut mounts = spec.mounts().clone().unwrap_or_default();
        let Some(volume) = mounts.iter_mut().find(|mount| is_volume_at_dev(mount)) else { return Ok(None) };
        let Some(source) = volume.source().clone() else { return Ok(None) };
        let tree = DetachedTree::copy(&source)
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", source.display())))?;
        let asks = |word: &str| volume.options().iter().flatten().any(|option| option == word);
        tree.set_spreading(if asks("rshared") {
            Spreading::Shared
        } else if asks("rslave") {
            Spreading::Slave
        } else {
            Spreading::Private
        })?;
        if asks("ro") || asks("rro") {
            tree.set_read_only(asks("rro"))?;
        }
        *volume = empty()?;
        let below = mounts.iter().map(|mount| mount.destination().clone());
        let below = below.filter(|path| path.starts_with(DEV) && path != Path::new(DEV)).collect();
        spec.set_mounts(Some(mounts));
        spec.save(folder.join(CONFIG)).map_err(io::Error::other)?;
        Ok(Some(DevVolume { tree, below }))
    }

    /// In the container's root, before anything is given up that mounting needs.
    pub fn settle(&self) -> io::Result<()> {
        let copies = self.below.iter().map(|path| Ok((path, DetachedTree::copy(path)?)));
        let copies = copies.collect::<io::Result<Vec<_>>>()?;
        self.tree.attach(Path::new(DEV))?;
        // A volume can be anybody's, and hold links that lead to `/proc`: none is followed.
        let root = linux::path::open_root(Path::new(DEV))?;
        for (path, tree) in copies {
            let failed = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
            let place = place(&root, path, tree.is_folder()?).map_err(failed)?;
            tree.attach_to(&place).map_err(failed)?;
        }
        Ok(())
    }
}

/// The place for a mount below `/dev`. As with any other volume, it is made where there is none.
fn place(root: &OwnedFd, path: &Path, is_folder: bool) -> io::Result<Inside> {
    let below = path.strip_prefix(DEV).unwrap_or(path);
    if is_folder {
        return linux::path::make_folders_plain(root, below, 0o755);
    }
    let (Some(folder), Some(name)) = (below.parent(), below.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let folder = linux::path::make_folders_plain(root, folder, 0o755)?;
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::openat(&folder, name, flags, Mode::from_raw_mode(0o644)) {
        Ok(_) | Err(Errno::EXIST) => linux::path::open_plain(root, below),
        Err(error) => Err(error.into()),
    }
}

fn is_volume_at_dev(mount: &Mount) -> bool {
    mount.typ().as_deref() == Some("bind") && mount.destination() == Path::new(DEV)
}

fn empty() -> io::Result<Mount> {
    let options = ["nosuid", "strictatime", "mode=755", "size=65536k"].map(str::to_owned).to_vec();
    let mount = MountBuilder::default().typ("tmpfs").source("tmpfs").destination(DEV).options(options).build();
    mount.map_err(io::Error::other)
}
