//! JSON merge patch (RFC 7386): maps merge, null deletes, everything else replaces.

use serde_json::{Map, Value};

use crate::go;
use crate::status::Status;

#[derive(Debug, PartialEq, thiserror::Error)]
pub enum MergePatchError {
    #[error("error decoding patch: json: cannot unmarshal {0} into Go value of type map[string]interface {{}}")]
    NotAnObject(&'static str),
}

impl MergePatchError {
    pub fn status(&self) -> Status {
        Status::bad_request(self.to_string())
    }
}

pub fn apply(document: &mut Value, patch: &Value) -> Result<(), MergePatchError> {
    let Value::Object(_) = patch else { return Err(MergePatchError::NotAnObject(go::json_type(patch))) };
    merge(document, patch);
    Ok(())
}

fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(changes) = patch else {
        *target = without_nulls(patch);
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let target = target.as_object_mut().expect("made a map above");
    for (key, change) in changes {
        match change {
            Value::Null => {
                target.remove(key);
            }
            _ => match target.get_mut(key) {
                Some(old) => merge(old, change),
                None => {
                    let mut new = Value::Null;
                    merge(&mut new, change);
                    target.insert(key.clone(), new);
                }
            },
        }
    }
}

/// Nulls of objects in a list that replaces another are taken as removals, too; nulls of the list itself stay.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(without_nulls).collect(),
        Value::Object(map) => {
            let kept = map.iter().filter(|(_, value)| !value.is_null());
            kept.map(|(key, value)| (key.clone(), without_nulls(value))).collect::<Map<_, _>>().into()
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(document: Value, patch: Value, expected: Value) {
        let mut document = document;
        assert_eq!(apply(&mut document, &patch), Ok(()));
        assert_eq!(document, expected);
    }

    /// The examples of the RFC's appendix whose patch is an object.
    #[test]
    fn examples_of_the_standard() {
        check(json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"}));
        check(json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"}));
        check(json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"}));
        check(json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"}));
        check(json!({"a": "c"}), json!({"a": ["b"]}), json!({"a": ["b"]}));
        check(json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}}));
        check(json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]}));
        check(json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1}));
        check(json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}}));
    }

    #[test]
    fn only_objects_are_patches() {
        let refused = apply(&mut json!({}), &json!([])).expect_err("refused").to_string();
        let text = "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}";
        assert_eq!(refused, text);
    }
}
