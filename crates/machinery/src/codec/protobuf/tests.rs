use serde_json::{Map, Value, json};

use super::*;
use crate::schema::Schemas;
use crate::schema::from_json_schema::from_definitions;

const TABLE: &str = "
# A type that holds itself.
[test.v1]
Node name=1 size=2 flags=3 next=4 labels=5 ratio=6 ids=7 host=8.1 port=8.2.1 raw=9 due=10 data=11
";

fn schemas() -> Schemas {
    let text = |format: &str| json!({"type": "string", "format": format});
    let definitions = json!({
        "test.v1.Node": {"type": "object", "properties": {
            "name": text(""), "size": {"type": "integer", "format": "int32", "x-go-empty": "dropped"},
            "flags": {"type": "array", "items": {"type": "boolean"}}, "next": {"$ref": "#/definitions/test.v1.Node"},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            "ratio": {"type": "number"}, "ids": {"type": "array", "items": {"type": "integer", "format": "int64"}},
            "host": text(""), "port": {"$ref": "#/definitions/io.k8s.apimachinery.pkg.util.intstr.IntOrString"},
            "raw": {"$ref": "#/definitions/io.k8s.apimachinery.pkg.runtime.RawExtension"},
            "due": {"$ref": "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.Duration"}, "data": text("byte"),
        }},
        "test.v1.Stranger": {"type": "object", "properties": {"name": text("")}},
        "io.k8s.apimachinery.pkg.util.intstr.IntOrString": {"type": "string"},
        "io.k8s.apimachinery.pkg.runtime.RawExtension": {"type": "object"},
        "io.k8s.apimachinery.pkg.apis.meta.v1.Duration": {"type": "string"},
    });
    let definitions: Map<String, Value> = definitions.as_object().cloned().unwrap_or_default();
    from_definitions(&definitions)
}

fn read(raw: &[u8]) -> Result<Value, DecodeError> {
    let schemas = schemas();
    let numbers = FieldNumbers::new(&schemas, TABLE);
    Envelope { raw, ..Envelope::default() }.decode(schemas.by_name("test.v1.Node").unwrap(), &numbers)
}

#[test]
fn messages_become_values() {
    let check = |raw: &[u8], expected: Value| assert_eq!(read(raw), Ok(expected), "{raw:x?}");
    check(b"", json!({}));
    check(b"\x0a\x01a\x10\x05", json!({"name": "a", "size": 5}));
    // Empty stays where Go has a pointer, vanishes where it has omitempty; the last one counts.
    check(b"\x0a\x00\x10\x05\x10\x00", json!({"name": ""}));
    check(b"\x10\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", json!({"size": -2}));
    // Numbers packed and one by one.
    check(b"\x3a\x03\x01\x80\x01\x38\x07\x18\x01\x18\x00", json!({"ids": [1, 128, 7], "flags": [true, false]}));
    // A message in two parts is merged; a map's key or value may be missing.
    check(b"\x22\x02\x10\x01\x22\x03\x0a\x01b", json!({"next": {"size": 1, "name": "b"}}));
    check(b"\x2a\x06\x0a\x01k\x12\x01v\x2a\x03\x0a\x01e\x2a\x00", json!({"labels": {"k": "v", "e": "", "": ""}}));
    check(b"\x31\0\0\0\0\0\0\xf8\x3f", json!({"ratio": 1.5}));
    // Structs that JSON inlines, one in the other.
    check(b"\x42\x0b\x0a\x01h\x12\x06\x0a\x04\x08\x00\x10\x50", json!({"host": "h", "port": 80}));
    check(b"\x42\x09\x12\x07\x0a\x05\x08\x01\x1a\x01w", json!({"port": "w"}));
    check(b"\x4a\x09\x0a\x07{\"a\":1}\x4a\x00", json!({}));
    check(b"\x4a\x09\x0a\x07{\"a\":1}", json!({"raw": {"a": 1}}));
    check(b"\x52\x06\x08\x80\xde\xa0\xcb\x05\x5a\x02\xff\x00", json!({"due": "1.5s", "data": "/wA="}));
    // Unknown fields of every wire type, a group among them.
    check(
        b"\xa0\x06\x01\xa1\x06--------\xa2\x06\x01-\xa3\x06\xa0\x06\x01\xa4\x06\xa5\x06----\x10\x01",
        json!({"size": 1}),
    );
}

