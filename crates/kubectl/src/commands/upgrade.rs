//! From apply by our own patches to apply by the server: what `kubectl apply` has owned so far becomes what it owns on the
//! server's account, so that a field that is left out of the file is taken away instead of being left to nobody.

use serde_json::{Map, Value, json};

use super::apply::SERVER_SIDE_MANAGER;
use super::change::{APPLY, Change, JSON_PATCH, LAST_APPLIED};
use crate::failure::Result;
use crate::resource::Info;
use crate::session::Call;

/// Owns the annotation of the last apply once all else is the server's.
const ANNOTATION_MANAGER: &str = "kubectl-last-applied";

/// How often a change of the managers is made anew when somebody else was faster.
const TRIES: usize = 5;

/// The object with the annotation in good hands.
pub(super) async fn keep_annotation(
    change: &Change<'_>,
    info: &Info,
    path: &str,
    applied: Value,
    manager: &str,
) -> Result<Value> {
    let Some(text) = applied["metadata"]["annotations"][LAST_APPLIED].as_str() else { return Ok(applied) };
    // Only the manager everybody has keeps the annotation up to date on the server.
    if manager != SERVER_SIDE_MANAGER || !owners(&applied, "Apply").is_empty() {
        return Ok(applied);
    }
    let mut only = json!({"apiVersion": info.object["apiVersion"], "kind": info.object["kind"],
        "metadata": {"name": info.name, "annotations": {LAST_APPLIED: text}}});
    if !info.namespace.is_empty() {
        only["metadata"]["namespace"] = info.namespace.clone().into();
    }
    change.session.send(&change.call_as(Call::patch(path, APPLY, &only), ANNOTATION_MANAGER)).await
}

/// Makes what managers of patches own the property of `manager`, and tells whether anything had to be done.
pub(super) async fn managers(
    change: &Change<'_>,
    info: &Info,
    mut applied: Value,
    manager: &str,
) -> Result<(Value, bool)> {
    let old = owners(&applied, "Update");
    for tries in 0.. {
        let Some(fields) = upgraded(&applied["metadata"]["managedFields"], &old, manager) else {
            return Ok((applied, false));
        };
        let patch = json!([
            {"op": "replace", "path": "/metadata/managedFields", "value": fields},
            {"op": "replace", "path": "/metadata/resourceVersion", "value": applied["metadata"]["resourceVersion"]},
        ]);
        match change.session.send(&change.call_as(Call::patch(info.path(), JSON_PATCH, &patch), manager)).await {
            Ok(object) => return Ok((object, true)),
            Err(failure) if failure.reason() == "Conflict" && tries < TRIES => {
                applied = change.session.send(&Call::get(info.path())).await?;
            }
            Err(failure) => return Err(failure),
        }
    }
    Ok((applied, false))
}

/// Who owns the annotation by that operation.
fn owners(object: &Value, operation: &str) -> Vec<String> {
    let entries = object["metadata"]["managedFields"].as_array().into_iter().flatten();
    let owns = |entry: &&Value| {
        let annotation = &entry["fieldsV1"]["f:metadata"]["f:annotations"][format!("f:{LAST_APPLIED}")];
        entry["operation"] == operation && annotation.is_object()
    };
    let mut names: Vec<String> =
        entries.filter(owns).filter_map(|entry| Some(entry["manager"].as_str()?.into())).collect();
    names.sort();
    names.dedup();
    names
}

fn is(entry: &Value, manager: &str, operation: &str) -> bool {
    entry["manager"] == manager
        && entry["operation"] == operation
        && entry["subresource"].as_str().unwrap_or_default().is_empty()
}

/// The entries with those of the old managers joined into the new one's; nothing where that changes nothing.
fn upgraded(entries: &Value, old: &[String], new: &str) -> Option<Value> {
    let before = entries.as_array()?;
    let mut all = before.clone();
    for name in old {
        let target = match all.iter().position(|entry| is(entry, new, "Apply")) {
            Some(at) => at,
            None => {
                // The latest comes first.
                let Some(at) = all.iter().position(|entry| is(entry, name, "Update")) else { continue };
                all[at]["operation"] = "Apply".into();
                all[at]["manager"] = new.into();
                at
            }
        };
        let version = all[target]["apiVersion"].clone();
        let same = all.iter().find(|entry| is(entry, name, "Update") && entry["apiVersion"] == version);
        if let Some(fields) = same.map(|entry| entry["fieldsV1"].clone()) {
            all[target]["fieldsV1"] = union(&all[target]["fieldsV1"], &fields);
        }
        all.retain(|entry| !is(entry, name, "Update"));
    }
    (all != *before).then(|| all.into())
}

/// Both sets of fields. A field that is owned itself, and not only what is in it, says so with a dot.
fn union(one: &Value, other: &Value) -> Value {
    let empty = Map::new();
    let (a, b) = (one.as_object().unwrap_or(&empty), other.as_object().unwrap_or(&empty));
    let owned = |map: &Map<String, Value>| map.is_empty() || map.contains_key(".");
    let mut all = Map::new();
    for (key, value) in a.iter().chain(b).filter(|(key, _)| *key != ".") {
        let joined = match (a.get(key), b.get(key)) {
            (Some(one), Some(other)) => union(one, other),
            _ => value.clone(),
        };
        all.insert(key.clone(), joined);
    }
    if !all.is_empty() && (owned(a) || owned(b)) {
        all.insert(".".into(), json!({}));
    }
    all.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_both_are_owned() {
        let one = json!({"f:data": {"f:a": {}}, "f:spec": {}});
        let other = json!({"f:data": {".": {}, "f:b": {}}, "f:spec": {"f:x": {}}});
        assert_eq!(
            union(&one, &other),
            json!({"f:data": {".": {}, "f:a": {}, "f:b": {}}, "f:spec": {".": {}, "f:x": {}}})
        );
    }

    #[test]
    fn the_old_manager_goes_into_the_new_one() {
        let entry = |manager: &str, operation: &str, key: &str| json!({"manager": manager, "operation": operation, "apiVersion": "v1", "fieldsV1": {"f:data": {key: {}}}});
        let entries =
            json!([entry("kubectl", "Apply", "f:a"), entry("old", "Update", "f:b"), entry("x", "Update", "f:c")]);
        let after = upgraded(&entries, &["old".into()], "kubectl").unwrap();
        assert_eq!(after[0]["fieldsV1"], json!({"f:data": {"f:a": {}, "f:b": {}}}));
        assert_eq!(after.as_array().unwrap().len(), 2);
        assert_eq!(upgraded(&after, &["old".into()], "kubectl"), None);
        let fresh = upgraded(&json!([entry("old", "Update", "f:b")]), &["old".into()], "kubectl").unwrap();
        assert_eq!(fresh, json!([entry("kubectl", "Apply", "f:b")]));
    }
}
