//! Files that are to be shown in a volume, gathered before anything is written.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, DownwardAPIVolumeFile, KeyToPath, Pod, Secret};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::Error;
use crate::pod::env::{self, Addresses, DownwardError};

/// What every volume of files has unless it says otherwise.
pub(super) const DEFAULT_MODE: i32 = 0o644;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct File {
    pub data: Vec<u8>,
    pub mode: u32,
    /// Who the file belongs to, when not root.
    pub user: Option<u32>,
}

/// By path relative to the volume.
pub(super) type Payload = BTreeMap<String, File>;

/// All keys by their names, or those that `items` picks by the paths it gives. `missing` words the error about a key that is
/// not there.
pub(super) fn pick(
    data: &BTreeMap<String, Vec<u8>>,
    items: Option<&[KeyToPath]>,
    default_mode: i32,
    optional: bool,
    missing: impl Fn(String) -> Error,
) -> Result<Payload, Error> {
    let file = |data: &Vec<u8>, mode: i32| File { data: data.clone(), mode: mode as u32, user: None };
    let Some(items) = items.filter(|items| !items.is_empty()) else {
        return Ok(data.iter().map(|(key, data)| (key.clone(), file(data, default_mode))).collect());
    };
    let mut payload = Payload::new();
    for item in items {
        match data.get(&item.key) {
            Some(data) => drop(payload.insert(item.path.clone(), file(data, item.mode.unwrap_or(default_mode)))),
            None if optional => {}
            None => return Err(missing(item.key.clone())),
        }
    }
    Ok(payload)
}

pub(super) fn config_map_data(object: &ConfigMap) -> BTreeMap<String, Vec<u8>> {
    let text = object.data.iter().flatten().map(|(key, value)| (key.clone(), value.clone().into_bytes()));
    text.chain(bytes(object.binary_data.as_ref())).collect()
}

pub(super) fn secret_data(object: &Secret) -> BTreeMap<String, Vec<u8>> {
    bytes(object.data.as_ref()).collect()
}

fn bytes(data: Option<&BTreeMap<String, ByteString>>) -> impl Iterator<Item = (String, Vec<u8>)> {
    data.into_iter().flatten().map(|(key, value)| (key.clone(), value.0.clone()))
}

/// What a pod may know about itself, as files.
pub(super) fn downward(
    pod: &Pod,
    items: &[DownwardAPIVolumeFile],
    default_mode: i32,
    allocatable: &BTreeMap<String, Quantity>,
) -> Result<Payload, DownwardError> {
    let mut payload = Payload::new();
    for item in items {
        let text = if let Some(reference) = &item.field_ref {
            env::field(pod, &reference.field_path, &Addresses::default())?
        } else if let Some(reference) = &item.resource_field_ref {
            let container = env::container_of(pod, reference.container_name.as_deref().unwrap_or_default())?;
            env::resource(pod, container, reference, allocatable)?
        } else {
            continue;
        };
        let mode = item.mode.unwrap_or(default_mode) as u32;
        payload.insert(item.path.clone(), File { data: text.into_bytes(), mode, user: None });
    }
    Ok(payload)
}
