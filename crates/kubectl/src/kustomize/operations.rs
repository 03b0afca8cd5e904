//! JSON patches of kustomizations, and what upstream says of those that do not fit.

use serde_json::{Value, json};

use crate::failure::{Failure, Result};

/// A text that begins as a list must be JSON: upstream reads only others as YAML.
pub(crate) fn check(list: &str, entry: &Value, text: &str) -> Result<()> {
    if !text.starts_with('[') {
        return Ok(());
    }
    let Err(error) = serde_json::from_str::<Value>(text) else { return Ok(()) };
    let mut config = entry.clone();
    if list == "patches" {
        let (what, source) = if entry["patch"].is_string() {
            ("patch", text)
        } else {
            ("path", entry["path"].as_str().unwrap_or_default())
        };
        return Err(Failure::message(format!(
            "trouble configuring builtin PatchTransformer with config: `\n{}`: unable to parse SM or JSON patch from [{what}: {source:?}]",
            crate::output::yaml::text(&config)
        )));
    }
    if let Some(operations) = config.as_object_mut().and_then(|config| config.remove("patch")) {
        config["jsonOp"] = operations;
    }
    Err(Failure::message(format!(
        "trouble configuring builtin PatchJson6902Transformer with config: `\n{}`: decoding {text}: {}",
        crate::output::yaml::text(&config),
        go_error(text, error.column())
    )))
}

/// Where Go's reader stopped, in its words.
fn go_error(text: &str, column: usize) -> String {
    let at = column.saturating_sub(1).min(text.len());
    let Some(letter) = text[at..].chars().next() else { return "unexpected end of JSON input".into() };
    let looking = match text[..at].trim_end().chars().next_back() {
        Some('{' | ',') => "looking for beginning of object key string",
        _ => "looking for beginning of value",
    };
    format!("invalid character {letter:?} {looking}")
}

/// One operation after the other, so that it can be told which did not fit.
pub(crate) fn apply(object: &mut Value, patch: &Value) -> Result<()> {
    for operation in patch.as_array().into_iter().flatten() {
        let whole = json!([operation]);
        let Err(error) = machinery::patch::json::apply(object, &whole) else { continue };
        let path = operation["path"].as_str().unwrap_or_default();
        let (parent, last) = path.rsplit_once('/').unwrap_or(("", path));
        let has_parent = object.pointer(parent).is_some();
        return Err(Failure::message(match (operation["op"].as_str().unwrap_or_default(), has_parent) {
            ("remove", true) => {
                format!("error in remove for path: '{path}': Unable to remove nonexistent key: {last}: missing value")
            }
            ("remove", false) => {
                format!("remove operation does not apply: doc is missing path: \"{path}\": missing value")
            }
            ("replace", true) => format!("replace operation does not apply: doc is missing key: {path}: missing value"),
            ("replace", false) => {
                format!("replace operation does not apply: doc is missing path: {path}: missing value")
            }
            ("add", false) => format!("add operation does not apply: doc is missing path: \"{path}\": missing value"),
            ("test", true) => format!("testing value {path} failed: test failed"),
            _ => error.to_string(),
        }));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_operation_that_does_not_fit_is_told() {
        let mut object = json!({"spec": {"a": 1}});
        let mut check = |patch: Value, error: &str| assert_eq!(apply(&mut object, &patch).unwrap_err().text(), error);
        check(
            json!([{"op": "replace", "path": "/spec/a", "value": 2}, {"op": "remove", "path": "/spec/b"}]),
            "error in remove for path: '/spec/b': Unable to remove nonexistent key: b: missing value",
        );
        check(
            json!([{"op": "replace", "path": "/spec/b/c", "value": 2}]),
            "replace operation does not apply: doc is missing path: /spec/b/c: missing value",
        );
        assert_eq!(object["spec"]["a"], 2);
    }

    #[test]
    fn lists_must_be_json() {
        let entry = json!({"patch": "[{op: remove}]", "target": {"kind": "Service"}});
        let text = check("patches", &entry, "[{op: remove}]").unwrap_err().text();
        assert!(text.ends_with("unable to parse SM or JSON patch from [patch: \"[{op: remove}]\"]"), "{text}");
        let text = check("patchesJson6902", &entry, "[{op: remove}]").unwrap_err().text();
        assert!(text.ends_with("invalid character 'o' looking for beginning of object key string"), "{text}");
        assert!(check("patches", &entry, "- op: remove").is_ok());
    }
}