#[test]
fn what_cannot_be_read_is_refused() {
    let check = |raw: &[u8], expected: &str| {
        assert_eq!(read(raw).map_err(|error| error.to_string()), Err(expected.to_string()), "{raw:x?}");
    };
    check(b"\x0a\x02a", "unexpected EOF");
    check(b"\x0a", "unexpected EOF");
    check(b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "unexpected EOF");
    check(b"\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", "proto: integer overflow");
    check(b"\x08\x01", "proto: wrong wireType = 0 for field Name");
    check(b"\x12\x01a", "proto: wrong wireType = 2 for field Size");
    check(b"\x20\x01", "proto: wrong wireType = 0 for field Next");
    check(b"\x00\x01", "proto: illegal tag 0 (wire type 0)");
    check(b"\x0f", "proto: illegal wireType 7");
    check(b"\xa4\x06", "proto: unexpected end of group");
    check(b"\xa3\x06", "unexpected EOF");
    check(b"\x0a\x01\xff", "proto: field Name contains invalid UTF-8");
    check(b"\x31\0\0\0\0\0\0\xf0\x7f", "proto: field Ratio: not a finite number");
    check(b"\x4a\x03\x0a\x01{", "proto: field Raw: unexpected end of JSON input");
}

#[test]
fn depth_is_bounded() {
    let nested = |times: usize| {
        let mut raw = Vec::new();
        for _ in 0..times {
            let mut outer = Vec::new();
            wire::put_bytes(&mut outer, 4, &raw);
            raw = outer;
        }
        read(&raw)
    };
    assert!(nested(200).is_ok());
    assert_eq!(nested(2000), Err(DecodeError::Depth));
}

#[test]
fn envelopes() {
    let check = |body: &[u8], expected: &str| {
        assert_eq!(open(body).map_err(|error| error.to_string()), Err(expected.to_string()));
    };
    check(b"", "empty data");
    check(b"{}", "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]");
    check(b"k8s\0", "empty body");
    check(b"k8s\0\x0a\x05\x0a\x02v1", "unexpected EOF");
    let body = b"k8s\0\x0a\x07\x0a\x02v1\x12\x01K\x12\x01r\x1a\x00\x22\x00";
    assert_eq!(open(body), Ok(Envelope { api_version: "v1", kind: "K", raw: b"r" }));
    assert!(is_protobuf("application/vnd.kubernetes.protobuf;stream=watch"));
    assert!(!is_protobuf("application/json"));
}

#[test]
fn values_become_messages() {
    let schemas = schemas();
    let numbers = FieldNumbers::new(&schemas, TABLE);
    let shape = schemas.by_name("test.v1.Node").unwrap();
    let long = "x".repeat(300);
    let object = json!({
        "apiVersion": "test/v1", "kind": "Node", "name": long, "size": -1, "flags": [true, false], "ratio": 0.25,
        "next": {"next": {"name": long}}, "labels": {"a": "", "b": long}, "ids": [-1, 1], "host": "h", "port": "w",
        "raw": {"any": [1, null]}, "due": "-1h0m0.5s", "data": "/wA=",
    });
    let encoded = encode_object(&object, shape, &numbers).unwrap();
    assert_eq!(decode(&encoded, shape, &numbers), Ok(object));

    let wrong = encode_object(&json!({"name": 1}), shape, &numbers).unwrap_err();
    assert_eq!(wrong.to_string(), "field name: not a string");
    let other = self::schemas();
    assert!(!numbers.cover(other.by_name("test.v1.Node").unwrap()), "numbers of other schemas");
    assert!(encode_object(&json!({}), schemas.by_name("test.v1.Stranger").unwrap(), &numbers).is_err());
    assert_eq!(numbers.missing(), ["Stranger.name"]);
}

