//! The text of a manifest: many documents in one, YAML and JSON, lists of objects. Pure.

use anyhow::{anyhow, bail};
use serde_json::Value;

/// The objects of a text, in their order.
pub fn objects(text: &[u8]) -> anyhow::Result<Vec<Value>> {
    let text = std::str::from_utf8(text).map_err(|_| anyhow!("the file is not UTF-8"))?;
    let mut objects = Vec::new();
    for (line, document) in documents(text) {
        let decoded = machinery::codec::decode_yaml(document.as_bytes());
        let value = decoded.map_err(|error| anyhow!("document at line {line}: {error}"))?.value;
        flatten(value, &mut objects).map_err(|error| anyhow!("document at line {line}: {error}"))?;
    }
    Ok(objects)
}

/// What people know an object by.
pub fn title(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
    let (kind, metadata) = (text(&object["kind"]), &object["metadata"]);
    match metadata["namespace"].as_str() {
        Some(namespace) => format!("{kind} {namespace}/{}", text(&metadata["name"])),
        None => format!("{kind} {}", text(&metadata["name"])),
    }
}

/// The texts between lines of three dashes, each with the number of its first line.
fn documents(text: &str) -> Vec<(usize, String)> {
    let mut documents = vec![(1, String::new())];
    for (number, line) in text.split_inclusive('\n').enumerate() {
        let separator = line.strip_prefix("---").is_some_and(|rest| rest.trim().is_empty() || rest.starts_with(" #"));
        match documents.last_mut() {
            _ if separator => documents.push((number + 2, String::new())),
            Some((_, last)) => last.push_str(line),
            None => {}
        }
    }
    documents.retain(|(_, document)| !document.trim().is_empty());
    documents
}

fn flatten(value: Value, objects: &mut Vec<Value>) -> anyhow::Result<()> {
    if value.is_null() {
        return Ok(());
    }
    let (kind, version) = (value["kind"].as_str().unwrap_or(""), value["apiVersion"].as_str().unwrap_or(""));
    if kind.is_empty() || version.is_empty() {
        bail!("an object needs apiVersion and kind");
    }
    if kind.ends_with("List")
        && let Some(items) = value["items"].as_array()
    {
        return items.iter().try_for_each(|item| flatten(item.clone(), objects));
    }
    if value["metadata"]["name"].as_str().unwrap_or("").is_empty() {
        bail!("{kind} has no name");
    }
    objects.push(value);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_holds_many_objects() {
        let check = |text: &str, expected: &[&str]| {
            let titles: Vec<String> = objects(text.as_bytes()).unwrap().iter().map(title).collect();
            assert_eq!(titles, expected, "{text}");
        };
        let object = |kind: &str, name: &str| format!("apiVersion: v1\nkind: {kind}\nmetadata: {{name: {name}}}\n");
        check(&format!("# first\n---\n{}---\n{}---\n", object("A", "a"), object("B", "b")), &["A a", "B b"]);
        check(
            "{\"apiVersion\": \"v1\", \"kind\": \"A\", \"metadata\": {\"name\": \"a\", \"namespace\": \"x\"}}",
            &["A x/a"],
        );
        let list = "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: A, metadata: {name: a}}\n- {apiVersion: v1, kind: B, metadata: {name: b}}\n";
        check(list, &["A a", "B b"]);
        check("", &[]);
    }

    #[test]
    fn what_is_no_object_is_said_with_its_line() {
        for (text, expected) in [
            ("a: b: c", "line 1: "),
            (
                "apiVersion: v1\nkind: A\nmetadata: {name: a}\n---\nkind: B\n",
                "line 5: an object needs apiVersion and kind",
            ),
            ("apiVersion: v1\nkind: A\n", "A has no name"),
        ] {
            let error = objects(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        assert!(objects(&[0xff, 0xfe]).is_err());
    }
}
