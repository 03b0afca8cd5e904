//! Decodes request bodies: syntax, kind, types, unknown fields. Errors are upstream's.

use std::fmt::Display;

use machinery::codec::{self, DecodeError, Decoded, protobuf};
use machinery::schema::TypeRef;
use machinery::schema::conform::{Problems, conform, strict_error};
use machinery::status::Status;
use serde_json::{Value, json};

use crate::call::Strictness;
use crate::resources::Resource;

/// The kind a body must hold.
pub struct Expected<'a> {
    pub group: &'a str,
    pub version: &'a str,
    pub kind: &'a str,
    pub shape: TypeRef<'a>,
    pub defaults: fn(&mut Value),
    /// The rules of a custom kind, whose types are checked by validation.
    pub custom: Option<&'a crate::custom::CustomRules>,
    /// Whether the object is to be stored, with the sets of its managed fields as texts.
    pub packed: bool,
}

impl<'a> Expected<'a> {
    pub fn of(resource: &'a Resource) -> Expected<'a> {
        let kind = &resource.kind;
        Expected {
            group: kind.group,
            version: kind.version,
            kind: kind.kind,
            shape: resource.shape(),
            defaults: kind.defaults,
            custom: resource.custom.as_deref(),
            packed: resource.custom.is_none() && resource.state.is_some(),
        }
    }

    pub fn api_version(&self) -> String {
        match self.group {
            "" => self.version.to_string(),
            group => format!("{group}/{}", self.version),
        }
    }
}

pub fn object(
    content_type: &str,
    body: &[u8],
    expected: &Expected,
    strictness: Strictness,
    warn: &mut dyn FnMut(String),
) -> Result<Value, Status> {
    if protobuf::is_protobuf(content_type) {
        return protobuf_object(body, expected, strictness, warn);
    }
    let is_json = !content_type.starts_with("application/yaml");
    let decoded =
        match if expected.packed { packed_body(content_type, body) } else { codec::decode_body(content_type, body) } {
            Ok(decoded) => decoded,
            Err(error @ DecodeError::MediaType) => {
                return Err(Status::new(415, "UnsupportedMediaType", error.to_string()));
            }
            Err(error) => return Err(unrecognized(&error, body, expected.kind)),
        };
    let mut value = decoded.value;
    check_kind(&mut value, expected)?;
    // Custom objects, and all that is YAML, are read for duplicates first and for unknown fields behind that.
    let text = (is_json && expected.custom.is_none()).then_some(body);
    let read = Read { duplicates: decoded.duplicates, text };
    typed(&mut value, expected, read, strictness, warn)?;
    Ok(value)
}

fn packed_body(content_type: &str, body: &[u8]) -> Result<Decoded, DecodeError> {
    let mut decoded = codec::decode_body_packed(content_type, body)?;
    codec::pack(&mut decoded.value);
    Ok(decoded)
}

/// DeleteOptions in the body of a delete. They are read as they are: the caller checks the few fields it needs.
pub(crate) fn delete_options(content_type: &str, body: &[u8]) -> Result<Value, Status> {
    if !protobuf::is_protobuf(content_type) {
        let decoded = codec::decode_body(content_type, body);
        let cannot = |error| Status::bad_request(format!("cannot read DeleteOptions: {error}"));
        return Ok(decoded.map_err(cannot)?.value);
    }
    let envelope = protobuf::open(body).map_err(|error| unrecognized(&error, body, "DeleteOptions"))?;
    let shape = api::schema::type_named("", "v1", "DeleteOptions").ok_or_else(Status::no_such_resource)?;
    let (_, version) = envelope.api_version.rsplit_once('/').unwrap_or(("", envelope.api_version));
    let other = |error: &dyn Display| {
        let kind = envelope.kind;
        Status::bad_request(format!("{kind} in version \"{version}\" cannot be handled as a DeleteOptions: {error}"))
    };
    if !matches!(envelope.kind, "" | "DeleteOptions") {
        return Err(other(&"unknown conversion"));
    }
    envelope.decode(shape, api::schema::field_numbers()).map_err(|error| other(&error))
}

/// An object from protobuf. Its kind is checked before its fields: their numbers mean nothing in another kind.
fn protobuf_object(
    body: &[u8],
    expected: &Expected,
    strictness: Strictness,
    warn: &mut dyn FnMut(String),
) -> Result<Value, Status> {
    let numbers = api::schema::field_numbers();
    if !numbers.cover(expected.shape) {
        let message = "the body of the request was in an unknown format - accepted media types include: \
                       application/json, application/yaml";
        return Err(Status::new(415, "UnsupportedMediaType", message));
    }
    let envelope = protobuf::open(body).map_err(|error| unrecognized(&error, body, expected.kind))?;
    let mut claimed = json!({"apiVersion": envelope.api_version, "kind": envelope.kind});
    check_kind(&mut claimed, expected)?;
    let mut value = envelope.decode(expected.shape, numbers).map_err(|error| handled(expected, &error))?;
    check_kind(&mut value, expected)?;
    typed(&mut value, expected, Read::default(), strictness, warn)?;
    if expected.packed {
        codec::pack(&mut value);
    }
    Ok(value)
}

fn unrecognized(error: &dyn Display, body: &[u8], kind: &str) -> Status {
    let shown = codec::summary(body);
    Status::bad_request(format!("the object provided is unrecognized (must be of type {kind}): {error} ({shown})"))
}

fn handled(expected: &Expected, error: &dyn Display) -> Status {
    let Expected { kind, version, .. } = expected;
    Status::bad_request(format!("{kind} in version \"{version}\" cannot be handled as a {kind}: {error}"))
}

/// What reading a text has found beside the value.
#[derive(Default)]
pub struct Read<'a> {
    /// Sentences about fields that stand there twice.
    pub duplicates: Vec<String>,
    /// JSON in whose order all problems are told.
    pub text: Option<&'a [u8]>,
}

