//! Packs `definitions.json`: once whole, and once without descriptions.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value;

const DEFINITIONS: &str = "src/schema/definitions.json";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed={DEFINITIONS}");
    let text = std::fs::read_to_string(DEFINITIONS).expect("the definitions can be read");
    let mut definitions: Value = serde_json::from_str(&text).expect("the definitions are JSON");
    pack(&definitions, "definitions.gz");
    for (_, schema) in definitions.as_object_mut().expect("definitions by name") {
        drop_descriptions(schema);
    }
    pack(&definitions, "shapes.gz");
}

fn drop_descriptions(schema: &mut Value) {
    let Value::Object(keys) = schema else { return };
    keys.remove("description");
    for (key, value) in keys {
        match value {
            // Here the keys are names of fields, one of which may be called description.
            Value::Object(fields) if key == "properties" => fields.values_mut().for_each(drop_descriptions),
            Value::Array(schemas) => schemas.iter_mut().for_each(drop_descriptions),
            schema => drop_descriptions(schema),
        }
    }
}

fn pack(definitions: &Value, name: &str) {
    let path = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join(name);
    let file = File::create(path).expect("the packed file can be made");
    let mut packing = GzEncoder::new(file, Compression::best());
    packing.write_all(definitions.to_string().as_bytes()).expect("definitions can be packed");
    packing.finish().expect("the packed file can be written");
}
