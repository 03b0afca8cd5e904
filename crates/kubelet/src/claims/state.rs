//! What is known of claims that drivers prepared or are about to, and how it stands on disk, in upstream's own file.

use std::collections::{BTreeMap, BTreeSet};

use devices::dra::v1;
use serde::{Deserialize, Serialize};

pub(super) const FILE: &str = "dra_manager_state";
const KIND: &str = "DRACheckpoint";
const API_VERSION: &str = "checkpoint.dra.kubelet.k8s.io/v1";

#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    #[error("parse checkpoint: {0}")]
    Json(#[from] serde_json::Error),
    #[error("checkpoint is corrupted: its checksum is {found}, its content's {expected}")]
    Checksum { found: u32, expected: u32 },
    #[error("unknown kind {kind} of {version}")]
    Kind { kind: String, version: String },
}

/// A claim by namespace and name.
pub(super) type Key = (String, String);

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Claim {
    #[serde(rename = "ClaimUID")]
    pub uid: String,
    #[serde(rename = "ClaimName")]
    pub name: String,
    #[serde(rename = "Namespace")]
    pub namespace: String,
    #[serde(rename = "PodUIDs")]
    pods: BTreeMap<String, Nothing>,
    #[serde(rename = "DriverState")]
    pub drivers: BTreeMap<String, OfDriver>,
    /// Since this kubelet started; drivers are asked again by the next, which does them no harm.
    #[serde(skip)]
    pub prepared: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Nothing {}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct OfDriver {
    #[serde(rename = "Devices")]
    devices: Option<Vec<Device>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Device {
    #[serde(rename = "PoolName")]
    pub pool: String,
    #[serde(rename = "DeviceName")]
    pub name: String,
    #[serde(rename = "ShareID")]
    pub share: Option<String>,
    #[serde(rename = "RequestNames")]
    requests: Option<Vec<String>>,
    #[serde(rename = "CDIDeviceIDs")]
    cdi: Option<Vec<String>>,
}

impl Claim {
    pub fn new(namespace: &str, name: &str, uid: &str, drivers: &[String]) -> Claim {
        let drivers = drivers.iter().map(|driver| (driver.clone(), OfDriver::default())).collect();
        let (namespace, name, uid) = (namespace.to_owned(), name.to_owned(), uid.to_owned());
        Claim { uid, name, namespace, drivers, ..Claim::default() }
    }

    pub fn key(&self) -> Key {
        (self.namespace.clone(), self.name.clone())
    }

    pub(crate) fn as_asked(&self) -> v1::Claim {
        v1::Claim { namespace: self.namespace.clone(), uid: self.uid.clone(), name: self.name.clone() }
    }

    pub fn add_pod(&mut self, uid: &str) {
        self.pods.insert(uid.to_owned(), Nothing {});
    }

    pub fn remove_pod(&mut self, uid: &str) {
        self.pods.remove(uid);
    }

    pub fn is_of(&self, uid: &str) -> bool {
        self.pods.contains_key(uid)
    }

    pub fn pods(&self) -> impl Iterator<Item = &String> {
        self.pods.keys()
    }

    /// What a driver says replaces what it said before.
    pub fn set_devices(&mut self, driver: &str, devices: Vec<v1::Device>) {
        let device = |device: v1::Device| Device {
            pool: device.pool_name,
            name: device.device_name,
            share: device.share_id,
            requests: Some(device.request_names),
            cdi: Some(device.cdi_device_ids),
        };
        let devices = Some(devices.into_iter().map(device).collect());
        self.drivers.insert(driver.to_owned(), OfDriver { devices });
    }

    /// The CDI names of devices for a request, or of all.
    pub fn cdi(&self, request: &str) -> impl Iterator<Item = &String> {
        let devices = self.drivers.values().flat_map(OfDriver::devices);
        devices.filter(move |device| device.is_for(request)).flat_map(Device::cdi)
    }
}

impl OfDriver {
    pub fn devices(&self) -> impl Iterator<Item = &Device> {
        self.devices.iter().flatten()
    }
}

impl Device {
    pub fn cdi(&self) -> impl Iterator<Item = &String> {
        self.cdi.iter().flatten()
    }

    /// A device without requests is for all of them.
    pub fn is_for(&self, request: &str) -> bool {
        let mut requests = self.requests.iter().flatten().peekable();
        request.is_empty() || requests.peek().is_none() || requests.any(|one| one == request)
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct File {
    data: String,
    checksum: u32,
}

#[derive(Serialize, Deserialize)]
struct Data {
    kind: String,
    #[serde(rename = "apiVersion")]
    api_version: String,
    #[serde(rename = "ClaimInfoStateList")]
    claims: Option<Vec<Claim>>,
}

pub(super) fn write(claims: &BTreeMap<Key, Claim>) -> Result<Vec<u8>, serde_json::Error> {
    let claims = Some(claims.values().cloned().collect());
    let data = Data { kind: KIND.to_owned(), api_version: API_VERSION.to_owned(), claims };
    let data = serde_json::to_string(&data)?;
    let checksum = checksum(&data);
    serde_json::to_vec(&File { data, checksum })
}

pub(super) fn read(bytes: &[u8]) -> Result<BTreeMap<Key, Claim>, ReadError> {
    let file: File = serde_json::from_slice(bytes)?;
    let expected = checksum(&file.data);
    if expected != file.checksum {
        return Err(ReadError::Checksum { found: file.checksum, expected });
    }
    let data: Data = serde_json::from_str(&file.data)?;
    if data.kind != KIND || data.api_version != API_VERSION {
        return Err(ReadError::Kind { kind: data.kind, version: data.api_version });
    }
    Ok(data.claims.into_iter().flatten().map(|claim| (claim.key(), claim)).collect())
}

fn checksum(text: &str) -> u32 {
    let mut checksum = flate2::Crc::new();
    checksum.update(text.as_bytes());
    checksum.sum()
}

/// All pods that any claim is for.
pub(super) fn pods(claims: &BTreeMap<Key, Claim>) -> BTreeSet<String> {
    claims.values().flat_map(Claim::pods).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As upstream's kubelet wrote it.
    const UPSTREAMS: &str = r#"{"Data":"{\"kind\":\"DRACheckpoint\",\"apiVersion\":\"checkpoint.dra.kubelet.k8s.io/v1\",\"ClaimInfoStateList\":[{\"ClaimUID\":\"067798be-454e-4be4-9047-1aa06aea63f7\",\"ClaimName\":\"example\",\"Namespace\":\"default\",\"PodUIDs\":{\"139cdb46-f989-4f17-9561-ca10cfb509a6\":{}},\"DriverState\":{\"test-driver.cdi.k8s.io\":{\"Devices\":[{\"PoolName\":\"worker-1\",\"DeviceName\":\"dev-1\",\"ShareID\":null,\"RequestNames\":[\"test request\"],\"CDIDeviceIDs\":[\"example.com/example=cdi-example\"]}]}}}]}","Checksum":2570581864}"#;

    #[test]
    fn the_file_is_upstreams() {
        let claims = read(UPSTREAMS.as_bytes()).unwrap();
        let claim = claims.values().next().unwrap();
        assert!(claim.is_of("139cdb46-f989-4f17-9561-ca10cfb509a6"));
        assert_eq!(claim.cdi("").collect::<Vec<_>>(), ["example.com/example=cdi-example"]);
        assert_eq!(claim.cdi("test request").count(), 1);
        assert_eq!(claim.cdi("another").count(), 0);
        assert_eq!(String::from_utf8(write(&claims).unwrap()).unwrap(), UPSTREAMS);
        let changed = UPSTREAMS.replace("dev-1", "dev-2");
        assert!(matches!(read(changed.as_bytes()), Err(ReadError::Checksum { .. })));
    }
}
