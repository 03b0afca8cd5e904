//! `replacements`: a value of one resource becomes a value of others.

use std::path::Path;

use serde_json::{Value, json};

use super::transform::selected;
use super::{Resource, read_inside};
use crate::failure::{Failure, Result};

pub(crate) fn all(folder: &Path, kustomization: &Value, resources: &mut [Resource]) -> Result<()> {
    for entry in kustomization["replacements"].as_array().into_iter().flatten() {
        let entries = match entry["path"].as_str() {
            None => vec![entry.clone()],
            Some(path) => {
                let bytes = read_inside(folder, path)?;
                let documents = crate::resource::files::documents(path, &bytes)?;
                // One replacement, or a list of them.
                documents
                    .into_iter()
                    .flat_map(|(_, value)| match value {
                        Value::Array(items) => items,
                        one => vec![one],
                    })
                    .collect()
            }
        };
        for entry in entries {
            one(&entry, resources)?;
        }
    }
    Ok(())
}

fn one(entry: &Value, resources: &mut [Resource]) -> Result<()> {
    let source = &entry["source"];
    let mut value = taken(source, resources)?;
    value = piece(&value, &source["options"])?;
    for target in entry["targets"].as_array().into_iter().flatten() {
        let paths: Vec<&str> = match target["fieldPaths"].as_array() {
            Some(paths) => paths.iter().filter_map(Value::as_str).collect(),
            None => vec!["metadata.name"],
        };
        for resource in resources.iter_mut() {
            let rejected = target["reject"].as_array().into_iter().flatten();
            let rejected = rejected.map(|reject| selected(resource, &whole(reject))).collect::<Result<Vec<bool>>>()?;
            if !selected(resource, &whole(&target["select"]))? || rejected.contains(&true) {
                continue;
            }
            for path in &paths {
                let create = target["options"]["create"] == true;
                let steps = steps(path);
                let mut changed = 0;
                put(&mut resource.object, &steps, &value, &target["options"], create, &mut changed)?;
                if changed == 0 {
                    return Err(Failure::message(format!("unable to find field {path:?} in replacement target")));
                }
            }
        }
    }
    Ok(())
}

/// A selector whose texts are names, not patterns.
fn whole(select: &Value) -> Value {
    let mut exact = select.clone();
    for key in ["group", "version", "kind", "name", "namespace"] {
        if let Some(text) = select[key].as_str() {
            exact[key] = regex::escape(text).into();
        }
    }
    exact
}

/// `Deployment.[noVer].[noGrp]/[noName].[noNs]`.
fn described(select: &Value) -> String {
    let text = |key: &str, none: &str| match select[key].as_str() {
        Some(text) if !text.is_empty() => text.to_string(),
        _ => none.to_string(),
    };
    format!(
        "{}.{}.{}/{}.{}",
        text("kind", "[noKind]"),
        text("version", "[noVer]"),
        text("group", "[noGrp]"),
        text("name", "[noName]"),
        text("namespace", "[noNs]")
    )
}

fn taken(source: &Value, resources: &[Resource]) -> Result<Value> {
    let path = source["fieldPath"].as_str().unwrap_or("metadata.name");
    let mut found: Vec<&Resource> = Vec::new();
    for resource in resources {
        if selected(resource, &whole(source))? {
            found.push(resource);
        }
    }
    let [resource] = found[..] else {
        return Err(Failure::message(match found.len() {
            0 => format!("nothing selected by {}:{path}", described(source)),
            _ => format!("multiple matches for selector {}:{path}", described(source)),
        }));
    };
    let mut current = &resource.object;
    for step in steps(path) {
        let next = match &step {
            Step::Key(key) => match current {
                Value::Array(items) => key.parse::<usize>().ok().and_then(|at| items.get(at)),
                other => other.get(key),
            },
            Step::Match(key, value) => {
                current.as_array().into_iter().flatten().find(|item| item[key.as_str()] == value.as_str())
            }
            Step::All => current.as_array().and_then(|items| items.first()),
        };
        current = next.ok_or_else(|| {
            Failure::message(format!("fieldPath `{path}` is missing for replacement source {}", described(source)))
        })?;
    }
    Ok(current.clone())
}

/// With a delimiter, one of the pieces.
fn piece(value: &Value, options: &Value) -> Result<Value> {
    let Some(delimiter) = options["delimiter"].as_str() else { return Ok(value.clone()) };
    let text = plain(value);
    let at = options["index"].as_i64().unwrap_or(0);
    match usize::try_from(at).ok().and_then(|at| text.split(delimiter).nth(at)) {
        Some(piece) => Ok(piece.into()),
        None => Err(Failure::message(format!("options.index {at} is out of bounds for value {text}"))),
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_string)
}

#[derive(Debug, PartialEq)]
enum Step {
    Key(String),
    /// `[name=main]`.
    Match(String, String),
    /// `*`.
    All,
}

/// `spec.containers.[name=main].image`; a dot inside of a name is written `\.` or the name stands in brackets.
fn steps(path: &str) -> Vec<Step> {
    let mut parts = vec![String::new()];
    let (mut inside, mut escaped) = (false, false);
    for letter in path.chars() {
        match letter {
            _ if escaped => {
                parts.last_mut().expect("there is a part").push(letter);
                escaped = false;
            }
            '\\' => escaped = true,
            '.' if !inside => parts.push(String::new()),
            letter => {
                inside = (inside || letter == '[') && letter != ']';
                parts.last_mut().expect("there is a part").push(letter);
            }
        }
    }
    let step = |part: String| match part.strip_prefix('[').and_then(|part| part.strip_suffix(']')) {
        _ if part == "*" => Step::All,
        Some(inner) => match inner.split_once('=') {
            Some((key, value)) => Step::Match(key.into(), value.into()),
            None => Step::Key(inner.into()),
        },
        None => Step::Key(part),
    };
    parts.into_iter().filter(|part| !part.is_empty()).map(step).collect()
}

