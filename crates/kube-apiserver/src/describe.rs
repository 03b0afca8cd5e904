//! What lists and watches must know of a stored value: its labels, and the fields that selectors may name.
//!
//! This runs once for every write and for every object at start, so it builds nothing that no selector reads:
//! a pod's containers and its managed fields are passed over, not decoded.

use std::fmt;
use std::sync::Arc;

use machinery::codec::Skim;
use machinery::kind::Kind;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use store::cache::{Describe, DescribeError, Description};

use crate::resources::KindRef;

/// How stored values of that kind are read.
pub fn describe(kind: KindRef) -> Describe {
    Arc::new(move |bytes| {
        if let Some(why) = crate::encryption::reason(bytes) {
            return Err(DescribeError::Undecrypted(why));
        }
        let splice = machinery::codec::splice_offset(bytes)
            .ok_or_else(|| DescribeError::value("not a JSON object with metadata"))? as u32;
        if let KindRef::BuiltIn(built_in) = &kind
            && let Some((object, labels)) = skimmed(built_in, bytes)
        {
            let fields = built_in.selectable.iter().map(|field| (field.read)(&object).into()).collect();
            return Ok(Description { labels, fields, splice });
        }
        if kind.selectable.is_empty() {
            let read: LabelsOnly = serde_json::from_slice(bytes).map_err(DescribeError::value)?;
            return Ok(Description { labels: read.metadata.labels.0, fields: Vec::new(), splice });
        }
        let object = match kind {
            KindRef::BuiltIn(_) => serde_json::from_slice(bytes).map(|Sketch(object, labels)| (object, labels)),
            // Nobody knows what the definition of a custom kind makes selectable.
            KindRef::Custom(_) => serde_json::from_slice(bytes).map(|object| {
                let labels = labels_of(&object);
                (object, labels)
            }),
        };
        let (object, labels) = object.map_err(DescribeError::value)?;
        let fields = kind.selectable.iter().map(|field| (field.read)(&object).into()).collect();
        Ok(Description { labels, fields, splice })
    })
}

type Pairs = Vec<(Box<str>, Box<str>)>;

/// As `Sketch` and `LabelsOnly` read it, of a text without anything unusual, for less than a fifth of the cost: nothing where those
/// are to be asked.
fn skimmed(kind: &Kind, bytes: &[u8]) -> Option<(Value, Pairs)> {
    let (mut object, mut labels) = (Map::new(), None);
    let mut keep = |name: &[u8], text: &[u8]| {
        let name = String::from_utf8(name.to_vec()).ok()?;
        // A name that is there twice is unusual.
        object.insert(name, serde_json::from_slice(text).ok()?).is_none().then_some(())
    };
    Skim::whole(bytes, |skim| {
        skim.members(|value, name| match name {
            b"metadata" if labels.is_some() => None,
            b"metadata" => {
                labels = Some(skim_labels(value)?);
                Some(())
            }
            b"data" | b"binaryData" | b"stringData" => value.skip(),
            _ if kind.selectable.is_empty() => value.skip(),
            b"spec" => keep(name, plain_members(value)?.as_bytes()),
            _ => keep(name, value.take()?),
        })
    })?;
    Some((Value::Object(object), labels?))
}

fn skim_labels(metadata: &mut Skim) -> Option<Pairs> {
    let mut labels: Option<Labels> = None;
    metadata.members(|value, name| match name {
        b"labels" if labels.is_some() => None,
        b"labels" => {
            labels = Some(serde_json::from_slice(value.take()?).ok()?);
            Some(())
        }
        _ => value.skip(),
    })?;
    Some(labels.unwrap_or_default().0)
}

/// The text of an object with those of its members that are plain; or of the plain value itself.
fn plain_members(value: &mut Skim) -> Option<String> {
    if !value.is_nested() {
        return Some(str::from_utf8(value.take()?).ok()?.to_owned());
    }
    let mut out = String::from("{");
    value.members(|value, name| {
        if value.is_nested() {
            return value.skip();
        }
        let text = str::from_utf8(value.take()?).ok()?;
        if text != "null" {
            let comma = if out.len() > 1 { "," } else { "" };
            out.extend([comma, "\"", str::from_utf8(name).ok()?, "\":", text]);
        }
        Some(())
    })?;
    out.push('}');
    Some(out)
}

