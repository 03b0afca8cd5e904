//! What other API servers have written into the same store, as this server reads it: protobuf as JSON, older versions as
//! today's, and without the line break at the end. `media` says in which form this server writes.

mod definition;
mod media;

use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use machinery::codec::{self, protobuf};
use machinery::schema::conform::{Problems, conform};
use serde_json::Value;
use store::{Change, Entry, Event, Expect, Range, RangeRequest, Revision, Store, StoreError, Written};

use crate::resources::Table;

pub use media::StorageMedia;

/// Before every protobuf value.
const PROTOBUF: &[u8] = b"k8s\0";
const DEFINITIONS: &str = "/registry/apiextensions.k8s.io/customresourcedefinitions/";
/// How many keys a refusal names.
const NAMED_MAX: usize = 20;

/// A store whose values are all JSON in today's versions, as far as they can be read, whatever it holds.
pub struct Readable(Arc<dyn Store>, StorageMedia);

impl Readable {
    pub fn wrap(store: Arc<dyn Store>, media: StorageMedia) -> Arc<dyn Store> {
        Arc::new(Readable(store, media))
    }
}

#[async_trait::async_trait]
impl Store for Readable {
    async fn get(&self, key: &str) -> Result<Option<Entry>, StoreError> {
        Ok(self.0.get(key).await?.map(entry))
    }

    async fn range(&self, request: RangeRequest) -> Result<Range, StoreError> {
        let range = self.0.range(request).await?;
        Ok(Range { entries: range.entries.into_iter().map(entry).collect(), ..range })
    }

    async fn write_if(&self, key: &str, expect: Expect, change: Change) -> Result<Written, StoreError> {
        let change = match change {
            Change::Put { value, ttl } => Change::Put { value: self.1.encode(value), ttl },
            Change::Delete => Change::Delete,
        };
        Ok(match self.0.write_if(key, expect, change).await? {
            Written::Conflict(held) => Written::Conflict(held.map(entry)),
            done => done,
        })
    }

    async fn end_if(&self, key: &str, expect: Revision, last: Bytes) -> Result<Written, StoreError> {
        Ok(match self.0.end_if(key, expect, self.1.encode(last)).await? {
            Written::Conflict(held) => Written::Conflict(held.map(entry)),
            done => done,
        })
    }

    async fn revision(&self) -> Result<Revision, StoreError> {
        self.0.revision().await
    }

    async fn watch_from(
        &self,
        after: Revision,
    ) -> Result<BoxStream<'static, Result<Vec<Event>, StoreError>>, StoreError> {
        let batches = self.0.watch_from(after).await?;
        Ok(batches.map(|batch| batch.map(|batch| batch.into_iter().map(event).collect())).boxed())
    }

    async fn compact(&self, before: Revision) -> Result<(), StoreError> {
        self.0.compact(before).await
    }

    async fn forget_past(&self) -> Result<(), StoreError> {
        self.0.forget_past().await
    }

    async fn size_bytes(&self) -> Result<Option<u64>, StoreError> {
        self.0.size_bytes().await
    }
}

fn entry(entry: Entry) -> Entry {
    Entry { value: readable(&entry.key, entry.value), ..entry }
}

fn event(event: Event) -> Event {
    let key = event.key.clone();
    Event {
        value: event.value.map(|value| readable(&key, value)),
        previous: event.previous.map(|(value, revision)| (readable(&key, value), revision)),
        ..event
    }
}

/// A value that cannot be read stays as it is: whoever decodes it says why it cannot be.
fn readable(key: &str, value: Bytes) -> Bytes {
    if value.starts_with(PROTOBUF) {
        return match from_protobuf(&value) {
            Ok(object) => codec::encode_stored(&object).into(),
            Err(error) => {
                tracing::debug!(key, %error, "cannot decode stored protobuf value");
                value
            }
        };
    }
    let value = match value.last() {
        // Go's encoder ends each object with it; a watch would show half a line.
        Some(b'\n') => value.slice(..value.trim_ascii_end().len()),
        _ => value,
    };
    if key.starts_with(DEFINITIONS) && definition::is_older(&value) {
        definition::upgraded(&value).map_or(value, |object| codec::encode(&object).into())
    } else {
        value
    }
}

#[derive(Debug, thiserror::Error)]
enum Unreadable {
    #[error(transparent)]
    Protobuf(#[from] protobuf::DecodeError),
    #[error("{api_version} {kind} is not known")]
    Kind { api_version: String, kind: String },
    #[error("{0}")]
    Shape(String),
}

/// The object, in the version that this server stores.
fn from_protobuf(value: &[u8]) -> Result<Value, Unreadable> {
    let envelope = protobuf::open(value)?;
    let (group, version) = envelope.api_version.split_once('/').unwrap_or(("", envelope.api_version));
    let unknown =
        || Unreadable::Kind { api_version: envelope.api_version.to_string(), kind: envelope.kind.to_string() };
    let shape = api::schema::type_named(group, version, envelope.kind).ok_or_else(unknown)?;
    let mut object = envelope.decode(shape, api::schema::field_numbers())?;
    conform(&mut object, shape, &mut Problems::default()).map_err(|error| Unreadable::Shape(error.to_string()))?;
    // Of servers before v1.20, which still wrote it. Nobody is shown it any more.
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("selfLink");
    }
    let known = api::every_kind().find(|kind| (kind.group, kind.version, kind.kind) == (group, version, envelope.kind));
    // As upstream does with whatever it reads: protobuf has no kind of a claim within a StatefulSet, and an older server had no
    // default for a field that it did not know.
    if let Some(kind) = known {
        (kind.defaults)(&mut object);
    }
    Ok(match known.and_then(|kind| kind.convert.as_ref()) {
        Some(convert) => (convert.to_storage)(object),
        None => object,
    })
}

