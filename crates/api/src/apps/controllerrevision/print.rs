//! The row of a ControllerRevision.

use jiff::Timestamp;
use machinery::kind::age;
use machinery::object::Meta;
use machinery::table::Cell;
use serde_json::Value;

use crate::common::workload::number;

pub(super) fn row(revision: &Value, now: Timestamp) -> Vec<Cell> {
    vec![revision.name().into(), controller(revision).into(), number(revision, "/revision").into(), age(revision, now)]
}

/// `statefulset.apps/web`
fn controller(revision: &Value) -> String {
    let owners = revision.meta("ownerReferences").and_then(Value::as_array);
    let Some(owner) = owners.into_iter().flatten().find(|owner| owner["controller"] == true) else {
        return "<none>".into();
    };
    let text = |field: &str| owner[field].as_str().unwrap_or("");
    let kind = text("kind").to_lowercase();
    match text("apiVersion").split_once('/') {
        Some((group, _)) => format!("{kind}.{group}/{}", text("name")),
        None => format!("{kind}/{}", text("name")),
    }
}