fn labels_of(object: &Value) -> Pairs {
    let labels = object.pointer("/metadata/labels").and_then(Value::as_object);
    let texts = labels.into_iter().flatten();
    texts.filter_map(|(key, value)| Some((key.as_str().into(), value.as_str()?.into()))).collect()
}

#[derive(serde::Deserialize)]
struct LabelsOnly {
    metadata: Metadata,
}

#[derive(Default, serde::Deserialize)]
struct Metadata {
    #[serde(default)]
    labels: Labels,
}

/// Labels in the order of their keys.
#[derive(Default)]
struct Labels(Pairs);

impl<'de> Deserialize<'de> for Labels {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Labels, D::Error> {
        let map: Option<std::collections::BTreeMap<Box<str>, Box<str>>> = Deserialize::deserialize(from)?;
        Ok(Labels(map.unwrap_or_default().into_iter().collect()))
    }
}

/// An object as far as the selectable fields of built-in kinds reach, and its labels. These fields are never in
/// metadata, never below a field of `spec`, and never in the payload of a Secret or ConfigMap.
struct Sketch(Value, Pairs);

impl<'de> Deserialize<'de> for Sketch {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Sketch, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Sketch;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Sketch, A::Error> {
                let (mut object, mut labels) = (Map::new(), Vec::new());
                while let Some(key) = members.next_key::<String>()? {
                    match key.as_str() {
                        "metadata" => labels = members.next_value::<Metadata>()?.labels.0,
                        "data" | "binaryData" | "stringData" => drop(members.next_value::<IgnoredAny>()?),
                        "spec" => drop(object.insert(key, members.next_value::<Shallow>()?.0)),
                        _ => drop(object.insert(key, members.next_value()?)),
                    }
                }
                Ok(Sketch(Value::Object(object), labels))
            }
        }
        from.deserialize_map(Members)
    }
}

/// A map with those of its fields that are plain; or the plain value itself.
struct Shallow(Value);

impl<'de> Deserialize<'de> for Shallow {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Shallow, D::Error> {
        from.deserialize_any(PlainFields { fields: true }).map(Shallow)
    }
}

/// A text, number or boolean; null in place of a list or a map.
struct Plain(Value);

impl<'de> Deserialize<'de> for Plain {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Plain, D::Error> {
        from.deserialize_any(PlainFields { fields: false }).map(Plain)
    }
}

struct PlainFields {
    /// Whether the fields of a map are looked at, or passed over with it.
    fields: bool,
}

