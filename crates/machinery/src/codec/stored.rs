//! The bytes that are stored and sent: JSON with `kind`, `apiVersion` and `metadata` in front, so that the revision can
//! be spliced into the metadata without reading the rest.

use serde_json::{Map, Value};

use super::{fields_text, json_write};

const FRONT: [&str; 3] = ["kind", "apiVersion", "metadata"];

/// Most objects are written without growing the buffer; what is kept for long takes no more room than it needs.
const BUFFER_BYTES: usize = 12 << 10;

pub fn encode(object: &Value) -> Vec<u8> {
    written(object, Revision::Kept)
}

/// The text that is stored: without resourceVersion, which the store gives.
pub fn encode_stored(object: &Value) -> Vec<u8> {
    written(object, Revision::LeftOut)
}

fn written(object: &Value, revision: Revision) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(BUFFER_BYTES);
    match object {
        Value::Object(map) => write_front_first(&mut bytes, map, revision),
        other => json_write::write_value(&mut bytes, other),
    }
    bytes.shrink_to_fit();
    bytes
}

/// What becomes of `metadata.resourceVersion`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Revision {
    Kept,
    LeftOut,
}

fn write_front_first(out: &mut Vec<u8>, map: &Map<String, Value>, revision: Revision) {
    let front = FRONT.iter().filter_map(|key| Some((*key, map.get(*key)?)));
    let others = map.iter().map(|(key, value)| (key.as_str(), value)).filter(|(key, _)| !FRONT.contains(key));
    out.push(b'{');
    for (index, (key, value)) in front.chain(others).enumerate() {
        if index > 0 {
            out.push(b',');
        }
        json_write::write_text(out, key);
        out.push(b':');
        match value {
            Value::Object(metadata) if key == "metadata" => write_metadata(out, metadata, revision),
            value => json_write::write_value(out, value),
        }
    }
    out.push(b'}');
}

fn write_metadata(out: &mut Vec<u8>, metadata: &Map<String, Value>, revision: Revision) {
    let written = metadata.iter().filter(|(key, _)| revision == Revision::Kept || *key != "resourceVersion");
    out.push(b'{');
    for (index, (key, value)) in written.enumerate() {
        if index > 0 {
            out.push(b',');
        }
        json_write::write_text(out, key);
        out.push(b':');
        match value {
            Value::Array(list) if key == "managedFields" => fields_text::write_list(out, list),
            value => json_write::write_value(out, value),
        }
    }
    out.push(b'}');
}

/// The position just behind the top level `"metadata":{` of any JSON object, nothing where there is none.
pub fn splice_offset(bytes: &[u8]) -> Option<usize> {
    const METADATA: &[u8] = b"\"metadata\"";
    let mut at = skip_space(bytes, 0);
    if bytes.get(at) != Some(&b'{') {
        return None;
    }
    at = skip_space(bytes, at + 1);
    while bytes.get(at) == Some(&b'"') {
        let key_end = skip_string(bytes, at)?;
        let is_metadata = &bytes[at..key_end] == METADATA;
        at = skip_space(bytes, key_end);
        if bytes.get(at) != Some(&b':') {
            return None;
        }
        at = skip_space(bytes, at + 1);
        if is_metadata {
            return (bytes.get(at) == Some(&b'{')).then_some(at + 1);
        }
        at = skip_space(bytes, skip_value(bytes, at)?);
        if bytes.get(at) != Some(&b',') {
            return None;
        }
        at = skip_space(bytes, at + 1);
    }
    None
}

/// The text of the top level `metadata` of any JSON object, with its braces.
pub fn metadata_text(bytes: &[u8]) -> Option<&[u8]> {
    let start = splice_offset(bytes)? - 1;
    Some(&bytes[start..skip_value(bytes, start)?])
}

fn skip_space(bytes: &[u8], mut at: usize) -> usize {
    while matches!(bytes.get(at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
        at += 1;
    }
    at
}

/// From an opening quote to behind the closing one.
fn skip_string(bytes: &[u8], at: usize) -> Option<usize> {
    let mut at = at + 1;
    loop {
        match bytes.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

/// Behind one value, whatever it is. Nesting is counted, not followed, so depth costs nothing.
fn skip_value(bytes: &[u8], mut at: usize) -> Option<usize> {
    let mut depth = 0_usize;
    loop {
        match bytes.get(at)? {
            b'"' => at = skip_string(bytes, at)?,
            b'{' | b'[' => {
                depth += 1;
                at += 1;
            }
            b'}' | b']' => {
                // The end of the object around a bare number or literal.
                if depth == 0 {
                    return Some(at);
                }
                depth -= 1;
                at += 1;
            }
            b',' if depth == 0 => return Some(at),
            _ => {
                at += 1;
                continue;
            }
        }
        if depth == 0 {
            return Some(at);
        }
    }
}