#[test]
fn texts_become_the_messages_that_values_become() {
    let schemas = schemas();
    let numbers = FieldNumbers::new(&schemas, TABLE);
    let shape = schemas.by_name("test.v1.Node").unwrap();
    // The short way, where it is taken, writes what the long way writes. Answers whether it was.
    let both_ways = |text: &str| {
        let message = numbers.message(shape).unwrap();
        let (mut short, mut long) = (Vec::new(), Vec::new());
        let taken = skimmed::message(text.as_bytes(), &numbers, message, &mut short).is_some();
        if taken {
            transcode::decoded(text.as_bytes(), &numbers, message, &mut long).expect(text);
            assert_eq!(short, long, "{text}");
        }
        taken
    };
    for usual in [
        r#"{"name":"a\nb","size":-3,"flags":[true],"next":{"next":null,"ids":[1,2]},"labels":{"a":"b"},"host":"h","port":80}"#,
        r#" { "raw" : { "f:a" : { } } , "due" : "1s" , "data" : "/wA=" , "port" : "w" , "unknown" : [ 1.5 ] } "#,
        r#"{"raw":null,"name":null,"ids":null,"labels":null}"#,
    ] {
        assert!(both_ways(usual), "{usual}");
    }
    for unusual in [
        r#"{"ratio":1.5}"#,
        r#"{"ids":[null]}"#,
        r#"{"n\u0061me":"a"}"#,
        r#"{"size":-0}"#,
        r#"{"labels":{"a":1}}"#,
        "null",
    ] {
        assert!(!both_ways(unusual), "{unusual}");
    }
    let check = |object: Value| {
        let text = object.to_string();
        let from_text = transcode_object(text.as_bytes(), "test/v1", "Node", shape, &numbers).expect(&text);
        let from_value = encode_object(&object, shape, &numbers).expect(&text);
        let read = |bytes: &[u8]| open(bytes).and_then(|envelope| envelope.decode(shape, &numbers)).expect(&text);
        assert_eq!(read(&from_text)["name"], read(&from_value)["name"]);
        let mut expected = read(&from_value);
        expected["apiVersion"] = "test/v1".into();
        expected["kind"] = "Node".into();
        assert_eq!(read(&from_text), expected, "{text}");
        both_ways(&text);
    };
    let long = "x".repeat(300);
    check(json!({
        "apiVersion": "test/v1", "kind": "Node", "name": long, "size": -1, "flags": [true, false], "ratio": 0.25,
        "next": {"next": {"name": long}, "unknown": [{}]}, "labels": {"a": "", "b\n\"": long}, "ids": [-1, 1], "host": "h\u{1f6a2}",
        "port": "w", "raw": {"any": [1, null], "": "\\"}, "due": "-1h0m0.5s", "data": "/wA=",
    }));
    // Nothing, and what is empty; inlined structs of which only the inner or the outer one has something.
    check(json!({"name": null, "next": null, "labels": null, "ids": null, "raw": null, "host": null, "port": null}));
    check(json!({"next": {}, "labels": {}, "ids": [], "raw": {}, "port": 80}));
    check(json!({"host": "h", "name": "between", "port": 80, "ratio": 2}));

    for wrong in ["{\"name\":1}", "{\"ids\":{}}", "{\"labels\":[]}", "{\"next\":1}", "{\"name\":\"a\"} x", "{\"name\":"]
    {
        let mut out = b"before".to_vec();
        assert!(transcode_item(wrong.as_bytes(), shape, &numbers, &mut out).is_err(), "{wrong}");
        assert_eq!(out, b"before", "{wrong}");
    }
    assert!(transcode_object(b"{}", "", "", schemas.by_name("test.v1.Stranger").unwrap(), &numbers).is_err());
}

#[test]
fn a_length_stands_before_every_message() {
    for length in [0, 1, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152] {
        let (mut written, mut expected) = (b"before".to_vec(), b"before".to_vec());
        let content = vec![7; length];
        wire::put_message(&mut written, 3, |out| {
            out.extend_from_slice(&content);
            Ok::<(), ()>(())
        })
        .unwrap();
        wire::put_bytes(&mut expected, 3, &content);
        assert!(written == expected, "{length}");
        let mut varint = Vec::new();
        wire::put_varint(&mut varint, length as u64);
        assert_eq!(wire::varint_len(length as u64), varint.len());
    }
    assert_eq!(wire::varint_len(u64::MAX), 10);
}

#[test]
fn every_field_is_found_by_its_name_and_no_other() {
    let schemas = schemas();
    let numbers = FieldNumbers::new(&schemas, TABLE);
    let message = numbers.message(schemas.by_name("test.v1.Node").unwrap()).unwrap();
    for name in ["name", "size", "flags", "next", "labels", "ratio", "ids", "host", "port", "raw", "due", "data"] {
        assert_eq!(message.named(name.as_bytes()).map(|named| named.name.as_ref()), Some(name));
        assert!(message.named(format!("{name}s").as_bytes()).is_none());
    }
    for nobody in ["", "n", "nane", "Name"] {
        assert!(message.named(nobody.as_bytes()).is_none(), "{nobody}");
    }
}

#[test]
fn watch_events_are_framed() {
    assert_eq!(encode_watch_event("ADDED", b"k8s\0r"), b"\0\0\0\x10\x0a\x05ADDED\x12\x07\x0a\x05k8s\0r");
}

/// Bytes without any sense, the same on every run.
#[test]
fn random_bytes_do_no_harm() {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let schemas = schemas();
    let numbers = FieldNumbers::new(&schemas, TABLE);
    let shape = schemas.by_name("test.v1.Node").unwrap();
    for _ in 0..20_000 {
        let length = next() as usize % 64;
        // Small bytes make it likely that tags and lengths are right for a while.
        let raw: Vec<u8> =
            (0..length).map(|_| (next() >> 20) as u8 & if next() % 3 == 0 { 0xff } else { 0x5f }).collect();
        let _ = Envelope { raw: &raw, ..Envelope::default() }.decode(shape, &numbers);
        let _ = open(&[PREFIX, &raw].concat());
    }
}
