//! Objects of others as our types.
//!
//! Go reads a time that is null or not there as its zero. Our types insist on the time of a condition, and an object that
//! cannot be read is lost to everyone: a Service whose condition has no time would not be served.

mod trim;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

pub(crate) use trim::Keep;

/// Go's zero time, as it is written where it must be.
const ZERO: &str = "0001-01-01T00:00:00Z";

/// Decodes as much of an object as its copy keeps. Managed fields, as trees of values, were a seventh of what a scheduled pod cost the
/// whole server.
pub(crate) fn decode<K: DeserializeOwned>(text: &str, keep: Keep) -> serde_json::Result<K> {
    match trim::trim(text, keep) {
        Some(rest) => decode_whole(&rest),
        None => decode_whole(text),
    }
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
            let service: Service = decode(&status.to_string(), Keep::Whole).unwrap();
            let conditions = service.status.unwrap().conditions.unwrap();
            assert_eq!(serde_json::to_value(&conditions[0].last_transition_time).unwrap(), json!(ZERO));
            decode::<PodDisruptionBudget>(&status.to_string(), Keep::Whole).unwrap();
            let device = json!({"driver": "d", "pool": "p", "device": "x", "conditions": [condition]});
            decode::<ResourceClaim>(&json!({"spec": {}, "status": {"devices": [device]}}).to_string(), Keep::Whole)
                .unwrap();
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
        for (text, keep) in texts.iter().flat_map(|text| [(text, Keep::Whole), (text, Keep::SlimPod)]) {
            let text = text.replace('@', managed);
            let mut expected: Pod = serde_json::from_str(&text).unwrap();
            expected.metadata.managed_fields = None;
            assert_eq!(decode::<Pod>(&text, keep).unwrap(), expected, "{text}");
        }
        let escaped: Pod =
            decode(r#"{"metadata":{"managed\u0046ields":[{"manager":"m"}],"name":"p"}}"#, Keep::Whole).unwrap();
        assert_eq!(escaped.metadata.name.as_deref(), Some("p"));
        assert!(decode::<Pod>(r#"{"metadata":{"managedFields":[],"name":1}}"#, Keep::Whole).is_err());
        assert!(decode::<Pod>(r#"{"metadata":{"managedFields":[1,]}}"#, Keep::Whole).is_err());
    }

    #[test]
    fn what_is_wrong_otherwise_stays_wrong() {
        let error = decode::<Pod>(r#"{"spec": {"containers": 1}}"#, Keep::Whole).unwrap_err();
        assert!(error.to_string().contains("line 1"), "the error of the text itself: {error}");
        assert!(decode::<Pod>("{", Keep::Whole).is_err());
        let late = json!({"status": {"conditions": [{"lastTransitionTime": "soon"}]}});
        assert!(decode::<Service>(&late.to_string(), Keep::Whole).is_err());
    }
}
