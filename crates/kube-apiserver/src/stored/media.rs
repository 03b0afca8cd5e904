//! In which form this server writes: JSON, or protobuf as upstream's servers do by default. Either reads both.

use bytes::Bytes;
use machinery::codec::protobuf;
use serde_json::Value;

/// What `--storage-media-type` says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StorageMedia {
    #[default]
    Json,
    Protobuf,
}

/// Upstream has JSON for these, whatever the flag says.
const ALWAYS_JSON: [&str; 2] = ["apiextensions.k8s.io", "apiregistration.k8s.io"];

impl StorageMedia {
    pub fn name(self) -> &'static str {
        match self {
            StorageMedia::Json => "application/json",
            StorageMedia::Protobuf => "application/vnd.kubernetes.protobuf",
        }
    }

    /// The value as it is stored. Custom objects have no other form than JSON.
    pub fn encode(self, value: Bytes) -> Bytes {
        match self {
            StorageMedia::Json => value,
            StorageMedia::Protobuf => as_protobuf(&value).map_or(value, Bytes::from),
        }
    }
}

/// The bytes that upstream would store, with fields in the order of their numbers: a server of upstream's that writes the object as it is
/// finds no difference.
fn as_protobuf(value: &[u8]) -> Option<Vec<u8>> {
    let object: Value = serde_json::from_slice(value).ok()?;
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    let (group, version) = text("apiVersion").split_once('/').unwrap_or(("", text("apiVersion")));
    if ALWAYS_JSON.contains(&group) {
        return None;
    }
    let shape = api::schema::type_named(group, version, text("kind"))?;
    if !api::schema::field_numbers().cover(shape) {
        return None;
    }
    let made = protobuf::encode_object(&object, shape, api::schema::field_numbers());
    made.inspect_err(
        |error| tracing::warn!(kind = text("kind"), %error, "cannot store object as protobuf; storing JSON"),
    )
    .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_kinds_are_protobuf_and_others_are_not() {
        let check = |text: &'static str, is_protobuf: bool| {
            let stored = StorageMedia::Protobuf.encode(Bytes::from_static(text.as_bytes()));
            assert_eq!(stored.starts_with(b"k8s\0"), is_protobuf, "{text}");
            assert_eq!(StorageMedia::Json.encode(Bytes::from_static(text.as_bytes())), text.as_bytes());
            if !is_protobuf {
                assert_eq!(stored, text.as_bytes());
            }
        };
        check(r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"c"},"data":{"a":"b"}}"#, true);
        check(r#"{"kind":"Deployment","apiVersion":"apps/v1","metadata":{"name":"c"}}"#, true);
        check(r#"{"kind":"Ship","apiVersion":"example.com/v1","metadata":{"name":"c"}}"#, false);
        check(r#"{"kind":"APIService","apiVersion":"apiregistration.k8s.io/v1","metadata":{"name":"c"}}"#, false);
        check("no object", false);
    }

    /// Every kind that is stored as protobuf comes back as it was.
    #[test]
    fn every_kind_comes_back() {
        let mut kinds = 0;
        for kind in api::KINDS.iter().filter(|kind| !kind.storage.is_empty() && kind.convert.is_none()) {
            let (api_version, name) = (kind.api_version(), kind.kind);
            let mut object = serde_json::json!({
                "kind": name, "apiVersion": api_version,
                "metadata": {
                    "name": "n", "uid": "u", "creationTimestamp": "2026-01-02T03:04:05Z", "labels": {"a": "b"},
                    "annotations": {"c": ""}, "finalizers": ["x.io/y"], "generation": 3,
                },
            });
            (kind.defaults)(&mut object);
            let text = machinery::codec::encode(&object);
            let stored = StorageMedia::Protobuf.encode(text.into());
            if !stored.starts_with(b"k8s\0") {
                continue;
            }
            let read = super::super::from_protobuf(&stored).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(read["metadata"], object["metadata"], "{name}");
            assert_eq!((&read["kind"], &read["apiVersion"]), (&object["kind"], &object["apiVersion"]));
            kinds += 1;
        }
        assert!(kinds > 45, "{kinds} kinds");
    }
}
