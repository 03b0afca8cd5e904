//! Answers: objects, lists, tables and errors as bytes, in the form the client asked for.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Response, StatusCode};
use machinery::codec::{self, protobuf};
use machinery::status::{Details, Status};
use serde_json::{Value, json};

use crate::body::Body;
use crate::call::Call;
use crate::negotiate::{Answer, Form, Media};
use crate::resources::Resource;
use crate::table;
use crate::transcode::Transcoding;

pub type Reply = Response<Body>;

/// A stored object: the bytes as they are where the client takes them, converted otherwise.
pub async fn stored(
    call: &Call,
    resource: &Resource,
    code: u16,
    value: &Bytes,
    revision: Option<u64>,
) -> Result<Reply, Status> {
    let plain = call.answer.media == Media::Json && call.answer.form == Form::Object && !call.answer.pretty;
    // What was not stored would be stored as of today.
    if plain && resource.conversion.as_stored(revision.unwrap_or(u64::MAX)) {
        let bytes = match revision {
            Some(revision) => spliced(value, revision),
            None => value.clone(),
        };
        return Ok(bytes_reply(code, "application/json", bytes));
    }
    if let (Some(revision), Some(transcoding)) = (revision, Transcoding::of(call, resource))
        && resource.conversion.as_stored(revision)
        && let Some(bytes) = transcoding.object(value, revision)
    {
        return Ok(bytes_reply(code, protobuf::MEDIA_TYPE, bytes));
    }
    let mut object: Value = serde_json::from_slice(value).map_err(|error| Status::internal(error.to_string()))?;
    if let Some(revision) = revision {
        machinery::object::Meta::meta_mut(&mut object).insert("resourceVersion".into(), revision.to_string().into());
    }
    self::object(call, resource, code, resource.conversion.show(&call.app, object).await?)
}

/// The stored text with its resourceVersion put in.
pub fn spliced(value: &Bytes, revision: u64) -> Bytes {
    let Some(at) = codec::splice_offset(value) else { return value.clone() };
    let comma = if value.get(at) == Some(&b'}') { "" } else { "," };
    let mut out = Vec::with_capacity(value.len() + 44);
    out.extend_from_slice(&value[..at]);
    out.extend_from_slice(format!("\"resourceVersion\":\"{revision}\"{comma}").as_bytes());
    out.extend_from_slice(&value[at..]);
    out.into()
}

/// Of a stored object only the metadata, cut out of its text: nothing is decoded.
pub(crate) fn metadata_alone(value: &[u8], meta_version: &str) -> Option<Bytes> {
    let metadata = codec::metadata_text(value)?;
    let mut out = Vec::with_capacity(metadata.len() + 80);
    out.extend_from_slice(br#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/"#);
    out.extend_from_slice(meta_version.as_bytes());
    out.extend_from_slice(br#"","metadata":"#);
    out.extend_from_slice(metadata);
    out.push(b'}');
    Some(out.into())
}

/// An object in the version that was asked for.
pub fn object(call: &Call, resource: &Resource, code: u16, object: Value) -> Result<Reply, Status> {
    let out = match call.answer.form {
        Form::Object => object,
        Form::Metadata => table::partial_metadata(object, call.answer.meta_version),
        Form::Table => table::of_one(resource, &object, call),
    };
    Ok(value(code, &call.answer, &out))
}

/// Any JSON value in the media type that was asked for.
pub fn value(code: u16, answer: &Answer, value: &Value) -> Reply {
    match answer.media {
        Media::Yaml => bytes_reply(code, "application/yaml", codec::to_yaml(value)),
        Media::Protobuf if let Some(bytes) = protobuf_of(value) => bytes_reply(code, protobuf::MEDIA_TYPE, bytes),
        Media::Json if answer.pretty => {
            let mut text = serde_json::to_vec_pretty(value).expect("a JSON value can be written");
            text.push(b'\n');
            bytes_reply(code, "application/json", text)
        }
        // What has no protobuf form, such as a custom resource, is JSON for everyone.
        Media::Json | Media::Protobuf => {
            let mut text = codec::encode(value);
            text.push(b'\n');
            bytes_reply(code, "application/json", text)
        }
    }
}

/// A built-in object or list as protobuf.
pub(crate) fn protobuf_of(value: &Value) -> Option<Vec<u8>> {
    let text = |field: &str| value.get(field).and_then(Value::as_str).unwrap_or("");
    let (group, version) = text("apiVersion").split_once('/').unwrap_or(("", text("apiVersion")));
    let numbers = api::schema::field_numbers();
    let (kind, list) = match text("kind").strip_suffix("List") {
        Some(kind) if value.get("items").is_some() => (kind, true),
        _ => (text("kind"), false),
    };
    // Only metadata is encoded of it, and that is the same in every kind.
    let shape = match kind {
        "PartialObjectMetadata" => api::schema::type_named("", "v1", "ConfigMap")?,
        _ => api::schema::type_named(group, version, kind)?,
    };
    if list {
        protobuf::encode_list(value, shape, numbers).ok()
    } else {
        protobuf::encode_object(value, shape, numbers).ok()
    }
}

pub(crate) fn bytes_reply(code: u16, content_type: &'static str, bytes: impl Into<Bytes>) -> Reply {
    reply(code, content_type, Body::full(bytes))
}

pub fn reply(code: u16, content_type: &'static str, body: Body) -> Reply {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

pub fn text(code: u16, text: impl Into<String>) -> Reply {
    bytes_reply(code, "text/plain; charset=utf-8", text.into())
}

/// An error, always JSON or YAML whatever was asked for.
pub fn status(status: &Status, answer: Option<&Answer>) -> Reply {
    let plain = Answer { media: Media::Json, form: Form::Object, meta_version: "v1", pretty: false, gzip: false };
    let mut reply = value(status.code, answer.unwrap_or(&plain), &status.to_value());
    let retry = status.details.as_ref().and_then(|details| details.retry_after_seconds);
    if let Some(seconds) = retry {
        reply.headers_mut().insert(http::header::RETRY_AFTER, seconds.into());
    }
    reply
}

/// What a delete that took effect at once answers.
pub fn deleted(call: &Call, resource: &Resource, name: &str, uid: &str) -> Reply {
    let details = Details {
        name: name.into(),
        group: resource.kind.group.into(),
        kind: resource.kind.plural.into(),
        uid: uid.into(),
        ..Details::default()
    };
    value(200, &call.answer, &success(details))
}

pub fn success(details: Details) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details.to_value()})
}
