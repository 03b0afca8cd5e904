//! `fieldsV1` as text. What managers own is more than half of the text of many objects, and few writes look into it: on the write
//! path each set in `metadata.managedFields` stays the text that it is stored as, a JSON string in the place of its object. Whoever
//! reads sets takes both forms, and what is encoded is the same. Only a text that this module has found to be a set is written
//! without quotes, so that no string of a client can become anything but a string.

use std::cmp::Ordering;

use serde_json::{Map, Value};

use super::plain::plain_len;
use super::{decode_json, json_write};

/// Deeper sets stay objects.
const DEPTH_MAX: usize = 64;

pub(super) const FIELDS: &str = "fieldsV1";

/// Whether the text is a set as we write it.
fn is_set(text: &str) -> bool {
    end(text.as_bytes(), 0) == Some(text.len())
}

/// Where the set that begins at a place of a text ends, if it is one as we write it: objects of objects only, compact, keys in order
/// and none twice, nothing escaped but quotes and backslashes.
pub(super) fn end(text: &[u8], at: usize) -> Option<usize> {
    object_end::<true>(text, at, DEPTH_MAX)
}

/// Whether the text is a set in whatever order: it can stand in an object's text as it is.
fn is_nested(text: &[u8]) -> bool {
    object_end::<false>(text, 0, DEPTH_MAX) == Some(text.len())
}

fn object_end<const SORTED: bool>(text: &[u8], at: usize, depth: usize) -> Option<usize> {
    if text.get(at) != Some(&b'{') || depth == 0 {
        return None;
    }
    let mut at = at + 1;
    if text.get(at) == Some(&b'}') {
        return Some(at + 1);
    }
    let mut last: Option<Key> = None;
    loop {
        if text.get(at) != Some(&b'"') {
            return None;
        }
        let key = key_at(text, at + 1)?;
        let rest = &text[at + 2 + key.bytes.len()..];
        if SORTED && last.is_some_and(|last| last.order(&key) != Ordering::Less) {
            return None;
        }
        at = text.len() - rest.len();
        last = Some(key);
        // Most sets are leaves.
        at = match rest {
            [b':', b'{', b'}', ..] => at + 3,
            [b':', ..] => object_end::<SORTED>(text, at + 1, depth - 1)?,
            _ => return None,
        };
        match text.get(at)? {
            b',' => at += 1,
            b'}' => return Some(at + 1),
            _ => return None,
        }
    }
}

#[derive(Clone, Copy)]
struct Key<'a> {
    bytes: &'a [u8],
    escaped: bool,
}

/// The key that begins behind its quote.
fn key_at(text: &[u8], start: usize) -> Option<Key<'_>> {
    let (mut at, mut escaped) = (start, false);
    loop {
        at += plain_len(text.get(at..)?);
        match text.get(at)? {
            b'"' => return Some(Key { bytes: &text[start..at], escaped }),
            b'\\' if matches!(text.get(at + 1)?, b'"' | b'\\') => at += 2,
            _ => return None,
        }
        escaped = true;
    }
}

impl Key<'_> {
    /// The order of two keys once they are read.
    fn order(&self, other: &Key) -> Ordering {
        if self.escaped || other.escaped { order(self.bytes, other.bytes) } else { self.bytes.cmp(other.bytes) }
    }
}

/// The same where something is escaped.
fn order(left: &[u8], right: &[u8]) -> Ordering {
    let same = left.iter().zip(right).take_while(|(left, right)| left == right).count();
    // Where the first difference stands behind a backslash, it is what the backslash is for; else a backslash there is not read.
    let within = left[..same].iter().rev().take_while(|byte| **byte == b'\\').count() % 2 == 1;
    let byte = |text: &[u8]| match text.get(same) {
        Some(b'\\') if !within => text.get(same + 1).copied(),
        other => other.copied(),
    };
    byte(left).cmp(&byte(right))
}

/// Makes every set of the object's managed fields a text. What is no set stays what it is.
pub fn pack(object: &mut Value) {
    for entry in entries(object) {
        let Some(fields) = entry.get_mut(FIELDS).filter(|fields| fields.is_object()) else { continue };
        let mut text = Vec::new();
        json_write::write_value(&mut text, fields);
        if let Some(text) = String::from_utf8(text).ok().filter(|text| is_set(text)) {
            *fields = Value::String(text);
        }
    }
}

