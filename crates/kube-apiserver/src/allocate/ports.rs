//! The node ports that are taken: one bitmap of the whole range, the RangeAllocation that upstream's servers keep in the
//! same place, so that servers of both kinds on one store never give the same port away twice.

use std::ops::RangeInclusive;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use machinery::codec::protobuf;
use machinery::status::Status;
use serde_json::{Value, json};
use store::{Change, Expect, Written};

use crate::app::App;
use crate::write::store_status;

pub const KEY: &str = "/registry/ranges/servicenodeports";
/// How often a change is tried again when other servers wrote first.
const TRIES_MAX: usize = 64;

/// Which ports of a range are taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ports {
    range: RangeInclusive<u16>,
    taken: Vec<bool>,
}

impl Ports {
    pub fn none(range: RangeInclusive<u16>) -> Ports {
        let length = range.len();
        Ports { range, taken: vec![false; length] }
    }

    fn place(&self, port: u16) -> Option<usize> {
        self.range.contains(&port).then(|| usize::from(port - self.range.start()))
    }

    /// What lies outside of the range is never free.
    pub fn is_free(&self, port: u16) -> bool {
        self.place(port).is_some_and(|place| !self.taken[place])
    }

    /// Whether that changes anything.
    pub fn set(&mut self, port: u16, taken: bool) -> bool {
        match self.place(port) {
            Some(place) => std::mem::replace(&mut self.taken[place], taken) != taken,
            None => false,
        }
    }

    pub fn taken(&self) -> impl Iterator<Item = u16> {
        let all = self.range.clone().zip(&self.taken);
        all.filter(|(_, taken)| **taken).map(|(port, _)| port)
    }

    /// A stored RangeAllocation, whose range may be another one: what lies in both ranges counts.
    pub fn read(value: &[u8], range: RangeInclusive<u16>) -> Result<Ports, Status> {
        let broken = |error: PortsError| Status::internal(format!("cannot decode {KEY}: {error}"));
        let (spec, data) = match protobuf::open(value) {
            Ok(envelope) => from_protobuf(envelope.raw).map_err(|error| broken(error.into()))?,
            Err(_) => from_json(value).map_err(broken)?,
        };
        let first = spec.split('-').next().and_then(|text| text.parse::<u16>().ok()).unwrap_or(*range.start());
        let mut ports = Ports::none(range);
        // The last byte has the first eight ports, its lowest bit the very first: Go's big integer.
        for (index, byte) in data.iter().rev().enumerate() {
            for bit in (0..8).filter(|bit| byte & (1 << bit) != 0) {
                if let Ok(port) = u16::try_from(usize::from(first) + index * 8 + bit) {
                    ports.set(port, true);
                }
            }
        }
        Ok(ports)
    }

    pub fn to_value(&self) -> Value {
        let mut data = vec![0_u8; self.taken.len().div_ceil(8)];
        let last = data.len().saturating_sub(1);
        for (place, _) in self.taken.iter().enumerate().filter(|(_, taken)| **taken) {
            data[last - place / 8] |= 1 << (place % 8);
        }
        let used = data.iter().position(|byte| *byte != 0).unwrap_or(data.len());
        json!({
            "kind": "RangeAllocation", "apiVersion": "v1", "metadata": {},
            "range": format!("{}-{}", self.range.start(), self.range.end()), "data": STANDARD.encode(&data[used..]),
        })
    }
}

