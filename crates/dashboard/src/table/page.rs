//! What the API server answers to a list or tells in a watch, read without building what no row needs: of thirty thousand
//! pods the managed fields alone are tens of megabytes.

use std::fmt;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::row::{Column, Row};
use crate::kinds::Kind;

/// A page of a list: a table as the server prints it or, from a server that prints none, the objects themselves.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Page {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    metadata: ListMeta,
    #[serde(default)]
    column_definitions: Option<Vec<Column>>,
    #[serde(default)]
    rows: Option<Vec<Printed>>,
    #[serde(default)]
    items: Option<Vec<Slim>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ListMeta {
    resource_version: String,
    #[serde(rename = "continue")]
    next: String,
}

#[derive(Deserialize)]
struct Printed {
    /// None in a bookmark.
    #[serde(default)]
    cells: Option<Vec<Value>>,
    #[serde(default)]
    object: Slim,
}

pub(super) type Keyed = (String, Arc<Row>);

impl Page {
    pub(crate) fn is_table(&self) -> bool {
        self.kind == "Table"
    }

    pub fn columns(&mut self) -> Vec<Column> {
        if !self.is_table() {
            let column = |name: &str| Column { name: name.into(), kind: "string".into(), ..Column::default() };
            return vec![column("Name"), column("Age")];
        }
        self.column_definitions.take().unwrap_or_default()
    }

    /// Where the next page begins; empty on the last one.
    pub fn next(&self) -> &str {
        &self.metadata.next
    }

    /// The newest revision that is known of: that of the first row's object, or the list's own.
    pub fn revision(&self) -> &str {
        let row = self.rows.iter().flatten().next();
        let of_row = row.and_then(|row| row.object.0["metadata"]["resourceVersion"].as_str());
        of_row.filter(|revision| !revision.is_empty()).unwrap_or(&self.metadata.resource_version)
    }

    pub(crate) fn list_revision(&self) -> &str {
        &self.metadata.resource_version
    }

    pub(crate) fn into_rows(self, kind: &Kind) -> Vec<Keyed> {
        let printed =
            self.rows.into_iter().flatten().map(|row| Row::new(kind, &row.object.0, row.cells.unwrap_or_default()));
        let plain = self.items.into_iter().flatten().map(|object| object.into_row(kind));
        printed.chain(plain).map(|row| (row.key(), Arc::new(row))).collect()
    }
}

/// One event of a watch; what it tells of is read when its type is known.
#[derive(Deserialize)]
pub(super) struct Event<'a> {
    #[serde(rename = "type")]
    pub kind: String,
    #[serde(borrow)]
    pub object: &'a RawValue,
}

/// An object without what no row needs.
#[derive(Default)]
pub(super) struct Slim(pub Value);

impl Slim {
    pub(crate) fn into_row(self, kind: &Kind) -> Row {
        let meta = &self.0["metadata"];
        Row::new(kind, &self.0, vec![json!(meta["name"]), json!(meta["creationTimestamp"])])
    }
}

impl<'de> Deserialize<'de> for Slim {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Slim, D::Error> {
        deserializer.deserialize_any(Without(Part::Object)).map(Slim)
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Part {
    Object,
    Metadata,
}

impl Part {
    /// What of it is read over.
    fn leaves_out(self, key: &str) -> bool {
        match self {
            Part::Object => matches!(key, "data" | "binaryData"),
            Part::Metadata => key == "managedFields",
        }
    }
}

struct Without(Part);

impl<'de> DeserializeSeed<'de> for Without {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Without {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("an object or null")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut read = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            if self.0.leaves_out(&key) {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let value = if self.0 == Part::Object && key == "metadata" {
                map.next_value_seed(Without(Part::Metadata))?
            } else {
                map.next_value()?
            };
            read.insert(key, value);
        }
        Ok(Value::Object(read))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PODS: &str = r#"{"kind":"Table","metadata":{"resourceVersion":"7","continue":"c"},
        "columnDefinitions":[{"name":"Name","type":"string","format":"name","description":"d","priority":0}],
        "rows":[{"cells":["web",1],"object":{"metadata":{"name":"web","namespace":"a","resourceVersion":"5","managedFields":[{"manager":"m"}]},
            "data":{"large":"x"},"status":{"podIP":"10.0.0.1"}}},{"cells":[],"object":null}]}"#;

    #[test]
    fn a_table_is_read_without_what_no_row_needs() {
        let mut page: Page = serde_json::from_str(PODS).unwrap();
        assert_eq!((page.next(), page.revision(), page.list_revision(), page.is_table()), ("c", "5", "7", true));
        assert_eq!(page.columns()[0].name, "Name");
        let read = page.rows.as_ref().unwrap()[0].object.0.to_string();
        assert!(read.contains("10.0.0.1") && !read.contains("manager") && !read.contains("large"), "{read}");
        let rows = page.into_rows(&Kind::new("", "v1", "pods"));
        assert_eq!((rows.len(), rows[0].0.as_str(), rows[0].1.cells.len()), (2, "a\0web", 2));
    }

    #[test]
    fn objects_of_a_server_that_prints_no_tables() {
        let text = r#"{"kind":"PodList","metadata":{"resourceVersion":"9"},"items":[{"metadata":{"name":"web","creationTimestamp":"t"}}]}"#;
        let mut page: Page = serde_json::from_str(text).unwrap();
        assert_eq!((page.columns().len(), page.revision()), (2, "9"));
        assert_eq!(page.into_rows(&Kind::new("", "v1", "pods"))[0].1.cells, [json!("web"), json!("t")]);
    }

    #[test]
    fn events() {
        let event: Event = serde_json::from_str(r#"{"type":"ADDED","object":{"kind":"Pod","metadata":{}}}"#).unwrap();
        assert_eq!((event.kind.as_str(), event.object.get()), ("ADDED", r#"{"kind":"Pod","metadata":{}}"#));
    }
}
