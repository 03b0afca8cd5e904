//! Volumes that are raw devices (`volumeMode: Block`): not mounted, but shown to containers under the paths they ask for.

use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use cri::v1;
use k8s_openapi::api::core::v1::{Container, Pod};

use super::folders::{is_safe_name, make_folder};
use super::{Error, Mounted, Problem, Request, Volume, VolumeError, blocking};

const PLUGIN: &str = "kubernetes.io~local-volume";

/// Whether the pod uses the volume as what it is.
pub(super) fn check_mode(pod: &Pod, volume: &str, is_block: bool) -> Result<(), Problem> {
    let containers = pod.spec.iter().flat_map(|spec| spec.init_containers.iter().flatten().chain(&spec.containers));
    for container in containers {
        let mounted = container.volume_mounts.iter().flatten().any(|mount| mount.name == volume);
        let mapped = container.volume_devices.iter().flatten().any(|device| device.name == volume);
        let wrong = if is_block && mounted {
            "volumeMode Block, but is specified in volumeMounts"
        } else if !is_block && mapped {
            "volumeMode Filesystem, but is specified in volumeDevices"
        } else {
            continue;
        };
        return Err(Problem::Unprocessed(format!("volume {volume} has {wrong}")));
    }
    Ok(())
}

/// A device of this node. A link in the pod's folder shows which one it uses.
pub(super) async fn map(request: &Request<'_>, name: &str, source: &str, read_only: bool) -> Result<Volume, Problem> {
    let failed = |error: Error| Problem::Map(format!("MapVolume.MapPodDevice failed for volume {name:?} : {error}"));
    if source.split('/').any(|part| part == "..") || !is_safe_name(name) {
        return Err(failed(Error::LocalUpwards(source.to_owned())));
    }
    let link = request.folders.device(request.uid(), PLUGIN, name);
    let (from, to) = (PathBuf::from(source), link);
    let path = blocking(move || {
        let device = std::fs::canonicalize(&from)?;
        if !std::fs::metadata(&device)?.file_type().is_block_device() {
            return Err(std::io::Error::other(format!("{} is not a block device", from.display())));
        }
        point(&to, &device)?;
        Ok(device)
    });
    let path = path.await.map_err(|error| failed(error.into()))?;
    Ok(Volume::Device { path, read_only })
}

/// Makes the link lead to the device.
pub(super) fn point(link: &Path, device: &Path) -> std::io::Result<()> {
    if std::fs::read_link(link).is_ok_and(|known| known == device) {
        return Ok(());
    }
    if let Some(folder) = link.parent() {
        make_folder(folder)?;
    }
    match std::fs::remove_file(link) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    std::os::unix::fs::symlink(device, link)
}

/// What a container's `volumeDevices` become.
pub(super) fn container_devices(container: &Container, mounted: &Mounted) -> Result<Vec<v1::Device>, VolumeError> {
    let mut devices = Vec::new();
    for wished in container.volume_devices.iter().flatten() {
        if !wished.device_path.starts_with('/') {
            return Err(Error::DevicePath(wished.device_path.clone()).into());
        }
        let Some(Volume::Device { path, read_only }) = mounted.get(&wished.name) else {
            let (volume, container) = (wished.name.clone(), container.name.clone());
            return Err(Error::NotMounted { volume, step: "pass", container }.into());
        };
        devices.push(v1::Device {
            container_path: wished.device_path.clone(),
            host_path: path.to_string_lossy().into_owned(),
            permissions: if *read_only { "r" } else { "mrw" }.to_owned(),
        });
    }
    Ok(devices)
}
