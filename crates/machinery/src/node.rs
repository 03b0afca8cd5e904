//! A place in an object: a value and the path to it. Rules read objects through nodes, so that every error
//! carries its field without bookkeeping. A missing field reads as null, an empty text or an empty list, as in Go.

use serde_json::{Map, Value};

use crate::field::Path;

#[derive(Clone)]
pub struct Node<'a> {
    pub value: &'a Value,
    pub path: Path,
}

static NULL: Value = Value::Null;

impl<'a> Node<'a> {
    pub fn root(value: &'a Value) -> Node<'a> {
        Node { value, path: Path::root() }
    }

    /// The same for a look at whether there is any error: those that are found do not say where.
    pub fn untold(value: &'a Value) -> Node<'a> {
        Node { value, path: Path::untold() }
    }

    pub fn new(value: &'a Value, path: Path) -> Node<'a> {
        Node { value, path }
    }

    /// The field of that name, null where it is missing.
    pub fn at(&self, field: &'static str) -> Node<'a> {
        Node { value: self.value.get(field).unwrap_or(&NULL), path: self.path.child(field) }
    }

    /// The entry of a map: `data[key]`.
    pub fn key(&self, key: &str) -> Node<'a> {
        Node { value: self.value.get(key).unwrap_or(&NULL), path: self.path.key(key) }
    }

    pub fn exists(&self) -> bool {
        !self.value.is_null()
    }

    pub fn has(&self, field: &str) -> bool {
        self.value.get(field).is_some_and(|value| !value.is_null())
    }

    /// The text of this node, empty where there is none.
    pub fn str(&self) -> &'a str {
        self.value.as_str().unwrap_or("")
    }

    pub fn int(&self) -> Option<i64> {
        self.value.as_i64()
    }

    pub fn bool(&self) -> Option<bool> {
        self.value.as_bool()
    }

    pub fn text(&self, field: &str) -> &'a str {
        self.value.get(field).and_then(Value::as_str).unwrap_or("")
    }

    pub fn number(&self, field: &str) -> Option<i64> {
        self.value.get(field).and_then(Value::as_i64)
    }

    /// True only where the field is there and true.
    pub fn flag(&self, field: &str) -> bool {
        self.value.get(field).and_then(Value::as_bool).unwrap_or(false)
    }

    /// The number of items or entries; 0 for anything else.
    pub fn len(&self) -> usize {
        match self.value {
            Value::Array(items) => items.len(),
            Value::Object(entries) => entries.len(),
            _ => 0,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The items of this list, each with its index in the path.
    pub fn items(&self) -> impl Iterator<Item = Node<'a>> + use<'a> {
        let path = self.path.clone();
        let items: &'a [Value] = self.value.as_array().map_or(&[], |items| items.as_slice());
        items.iter().enumerate().map(move |(index, value)| Node { value, path: path.index(index) })
    }

    /// The items of the list in that field.
    pub fn each(&self, field: &'static str) -> impl Iterator<Item = Node<'a>> + use<'a> {
        self.at(field).items()
    }

    /// The entries of this map, each with its key in the path.
    pub fn entries(&self) -> impl Iterator<Item = (&'a str, Node<'a>)> + use<'a> {
        let path = self.path.clone();
        let entries = self.value.as_object().into_iter().flat_map(Map::iter);
        entries.map(move |(key, value)| (key.as_str(), Node { value, path: path.key(key) }))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_missing_reads_as_go_reads_it() {
        let object = json!({"text": "t", "number": 7, "flag": true, "null": null, "list": [1, 2], "map": {"k": "v"}});
        let root = Node::root(&object);
        assert_eq!((root.text("text"), root.text("number"), root.text("none")), ("t", "", ""));
        assert_eq!((root.number("number"), root.number("text")), (Some(7), None));
        assert!(root.flag("flag") && !root.flag("text") && !root.flag("none"));
        assert!(root.has("text") && !root.has("null") && !root.has("none"));
        assert!(!root.at("null").exists() && !root.at("none").at("deeper").exists());
        assert_eq!((root.at("list").len(), root.at("map").len(), root.at("text").len()), (2, 1, 0));
        assert!(root.at("none").is_empty());
    }

    #[test]
    fn every_place_knows_its_path() {
        let object = json!({"spec": {"list": [{"a": 1}, {"a": 2}], "map": {"x/y": "z"}}});
        let spec = Node::root(&object).at("spec");
        let paths: Vec<String> = spec.each("list").map(|item| item.at("a").path.to_string()).collect();
        assert_eq!(paths, ["spec.list[0].a", "spec.list[1].a"]);
        let entries: Vec<(String, &str)> =
            spec.at("map").entries().map(|(key, value)| (format!("{key} {}", value.path), value.str())).collect();
        assert_eq!(entries, [("x/y spec.map[x/y]".to_owned(), "z")]);
        assert_eq!(spec.at("map").key("none").path.to_string(), "spec.map[none]");
        assert_eq!(spec.each("none").count(), 0);
    }
}
