//! Reads the protobuf form back with a small reader, and compares it with the JSON form.

use serde_json::{Map, Value, json};

use super::*;

enum Field<'a> {
    Number(u64),
    Double(f64),
    Bytes(&'a [u8]),
}

impl<'a> Field<'a> {
    fn bytes(&self) -> &'a [u8] {
        match self {
            Field::Bytes(bytes) => bytes,
            _ => panic!("not a message"),
        }
    }

    fn text(&self) -> String {
        String::from_utf8(self.bytes().to_vec()).expect("texts are UTF-8")
    }
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first().expect("more bytes");
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return value;
        }
    }
    panic!("a number without end");
}

fn fields(mut bytes: &[u8]) -> Vec<(u64, Field<'_>)> {
    let mut out = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        let field = match tag & 7 {
            0 => Field::Number(varint(&mut bytes)),
            1 => {
                let (number, rest) = bytes.split_first_chunk::<8>().expect("eight bytes");
                bytes = rest;
                Field::Double(f64::from_le_bytes(*number))
            }
            2 => {
                let length = varint(&mut bytes) as usize;
                let (inner, rest) = bytes.split_at(length);
                bytes = rest;
                Field::Bytes(inner)
            }
            other => panic!("wire type {other}"),
        };
        out.push((tag >> 3, field));
    }
    out
}

/// The first field of that number, which must be a message or text.
fn one(bytes: &[u8], number: u64) -> Option<&[u8]> {
    fields(bytes).into_iter().find(|(found, _)| *found == number).map(|(_, field)| field.bytes())
}

fn named(bytes: &[u8]) -> (String, &[u8]) {
    let name = one(bytes, 1).expect("a name");
    (String::from_utf8(name.to_vec()).expect("UTF-8"), one(bytes, 2).expect("a value"))
}

fn any(bytes: &[u8]) -> Value {
    serde_json::from_slice(one(bytes, 2).expect("yaml")).expect("our YAML is JSON")
}

fn schema(bytes: &[u8]) -> Value {
    let mut out = Map::new();
    let push = |out: &mut Map<String, Value>, key: &str, value: Value| {
        let list = out.entry(key).or_insert_with(|| json!([]));
        list.as_array_mut().expect("a list").push(value);
    };
    for (number, field) in fields(bytes) {
        let texts = [(1, "$ref"), (2, "format"), (3, "title"), (4, "description"), (13, "pattern")];
        if let Some((_, key)) = texts.iter().find(|(found, _)| *found == number) {
            out.insert((*key).into(), field.text().into());
            continue;
        }
        match (number, &field) {
            (7, Field::Double(value)) => drop(out.insert("maximum".into(), (*value).into())),
            (9, Field::Double(value)) => drop(out.insert("minimum".into(), (*value).into())),
            (11, Field::Number(value)) => drop(out.insert("maxLength".into(), (*value).into())),
            (19, _) => push(&mut out, "required", field.text().into()),
            (20, _) => push(&mut out, "enum", any(field.bytes())),
            (21, _) => {
                let value = match fields(field.bytes()).as_slice() {
                    [(1, inner)] => schema(inner.bytes()),
                    [(2, Field::Number(value))] => (*value == 1).into(),
                    _ => panic!("one choice"),
                };
                out.insert("additionalProperties".into(), value);
            }
            (22, _) => drop(out.insert("type".into(), fields(field.bytes())[0].1.text().into())),
            (23, _) => drop(out.insert("items".into(), schema(one(field.bytes(), 1).expect("items")))),
            (25, _) => {
                let properties =
                    fields(field.bytes()).iter().map(|(_, entry)| named(entry.bytes())).collect::<Vec<_>>();
                let properties: Map<_, _> = properties.into_iter().map(|(name, inner)| (name, schema(inner))).collect();
                out.insert("properties".into(), properties.into());
            }
            (31, _) => {
                let (name, value) = named(field.bytes());
                out.insert(name, any(value));
            }
            (other, _) => panic!("field {other}"),
        }
    }
    Value::Object(out)
}

#[tokio::test]
async fn both_forms_of_version_2_say_the_same() {
    let Served { table, version_2: document, .. } = served().await;
    let bytes = written(table, &Document::Protobuf2);
    assert_eq!(one(&bytes, 1), Some(&b"2.0"[..]));
    assert_eq!(one(one(&bytes, 2).expect("info"), 1), Some(&b"Kubernetes"[..]));

    let definitions = fields(one(&bytes, 9).expect("definitions"));
    assert_eq!(definitions.len(), document["definitions"].as_object().expect("definitions").len());
    for (_, entry) in &definitions {
        let (name, inner) = named(entry.bytes());
        assert_eq!(schema(inner), document["definitions"][&name], "{name}");
    }

    let paths = fields(one(&bytes, 8).expect("paths"));
    assert_eq!(paths.len(), document["paths"].as_object().expect("paths").len());
    for (_, entry) in &paths {
        let (path, item) = named(entry.bytes());
        check_path(&path, item, &document["paths"][&path]);
    }
}

fn check_path(path: &str, item: &[u8], expected: &Value) {
    for (number, method) in [(2, "get"), (3, "put"), (4, "post"), (5, "delete"), (8, "patch")] {
        let operation = one(item, number);
        assert_eq!(operation.is_some(), expected.get(method).is_some(), "{method} {path}");
        let Some(operation) = operation else { continue };
        let expected = &expected[method];
        assert_eq!(one(operation, 5), expected["operationId"].as_str().map(str::as_bytes));
        let extensions = fields(operation).into_iter().filter(|(number, _)| *number == 13);
        for (_, extension) in extensions {
            let (name, value) = named(extension.bytes());
            assert_eq!(any(value), expected[&name], "{method} {path}");
        }
        let parameters = fields(operation).into_iter().filter(|(number, _)| *number == 8);
        let names: Vec<String> = parameters.map(|(_, parameter)| parameter_name(parameter.bytes())).collect();
        let wanted = expected["parameters"].as_array().into_iter().flatten();
        let wanted: Vec<&str> =
            wanted.map(|found| found["name"].as_str().or(found["$ref"].as_str()).unwrap()).collect();
        assert_eq!(names, wanted, "{method} {path}");
    }
}

fn parameter_name(item: &[u8]) -> String {
    let name = match one(item, 2) {
        Some(reference) => one(reference, 1),
        None => match fields(one(item, 1).expect("a parameter")).as_slice() {
            [(1, body)] => one(body.bytes(), 2),
            [(2, other)] => one(fields(other.bytes())[0].1.bytes(), 4),
            _ => panic!("one choice"),
        },
    };
    String::from_utf8(name.expect("a name").to_vec()).expect("UTF-8")
}

#[test]
fn limits_of_custom_schemas() {
    let from = json!({
        "type": "object", "additionalProperties": false, "minimum": 1.5, "maxLength": 300, "enum": ["a", 1],
    });
    let mut document = protobuf_document();
    document.definition("x", &from);
    let bytes = document.finish(&json!({}));
    let definitions = one(&bytes, 9).expect("definitions");
    let (_, inner) = named(one(definitions, 1).expect("an entry"));
    assert_eq!(schema(inner), from);
}

fn protobuf_document() -> crate::openapi::protobuf::Document {
    crate::openapi::protobuf::Document::new(&json!({}))
}
