//! Stored texts as protobuf, for clients that take objects as they are stored but for the encoding: nearly all Go clients.

use bytes::Bytes;
use machinery::codec::protobuf;
use machinery::schema::TypeRef;
use serde_json::Value;
use store::cache::Item;

use crate::call::Call;
use crate::negotiate::{Form, Media};
use crate::resources::Resource;
use crate::respond;

/// How the objects of one resource are written, whole or only their metadata.
#[derive(Clone)]
pub struct Transcoding {
    api_version: String,
    kind: &'static str,
    shape: TypeRef<'static>,
    /// Where only metadata is wanted, the version in which it was asked for.
    metadata: Option<&'static str>,
}

impl Transcoding {
    /// None where a client wants something else, or where the resource has no protobuf form.
    pub fn of(call: &Call, resource: &Resource) -> Option<Transcoding> {
        if call.answer.media != Media::Protobuf || resource.custom.is_some() {
            return None;
        }
        let numbers = api::schema::field_numbers();
        let kind = &resource.kind;
        let transcoding = match call.answer.form {
            Form::Table => return None,
            Form::Object => {
                let shape = api::schema::type_named(kind.group, kind.version, kind.kind)?;
                Transcoding { api_version: kind.api_version(), kind: kind.kind, shape, metadata: None }
            }
            // Metadata is the same field of the same type in every kind.
            Form::Metadata => {
                let version = call.answer.meta_version;
                let shape = api::schema::type_named("", "v1", "ConfigMap")?;
                let api_version = format!("meta.k8s.io/{version}");
                Transcoding { api_version, kind: "PartialObjectMetadata", shape, metadata: Some(version) }
            }
        };
        numbers.cover(transcoding.shape).then_some(transcoding)
    }

    /// Whether objects are written with all they have.
    pub fn is_whole(&self) -> bool {
        self.metadata.is_none()
    }

    /// A whole body, of the text without revision.
    pub fn object(&self, text: &Bytes, revision: u64) -> Option<Vec<u8>> {
        let text = match self.metadata {
            Some(version) => respond::spliced(&respond::metadata_alone(text, version)?, revision),
            None => respond::spliced(text, revision),
        };
        let numbers = api::schema::field_numbers();
        protobuf::transcode_object(&text, &self.api_version, self.kind, self.shape, numbers).ok()
    }

    /// Adds an object as an item of a list.
    pub fn item(&self, item: &Item, out: &mut Vec<u8>) -> Option<()> {
        let text = match self.metadata {
            Some(version) => respond::spliced(&respond::metadata_alone(&item.value, version)?, item.revision.0),
            None => item.encoded(),
        };
        protobuf::transcode_item(&text, self.shape, api::schema::field_numbers(), out).ok()
    }

    /// How much `item` adds.
    pub(crate) fn item_len(&self, item: &Item, scratch: &mut Vec<u8>) -> Option<usize> {
        if self.metadata.is_none()
            && let Some(length) = item.remembered_len()
        {
            return Some(length);
        }
        scratch.clear();
        self.item(item, scratch)?;
        if self.metadata.is_none() {
            item.remember_len(scratch.len());
        }
        Some(scratch.len())
    }

    pub fn list_begin(&self, meta: &Value, items_bytes: usize) -> Option<Vec<u8>> {
        let kind = format!("{}List", self.kind);
        protobuf::list_begin(&self.api_version, &kind, meta, items_bytes, api::schema::field_numbers()).ok()
    }
}
