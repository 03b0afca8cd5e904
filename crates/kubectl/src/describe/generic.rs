//! Kinds that nobody wrote a describer for, custom resources among them: every field under its name in words.

use serde_json::{Map, Value};

use super::{annotations, map, pairs, text};

pub fn generic(object: &Value) -> String {
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
    let mut entries: Vec<(String, &Value)> = map.iter().map(|(key, value)| (words(key), value)).collect();
    entries.sort_by(|one, other| one.0.cmp(&other.0));
    let mut out = String::new();
    for (name, value) in entries {
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

/// `creationTimestamp` becomes `Creation Timestamp`; capitals in a row stay together.
fn words(key: &str) -> String {
    if key.contains(['/', '.', '-', '_']) || key.is_empty() {
        return key.to_string();
    }
    let letters: Vec<char> = key.chars().collect();
    let mut out = String::new();
    for (at, letter) in letters.iter().enumerate() {
        if at == 0 {
            out.extend(letter.to_uppercase());
            continue;
        }
        let after_small = letters[at - 1].is_lowercase() || letters[at - 1].is_ascii_digit();
        let before_small = letters.get(at + 1).is_some_and(|next| next.is_lowercase());
        if letter.is_uppercase() && (after_small || (letters[at - 1].is_uppercase() && before_small)) {
            out.push(' ');
        }
        out.push(*letter);
    }
    match out.as_str() {
        "Api Version" => "API Version".into(),
        "Api Groups" => "API Groups".into(),
        "Uid" => "UID".into(),
        _ => out,
    }
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
            ("a.b/c", "a.b/c"),
        ] {
            assert_eq!(words(key), shown);
        }
    }
}
