//! JSON, YAML and protobuf: what one of ours reads, it writes so that it reads the same again; and decoders agree.

use machinery::codec::{self, decode_json, decode_yaml, protobuf, to_yaml};
use serde_json::{Value, json};

fn pod() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "p", "namespace": "default", "labels": {"a": "b"}, "annotations": {"x": "line\nline"}},
        "spec": {
            "containers": [{
                "name": "c", "image": "i", "args": ["--x=1", "y: z", "#", "'"], "env": [{"name": "E", "value": "true"}],
                "resources": {"limits": {"cpu": "100m", "memory": "1Gi"}}, "ports": [{"containerPort": 80, "protocol": "TCP"}],
                "livenessProbe": {"httpGet": {"path": "/", "port": "http"}, "periodSeconds": 10},
            }],
            "hostNetwork": true, "terminationGracePeriodSeconds": 30, "volumes": [{"name": "v", "emptyDir": {}}],
        },
    })
}

fn secret() -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "type": "Opaque", "data": {"k": "AAECAw=="}})
}

/// Equal, where 1.0 is 1, as for everybody who reads JSON.
fn same(one: &Value, other: &Value) -> bool {
    alike(one, other, 0.0)
}

/// The same, where numbers may differ by that part of themselves.
fn alike(one: &Value, other: &Value, part: f64) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => {
            one == other
                || one.as_f64().zip(other.as_f64()).is_some_and(|(one, other)| (one - other).abs() <= part * one.abs())
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| alike(one, other, part))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one.iter().zip(other).all(|((key, one), (name, other))| key == name && alike(one, other, part))
        }
        _ => one == other,
    }
}

#[test]
fn json_is_read_as_others_read_it() {
    let examples = [
        pod().to_string().into_bytes(),
        secret().to_string().into_bytes(),
        b"[1, -2.5e3, \"\\u00e9\\n\", null]".to_vec(),
    ];
    let words: [&[u8]; 14] = [
        b"{",
        b"[",
        b"}",
        b"]",
        b"\"",
        b"\\u0000",
        b"\\ud800",
        b"null",
        b"1e999",
        b"-0",
        b"0.1",
        b",",
        b":",
        b"\"a\":1,\"a\":2",
    ];
    fuzz::bytes("json", &examples, &words, |input| {
        let Ok(read) = decode_json(input) else { return };
        let again = decode_json(&codec::encode(&read.value)).expect("what we write we read");
        assert!(same(&again.value, &read.value), "{}", again.value);
        match serde_json::from_slice::<Value>(input) {
            // That reader is quick and may miss the last bit of a number.
            Ok(other) if read.duplicates.is_empty() => {
                assert!(alike(&other, &read.value, 4.0 * f64::EPSILON), "{other} and {}", read.value)
            }
            Ok(_) => {}
            // As Go reads it: what is no letter becomes one that says so.
            Err(error) => {
                assert!(std::str::from_utf8(input).is_err() || input.contains(&b'\\'), "only we read it: {error}")
            }
        }
    });
}

#[test]
fn yaml_is_written_as_it_is_read() {
    let examples = [
        to_yaml(&pod()).into_bytes(),
        to_yaml(&secret()).into_bytes(),
        b"a: &x [1, 2]\nb: *x\nc: |\n  text\n  more\nd: >-\n  folded\n  text\n".to_vec(),
        b"a: {b: [c, 'd', \"e\"], f: 0x1f}\n--- \nsecond: document\n".to_vec(),
    ];
    let words: [&[u8]; 20] = [
        b"&a ",
        b"*a",
        b"- ",
        b": ",
        b"|",
        b">",
        b"\n",
        b"  ",
        b"\t",
        b"!!binary ",
        b"!!str ",
        b"<<: *a",
        b"'",
        b"\"",
        b"#",
        b"---\n",
        b"{",
        b"[",
        b"? ",
        b"%YAML 1.1\n",
    ];
    fuzz::bytes("yaml", &examples, &words, |input| {
        let Ok(read) = decode_yaml(input) else { return };
        let written = to_yaml(&read.value);
        let again = decode_yaml(written.as_bytes()).unwrap_or_else(|error| panic!("{error}: {written}"));
        assert!(same(&again.value, &read.value), "{written}");
        // A few aliases must not become a heap of text.
        assert!(written.len() < 64 * 1024 * 1024, "{} bytes", written.len());
    });
}

#[test]
fn json_is_yaml() {
    fuzz::values("json-in-yaml", &[pod(), secret()], |value, _| {
        let text = value.to_string();
        let read = decode_yaml(text.as_bytes()).unwrap_or_else(|error| panic!("{error}"));
        assert!(same(&read.value, &decode_json(text.as_bytes()).expect("it is JSON").value), "{}", read.value);
        let again = decode_yaml(to_yaml(value).as_bytes()).expect("it is YAML").value;
        assert!(same(&again, value), "{again}");
    });
}

#[test]
fn protobuf_is_written_as_it_is_read() {
    let kinds = [("Pod", pod()), ("Secret", secret())];
    let numbers = api::schema::field_numbers();
    for (name, object) in kinds {
        let shape = api::schema::type_named("", "v1", name).expect("a kind");
        let encoded = protobuf::encode_object(&object, shape, numbers).expect("an example can be written");
        fuzz::bytes(
            &format!("protobuf-{name}"),
            &[encoded],
            &[b"k8s\0", b"\x0a\x00", b"\xff\xff\xff\xff\x0f", b"\x80\x01"],
            |input| {
                let Ok(read) = protobuf::decode(input, shape, numbers) else { return };
                let Ok(written) = protobuf::encode_object(&read, shape, numbers) else { return };
                let again = protobuf::decode(&written, shape, numbers).expect("what we write we read");
                assert_eq!(again, read);
                // The way that skips values, from the text that would be stored.
                let (version, kind) = (read["apiVersion"].as_str().unwrap_or(""), read["kind"].as_str().unwrap_or(""));
                let written = protobuf::transcode_object(read.to_string().as_bytes(), version, kind, shape, numbers);
                let again = protobuf::decode(&written.expect("its text is written, too"), shape, numbers);
                assert_eq!(again, Ok(read));
            },
        );
    }
}