/// The keys of everything served whose value cannot be read. A server that went on without them would give their
/// addresses away, or write half an object back.
pub fn unreadable(table: &Table) -> Option<String> {
    let mut keys: Vec<(Arc<str>, String)> = table
        .resources()
        .iter()
        .filter_map(|resource| resource.state.as_ref())
        .flat_map(|state| state.damaged())
        .collect();
    keys.sort();
    keys.dedup();
    let count = keys.len();
    let named: Vec<String> = keys.into_iter().take(NAMED_MAX).map(|(key, why)| format!("{key} ({why})")).collect();
    match count {
        0 => None,
        _ if count > NAMED_MAX => Some(format!("{}, and {} more", named.join(", "), count - NAMED_MAX)),
        _ => Some(named.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(key: &str, value: impl Into<Bytes>) -> Value {
        serde_json::from_slice(&readable(key, value.into())).expect("it is JSON")
    }

    #[test]
    fn protobuf_values_are_read_as_json() {
        let map = json!({
            "kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "c", "namespace": "n", "uid": "u"},
            "data": {"a": "b"},
        });
        let shape = api::schema::type_named("", "v1", "ConfigMap").unwrap();
        let bytes = protobuf::encode_object(&map, shape, api::schema::field_numbers()).unwrap();
        assert!(bytes.starts_with(PROTOBUF));
        let mut found = read("/registry/configmaps/n/c", bytes);
        // Go writes it whether or not it is set.
        found["metadata"].as_object_mut().unwrap().remove("creationTimestamp");
        assert_eq!(found, map);
    }

    /// The store gives the revision, whatever the value says, and a link to itself is not shown.
    #[test]
    fn a_revision_in_a_value_does_not_count() {
        let map = json!({
            "kind": "ConfigMap", "apiVersion": "v1",
            "metadata": {"name": "c", "namespace": "n", "resourceVersion": "7", "selfLink": "/api/v1/c"},
        });
        let shape = api::schema::type_named("", "v1", "ConfigMap").unwrap();
        let bytes = protobuf::encode_object(&map, shape, api::schema::field_numbers()).unwrap();
        let found = read("/registry/configmaps/n/c", bytes);
        assert_eq!(
            (&found["metadata"]["resourceVersion"], &found["metadata"]["selfLink"]),
            (&Value::Null, &Value::Null)
        );
    }

    /// As etcd holds it after upstream's `kubectl create service nodeport`.
    #[test]
    fn a_service_keeps_its_addresses_and_ports() {
        let service = json!({
            "kind": "Service", "apiVersion": "v1", "metadata": {"name": "s", "namespace": "n"},
            "spec": {
                "ports": [{"name": "80", "protocol": "TCP", "port": 80, "targetPort": "web", "nodePort": 31000}],
                "clusterIP": "10.96.0.7", "clusterIPs": ["10.96.0.7"], "type": "NodePort", "sessionAffinity": "None",
                "externalTrafficPolicy": "Cluster", "internalTrafficPolicy": "Cluster",
            },
            "status": {"loadBalancer": {}},
        });
        let shape = api::schema::type_named("", "v1", "Service").unwrap();
        let bytes = protobuf::encode_object(&service, shape, api::schema::field_numbers()).unwrap();
        let found = read("/registry/services/specs/n/s", bytes);
        assert_eq!(found["spec"], service["spec"]);
    }

    /// The message of a claim has no place for its kind, and a write would be refused as a change of what cannot be changed.
    #[test]
    fn claims_of_a_stateful_set_keep_their_kind() {
        let set = json!({
            "kind": "StatefulSet", "apiVersion": "apps/v1", "metadata": {"name": "s", "namespace": "n"},
            "spec": {"volumeClaimTemplates": [
                {"kind": "PersistentVolumeClaim", "apiVersion": "v1", "metadata": {"name": "d"}, "status": {"phase": "Pending"}},
            ]},
        });
        let shape = api::schema::type_named("apps", "v1", "StatefulSet").unwrap();
        let bytes = protobuf::encode_object(&set, shape, api::schema::field_numbers()).unwrap();
        let found = read("/registry/statefulsets/n/s", bytes);
        let claim = &found["spec"]["volumeClaimTemplates"][0];
        assert_eq!((&claim["kind"], &claim["apiVersion"]), (&json!("PersistentVolumeClaim"), &json!("v1")));
    }

    #[test]
    fn a_line_break_at_the_end_is_taken_away() {
        let value = readable("/registry/a/b", Bytes::from_static(b"{\"metadata\":{}}\n"));
        assert_eq!(value, &b"{\"metadata\":{}}"[..]);
        let untouched = readable("/registry/a/b", Bytes::from_static(b"{\"metadata\":{}}"));
        assert_eq!(untouched, &b"{\"metadata\":{}}"[..]);
    }

    #[test]
    fn what_cannot_be_read_stays_as_it_is() {
        for value in [&b"k8s\0\xff"[..], b"k8s:enc:aescbc:v1:x", b""] {
            assert_eq!(readable("/registry/a/b", Bytes::from_static(value)), value);
        }
    }
}
