//! What a container's `volumeMounts` become for the runtime.

use std::cell::RefCell;
use std::path::PathBuf;

use cri::v1;
use k8s_openapi::api::core::v1::{Container, Pod, VolumeMount};

use super::folders::Folders;
use super::{Mounted, Volume, VolumeError, blocking, sub_path};
use crate::pod::env::expand;

pub(super) async fn container_mounts(
    folders: &Folders,
    pod: &Pod,
    container: &Container,
    mounted: &Mounted,
    environment: &[(String, String)],
) -> Result<Vec<v1::Mount>, VolumeError> {
    let mut mounts = Vec::new();
    for (index, mount) in container.volume_mounts.iter().flatten().enumerate() {
        let Some(volume) = mounted.get(&mount.name) else {
            return Err(VolumeError::Failed(format!(
                "cannot find volume {:?} to mount into container {:?}",
                mount.name, container.name
            )));
        };
        let sub_path = wished_sub_path(mount, environment).map_err(VolumeError::Failed)?;
        let made = match volume {
            Volume::Image { reference } => of_image(mount, reference, &sub_path),
            // Refused when the volume was made ready.
            Volume::Device { .. } => {
                let message = format!("volume {} has volumeMode Block, but is specified in volumeMounts", mount.name);
                return Err(VolumeError::Failed(message));
            }
            Volume::Path { path, read_only } => {
                let host_path = if sub_path.is_empty() {
                    path.clone()
                } else {
                    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
                    let target = folders.sub_path(uid, &mount.name, &container.name, index);
                    prepare(path.clone(), sub_path, target, mount, container).await?
                };
                of_path(mount, host_path, *read_only).map_err(VolumeError::Failed)?
            }
        };
        mounts.push(made);
    }
    Ok(mounts)
}

/// `subPath`, or `subPathExpr` with the container's variables, checked. Empty for the whole volume.
fn wished_sub_path(mount: &VolumeMount, environment: &[(String, String)]) -> Result<String, String> {
    let plain = mount.sub_path.as_deref().unwrap_or_default();
    let path = match mount.sub_path_expr.as_deref().unwrap_or_default() {
        "" => plain.to_owned(),
        expression => {
            let missing = RefCell::new(Vec::new());
            let text = expand(expression, |name| {
                let found = environment.iter().find(|(known, _)| known == name);
                if found.is_none() {
                    missing.borrow_mut().push(format!("missing value for {name:?}"));
                }
                found.map(|(_, value)| value.clone())
            });
            match missing.into_inner() {
                missing if missing.is_empty() => text,
                missing => return Err(super::payload::joined(missing)),
            }
        }
    };
    if path.starts_with('/') {
        return Err(format!("error SubPath `{path}` must not be an absolute path"));
    }
    if path.split('/').any(|part| part == "..") {
        return Err(format!("unable to provision SubPath `{path}`: must not contain '..'"));
    }
    Ok(path)
}

async fn prepare(
    volume: PathBuf,
    path: String,
    target: PathBuf,
    mount: &VolumeMount,
    container: &Container,
) -> Result<PathBuf, VolumeError> {
    let place = target.clone();
    let done = blocking(move || Ok(sub_path::prepare(&volume, path.as_ref(), &place))).await;
    let done = done.map_err(|error| VolumeError::Failed(error.to_string()))?;
    done.map_err(|error| VolumeError::Failed(error.message(&mount.name, &container.name)))?;
    Ok(target)
}

fn of_path(mount: &VolumeMount, host_path: PathBuf, volume_read_only: bool) -> Result<v1::Mount, String> {
    let readonly = mount.read_only.unwrap_or(false) || volume_read_only;
    let propagation = propagation(mount)?;
    Ok(v1::Mount {
        container_path: container_path(mount),
        host_path: host_path.to_string_lossy().into_owned(),
        readonly,
        propagation: propagation as i32,
        recursive_read_only: recursive_read_only(mount, readonly)?,
        ..Default::default()
    })
}

fn of_image(mount: &VolumeMount, reference: &str, sub_path: &str) -> v1::Mount {
    let image =
        v1::ImageSpec { image: reference.to_owned(), user_specified_image: reference.to_owned(), ..Default::default() };
    v1::Mount {
        container_path: container_path(mount),
        readonly: true,
        image: Some(image),
        image_sub_path: sub_path.to_owned(),
        ..Default::default()
    }
}

fn container_path(mount: &VolumeMount) -> String {
    if mount.mount_path.starts_with('/') { mount.mount_path.clone() } else { format!("/{}", mount.mount_path) }
}

fn propagation(mount: &VolumeMount) -> Result<v1::MountPropagation, String> {
    match mount.mount_propagation.as_deref() {
        None | Some("None") => Ok(v1::MountPropagation::PropagationPrivate),
        Some("HostToContainer") => Ok(v1::MountPropagation::PropagationHostToContainer),
        Some("Bidirectional") => Ok(v1::MountPropagation::PropagationBidirectional),
        Some(other) => Err(format!("invalid MountPropagation mode: {other:?}")),
    }
}

fn recursive_read_only(mount: &VolumeMount, readonly: bool) -> Result<bool, String> {
    let private = matches!(mount.mount_propagation.as_deref(), None | Some("None"));
    match mount.recursive_read_only.as_deref() {
        None | Some("Disabled") => Ok(false),
        Some("IfPossible") => Ok(readonly && private),
        Some("Enabled") if !readonly => {
            Err(format!("volume {:?} requested recursive read-only mode, but it is not read-only", mount.name))
        }
        Some("Enabled") if !private => Err(format!(
            "volume {:?} requested recursive read-only mode, but its mount propagation is not None",
            mount.name
        )),
        Some("Enabled") => Ok(true),
        Some(other) => Err(format!("unknown recursive read-only mode {other:?}")),
    }
}
