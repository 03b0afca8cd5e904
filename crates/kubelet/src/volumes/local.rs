//! `local` persistent volumes: a folder of this node, or a device of it with a file system, bound into the pod's folder so that
//! its use can be seen and ended. A device is mounted once, for all pods that use it.

use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::LocalVolumeSource;
use tokio::sync::Mutex;

use super::folders::{Folders, is_safe_name, make_folder};
use super::{Error, Problem, Request, Volume, blocking, empty_dir, filesystem, ownership};

const PLUGIN: &str = "kubernetes.io~local-volume";

/// Held while a device is mounted for a pod, or unmounted because no pod is left: neither may overtake the other.
static DEVICES: Mutex<()> = Mutex::const_new(());

pub(super) async fn mount(
    request: &Request<'_>,
    name: &str,
    source: &LocalVolumeSource,
    read_only: bool,
    options: &[String],
) -> Result<Volume, Problem> {
    let path = &source.path;
    if path.split('/').any(|part| part == "..") || !is_safe_name(name) {
        return Err(Error::LocalUpwards(path.clone()).into());
    }
    let initialization = |error: Error| {
        Problem::Message(format!("MountVolume.NewMounter initialization failed for volume {name:?} : {error}"))
    };
    let target = request.folders.volume(request.uid(), PLUGIN, name);
    let from = match std::fs::metadata(path) {
        Ok(found) if found.is_dir() => PathBuf::from(path),
        Ok(found) if found.file_type().is_block_device() => {
            // The pod's folder says that the device is in use, so it comes first.
            make_folder(&target)?;
            let kind = source.fs_type.as_deref().unwrap_or(filesystem::DEFAULT);
            let read_only = read_only.then(|| "ro".to_owned());
            let options: Vec<String> = options.iter().cloned().chain(read_only).collect();
            mount_device(request.folders, name, Path::new(path), kind, &options).await.map_err(|error| {
                Problem::Message(format!("MountVolume.MountDevice failed for volume {name:?} : {error}"))
            })?
        }
        Ok(_) => return Err(initialization(Error::LocalType)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(initialization(Error::NoLocalPath(path.clone())));
        }
        Err(error) => return Err(initialization(error.into())),
    };
    let mark = request.folders.plugin(request.uid(), PLUGIN, name).join("ready");
    let (to, pod) = (target.clone(), request.pod.clone());
    blocking(move || {
        if mark.exists() && linux::volume_mount::is_mount_point(&to)? {
            return Ok(());
        }
        bind(&from, &to)?;
        let group = ownership::fs_group(&pod);
        if !read_only && !ownership::may_skip(&pod, &to, group, read_only)? {
            ownership::give(&to, group, read_only)?;
        }
        empty_dir::mark_ready(&mark)
    })
    .await?;
    Ok(Volume::Path { path: target, read_only, relabel: !read_only })
}

/// Mounts a device where all pods of this node share it.
async fn mount_device(
    folders: &Folders,
    name: &str,
    device: &Path,
    kind: &str,
    options: &[String],
) -> Result<PathBuf, Error> {
    let target = folders.device_mounts(PLUGIN).join(name);
    let _devices = DEVICES.lock().await;
    let shared = target.clone();
    let there = blocking(move || {
        make_folder(&shared)?;
        linux::volume_mount::is_mount_point(&shared)
    });
    if there.await? {
        return Ok(target);
    }
    let done = filesystem::format_and_mount(device, &target, kind, options).await;
    done.map_err(|source| {
        // An empty folder is all that is left of the try.
        let _ = std::fs::remove_dir(&target);
        Error::LocalDevice { device: device.to_path_buf(), at: target.clone(), kind: kind.to_owned(), source }
    })?;
    Ok(target)
}

/// Unmounts the devices that no pod uses any more. The folders of pods are what counts, so that it is right after a restart too.
pub(super) async fn release(folders: &Folders) -> io::Result<()> {
    let _devices = DEVICES.lock().await;
    let folders = folders.clone();
    blocking(move || {
        let mounts = folders.device_mounts(PLUGIN);
        for entry in std::fs::read_dir(&mounts).into_iter().flatten().flatten() {
            let unused = entry.file_name().to_str().is_some_and(|name| !folders.is_used(PLUGIN, name));
            if unused {
                linux::volume_mount::unmount_below(&entry.path())?;
                std::fs::remove_dir(entry.path())?;
            }
        }
        Ok(())
    })
    .await
}

/// Lets the volume fill what it lies on. A folder is as large as its file system, whatever the volume says.
pub(super) async fn grow(folders: &Folders, name: &str, source: &LocalVolumeSource) -> Result<(), Error> {
    let found = std::fs::metadata(&source.path)?;
    if found.file_type().is_block_device() {
        filesystem::grow(Path::new(&source.path), &folders.device_mounts(PLUGIN).join(name)).await?;
    }
    Ok(())
}

fn bind(from: &Path, to: &Path) -> io::Result<()> {
    make_folder(to)?;
    if linux::volume_mount::is_mount_point(to)? { Ok(()) } else { linux::volume_mount::bind_recursive(from, to) }
}
