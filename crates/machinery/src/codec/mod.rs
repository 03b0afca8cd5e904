//! Bodies in and out: JSON and YAML to values, values to the bytes that are stored and sent.

mod fields_text;
mod json;
mod json_write;
mod plain;
pub mod protobuf;
mod skim;
mod stored;
mod yaml;
mod yaml_json;
mod yaml_lines;
mod yaml_scalar;
mod yaml_write;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

pub use fields_text::{pack, unpack};
pub use json::{JsonError, places as json_places};
pub use skim::Skim;
pub use stored::{encode, encode_stored, metadata_text, splice_offset};
pub use yaml::YamlError;
pub use yaml_lines::lines as yaml_lines;
pub use yaml_write::to_yaml;

/// How deep a body may nest. Go's limit is 10,000; ours keeps every recursive pass far from the end of the stack.
pub const DEPTH_MAX: usize = 512;

#[derive(Debug, Default, PartialEq)]
pub struct Decoded {
    pub value: Value,
    /// Whole sentences of strict decoding: `duplicate field "spec.x"` for JSON, one sentence with line numbers for YAML.
    pub duplicates: Vec<String>,
}

/// Why a body is not a value, in Go's words: the part behind `json parse error: ` or a sentence that starts with `yaml: `.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    #[error("couldn't get version/kind; json parse error: {0}")]
    Json(JsonError),
    #[error("yaml: {0}")]
    Yaml(YamlError),
    #[error(
        "the body of the request was in an unknown format - accepted media types include: \
         application/json, application/yaml, application/vnd.kubernetes.protobuf"
    )]
    MediaType,
}

/// Decodes by content type; parameters such as `charset` do not matter, and no content type means JSON.
pub fn decode_body(content_type: &str, body: &[u8]) -> Result<Decoded, DecodeError> {
    match content_type.split(';').next().unwrap_or("").trim() {
        "" | "application/json" => decode_json(body),
        "application/yaml" => decode_yaml(body),
        _ => Err(DecodeError::MediaType),
    }
}

/// As `decode_body`, with the sets of managed fields as texts where the body has them as we write them: see `pack`.
pub fn decode_body_packed(content_type: &str, body: &[u8]) -> Result<Decoded, DecodeError> {
    match content_type.split(';').next().unwrap_or("").trim() {
        "" | "application/json" => json::parse_with(body, json::Sets::Texts).map_err(DecodeError::Json),
        _ => decode_body(content_type, body),
    }
}

pub fn decode_json(body: &[u8]) -> Result<Decoded, DecodeError> {
    json::parse(body).map_err(DecodeError::Json)
}

/// As `decode_json`, with the sets of managed fields as texts: see `pack`.
pub fn decode_json_packed(body: &[u8]) -> Result<Decoded, DecodeError> {
    let mut decoded = json::parse_with(body, json::Sets::Texts).map_err(DecodeError::Json)?;
    pack(&mut decoded.value);
    Ok(decoded)
}

/// YAML as go-yaml v2 reads it, only the first document. JSON is YAML too.
pub fn decode_yaml(body: &[u8]) -> Result<Decoded, DecodeError> {
    if let Some(decoded) = yaml_json::parse(body) {
        return Ok(decoded);
    }
    yaml::parse(body).map_err(DecodeError::Yaml)
}

/// The object as a type. It goes by way of text: from text every type is decoded anyway, and code for one more way would be
/// megabytes.
pub fn typed<T: DeserializeOwned>(object: &Value) -> serde_json::Result<T> {
    serde_json::from_str(&object.to_string())
}

/// A field that others may write as null where they mean nothing, as Go writes lists and maps that are not there.
/// For `#[serde(default, deserialize_with = "...")]`.
pub fn null_as_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// The value without the fields that are null, which is how a file says nothing about them.
pub fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let said = fields.into_iter().filter(|(_, value)| !value.is_null());
            said.map(|(name, value)| (name, without_nulls(value))).collect()
        }
        Value::Array(items) => items.into_iter().map(without_nulls).collect(),
        other => other,
    }
}

/// The kind and version that an object claims, both may be empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TypeMeta<'a> {
    pub api_version: &'a str,
    pub kind: &'a str,
}

/// Reads `apiVersion` and `kind`, with upstream's error where they are not texts or the body is no object.
pub fn type_meta(value: &Value) -> Result<TypeMeta<'_>, DecodeError> {
    let found = |value: &Value| match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    if !value.is_object() && !value.is_null() {
        let wanted = "value of type struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; \
                      Kind string \"json:\\\"kind,omitempty\\\"\" }";
        return Err(DecodeError::Json(JsonError::Type { found: found(value), wanted: wanted.to_owned() }));
    }
    let text = |field: &str| match value.get(field) {
        None | Some(Value::Null) => Ok(""),
        Some(Value::String(text)) => Ok(text.as_str()),
        Some(other) => {
            let wanted = format!("struct field .{field} of type string");
            Err(DecodeError::Json(JsonError::Type { found: found(other), wanted }))
        }
    };
    Ok(TypeMeta { api_version: text("apiVersion")?, kind: text("kind")? })
}

/// The beginning of a body as upstream shows it in `the object provided is unrecognized (...)`: text for JSON, else hex.
pub fn summary(body: &[u8]) -> String {
    const SHOWN_MAX: usize = 30;
    let shown = &body[..body.len().min(SHOWN_MAX)];
    let more = if body.len() > SHOWN_MAX { " ..." } else { "" };
    match shown.first() {
        None => "<empty>".into(),
        Some(b'{') => format!("{}{more}", String::from_utf8_lossy(shown)),
        Some(_) => shown.iter().map(|byte| format!("{byte:02x}")).collect::<String>() + more,
    }
}

#[cfg(test)]
mod tests;
