//! `-o custom-columns=NAME:.metadata.name,...`.

use machinery::jsonpath::{self, Template};
use serde_json::Value;

use super::columns::Columns;
use super::json;
use crate::failure::{Failure, Result};

pub(crate) struct CustomColumns {
    columns: Vec<(String, std::result::Result<Template, jsonpath::Error>)>,
}

impl CustomColumns {
    pub(crate) fn parse(text: &str) -> Result<CustomColumns> {
        let mut columns = Vec::new();
        for part in text.split(',') {
            let Some((header, path)) = part.split_once(':') else {
                return Err(Failure::message(format!(
                    "unexpected custom-columns spec: {part}, expected <header>:<json-path-expr>"
                )));
            };
            columns.push((header.to_string(), Template::relaxed(path)));
        }
        Ok(CustomColumns { columns })
    }

    /// Two lines: headers, and paths below them.
    pub(super) fn parse_file(text: &str) -> Result<CustomColumns> {
        let mut lines = text.lines();
        let (Some(headers), Some(paths)) = (lines.next(), lines.next()) else {
            return Err(Failure::message(
                "invalid template, missing spec line. Expected format is one line of space separated headers, one line of space separated column specs.",
            ));
        };
        let (headers, paths): (Vec<&str>, Vec<&str>) =
            (headers.split_whitespace().collect(), paths.split_whitespace().collect());
        if headers.len() != paths.len() {
            return Err(Failure::message(format!(
                "number of headers ({}) and field specifications ({}) don't match",
                headers.len(),
                paths.len()
            )));
        }
        let pairs: Vec<String> = headers.iter().zip(paths).map(|(header, path)| format!("{header}:{path}")).collect();
        CustomColumns::parse(&pairs.join(","))
    }

    pub(crate) fn text(&self, object: &Value, headers: bool) -> Result<String> {
        let mut text = String::new();
        if headers {
            let names: Vec<&str> = self.columns.iter().map(|(header, _)| header.as_str()).collect();
            text += &format!("{}\n", names.join("\t"));
        }
        if let Some(error) = self.columns.iter().find_map(|(_, path)| path.as_ref().err()) {
            // Upstream reads the paths when the header is written already.
            crate::terminal::out(&Columns::table().align(&text));
            return Err(Failure::of(error));
        }
        for item in crate::resource::flatten(object.clone()) {
            let mut cells = Vec::new();
            for template in self.columns.iter().filter_map(|(_, path)| path.as_ref().ok()) {
                let values = template.values(&item).map_err(Failure::of)?;
                let texts: Vec<String> = values.into_iter().map(cell).collect();
                cells.push(if texts.is_empty() { "<none>".into() } else { texts.join(",") });
            }
            text += &format!("{}\n", cells.join("\t"));
        }
        Ok(Columns::table().align(&text))
    }
}

fn cell(value: &Value) -> String {
    match value {
        Value::Object(_) | Value::Array(_) => shown(value),
        other => json::text(other),
    }
}

/// Maps and lists as Go's `%v` prints them.
pub(crate) fn shown(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".into(),
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(shown).collect::<Vec<_>>().join(" ")),
        Value::Object(map) => {
            let entries: Vec<String> = map.iter().map(|(key, value)| format!("{key}:{}", shown(value))).collect();
            format!("map[{}]", entries.join(" "))
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn columns_have_headers_and_paths() {
        let columns = CustomColumns::parse("NAME:.metadata.name,TAGS:.tags[*]").unwrap_or_else(|_| panic!("parses"));
        let list = json!({"kind": "List", "items": [{"metadata": {"name": "a"}, "tags": ["x", "y"]}, {"metadata": {"name": "b"}}]});
        let text = columns.text(&list, true).unwrap_or_default();
        assert_eq!(text, "NAME   TAGS\na      x,y\nb      <none>\n");
        assert!(CustomColumns::parse("NAME").is_err());
    }
}
