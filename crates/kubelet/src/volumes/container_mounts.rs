//! What a container's `volumeMounts` become for the runtime.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::PathBuf;

use cri::v1;
use k8s_openapi::api::core::v1::{Container, Pod, VolumeMount};

use super::error::MissingVariable;
use super::folders::Folders;
use super::{Error, Mounted, Volume, VolumeError, blocking, sub_path};
use crate::pod::env::expand;

pub(super) async fn container_mounts(
    folders: &Folders,
    pod: &Pod,
    container: &Container,
    mounted: &Mounted,
    environment: &[(String, String)],
) -> Result<Vec<v1::Mount>, VolumeError> {
    let mut mounts = Vec::new();
    let mut relabelled = BTreeSet::new();
    for (index, mount) in container.volume_mounts.iter().flatten().enumerate() {
        let Some(volume) = mounted.get(&mount.name) else {
            let (volume, container) = (mount.name.clone(), container.name.clone());
            return Err(Error::NotMounted { volume, step: "mount", container }.into());
        };
        let sub_path = wished_sub_path(mount, environment)?;
        let made = match volume {
            Volume::Image { reference } => of_image(mount, reference, &sub_path),
            // Refused when the volume was made ready.
            Volume::Device { .. } => return Err(Error::BlockMounted(mount.name.clone()).into()),
            Volume::Path { path, read_only, relabel } => {
                let host_path = if sub_path.is_empty() {
                    path.clone()
                } else {
                    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
                    let target = folders.sub_path(uid, &mount.name, &container.name, index);
                    prepare(path.clone(), sub_path, target, mount, container).await?
                };
                // Once for each container is enough.
                let selinux_relabel = *relabel && relabelled.insert(mount.name.as_str());
                v1::Mount { selinux_relabel, ..of_path(mount, host_path, *read_only)? }
            }
        };
        mounts.push(made);
    }
    Ok(mounts)
}

/// `subPath`, or `subPathExpr` with the container's variables, checked. Empty for the whole volume.
fn wished_sub_path(mount: &VolumeMount, environment: &[(String, String)]) -> Result<String, Error> {
    let plain = mount.sub_path.as_deref().unwrap_or_default();
    let path = match mount.sub_path_expr.as_deref().unwrap_or_default() {
        "" => plain.to_owned(),
        expression => {
            let missing = RefCell::new(Vec::new());
            let text = expand(expression, |name| {
                let found = environment.iter().find(|(known, _)| known == name);
                if found.is_none() {
                    missing.borrow_mut().push(MissingVariable(name.to_owned()));
                }
                found.map(|(_, value)| value.clone())
            });
            match missing.into_inner() {
                missing if missing.is_empty() => text,
                missing => return Err(Error::NoVariables(missing)),
            }
        }
    };
    if path.starts_with('/') {
        return Err(Error::SubPathAbsolute(path));
    }
    if path.split('/').any(|part| part == "..") {
        return Err(Error::SubPathUpwards(path));
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
    let done = done.map_err(Error::from)?;
    done.map_err(|error| Error::SubPath(error.message(&mount.name, &container.name)))?;
    Ok(target)
}

fn of_path(mount: &VolumeMount, host_path: PathBuf, volume_read_only: bool) -> Result<v1::Mount, Error> {
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

fn propagation(mount: &VolumeMount) -> Result<v1::MountPropagation, Error> {
    match mount.mount_propagation.as_deref() {
        None | Some("None") => Ok(v1::MountPropagation::PropagationPrivate),
        Some("HostToContainer") => Ok(v1::MountPropagation::PropagationHostToContainer),
        Some("Bidirectional") => Ok(v1::MountPropagation::PropagationBidirectional),
        Some(other) => Err(Error::Propagation(other.to_owned())),
    }
}

fn recursive_read_only(mount: &VolumeMount, readonly: bool) -> Result<bool, Error> {
    let private = matches!(mount.mount_propagation.as_deref(), None | Some("None"));
    match mount.recursive_read_only.as_deref() {
        None | Some("Disabled") => Ok(false),
        Some("IfPossible") => Ok(readonly && private),
        Some("Enabled") if !readonly => Err(Error::RecursiveWritable(mount.name.clone())),
        Some("Enabled") if !private => Err(Error::RecursivePropagated(mount.name.clone())),
        Some("Enabled") => Ok(true),
        Some(other) => Err(Error::RecursiveMode(other.to_owned())),
    }
}
