//! Kinds that nobody wrote a describer for, custom resources among them: every field under its name in words.

use serde_json::{Map, Value};

use super::{annotations, map, pairs, text};

pub(crate) fn generic(object: &Value) -> String {
    let mut out =
        format!("Name:\t{}\nNamespace:\t{}\n", text(object, "/metadata/name"), text(object, "/metadata/namespace"));
    out += &pairs("Labels", "", &map(object, "/metadata/labels"));
    out += &annotations("Annotations", "", &map(object, "/metadata/annotations"));
    let mut shown = object.as_object().cloned().unwrap_or_default();
    if let Some(metadata) = shown.get_mut("metadata").and_then(Value::as_object_mut) {
        for key in ["name", "namespace", "labels", "annotations", "managedFields"] {
            metadata.remove(key);
        }
    }
    out += &fields(&shown, 0);
    out
}

fn fields(map: &Map<String, Value>, level: usize) -> String {
    let pad = "  ".repeat(level);
    let mut entries: Vec<(&String, &Value)> = map.iter().collect();
    entries.sort_by_key(|(key, _)| *key);
    let mut out = String::new();
    for (key, value) in entries {
        let name = words(key);
        match value {
            Value::Object(inner) if inner.is_empty() => out += &format!("{pad}{name}:\n"),
            Value::Object(inner) => out += &format!("{pad}{name}:\n{}", fields(inner, level + 1)),
            Value::Array(items) => {
                out += &format!("{pad}{name}:\n");
                for item in items {
                    match item {
                        Value::Object(inner) => out += &fields(inner, level + 1),
                        other => out += &format!("{pad}  {}\n", super::plain(other)),
                    }
                }
            }
            Value::Null => out += &format!("{pad}{name}:\t<nil>\n"),
            other => out += &format!("{pad}{name}:\t{}\n", super::plain(other)),
        }
    }
    out
}

/// Words that are written in capitals.
const ACRONYMS: &[&str] = &["API", "URL", "UID", "GUID"];

/// `creationTimestamp` becomes `Creation Timestamp`; a key that is more than letters and dashes stays as it is.
fn words(key: &str) -> String {
    if !key.chars().all(|letter| letter.is_alphabetic() || letter == '-') {
        return key.to_string();
    }
    let mut parts: Vec<String> = Vec::new();
    for part in split(key) {
        // Capitals in a row belong together, whatever follows them: `CIDRs`.
        match parts.last_mut() {
            Some(last) if is_capitals(last) && part.starts_with(char::is_uppercase) => last.push_str(&part),
            _ => parts.push(part),
        }
    }
    let shown = |part: &String| {
        if ACRONYMS.contains(&part.to_uppercase().as_str()) {
            return part.to_uppercase();
        }
        if part.chars().any(char::is_uppercase) {
            part.clone()
        } else {
            part.chars().take(1).flat_map(char::to_uppercase).chain(part.chars().skip(1)).collect()
        }
    };
    parts.iter().map(shown).collect::<Vec<_>>().join(" ")
}

fn is_capitals(part: &str) -> bool {
    part.len() >= 2 && part.chars().all(char::is_uppercase)
}

/// Runs of small letters, of capitals and of dashes; the last capital before small letters begins their word.
fn split(key: &str) -> Vec<String> {
    let class = |letter: char| (letter.is_lowercase(), letter.is_uppercase());
    let mut runs: Vec<String> = Vec::new();
    for letter in key.chars() {
        match runs.last_mut() {
            Some(run) if run.ends_with(|last| class(last) == class(letter)) => run.push(letter),
            _ => runs.push(letter.to_string()),
        }
    }
    for at in 1..runs.len() {
        if runs[at].starts_with(char::is_lowercase)
            && runs[at - 1].ends_with(char::is_uppercase)
            && let Some(capital) = runs[at - 1].pop()
        {
            runs[at].insert(0, capital);
        }
    }
    runs.retain(|run| !run.is_empty());
    runs
}

#[cfg(test)]
mod tests {
    use super::words;

    #[test]
    fn keys_become_words() {
        for (key, shown) in [
            ("kind", "Kind"),
            ("apiVersion", "API Version"),
            ("creationTimestamp", "Creation Timestamp"),
            ("uid", "UID"),
            ("clusterIP", "Cluster IP"),
            ("clusterIPs", "Cluster I Ps"),
            ("podCIDRs", "Pod CIDRs"),
            ("httpURL", "Http URL"),
            ("a-b", "A - B"),
            ("x1", "x1"),
            ("a.b/c", "a.b/c"),
        ] {
            assert_eq!(words(key), shown);
        }
    }
}
