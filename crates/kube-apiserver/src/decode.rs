//! From a client's bytes to an object: syntax, kind, types, unknown fields. Answers in upstream's words.

use machinery::codec::{self, DecodeError};
use machinery::schema::TypeRef;
use machinery::schema::conform::{Problems, conform};
use machinery::status::Status;
use serde_json::Value;

use crate::call::Strictness;
use crate::resources::Resource;

/// The kind a body must hold.
pub struct Expected<'a> {
    pub group: &'a str,
    pub version: &'a str,
    pub kind: &'a str,
    pub shape: TypeRef<'a>,
}

impl<'a> Expected<'a> {
    pub fn of(resource: &'a Resource) -> Expected<'a> {
        let kind = &resource.kind;
        Expected { group: kind.group, version: kind.version, kind: kind.kind, shape: resource.shape() }
    }

    fn api_version(&self) -> String {
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
    let decoded = match codec::decode_body(content_type, body) {
        Ok(decoded) => decoded,
        Err(DecodeError::UnknownMedia) => return Err(unknown_media()),
        Err(error) => {
            let message = format!("the object provided is unrecognized (must be of type {}): {error}", expected.kind);
            return Err(Status::bad_request(message));
        }
    };
    let mut value = decoded.value;
    check_kind(&mut value, expected)?;
    let strict = decoded.duplicates.iter().map(|field| format!("duplicate field {field:?}")).collect();
    typed(&mut value, expected, strict, strictness, warn)?;
    Ok(value)
}

/// Brings a value into the shape of its kind, as decoding into Go's types and writing back would.
pub fn typed(
    value: &mut Value,
    expected: &Expected,
    mut strict: Vec<String>,
    strictness: Strictness,
    warn: &mut dyn FnMut(String),
) -> Result<(), Status> {
    let handled = || format!("{} in version \"{}\" cannot be handled as a {}", expected.kind, expected.version, expected.kind);
    let mut problems = Problems::default();
    conform(value, expected.shape, &mut problems)
        .map_err(|error| Status::bad_request(format!("{}: {error}", handled())))?;
    strict.extend(problems.unknown.iter().map(|field| format!("unknown field {field:?}")));
    match strictness {
        Strictness::Strict if !strict.is_empty() => {
            Err(Status::bad_request(format!("{}: strict decoding error: {}", handled(), strict.join(", "))))
        }
        Strictness::Warn => {
            strict.into_iter().for_each(warn);
            Ok(())
        }
        _ => Ok(()),
    }
}

/// A body may leave kind and apiVersion out; it may not name others.
fn check_kind(value: &mut Value, expected: &Expected) -> Result<(), Status> {
    let Some(map) = value.as_object_mut() else {
        let message = format!("the object provided is unrecognized (must be of type {}): expected a map", expected.kind);
        return Err(Status::bad_request(message));
    };
    let text = |field: &str| map.get(field).and_then(Value::as_str).unwrap_or("").to_string();
    let (kind, api_version) = (text("kind"), text("apiVersion"));
    let wanted = expected.api_version();
    if !kind.is_empty() && kind != expected.kind {
        let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
        let package = if group.is_empty() { "core" } else { group.split('.').next().unwrap_or("") };
        let own = if expected.group.is_empty() { "core" } else { expected.group.split('.').next().unwrap_or("") };
        let message = match package == own {
            true => format!(
                "{kind} in version \"{version}\" cannot be handled as a {0}: converting ({version}.{kind}) to ({own}.{0}): unknown conversion",
                expected.kind
            ),
            false => format!("{kind} in version \"{version}\" cannot be handled as a {}: no kind \"{kind}\" is registered for version \"{api_version}\"", expected.kind),
        };
        return Err(Status::bad_request(message));
    }
    if !api_version.is_empty() && api_version != wanted {
        let message = format!(
            "the API version in the data ({api_version}) does not match the expected API version ({wanted})"
        );
        return Err(Status::bad_request(message));
    }
    map.insert("kind".into(), expected.kind.into());
    map.insert("apiVersion".into(), wanted.into());
    Ok(())
}

pub fn unknown_media() -> Status {
    Status::new(
        415,
        "UnsupportedMediaType",
        "the body of the request was in an unknown format - accepted media types include: application/json, \
         application/yaml, application/vnd.kubernetes.protobuf",
    )
}