fn put(
    place: &mut Value,
    steps: &[Step],
    value: &Value,
    options: &Value,
    create: bool,
    changed: &mut usize,
) -> Result<()> {
    let Some((step, rest)) = steps.split_first() else {
        *place = inserted(place, value, options)?;
        *changed += 1;
        return Ok(());
    };
    match step {
        Step::All => {
            for item in place.as_array_mut().into_iter().flatten() {
                put(item, rest, value, options, create, changed)?;
            }
        }
        Step::Match(key, wanted) => {
            if place.is_null() && create {
                *place = json!([]);
            }
            let Some(items) = place.as_array_mut() else { return Ok(()) };
            if create && !items.iter().any(|item| item[key.as_str()] == wanted.as_str()) {
                items.push(json!({key: wanted}));
            }
            for item in items.iter_mut().filter(|item| item[key.as_str()] == wanted.as_str()) {
                put(item, rest, value, options, create, changed)?;
            }
        }
        Step::Key(key) => match place {
            Value::Array(items) => {
                let at = if key == "-" { items.len().checked_sub(1) } else { key.parse::<usize>().ok() };
                if let Some(item) = at.and_then(|at| items.get_mut(at)) {
                    put(item, rest, value, options, create, changed)?;
                }
            }
            Value::Object(map) if map.contains_key(key) => {
                put(&mut map[key.as_str()], rest, value, options, create, changed)?
            }
            Value::Object(_) | Value::Null if create => {
                put(&mut place[key.as_str()], rest, value, options, create, changed)?
            }
            _ => {}
        },
    }
    Ok(())
}

/// The new value of a field: all of it, or with a delimiter one piece.
fn inserted(old: &Value, value: &Value, options: &Value) -> Result<Value> {
    let Some(delimiter) = options["delimiter"].as_str().filter(|_| !old.is_null()) else {
        return Ok(match (old, value) {
            // A field that is a text stays one; a new field is what its text looks like.
            (Value::String(_), _) => plain(value).into(),
            (Value::Null, Value::String(text)) => looks_like(text),
            _ => value.clone(),
        });
    };
    let text = plain(old);
    let mut pieces: Vec<String> = text.split(delimiter).map(str::to_string).collect();
    let at = options["index"].as_i64().unwrap_or(0);
    match at {
        at if at < 0 => pieces.insert(0, plain(value)),
        at if at as usize >= pieces.len() => pieces.push(plain(value)),
        at => pieces[at as usize] = plain(value),
    }
    Ok(pieces.join(delimiter).into())
}

/// A number or a switch, where YAML would read the text as one.
fn looks_like(text: &str) -> Value {
    match machinery::codec::decode_yaml(text.as_bytes()).map(|decoded| decoded.value) {
        Ok(Value::Number(number)) => match number.as_f64() {
            Some(whole) if !number.is_i64() && whole.fract() == 0.0 && whole.abs() < 1e15 => (whole as i64).into(),
            _ => Value::Number(number),
        },
        Ok(value @ Value::Bool(_)) => value,
        _ => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_go_from_one_to_another() {
        let resource = |object: Value| Resource {
            first_name: object["metadata"]["name"].as_str().unwrap_or_default().into(),
            object,
            hashed: false,
            origin: Default::default(),
        };
        let mut resources = [
            resource(json!({"kind": "Service", "metadata": {"name": "s"}, "spec": {"ports": [{"port": 81}]}})),
            resource(
                json!({"kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "a", "image": "x:1"}, {"name": "b", "image": "y:1"}]}}),
            ),
        ];
        let check = |entry: Value, resources: &mut [Resource]| one(&entry, resources).map_err(|failure| failure.text());
        let entry = json!({"source": {"kind": "Service", "fieldPath": "spec.ports.0.port"},
            "targets": [{"select": {"kind": "Pod"}, "fieldPaths": ["spec.containers.[name=a].image"], "options": {"delimiter": ":", "index": 1}},
                {"select": {"kind": "Pod"}, "fieldPaths": ["metadata.annotations.a\\.b/c"], "options": {"create": true}}]});
        check(entry, &mut resources).unwrap();
        assert_eq!(resources[1].object["spec"]["containers"][0]["image"], "x:81");
        assert_eq!(resources[1].object["spec"]["containers"][1]["image"], "y:1");
        assert_eq!(resources[1].object["metadata"]["annotations"]["a.b/c"], 81);
        let missing = json!({"source": {"kind": "Pod", "fieldPath": "spec.none"}, "targets": []});
        let text = "fieldPath `spec.none` is missing for replacement source Pod.[noVer].[noGrp]/[noName].[noNs]";
        assert_eq!(check(missing, &mut resources).unwrap_err(), text);
        let nobody = json!({"source": {"kind": "Job", "fieldPath": "a"}, "targets": []});
        assert!(check(nobody, &mut resources).unwrap_err().starts_with("nothing selected by Job."));
        let nowhere = json!({"source": {"kind": "Pod"}, "targets": [{"select": {"kind": "Service"}, "fieldPaths": ["spec.x.y"]}]});
        assert_eq!(
            check(nowhere, &mut resources).unwrap_err(),
            "unable to find field \"spec.x.y\" in replacement target"
        );
    }
}
