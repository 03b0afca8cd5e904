//! What a command works on: types and names on the command line, manifests in files, and where the server keeps them.

mod download;
pub(crate) mod files;
pub(crate) mod mapping;
pub(crate) mod select;

use serde_json::Value;

use crate::resource::mapping::Mapping;

/// One object that a command works on.
#[derive(Clone, Debug)]
pub(crate) struct Info {
    pub mapping: Mapping,
    /// Empty where the kind has none.
    pub namespace: String,
    pub name: String,
    pub object: Value,
    /// The file it was read from, as messages name it.
    pub source: String,
}

impl Info {
    pub(crate) fn path(&self) -> String {
        self.mapping.object(&self.namespace, &self.name)
    }

    pub(crate) fn collection(&self) -> String {
        self.mapping.collection(&self.namespace)
    }

    /// `deployment.apps/web`.
    pub(crate) fn shown(&self) -> String {
        format!("{}/{}", self.mapping.shown(), self.name)
    }
}

/// The items of a list, each with its own kind and version; any other object as it is.
pub(crate) fn flatten(object: Value) -> Vec<Value> {
    // Go writes a list without items as null.
    let has_items = object.get("items").is_some_and(|items| items.is_array() || items.is_null());
    let is_list = has_items && object["kind"].as_str().is_some_and(|kind| kind.ends_with("List"));
    if !is_list {
        return vec![object];
    }
    let kind = object["kind"].as_str().unwrap_or_default().trim_end_matches("List").to_string();
    let version = object["apiVersion"].clone();
    let Value::Object(mut object) = object else { return Vec::new() };
    let Some(Value::Array(items)) = object.remove("items") else { return Vec::new() };
    let typed = |mut item: Value| {
        if item["kind"].is_null() && item.is_object() && !kind.is_empty() {
            item["kind"] = kind.clone().into();
            item["apiVersion"] = version.clone();
        }
        item
    };
    items.into_iter().map(typed).flat_map(flatten).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lists_become_their_items() {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": [{"kind": "Pod"}, {"kind": "Node"}]});
        let kinds: Vec<Value> = flatten(list).iter().map(|item| item["kind"].clone()).collect();
        assert_eq!(kinds, ["Pod", "Node"]);
        assert_eq!(flatten(json!({"kind": "Pod"})).len(), 1);
    }
}
