//! The definitions of all types as they are in `definitions.json`, which build.rs packs. The code that would make them
//! anew from the types is in the tests only: a tenth of the whole program would be nothing else.

use std::collections::BTreeSet;
use std::io::Read;

use flate2::read::GzDecoder;
use machinery::schema::from_json_schema::reference;
use serde_json::{Map, Value};

/// All of it, as OpenAPI needs it.
static DEFINITIONS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/definitions.gz"));
/// The same without descriptions, which are most of it: every start reads this, few ever read the other.
static SHAPES: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/shapes.gz"));

pub fn definitions() -> Map<String, Value> {
    unpack(DEFINITIONS)
}

/// The shapes of these types and of those that they refer to.
pub fn shapes<'a>(of: impl IntoIterator<Item = &'a str>) -> Map<String, Value> {
    let mut all = unpack(SHAPES);
    let mut needed: BTreeSet<String> = of.into_iter().map(Into::into).collect();
    let mut found = Map::new();
    while let Some(name) = needed.pop_first() {
        let Some(definition) = all.remove(&name) else { continue };
        add_references(&definition, &mut needed);
        found.insert(name, definition);
    }
    found
}

fn add_references(schema: &Value, into: &mut BTreeSet<String>) {
    into.extend(reference(schema).map(Into::into));
    match schema {
        Value::Object(fields) => fields.values().for_each(|field| add_references(field, into)),
        Value::Array(items) => items.iter().for_each(|item| add_references(item, into)),
        _ => {}
    }
}

fn unpack(packed: &[u8]) -> Map<String, Value> {
    let mut text = String::new();
    GzDecoder::new(packed).read_to_string(&mut text).expect("what build.rs packed can be unpacked");
    serde_json::from_str(&text).expect("build.rs packed JSON")
}

#[cfg(test)]
mod tests;
