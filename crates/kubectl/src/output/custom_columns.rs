//! `-o custom-columns=NAME:.metadata.name,...`.

use machinery::jsonpath::{self, Template};
use serde_json::Value;

use super::columns::Columns;
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

/// Without what would move the cursor of a terminal.
fn cell(value: &Value) -> String {
    shown(value).replace('\x1b', "^[").replace('\r', "\\r")
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
        let refused = CustomColumns::parse("NAME").err().map(|failure| failure.text());
        let why = "unexpected custom-columns spec: NAME, expected <header>:<json-path-expr>";
        assert_eq!(refused.as_deref(), Some(why));
    }

    #[test]
    fn cells_are_as_go_prints_them() {
        let object = json!({"kind": "X", "v": {"text": "a", "number": 1.5, "yes": true, "list": [1, "b", null],
            "map": {"z": 1, "a": {"b": []}}, "escape": "\u{1b}[31m\r", "deep": [{"n": 1}, {"n": 2}]}});
        let check = |path: &str, expected: &str| {
            let columns =
                CustomColumns::parse(&format!("V:{path}")).unwrap_or_else(|failure| panic!("{}", failure.text()));
            let text = columns.text(&object, false).unwrap_or_else(|failure| panic!("{}", failure.text()));
            assert_eq!(text.trim_end(), expected, "{path}");
        };
        check(".v.text", "a");
        check("v.number", "1.5");
        check("{.v.yes}", "true");
    }

    #[test]
    fn a_file_has_headers_above_paths() {
        let parsed =
            CustomColumns::parse_file("NAME  KIND\n.metadata.name .kind\n").unwrap_or_else(|_| panic!("parses"));
        let object = json!({"kind": "X", "metadata": {"name": "a"}});
        assert_eq!(parsed.text(&object, true).unwrap_or_default(), "NAME   KIND\na      X\n");
        let refused =
            |text: &str| CustomColumns::parse_file(text).err().map(|failure| failure.text()).unwrap_or_default();
        assert!(refused("NAME").starts_with("invalid template, missing spec line."));
        assert_eq!(refused("A B\n.a"), "number of headers (2) and field specifications (1) don't match");
    }
}
