//! `Table` and `PartialObjectMetadata`: the forms `kubectl get` and metadata-only clients ask for.

use jiff::Timestamp;
use machinery::table::Column;
use serde_json::{Map, Value, json};

use crate::call::Call;
use crate::query::Query;
use crate::resources::Resource;

/// What each row carries of its object.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Include {
    None,
    Metadata,
    Object,
}

impl Include {
    pub fn from(query: &Query) -> Include {
        match query.get("includeObject") {
            "None" => Include::None,
            "Object" => Include::Object,
            _ => Include::Metadata,
        }
    }
}

pub fn of_one(resource: &Resource, object: &Value, call: &Call) -> Value {
    let meta = json!({"resourceVersion": object.pointer("/metadata/resourceVersion").unwrap_or(&Value::Null)});
    let row = row(resource, object, Include::from(&call.query), call.answer.meta_version, call.app.clock.now());
    whole(resource, meta, vec![row], call.answer.meta_version, true)
}

/// A table. Watches send the columns with their first row only.
pub fn whole(resource: &Resource, list_meta: Value, rows: Vec<Value>, version: &str, with_columns: bool) -> Value {
    let columns = if with_columns { column_definitions(resource) } else { Value::Null };
    json!({
        "kind": "Table", "apiVersion": format!("meta.k8s.io/{version}"), "metadata": list_meta,
        "columnDefinitions": columns, "rows": rows,
    })
}

fn column_definitions(resource: &Resource) -> Value {
    match &resource.custom {
        Some(custom) => custom.column_definitions(),
        None => resource.kind.columns.iter().map(definition).collect(),
    }
}

fn definition(column: &Column) -> Value {
    json!({
        "name": column.name, "type": column.kind, "format": column.format,
        "description": column.description, "priority": column.priority,
    })
}

pub fn row(resource: &Resource, object: &Value, include: Include, version: &str, now: Timestamp) -> Value {
    let shown = match include {
        Include::None => Value::Null,
        Include::Object => object.clone(),
        Include::Metadata => metadata_of(object, version),
    };
    json!({"cells": cells(resource, object, now), "object": shown})
}

/// The same of an object that nobody needs any more: in long lists copies of its metadata would be much of the work.
pub(crate) fn row_of(resource: &Resource, mut object: Value, include: Include, version: &str, now: Timestamp) -> Value {
    let cells = cells(resource, &object, now);
    let shown = match include {
        Include::None => Value::Null,
        Include::Object => object,
        Include::Metadata => {
            let metadata = object.get_mut("metadata").map(Value::take);
            with_metadata(metadata.unwrap_or_else(|| Value::Object(Map::new())), version)
        }
    };
    let mut row = Map::new();
    row.insert("cells".into(), cells);
    row.insert("object".into(), shown);
    Value::Object(row)
}

fn cells(resource: &Resource, object: &Value, now: Timestamp) -> Value {
    match &resource.custom {
        Some(custom) => Value::Array(custom.cells(object, now)),
        None => Value::Array((resource.kind.row)(object, now)),
    }
}

/// The object's metadata as an object of its own.
pub(crate) fn partial_metadata(object: Value, version: &str) -> Value {
    // Errors and other answers that are no objects go through as they are.
    if object.get("metadata").is_none() || object["kind"] == "Status" {
        return object;
    }
    metadata_of(&object, version)
}

fn metadata_of(object: &Value, version: &str) -> Value {
    with_metadata(object.get("metadata").cloned().unwrap_or_else(|| Value::Object(Map::new())), version)
}

fn with_metadata(metadata: Value, version: &str) -> Value {
    let mut shown = Map::new();
    shown.insert("kind".into(), "PartialObjectMetadata".into());
    shown.insert("apiVersion".into(), format!("meta.k8s.io/{version}").into());
    shown.insert("metadata".into(), metadata);
    Value::Object(shown)
}