/// Makes every set of the object's managed fields an object again, for those who see objects as clients do. Says whether there was
/// any text.
pub fn unpack(object: &mut Value) -> bool {
    let mut any = false;
    for entry in entries(object) {
        let Some(fields) = entry.get_mut(FIELDS) else { continue };
        if let Value::String(text) = fields
            && is_set(text)
            && let Ok(decoded) = decode_json(text.as_bytes())
        {
            *fields = decoded.value;
            any = true;
        }
    }
    any
}

fn entries(object: &mut Value) -> impl Iterator<Item = &mut Map<String, Value>> {
    let list = object.get_mut("metadata").and_then(|metadata| metadata.get_mut("managedFields")?.as_array_mut());
    list.into_iter().flatten().filter_map(Value::as_object_mut)
}

/// Writes the list of managed fields, sets as the objects that they are.
pub(super) fn write_list(out: &mut Vec<u8>, list: &[Value]) {
    out.push(b'[');
    for (index, entry) in list.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        match entry {
            Value::Object(entry) => write_entry(out, entry),
            other => json_write::write_value(out, other),
        }
    }
    out.push(b']');
}

fn write_entry(out: &mut Vec<u8>, entry: &Map<String, Value>) {
    out.push(b'{');
    for (index, (key, value)) in entry.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        json_write::write_text(out, key);
        out.push(b':');
        match value {
            Value::String(text) if key == FIELDS && is_nested(text.as_bytes()) => {
                out.extend_from_slice(text.as_bytes());
            }
            value => json_write::write_value(out, value),
        }
    }
    out.push(b'}');
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_we_would_write_is_a_set() {
        let sets = [
            "{}",
            r#"{".":{},"f:a":{}}"#,
            r#"{"f:spec":{"f:list":{".":{},"k:{\"name\":\"a\"}":{".":{},"f:name":{}},"k:{\"name\":\"a.b\"}":{}}}}"#,
            r#"{"v:\"a\\\\b\"":{}}"#,
            r#"{"a\"":{},"a\\":{},"ab":{}}"#,
            r#"{"f:ä":{}}"#,
        ];
        for set in sets {
            assert!(is_set(set), "{set}");
        }
        let others = [
            "",
            "{",
            "null",
            "[]",
            "\"{}\"",
            "{} ",
            r#"{"a":1}"#,
            r#"{"a":{},}"#,
            r#"{"a":{} }"#,
            r#"{"b":{},"a":{}}"#,
            r#"{"a":{},"a":{}}"#,
            r#"{"a\n":{}}"#,
            "{\"a\n\":{}}",
            r#"{"a":{"b":null}}"#,
            r#"{"a":{}},"b":{}}"#,
            r#"{"k:{\"name\":\"a.b\"}":{},"k:{\"name\":\"a\"}":{}}"#,
        ];
        for other in others {
            assert!(!is_set(other), "{other}");
        }
        let deep = format!("{}{}{}", r#"{"a":"#.repeat(100), "{}", "}".repeat(100));
        assert!(!is_set(&deep));
    }

    #[test]
    fn both_forms_are_the_same_text() {
        let sets = [
            json!({}),
            json!({"f:a": {"k:{\"name\":\"x\"}": {}, "k:{\"name\":\"x.y\"}": {".": {}}, "k:{\"name\":\"x\\\\\"}": {}}}),
            json!({"f:line\nbreak": {}}),
            json!({"f:a": 1}),
            json!(null),
            json!([1]),
        ];
        for set in sets {
            let object = json!({"kind": "K", "metadata": {"managedFields": [{"manager": "m", "fieldsV1": set}, 7]}});
            let mut packed = object.clone();
            pack(&mut packed);
            assert_eq!(super::super::encode(&packed), super::super::encode(&object));
            let mut again = packed.clone();
            pack(&mut again);
            assert_eq!(again, packed);
            assert_eq!(unpack(&mut packed), again["metadata"]["managedFields"][0]["fieldsV1"].is_string());
            assert_eq!(packed, object);
        }
    }

    #[test]
    fn no_string_becomes_anything_else() {
        let text = r#"{"f:a":{}},"injected":{"#;
        for metadata in [json!({"managedFields": [{"fieldsV1": text}]}), json!({"annotations": {"fieldsV1": "{}"}})] {
            let object = json!({"data": {"fieldsV1": "{}"}, "kind": "K", "metadata": metadata});
            let written: Value = serde_json::from_slice(&super::super::encode(&object)).unwrap();
            assert_eq!(written, object);
        }
        let object = json!({"metadata": {"managedFields": [{"fieldsV1": text}]}});
        let mut same = object.clone();
        pack(&mut same);
        assert!(!unpack(&mut same));
        assert_eq!(same, object);
    }
}
