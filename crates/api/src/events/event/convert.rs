//! One event, two forms: `events.k8s.io/v1` as served, core `v1` as stored.

use std::borrow::Cow;

use machinery::kind::Convert;
use serde_json::Value;

pub(super) const CONVERT: Convert = Convert { group: "", version: "v1", to_storage, from_storage };

/// The served name of each field that has another name in storage.
const NAMES: [(&str, &str); 7] = [
    ("regarding", "involvedObject"),
    ("note", "message"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
    ("reportingController", "reportingComponent"),
];
const SERVED: &str = "events.k8s.io/v1";

pub(super) fn to_storage(mut event: Value) -> Value {
    rename(&mut event, "v1", NAMES.iter().copied());
    event
}

pub(super) fn from_storage(mut event: Value) -> Value {
    rename(&mut event, SERVED, NAMES.iter().map(|(served, stored)| (*stored, *served)));
    event
}

/// The stored form of an event in either form.
pub(super) fn stored(event: &Value) -> Cow<'_, Value> {
    if event["apiVersion"] == SERVED { Cow::Owned(to_storage(event.clone())) } else { Cow::Borrowed(event) }
}

fn rename(event: &mut Value, api_version: &str, names: impl Iterator<Item = (&'static str, &'static str)>) {
    let Some(map) = event.as_object_mut() else { return };
    for (from, to) in names {
        if let Some(value) = map.remove(from) {
            map.insert(to.into(), value);
        }
    }
    map.insert("apiVersion".into(), api_version.into());
}
