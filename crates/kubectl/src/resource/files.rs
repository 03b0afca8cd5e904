//! Manifests: files, folders, standard input, many documents in one, YAML and JSON.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::failure::{Failure, Result};
use crate::terminal;

pub(super) fn is_url(path: &str) -> bool {
    path.starts_with("http://") || path.starts_with("https://")
}

/// Every document of the named files with the name it has in messages.
pub(crate) fn read(paths: &[String], recursive: bool) -> Result<Vec<(String, Value)>> {
    let mut found = Vec::new();
    for path in paths {
        if path == "-" {
            found.extend(documents("STDIN", &terminal::input()?)?);
        } else if path.contains(['*', '?', '[']) && !Path::new(path).exists() {
            let matched = glob(path);
            if matched.is_empty() {
                return Err(Failure::message(format!("the path {path:?} does not exist")));
            }
            for file in matched {
                found.extend(from_path(&file, recursive)?);
            }
        } else {
            found.extend(from_path(Path::new(path), recursive)?);
        }
    }
    Ok(found)
}

fn from_path(path: &Path, recursive: bool) -> Result<Vec<(String, Value)>> {
    let shown = path.display().to_string();
    let Ok(about) = std::fs::metadata(path) else {
        return Err(Failure::message(format!("the path {shown:?} does not exist")));
    };
    if !about.is_dir() {
        let bytes = std::fs::read(path)
            .map_err(|error| Failure::message(format!("open {shown}: {}", crate::failure::go_io_error(&error))))?;
        return documents(&shown, &bytes);
    }
    let mut files = Vec::new();
    walk(path, recursive, &mut files)?;
    if files.is_empty() {
        return Err(Failure::message(format!(
            "error reading [{shown}]: recognized file extensions are [.json .yaml .yml]"
        )));
    }
    let mut found = Vec::new();
    for file in files {
        found.extend(documents(&file.display().to_string(), &std::fs::read(&file)?)?);
    }
    Ok(found)
}

fn walk(folder: &Path, recursive: bool, files: &mut Vec<PathBuf>) -> Result<()> {
    let mut entries: Vec<PathBuf> = std::fs::read_dir(folder)?.filter_map(|entry| Some(entry.ok()?.path())).collect();
    entries.sort();
    for entry in entries {
        if entry.is_dir() {
            if recursive {
                walk(&entry, recursive, files)?;
            }
        } else if entry
            .extension()
            .is_some_and(|extension| ["json", "yaml", "yml"].iter().any(|known| extension == *known))
        {
            files.push(entry);
        }
    }
    Ok(())
}

/// `*` and `?` in the last part of a path, for shells that did not expand them.
fn glob(pattern: &str) -> Vec<PathBuf> {
    let path = Path::new(pattern);
    let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return Vec::new() };
    let mut expression = String::from("^");
    for letter in name.chars() {
        match letter {
            '*' => expression.push_str(".*"),
            '?' => expression.push('.'),
            other => expression.push_str(&regex::escape(&other.to_string())),
        }
    }
    let Ok(expression) = regex::Regex::new(&(expression + "$")) else { return Vec::new() };
    let entries = std::fs::read_dir(folder).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    let is_match = |entry: &PathBuf| {
        entry.file_name().and_then(|name| name.to_str()).is_some_and(|name| expression.is_match(name))
    };
    let mut found: Vec<PathBuf> = entries.filter(is_match).collect();
    found.sort();
    found
}

/// The documents of one text.
pub(crate) fn documents(source: &str, bytes: &[u8]) -> Result<Vec<(String, Value)>> {
    let text = String::from_utf8_lossy(bytes);
    let mut found = Vec::new();
    for document in split(&text) {
        if document.trim_start().starts_with('{') {
            let stream = serde_json::Deserializer::from_str(&document).into_iter::<Value>();
            if let Ok(values) = stream.collect::<std::result::Result<Vec<Value>, _>>() {
                found.extend(values.into_iter().map(|value| (source.to_string(), value)));
                continue;
            }
        }
        if document.starts_with('\t') {
            return Err(Failure::message(format!(
                "error parsing {source}: error converting YAML to JSON: yaml: found character that cannot start any token"
            )));
        }
        let value = machinery::codec::decode_yaml(document.as_bytes())
            .map_err(|error| {
                // Upstream names no line where it is the first.
                let why = error.to_string().replace("yaml: line 1: ", "yaml: ");
                Failure::message(format!("error parsing {source}: error converting YAML to JSON: {why}"))
            })?
            .value;
        match value {
            Value::Null => {}
            value => found.push((source.to_string(), value)),
        }
    }
    Ok(found)
}

/// The texts between lines of three dashes.
fn split(text: &str) -> Vec<String> {
    let mut documents = vec![String::new()];
    for line in text.split_inclusive('\n') {
        let separator = line.strip_prefix("---").is_some_and(|rest| rest.trim().is_empty() || rest.starts_with(" #"));
        match documents.last_mut() {
            _ if separator => documents.push(String::new()),
            Some(last) => last.push_str(line),
            None => {}
        }
    }
    documents.retain(|document| !document.trim().is_empty());
    documents
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_holds_many_documents() {
        let check = |text: &str, count: usize| {
            let found = documents("x", text.as_bytes()).unwrap_or_else(|failure| panic!("{}", failure.text()));
            assert_eq!(found.len(), count, "{text:?}");
        };
        check("a: 1\n---\nb: 2\n", 2);
        check("---\n---\na: 1\n---\n# only a comment\n", 1);
        check("{\"a\": 1}\n{\"b\": 2}", 2);
        check("---\n{a: 1}\n---\n{b: 2}\n", 2);
        check("", 0);
        check("a: |\n  ---x\n", 1);
        let refused = documents("x.yaml", b"a: b: c").unwrap_err();
        assert!(refused.text().starts_with("error parsing x.yaml: error converting YAML to JSON: yaml: "));
    }
}
