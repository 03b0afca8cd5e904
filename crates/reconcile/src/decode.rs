//! Objects of others as our types.
//!
//! Go reads a time that is null or not there as its zero. Our types insist on the time of a condition, and an object that
//! cannot be read is lost to everyone: a Service whose condition has no time would not be served.

use std::ops::Range;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use machinery::codec::Skim;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Go's zero time, as it is written where it must be.
const ZERO: &str = "0001-01-01T00:00:00Z";

/// Decodes an object without its managed fields: they are half of many objects' text, no component reads them of what it watches, and
/// as trees of values they were a seventh of what a scheduled pod cost the whole server.
pub(crate) fn decode<K: DeserializeOwned>(text: &str) -> serde_json::Result<K> {
    match managed_fields(text) {
        Some(place) => decode_whole(&[&text[..place.start], "null", &text[place.end..]].concat()),
        None => decode_whole(text),
    }
}

/// Where the value of `metadata.managedFields` stands; nothing where it is empty, or the text is unusual.
fn managed_fields(text: &str) -> Option<Range<usize>> {
    let mut found = None;
    let mut members_of_metadata = |value: &mut Skim<'_>, name: &[u8]| {
        if name != b"managedFields" {
            return value.skip();
        }
        let start = value.at();
        value.skip()?;
        found = Some(start..value.at());
        // What follows is for the decoder.
        None
    };
    Skim::whole(text.as_bytes(), |skim| {
        skim.members(|value, name| match name {
            b"metadata" => value.members(&mut members_of_metadata),
            _ => value.skip(),
        })
    });
    found
}

fn decode_whole<K: DeserializeOwned>(text: &str) -> serde_json::Result<K> {
    serde_json::from_str(text).or_else(|error| {
        let mut object: Value = serde_json::from_str(text)?;
        if fill_times(&mut object) { serde_json::from_value(object) } else { Err(error) }
    })
}

/// The metadata of an object, whatever else it holds.
pub(crate) fn metadata(text: &str) -> serde_json::Result<ObjectMeta> {
    #[derive(Deserialize)]
    struct Object {
        #[serde(default)]
        metadata: ObjectMeta,
    }
    serde_json::from_str(text).map(|object: Object| object.metadata)
}

/// Gives every condition without a time the zero one; tells whether there was any.
fn fill_times(value: &mut Value) -> bool {
    match value {
        Value::Object(fields) => {
            let mut filled = false;
            for (name, value) in fields {
                if name == "conditions" {
                    filled |= fill_conditions(value);
                } else {
                    filled |= fill_times(value);
                }
            }
            filled
        }
        Value::Array(items) => items.iter_mut().fold(false, |filled, item| fill_times(item) | filled),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

fn fill_conditions(conditions: &mut Value) -> bool {
    let mut filled = false;
    for condition in conditions.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
        let time = condition.entry("lastTransitionTime").or_insert(Value::Null);
        if time.is_null() {
            *time = ZERO.into();
            filled = true;
        }
    }
    filled
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{Pod, Service};
    use k8s_openapi::api::policy::v1::PodDisruptionBudget;
    use k8s_openapi::api::resource::v1::ResourceClaim;
    use serde_json::json;

    use super::*;

    #[test]
    fn conditions_need_no_time() {
        for time in [json!({}), json!({"lastTransitionTime": null})] {
            let mut condition = json!({"type": "A", "status": "True", "reason": "R", "message": ""});
            condition.as_object_mut().unwrap().extend(time.as_object().unwrap().clone());
            let status = json!({"status": {"conditions": [condition]}});
            let service: Service = decode(&status.to_string()).unwrap();
            let conditions = service.status.unwrap().conditions.unwrap();
            assert_eq!(serde_json::to_value(&conditions[0].last_transition_time).unwrap(), json!(ZERO));
            decode::<PodDisruptionBudget>(&status.to_string()).unwrap();
            let device = json!({"driver": "d", "pool": "p", "device": "x", "conditions": [condition]});
            decode::<ResourceClaim>(&json!({"spec": {}, "status": {"devices": [device]}}).to_string()).unwrap();
        }
    }

    #[test]
    fn managed_fields_are_left_out_and_nothing_else() {
        let managed = r#"[{"manager":"m","fieldsV1":{"f:a":{"k:{\"name\":\"]}\"}":{}}}}]"#;
        let texts = [
            r#"{"kind":"Pod","metadata":{"managedFields":@,"name":"p"},"spec":{"containers":[]}}"#,
            r#"{"spec":{"containers":[],"managedFields":1},"metadata": {"labels":{"managedFields":"[]"}, "name":"p", "managedFields" : @ } }"#,
            r#"{"metadata":{"managedFields":@,"name":"p"}}"#,
            r#"{"metadata":{"managedFields":null,"name":"p"}}"#,
            r#"{"metadata":{"name":"p"}}"#,
        ];
        for text in texts {
            let text = text.replace('@', managed);
            let mut expected: Pod = serde_json::from_str(&text).unwrap();
            expected.metadata.managed_fields = None;
            assert_eq!(decode::<Pod>(&text).unwrap(), expected, "{text}");
        }
        let escaped: Pod = decode(r#"{"metadata":{"managed\u0046ields":[{"manager":"m"}],"name":"p"}}"#).unwrap();
        assert_eq!(escaped.metadata.name.as_deref(), Some("p"));
        assert!(decode::<Pod>(r#"{"metadata":{"managedFields":[],"name":1}}"#).is_err());
        assert!(decode::<Pod>(r#"{"metadata":{"managedFields":[1,]}}"#).is_err());
    }

    #[test]
    fn what_is_wrong_otherwise_stays_wrong() {
        let error = decode::<Pod>(r#"{"spec": {"containers": 1}}"#).unwrap_err();
        assert!(error.to_string().contains("line 1"), "the error of the text itself: {error}");
        assert!(decode::<Pod>("{").is_err());
        let late = json!({"status": {"conditions": [{"lastTransitionTime": "soon"}]}});
        assert!(decode::<Service>(&late.to_string()).is_err());
    }
}
