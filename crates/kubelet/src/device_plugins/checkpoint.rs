//! The device checkpoint on disk, in upstream's file format: either kubelet goes on where the other has stopped.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use prost::Message;
use serde::{Deserialize, Serialize};

use super::state::{Allocation, PodDevices};

pub(super) const FILE: &str = "kubelet_internal_checkpoint";

#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    #[error("parse checkpoint")]
    Json(#[from] serde_json::Error),
    #[error("checkpoint is corrupted: its checksum is {found}, its content's {expected}")]
    Checksum { found: u64, expected: u64 },
    #[error("decode devices of container {container} of pod {uid}")]
    Response {
        uid: String,
        container: String,
        #[source]
        source: BadResponse,
    },
}

#[derive(Debug, thiserror::Error)]
pub(super) enum BadResponse {
    #[error(transparent)]
    Base64(#[from] base64::DecodeError),
    #[error(transparent)]
    Message(#[from] prost::DecodeError),
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct File {
    data: Data,
    checksum: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Data {
    pod_device_entries: Option<Vec<Entry>>,
    registered_devices: Option<BTreeMap<String, Option<Vec<String>>>>,
}

#[derive(Serialize, Deserialize)]
struct Entry {
    #[serde(rename = "PodUID")]
    pod_uid: String,
    #[serde(rename = "ContainerName")]
    container_name: String,
    #[serde(rename = "ResourceName")]
    resource_name: String,
    #[serde(rename = "DeviceIDs")]
    device_ids: Option<BTreeMap<i64, Option<Vec<String>>>>,
    #[serde(rename = "AllocResp")]
    response: Option<String>,
}

pub(super) fn write(
    pods: &PodDevices,
    registered: BTreeMap<String, Vec<String>>,
) -> Result<Vec<u8>, serde_json::Error> {
    let entries = pods.iter().flat_map(|(uid, containers)| {
        containers.iter().flat_map(move |(container, resources)| {
            resources.iter().map(move |(resource, allocation)| Entry {
                pod_uid: uid.clone(),
                container_name: container.clone(),
                resource_name: resource.clone(),
                device_ids: Some(allocation.devices.iter().map(|(node, ids)| (*node, Some(ids.clone()))).collect()),
                response: Some(STANDARD.encode(allocation.response.encode_to_vec())),
            })
        })
    });
    let data = Data {
        pod_device_entries: Some(entries.collect()),
        registered_devices: Some(registered.into_iter().map(|(name, ids)| (name, Some(ids))).collect()),
    };
    let checksum = checksum(&data);
    serde_json::to_vec(&File { data, checksum })
}

/// What containers had, and which resources there were.
pub(super) fn read(bytes: &[u8]) -> Result<(PodDevices, Vec<String>), ReadError> {
    let file: File = serde_json::from_slice(bytes)?;
    let expected = checksum(&file.data);
    if file.checksum != expected {
        return Err(ReadError::Checksum { found: file.checksum, expected });
    }
    let mut pods = PodDevices::new();
    for entry in file.data.pod_device_entries.into_iter().flatten() {
        let response = decode(entry.response.as_deref().unwrap_or_default()).map_err(|source| ReadError::Response {
            uid: entry.pod_uid.clone(),
            container: entry.container_name.clone(),
            source,
        })?;
        let devices = entry.device_ids.unwrap_or_default();
        let devices = devices.into_iter().map(|(node, ids)| (node, ids.unwrap_or_default())).collect();
        let containers = pods.entry(entry.pod_uid).or_default();
        let resources = containers.entry(entry.container_name).or_default();
        resources.insert(entry.resource_name, Allocation { devices, response });
    }
    Ok((pods, file.data.registered_devices.unwrap_or_default().into_keys().collect()))
}

fn decode(text: &str) -> Result<devices::v1beta1::ContainerAllocateResponse, BadResponse> {
    Ok(Message::decode(&*STANDARD.decode(text)?)?)
}

fn checksum(data: &Data) -> u64 {
    crate::checkpoint::fnv(&shown(data))
}

fn shown(data: &Data) -> String {
    let entries = data.pod_device_entries.as_ref().map(|entries| entries.iter().map(shown_entry).collect());
    let registered = data.registered_devices.as_ref().map(|all| {
        let pairs: Vec<String> = all.iter().map(|(name, ids)| format!("{name}:{}", list(ids.clone()))).collect();
        format!("map[{}]", pairs.join(" "))
    });
    format!(
        "(checkpoint.checkpointData){{PodDeviceEntries:([]checkpoint.PodDevicesEntry){} RegisteredDevices:(map[string][]string){}}}",
        list(entries),
        registered.unwrap_or_else(nil),
    )
}

fn shown_entry(entry: &Entry) -> String {
    let devices = entry.device_ids.as_ref().map(|all| {
        let pairs: Vec<String> = all.iter().map(|(node, ids)| format!("{node}:{}", list(ids.clone()))).collect();
        format!("map[{}]", pairs.join(" "))
    });
    // What is no base64 is refused afterwards, whatever its checksum.
    let bytes = entry
        .response
        .as_ref()
        .map(|text| STANDARD.decode(text).unwrap_or_default().iter().map(u8::to_string).collect());
    format!(
        "{{PodUID:(string){} ContainerName:(string){} ResourceName:(string){} DeviceIDs:(checkpoint.DevicesPerNUMA){} AllocResp:([]uint8){}}}",
        entry.pod_uid,
        entry.container_name,
        entry.resource_name,
        devices.unwrap_or_else(nil),
        list(bytes),
    )
}

fn list(items: Option<Vec<String>>) -> String {
    items.map_or_else(nil, |items| format!("[{}]", items.join(" ")))
}

fn nil() -> String {
    "<nil>".to_owned()
}

#[cfg(test)]
mod tests {
    use devices::v1beta1::{ContainerAllocateResponse, DeviceSpec};

    use super::*;

    fn some() -> PodDevices {
        let device =
            DeviceSpec { container_path: "/dev/a".into(), host_path: "/dev/a".into(), permissions: "rw".into() };
        let response = ContainerAllocateResponse {
            envs: [("A".to_owned(), "1".to_owned())].into(),
            devices: vec![device],
            ..Default::default()
        };
        let allocation = Allocation { devices: [(-1, vec!["a".into()]), (0, vec!["b".into()])].into(), response };
        let resources = BTreeMap::from([("x.test/gpu".to_owned(), allocation)]);
        [("u1".to_owned(), BTreeMap::from([("main".to_owned(), resources)]))].into()
    }

    #[test]
    fn what_was_written_is_read() {
        let registered = BTreeMap::from([("x.test/gpu".to_owned(), vec!["a".to_owned(), "b".to_owned()])]);
        let bytes = write(&some(), registered).unwrap();
        assert_eq!(read(&bytes).unwrap(), (some(), vec!["x.test/gpu".to_owned()]));
        let changed = String::from_utf8(bytes).unwrap().replace("main", "mine");
        assert!(matches!(read(changed.as_bytes()), Err(ReadError::Checksum { .. })));
        assert!(matches!(read(b"{"), Err(ReadError::Json(_))));
    }

    #[test]
    fn the_checksum_is_over_gos_text() {
        let none = Data { pod_device_entries: None, registered_devices: Some(BTreeMap::new()) };
        assert_eq!(
            shown(&none),
            "(checkpoint.checkpointData){PodDeviceEntries:([]checkpoint.PodDevicesEntry)<nil> RegisteredDevices:(map[string][]string)map[]}"
        );
        let entry = Entry {
            pod_uid: "u".into(),
            container_name: "c".into(),
            resource_name: "x.test/r".into(),
            device_ids: Some([(-1, Some(vec!["a".into(), "b".into()]))].into()),
            response: Some("AQI=".into()),
        };
        assert_eq!(
            shown_entry(&entry),
            "{PodUID:(string)u ContainerName:(string)c ResourceName:(string)x.test/r DeviceIDs:(checkpoint.DevicesPerNUMA)map[-1:[a b]] AllocResp:([]uint8)[1 2]}"
        );
    }
}