impl Read<'_> {
    fn with_unknown(self, unknown: Vec<String>) -> Vec<String> {
        let mut all = unknown;
        // A field that nobody knows is said to be unknown, and nothing else of it or of what it holds.
        let told = |sentence: &String| self.text.is_none() || !covered(&all, sentence);
        let known: Vec<String> = self.duplicates.into_iter().filter(told).collect();
        let Some(text) = self.text.filter(|_| all.len() + known.len() > 1) else {
            return known.into_iter().chain(all).collect();
        };
        let unknown_count = all.len();
        all.extend(known);
        let paths = all.iter().map(|sentence| path_in(sentence)).collect();
        let places = codec::json_places(text, &paths);
        let mut placed: Vec<(usize, String)> = Vec::with_capacity(all.len());
        for (index, sentence) in all.into_iter().enumerate() {
            // A field is known to be there twice when it is met again.
            let time = usize::from(index >= unknown_count);
            let found = places.get(path_in(&sentence)).and_then(|places| places.get(time));
            placed.push((found.copied().unwrap_or(usize::MAX), sentence));
        }
        placed.sort_by_key(|(place, _)| *place);
        placed.into_iter().map(|(_, sentence)| sentence).collect()
    }
}

/// `spec.x` of `unknown field "spec.x"`.
fn path_in(sentence: &str) -> &str {
    sentence.split_once('"').map_or(sentence, |(_, rest)| rest.trim_end_matches('"'))
}

fn covered(unknown: &[String], sentence: &str) -> bool {
    let path = path_in(sentence);
    unknown.iter().any(|unknown| {
        let rest = path.strip_prefix(path_in(unknown));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    })
}

/// The same for an object that this server makes.
pub(crate) fn own(resource: &Resource, object: &mut Value) -> Result<(), Status> {
    typed(object, &Expected::of(resource), Read::default(), Strictness::Strict, &mut |_| {})
}

/// Brings a value into the shape of its kind, as decoding into Go's types and writing back would, and sets what it leaves out.
pub fn typed(
    value: &mut Value,
    expected: &Expected,
    read: Read,
    strictness: Strictness,
    warn: &mut dyn FnMut(String),
) -> Result<(), Status> {
    let mut problems = Problems::default();
    let conformed = match expected.custom {
        Some(custom) => custom.conform(value, expected.shape, &mut problems),
        None => conform(value, expected.shape, &mut problems),
    };
    conformed.map_err(|error| handled(expected, &error))?;
    (expected.defaults)(value);
    if let Some(custom) = expected.custom {
        custom.default(value);
    }
    let strict = read.with_unknown(problems.unknown);
    match strictness {
        Strictness::Strict => match strict_error(&strict) {
            Some(error) => Err(handled(expected, &error)),
            None => Ok(()),
        },
        Strictness::Warn => {
            strict.into_iter().for_each(warn);
            Ok(())
        }
        Strictness::Ignore => Ok(()),
    }
}

/// A body may leave kind and apiVersion out; it may not name others.
fn check_kind(value: &mut Value, expected: &Expected) -> Result<(), Status> {
    let claimed = codec::type_meta(value).map_err(|error| {
        Status::bad_request(format!("the object provided is unrecognized (must be of type {}): {error}", expected.kind))
    })?;
    let (kind, api_version) = (claimed.kind.to_string(), claimed.api_version.to_string());
    let wanted = expected.api_version();
    if !kind.is_empty() && kind != expected.kind {
        let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
        let package = if group.is_empty() { "core" } else { group.split('.').next().unwrap_or("") };
        let own = if expected.group.is_empty() { "core" } else { expected.group.split('.').next().unwrap_or("") };
        let message = if package == own {
            format!(
                "{kind} in version \"{version}\" cannot be handled as a {0}: converting ({version}.{kind}) to ({own}.{0}): unknown conversion",
                expected.kind
            )
        } else {
            format!(
                "{kind} in version \"{version}\" cannot be handled as a {}: no kind \"{kind}\" is registered for version \"{api_version}\"",
                expected.kind
            )
        };
        return Err(Status::bad_request(message));
    }
    // Evictions of older clients still come, with the same fields.
    let is_older_eviction = expected.kind == "Eviction" && api_version == "policy/v1beta1";
    if !api_version.is_empty() && api_version != wanted && !is_older_eviction {
        let message =
            format!("the API version in the data ({api_version}) does not match the expected API version ({wanted})");
        return Err(Status::bad_request(message));
    }
    if !value.is_object() {
        *value = Value::Object(serde_json::Map::new());
    }
    value["kind"] = expected.kind.into();
    value["apiVersion"] = wanted.into();
    Ok(())
}
