//! An object of any kind, as JSON. Reads and edits of metadata that the generic path needs, whatever the kind.

use serde_json::{Map, Value};

/// What may be asked of any object. Missing fields read as empty.
pub trait Meta {
    fn name(&self) -> &str;
    fn namespace(&self) -> &str;
    fn uid(&self) -> &str;
    fn resource_version(&self) -> &str;
    fn meta(&self, field: &str) -> Option<&Value>;
    fn label(&self, key: &str) -> Option<&str>;
    fn annotation(&self, key: &str) -> Option<&str>;
    fn finalizers(&self) -> Vec<&str>;
    fn is_deleting(&self) -> bool;
    /// The metadata to edit; made where it is missing.
    fn meta_mut(&mut self) -> &mut Map<String, Value>;
}

impl Meta for Value {
    fn name(&self) -> &str {
        meta_text(self, "name")
    }

    fn namespace(&self) -> &str {
        meta_text(self, "namespace")
    }

    fn uid(&self) -> &str {
        meta_text(self, "uid")
    }

    fn resource_version(&self) -> &str {
        meta_text(self, "resourceVersion")
    }

    fn meta(&self, field: &str) -> Option<&Value> {
        self.get("metadata")?.get(field).filter(|value| !value.is_null())
    }

    fn label(&self, key: &str) -> Option<&str> {
        self.meta("labels")?.get(key)?.as_str()
    }

    fn annotation(&self, key: &str) -> Option<&str> {
        self.meta("annotations")?.get(key)?.as_str()
    }

    fn finalizers(&self) -> Vec<&str> {
        let list = self.meta("finalizers").and_then(Value::as_array);
        list.map(|items| items.iter().filter_map(Value::as_str).collect()).unwrap_or_default()
    }

    fn is_deleting(&self) -> bool {
        self.meta("deletionTimestamp").is_some()
    }

    fn meta_mut(&mut self) -> &mut Map<String, Value> {
        child_mut(self, "metadata")
    }
}

fn meta_text<'a>(object: &'a Value, field: &str) -> &'a str {
    object.meta(field).and_then(Value::as_str).unwrap_or("")
}

/// The map in that field, made empty where it is missing or not a map.
pub fn child_mut<'a>(value: &'a mut Value, field: &str) -> &'a mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    let map = value.as_object_mut().expect("made a map above");
    // The name is written out only where it is new: most often it is there.
    if !map.get(field).is_some_and(Value::is_object) {
        map.insert(field.to_owned(), Value::Object(Map::new()));
    }
    map.get_mut(field).and_then(Value::as_object_mut).expect("made a map above")
}

/// Sets a field that is missing or null; what the user said stays.
pub fn set_default(value: &mut Value, field: &str, default: impl Into<Value>) {
    if let Some(map) = value.as_object_mut()
        && map.get(field).is_none_or(Value::is_null)
    {
        map.insert(field.to_owned(), default.into());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_missing_reads_as_empty() {
        for object in
            [json!({}), json!({"metadata": null}), json!({"metadata": {"name": null, "labels": null}}), json!("x")]
        {
            assert_eq!((object.name(), object.namespace(), object.uid(), object.resource_version()), ("", "", "", ""));
            assert_eq!((object.label("a"), object.annotation("a")), (None, None));
            assert!(object.finalizers().is_empty() && !object.is_deleting());
        }
        let object = json!({"metadata": {
            "name": "n", "namespace": "s", "uid": "u", "resourceVersion": "7", "labels": {"a": "b"}, "annotations": {"c": "d"},
            "finalizers": ["x", "y"], "deletionTimestamp": "2030-01-01T00:00:00Z",
        }});
        assert_eq!((object.name(), object.namespace(), object.uid(), object.resource_version()), ("n", "s", "u", "7"));
        assert_eq!((object.label("a"), object.annotation("c"), object.label("c")), (Some("b"), Some("d"), None));
        assert_eq!(object.finalizers(), ["x", "y"]);
        assert!(object.is_deleting());
    }

    #[test]
    fn maps_are_made_where_they_are_missing() {
        for mut object in [json!({}), json!(null), json!({"metadata": "x"})] {
            object.meta_mut().insert("name".into(), "n".into());
            assert_eq!(object.name(), "n");
        }
    }

    #[test]
    fn defaults_do_not_override() {
        let mut object = json!({"a": 1, "b": null, "c": "", "d": false});
        for field in ["a", "b", "c", "d", "e"] {
            set_default(&mut object, field, "default");
        }
        assert_eq!(object, json!({"a": 1, "b": "default", "c": "", "d": false, "e": "default"}));
        let mut text = json!("x");
        set_default(&mut text, "a", 1);
        assert_eq!(text, json!("x"));
    }
}
