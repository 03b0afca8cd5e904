//! A volume at `/dev`: the devices of the machine, as drivers of storage and of devices ask for them.
//!
//! libcontainer 0.7 makes links and devices in whatever is mounted at `/dev`, and replaces `ptmx`: on a volume it would do so on
//! the machine. It is given an empty `/dev` instead. The volume is held beside it, and takes its place before the program runs;
//! what is mounted below `/dev` comes along.

use std::io;
use std::path::{Path, PathBuf};

use libcontainer::oci_spec::runtime::{Mount, MountBuilder, Spec};
use linux::mount::{DetachedTree, Spreading};

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
        for (path, tree) in copies {
            // As with any other volume, the place for a mount is made where there is none.
            if tree.is_folder()? {
                std::fs::create_dir_all(path)?
            } else {
                linux::file::make_if_missing(path, 0o644)?
            }
            tree.attach(path)?;
        }
        Ok(())
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