/// Why a stored RangeAllocation cannot be read.
#[derive(Debug, thiserror::Error)]
enum PortsError {
    #[error(transparent)]
    Protobuf(#[from] protobuf::DecodeError),
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error(transparent)]
    Data(#[from] base64::DecodeError),
}

/// The kind is served nowhere, so that no schema knows it: range is its second field, data its third.
fn from_protobuf(raw: &[u8]) -> Result<(String, Vec<u8>), protobuf::DecodeError> {
    let (mut range, mut data) = (String::new(), Vec::new());
    for (number, bytes) in protobuf::bytes_fields(raw)? {
        match number {
            2 => range = String::from_utf8_lossy(bytes).into_owned(),
            3 => data = bytes.to_vec(),
            _ => {}
        }
    }
    Ok((range, data))
}

fn from_json(value: &[u8]) -> Result<(String, Vec<u8>), PortsError> {
    let value: Value = serde_json::from_slice(value)?;
    let data = STANDARD.decode(value["data"].as_str().unwrap_or(""))?;
    Ok((value["range"].as_str().unwrap_or("").to_string(), data))
}

/// The ports as the store has them now.
pub async fn current(app: &Arc<App>) -> Result<Ports, Status> {
    let range = app.settings.node_ports.clone();
    match app.cache.store().get(KEY).await.map_err(store_status)? {
        Some(entry) => Ports::read(&entry.value, range),
        None => Ok(Ports::none(range)),
    }
}

/// Changes the ports, whoever else does at the same time; `edit` says whether there is anything to write, and so does the
/// answer.
pub async fn change(app: &Arc<App>, edit: impl Fn(&mut Ports) -> bool) -> Result<bool, Status> {
    let store = app.cache.store();
    let _alone = app.locks.lock(KEY).await;
    for _ in 0..TRIES_MAX {
        let entry = store.get(KEY).await.map_err(store_status)?;
        let range = app.settings.node_ports.clone();
        let (mut ports, expect) = match &entry {
            Some(entry) => (Ports::read(&entry.value, range)?, Expect::At(entry.revision)),
            None => (Ports::none(range), Expect::Absent),
        };
        if !edit(&mut ports) {
            return Ok(false);
        }
        let put = Change::Put { value: ports.to_value().to_string().into(), ttl: None };
        if let Written::Done(_) = store.write_if(KEY, expect, put).await.map_err(store_status)? {
            return Ok(true);
        }
    }
    Err(Status::internal(format!("cannot write {KEY}: other servers write it all the time")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RANGE: RangeInclusive<u16> = 30000..=32767;

    fn written(ports: &[u16]) -> Value {
        let mut map = Ports::none(RANGE);
        ports.iter().for_each(|port| assert!(map.set(*port, true)));
        map.to_value()
    }

    /// The bytes are those of Go's `big.Int` with these bits set.
    #[test]
    fn the_bitmap_is_upstreams() {
        let check = |ports: &[u16], data: &[u8]| {
            let value = written(ports);
            assert_eq!(value["data"], STANDARD.encode(data), "{ports:?}");
            let read = Ports::read(value.to_string().as_bytes(), RANGE).unwrap();
            assert_eq!(read.taken().collect::<Vec<_>>(), ports);
        };
        check(&[], &[]);
        check(&[30000], &[1]);
        check(&[30007], &[0x80]);
        check(&[30000, 30008], &[1, 1]);
        check(&[30017], &[2, 0, 0]);
        assert_eq!(written(&[])["range"], "30000-32767");
    }

    #[test]
    fn protobuf_is_read_too() {
        // An envelope of a RangeAllocation: empty metadata, the range, and one byte of data.
        let mut raw = vec![0x0a, 0x00, 0x12, 11];
        raw.extend_from_slice(b"30000-32767");
        raw.extend_from_slice(&[0x1a, 1, 0b101]);
        let mut value = b"k8s\0\x0a\x15\x0a\x02v1\x12\x0fRangeAllocation\x12".to_vec();
        value.push(raw.len() as u8);
        value.extend_from_slice(&raw);
        let ports = Ports::read(&value, RANGE).unwrap();
        assert_eq!(ports.taken().collect::<Vec<_>>(), [30000, 30002]);
    }

    #[test]
    fn another_range_counts_where_both_overlap() {
        let stored = written(&[30000, 31000]).to_string();
        let ports = Ports::read(stored.as_bytes(), 30500..=31500).unwrap();
        assert_eq!(ports.taken().collect::<Vec<_>>(), [31000]);
        assert!(ports.is_free(31001) && !ports.is_free(31000) && !ports.is_free(30000));
    }
}
