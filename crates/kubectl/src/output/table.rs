//! The server's tables: which columns are shown, and what is added before and behind them.

use serde_json::Value;

/// What `kubectl get` adds to a table, besides its columns.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shape {
    pub wide: bool,
    pub namespace: bool,
    /// `pod/` before each name, where several kinds are shown.
    pub kind: String,
    pub labels: bool,
    pub label_columns: Vec<String>,
    pub headers: bool,
    /// `EVENT` before all columns.
    pub events: bool,
}

/// As wide as the longest: MODIFIED.
const EVENT_WIDTH: usize = 8;

/// The lines of a table, cells between tabs.
pub(crate) fn lines(table: &Value, shape: &Shape, with_header: bool, event: &str) -> String {
    let columns = table["columnDefinitions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let shown: Vec<usize> =
        (0..columns.len()).filter(|at| shape.wide || columns[*at]["priority"].as_i64().unwrap_or(0) == 0).collect();
    let mut text = String::new();
    if with_header && shape.headers {
        let mut cells: Vec<String> = Vec::new();
        if shape.events {
            cells.push(format!("{:EVENT_WIDTH$}", "EVENT"));
        }
        if shape.namespace {
            cells.push("NAMESPACE".into());
        }
        cells.extend(shown.iter().map(|at| columns[*at]["name"].as_str().unwrap_or_default().to_uppercase()));
        cells.extend(shape.label_columns.iter().map(|label| label.rsplit('/').next().unwrap_or(label).to_uppercase()));
        if shape.labels {
            cells.push("LABELS".into());
        }
        text += &format!("{}\n", cells.join("\t"));
    }
    for row in table["rows"].as_array().into_iter().flatten() {
        let metadata = &row["object"]["metadata"];
        let mut cells: Vec<String> = Vec::new();
        if shape.events {
            cells.push(format!("{event:EVENT_WIDTH$}"));
        }
        if shape.namespace {
            cells.push(metadata["namespace"].as_str().unwrap_or_default().into());
        }
        for (place, at) in shown.iter().enumerate() {
            let cell = cell(&row["cells"][*at]);
            let is_name = place == 0 && !shape.kind.is_empty();
            cells.push(if is_name { format!("{}/{cell}", shape.kind) } else { cell });
        }
        let labels = metadata["labels"].as_object();
        for label in &shape.label_columns {
            let value = labels.and_then(|labels| labels.get(label)).and_then(Value::as_str);
            cells.push(value.unwrap_or_default().into());
        }
        if shape.labels {
            cells.push(labels_text(labels));
        }
        text += &format!("{}\n", cells.join("\t"));
    }
    text
}

fn labels_text(labels: Option<&serde_json::Map<String, Value>>) -> String {
    match labels.filter(|labels| !labels.is_empty()) {
        None => "<none>".into(),
        Some(labels) => {
            let texts: Vec<String> =
                labels.iter().map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
            texts.join(",")
        }
    }
}

/// One line, whatever the value has.
fn cell(value: &Value) -> String {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    };
    let text = match text.find(['\n', '\r', '\x0c']) {
        Some(end) => format!("{}...", &text[..end]),
        None => text,
    };
    // A terminal would obey these.
    text.replace('\x1b', "^[").replace('\t', " ")
}

/// A table for objects whose server does not make tables.
pub(crate) fn made(items: &[Value], now: jiff::Timestamp) -> Value {
    let rows: Vec<Value> = items
        .iter()
        .map(|item| {
            let created = item["metadata"]["creationTimestamp"].as_str().unwrap_or_default();
            serde_json::json!({"cells": [item["metadata"]["name"], machinery::kind::since(created, now)], "object": item})
        })
        .collect();
    serde_json::json!({
        "columnDefinitions": [{"name": "Name", "type": "string"}, {"name": "Age", "type": "string"}],
        "rows": rows,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::output::columns::Columns;

    #[test]
    fn tables_have_what_was_asked_for() {
        let table = json!({
            "columnDefinitions": [{"name": "Name", "priority": 0}, {"name": "IP", "priority": 1}],
            "rows": [{"cells": ["a", "1.2.3.4"], "object": {"metadata": {"namespace": "x", "labels": {"app": "web", "t/z": "1"}}}}],
        });
        let plain = Shape { headers: true, ..Shape::default() };
        assert_eq!(lines(&table, &plain, true, ""), "NAME\na\n");
        let all = Shape {
            wide: true,
            namespace: true,
            kind: "pod".into(),
            labels: true,
            label_columns: vec!["t/z".into(), "none".into()],
            headers: true,
            events: true,
        };
        assert_eq!(
            lines(&table, &all, true, "ADDED"),
            "EVENT   \tNAMESPACE\tNAME\tIP\tZ\tNONE\tLABELS\nADDED   \tx\tpod/a\t1.2.3.4\t1\t\tapp=web,t/z=1\n"
        );
        assert_eq!(cell(&json!("a\nb")), "a...");
        assert_eq!(cell(&Value::Null), "");
    }

    /// The cases of upstream's own tests of its table printer.
    #[test]
    fn tables_are_printed_as_upstream_prints_them() {
        for line in include_str!("testdata/tables.jsonl").lines() {
            let case: Value = serde_json::from_str(line).expect("a line is JSON");
            let (options, labels) = (&case["options"], case["options"]["columnLabels"].as_array());
            let shape = Shape {
                wide: options["wide"] == true,
                namespace: options["withNamespace"] == true,
                kind: options["kind"].as_str().unwrap_or_default().to_lowercase(),
                labels: options["showLabels"] == true,
                label_columns: labels.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect(),
                headers: options["noHeaders"] != true,
                events: false,
            };
            let table = json!({"columnDefinitions": case["columns"], "rows": case["rows"]});
            let printed = Columns::table().align(&lines(&table, &shape, true, ""));
            assert_eq!(printed, case["out"].as_str().expect("a text"), "{}", case["name"]);
        }
    }
}
