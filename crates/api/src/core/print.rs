//! How cells show labels, lists and access modes, wherever a column of the core kinds needs them.

use machinery::object::Meta;
use machinery::table::Cell;
use serde_json::Value;

/// `key=value` pairs by key, `<none>` where there are none.
pub(crate) fn labels(map: Option<&Value>) -> String {
    let entries = map.and_then(Value::as_object).into_iter().flatten();
    let pairs: Vec<String> = entries.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or(""))).collect();
    or_none(pairs.join(","))
}

pub(crate) fn or_none(text: String) -> String {
    or_else(text, "<none>")
}

pub(crate) fn or_unset(text: String) -> String {
    or_else(text, "<unset>")
}

fn or_else(text: String, missing: &str) -> String {
    if text.is_empty() { missing.into() } else { text }
}

/// The text at a JSON pointer, empty where there is none.
pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or("")
}

/// The number of entries of the map or list in that field.
pub(crate) fn count(object: &Value, field: &str) -> usize {
    match object.get(field) {
        Some(Value::Object(map)) => map.len(),
        Some(Value::Array(items)) => items.len(),
        _ => 0,
    }
}

/// `a,b,c + 2 more...`: at most three stand in a cell.
pub(crate) fn first_three(items: impl Iterator<Item = String>) -> String {
    const SHOWN_MAX: usize = 3;
    let mut shown = Vec::new();
    let mut count = 0;
    for item in items {
        if count < SHOWN_MAX {
            shown.push(item);
        }
        count += 1;
    }
    if count > SHOWN_MAX { format!("{} + {} more...", shown.join(","), count - SHOWN_MAX) } else { shown.join(",") }
}

/// `RWO,ROX,RWX,RWOP`, each once and in this order.
pub(crate) fn access_modes(list: Option<&Value>) -> String {
    const MODES: [(&str, &str); 4] =
        [("ReadWriteOnce", "RWO"), ("ReadOnlyMany", "ROX"), ("ReadWriteMany", "RWX"), ("ReadWriteOncePod", "RWOP")];
    let given = list.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let short = MODES.iter().filter(|(mode, _)| given.iter().any(|item| item == mode)).map(|(_, short)| *short);
    short.collect::<Vec<_>>().join(",")
}

/// A class name, which old objects carry in an annotation.
pub(crate) fn storage_class(object: &Value) -> &str {
    let annotation = object.annotation("volume.beta.kubernetes.io/storage-class");
    annotation.unwrap_or_else(|| text(object, "/spec/storageClassName"))
}

/// The time an object was made, as it stands in the object.
pub(crate) fn created_at(object: &Value) -> Cell {
    text(object, "/metadata/creationTimestamp").into()
}