impl<'de> Visitor<'de> for PlainFields {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Value::Null)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        if !self.fields {
            while members.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            return Ok(Value::Null);
        }
        let mut object = Map::new();
        while let Some((key, Plain(value))) = members.next_entry::<String, Plain>()? {
            if !value.is_null() {
                object.insert(key, value);
            }
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use serde_json::json;

    use super::*;

    fn check(group: &str, kind: &str, object: Value, labels: &[(&str, &str)], fields: &[(&str, &str)]) {
        let kind = api::KINDS.iter().copied().find(|known| known.group == group && known.kind == kind).unwrap();
        let found = describe(KindRef::BuiltIn(kind))(&Bytes::from(object.to_string())).unwrap();
        let pairs: Vec<(&str, &str)> = found.labels.iter().map(|(key, value)| (&**key, &**value)).collect();
        assert_eq!(pairs, labels, "{}", kind.kind);
        for (field, value) in fields {
            let index = kind.selectable.iter().position(|known| known.field == *field).expect(field);
            assert_eq!(&*found.fields[index], *value, "{} {field}", kind.kind);
        }
        let text = object.to_string();
        let (short, short_labels) = skimmed(kind, text.as_bytes()).expect("nothing is unusual about it");
        let Sketch(_, long_labels) = serde_json::from_str(&text).unwrap();
        assert_eq!(short_labels, long_labels, "{}", kind.kind);
        let short: Vec<Box<str>> = kind.selectable.iter().map(|field| (field.read)(&short).into()).collect();
        assert_eq!(found.fields, short, "{}", kind.kind);
        // Whatever the kind, the sketch must show selectors what the whole object shows.
        let whole: Vec<Box<str>> = kind.selectable.iter().map(|field| (field.read)(&object).into()).collect();
        assert_eq!(found.fields, whole, "{}", kind.kind);
    }

    #[test]
    fn selectors_see_what_the_whole_object_says() {
        let meta = json!({"name": "a", "labels": {"b": "2", "a": "1"}, "managedFields": [{"manager": "m"}]});
        let labels = [("a", "1"), ("b", "2")];
        let pod = json!({"metadata": meta, "spec": {"nodeName": "n", "hostNetwork": true, "containers": [{"name": "c"}],
            "securityContext": {"fsGroup": 1}}, "status": {"phase": "Running", "podIPs": [{"ip": "10.0.0.1"}, {"ip": "::1"}]}});
        let fields = [
            ("spec.nodeName", "n"),
            ("spec.hostNetwork", "true"),
            ("status.phase", "Running"),
            ("status.podIP", "10.0.0.1"),
            ("status.podIPs", "10.0.0.1,::1"),
        ];
        check("", "Pod", pod, &labels, &fields);
        let event = json!({"metadata": meta, "involvedObject": {"kind": "Pod", "name": "p"}, "source": {"component": "kubelet"},
            "type": "Normal"});
        check("", "Event", event, &labels, &[("involvedObject.name", "p"), ("source", "kubelet"), ("type", "Normal")]);
        let secret = json!({"metadata": {"name": "s"}, "data": {"key": "dmFsdWU="}, "type": "Opaque"});
        check("", "Secret", secret, &[], &[("type", "Opaque")]);
        let job = json!({"metadata": meta, "spec": {"template": {"spec": {}}}, "status": {"succeeded": 3}});
        check("batch", "Job", job, &labels, &[("status.successful", "3")]);
        let node = json!({"metadata": meta, "spec": {"unschedulable": true, "taints": []}});
        check("", "Node", node, &labels, &[("spec.unschedulable", "true")]);
    }

    #[test]
    fn unusual_texts_are_decoded() {
        let pod = api::KINDS.iter().copied().find(|kind| kind.group.is_empty() && kind.kind == "Pod").unwrap();
        let node_name = pod.selectable.iter().position(|known| known.field == "spec.nodeName").unwrap();
        let unusual = [
            r#"{"metadata":{"labels":{"a":"1"}},"spec":{"nodeName":"other"},"spec":{"nodeName":"n"}}"#,
            r#"{"metadata":{},"metadata":{"labels":{"a":"1"}},"spec":{"nodeName":"n"}}"#,
            r#"{"metadata":{"labels":{"a":"1"}},"s\u0070ec":{"nodeName":"n"}}"#,
            r#"{"metadata":{"labels":{"a":"1"}},"spec":{"node\u004eame":"n"}}"#,
        ];
        for text in unusual {
            assert!(skimmed(pod, text.as_bytes()).is_none(), "{text}");
            let found = describe(KindRef::BuiltIn(pod))(&Bytes::from_static(text.as_bytes())).unwrap();
            assert_eq!((&*found.labels[0].1, &*found.fields[node_name]), ("1", "n"), "{text}");
        }
        for wrong in
            [r#"{"metadata":{"labels":{"a":1}}}"#, r#"{"metadata":{},"spec":{"a":[1,]}}"#, r#"{"metadata":{}} x"#]
        {
            assert!(describe(KindRef::BuiltIn(pod))(&Bytes::from_static(wrong.as_bytes())).is_err(), "{wrong}");
        }
    }

    #[test]
    fn labels_of_kinds_without_selectable_fields() {
        check("", "ConfigMap", json!({"metadata": {"labels": {"a": "1"}}, "data": {"x": "y"}}), &[("a", "1")], &[]);
        check("", "ConfigMap", json!({"metadata": {}}), &[], &[]);
    }
}
