//! `kubectl explain --output=plaintext-openapiv2`: the older form, made of the server's OpenAPI v2 document.

use serde_json::Value;

use crate::failure::{Failure, Result};
use crate::resource::mapping::Mapping;
use crate::session::{Call, Session};

const WIDTH: usize = 80;
const FIELD_INDENT: usize = 3;
const TEXT_INDENT: usize = 5;

/// The text about a kind, or about the field that the path leads to.
pub(crate) async fn text(session: &Session, mapping: &Mapping, path: &[String], recursive: bool) -> Result<String> {
    let document = session.send(&Call::get("/openapi/v2")).await?;
    let definitions = &document["definitions"];
    let is_kind = |schema: &&Value| {
        schema["x-kubernetes-group-version-kind"].as_array().into_iter().flatten().any(|known| {
            known["kind"] == mapping.kind.as_str()
                && known["version"] == mapping.version.as_str()
                && known["group"] == mapping.group.as_str()
        })
    };
    let found = definitions.as_object().into_iter().flatten().map(|(_, schema)| schema).find(is_kind);
    let Some(mut schema) = found else {
        return Err(Failure::message(format!("couldn't find resource for \"{}\"", mapping.api_version())));
    };
    for field in path {
        let holder = kind_of(definitions, schema);
        schema = holder
            .and_then(|holder| holder["properties"].get(field))
            .ok_or_else(|| Failure::message(format!("field {:?} does not exist", path[path.len() - 1])))?;
    }
    let head = format!("KIND:     {}\nVERSION:  {}\n\n", mapping.kind, mapping.api_version());
    Ok(head + &body(definitions, schema, path.last().map_or("", String::as_str), recursive))
}

/// What a schema is, once references are followed.
enum Is<'a> {
    Reference(&'a Value),
    List(&'a Value),
    Map(&'a Value),
    Kind,
    Primitive(&'a str),
    Anything,
}

fn is<'a>(definitions: &'a Value, schema: &'a Value) -> Is<'a> {
    if let Some(name) = schema["$ref"].as_str().and_then(|reference| reference.rsplit('/').next()) {
        return Is::Reference(&definitions[name]);
    }
    match schema["type"].as_str() {
        Some("array") => Is::List(&schema["items"]),
        Some("object") | None if schema["properties"].is_object() => Is::Kind,
        Some("object") => Is::Map(&schema["additionalProperties"]),
        Some(primitive) => Is::Primitive(primitive),
        None => Is::Anything,
    }
}

/// The schema with fields that lists, maps and references lead to.
fn kind_of<'a>(definitions: &'a Value, mut schema: &'a Value) -> Option<&'a Value> {
    loop {
        schema = match is(definitions, schema) {
            Is::Kind => return Some(schema),
            Is::Reference(inner) | Is::List(inner) | Is::Map(inner) => inner,
            Is::Primitive(_) | Is::Anything => return None,
        };
    }
}

fn type_name(definitions: &Value, schema: &Value) -> String {
    match is(definitions, schema) {
        Is::Reference(inner) => type_name(definitions, inner),
        Is::List(inner) => format!("[]{}", type_name(definitions, inner)),
        Is::Map(inner) => format!("map[string]{}", type_name(definitions, inner)),
        Is::Kind => "Object".into(),
        Is::Primitive(name) => name.into(),
        Is::Anything => String::new(),
    }
}

fn body(definitions: &Value, schema: &Value, name: &str, recursive: bool) -> String {
    let kind = type_name(definitions, schema);
    let mut descriptions = Vec::new();
    let mut inner = schema;
    let end = loop {
        descriptions.push(inner["description"].as_str().unwrap_or_default());
        match is(definitions, inner) {
            Is::Reference(next) | Is::List(next) | Is::Map(next) => inner = next,
            end => break end,
        }
    };
    let mut out = match end {
        Is::Kind if !name.is_empty() => format!("RESOURCE: {name} <{kind}>\n\n"),
        Is::Primitive(_) => format!("FIELD:    {name} <{kind}>\n\n"),
        _ => String::new(),
    };
    out += "DESCRIPTION:\n";
    for (at, text) in descriptions.iter().enumerate().filter(|(_, text)| !text.is_empty()) {
        out += if at > 0 { "\n" } else { "" };
        out += &wrapped(text, TEXT_INDENT);
    }
    if descriptions.iter().all(|text| text.is_empty()) {
        out += &wrapped("<empty>", TEXT_INDENT);
    }
    if let Is::Kind = end {
        out += "\nFIELDS:\n";
        out += &if recursive {
            all_fields(definitions, inner, FIELD_INDENT, &mut Vec::new())
        } else {
            fields(definitions, inner)
        };
    }
    out
}

fn fields(definitions: &Value, kind: &Value) -> String {
    let mut out = String::new();
    for (name, field) in kind["properties"].as_object().into_iter().flatten() {
        let required = kind["required"].as_array().is_some_and(|required| required.iter().any(|known| known == name));
        let required = if required { " -required-" } else { "" };
        out += &format!("{:FIELD_INDENT$}{name}\t<{}>{required}\n", "", type_name(definitions, field));
        out += &wrapped(field["description"].as_str().unwrap_or_default(), TEXT_INDENT);
        out += "\n";
    }
    out
}

/// The fields of fields, too; a type inside of itself is named, not followed.
fn all_fields<'a>(
    definitions: &'a Value,
    schema: &'a Value,
    indent: usize,
    followed: &mut Vec<*const Value>,
) -> String {
    match is(definitions, schema) {
        Is::Reference(inner) if followed.contains(&(inner as *const Value)) => String::new(),
        Is::Reference(inner) => {
            followed.push(inner);
            let text = all_fields(definitions, inner, indent, followed);
            followed.pop();
            text
        }
        Is::List(inner) | Is::Map(inner) => all_fields(definitions, inner, indent, followed),
        Is::Kind => {
            let mut out = String::new();
            for (name, field) in schema["properties"].as_object().into_iter().flatten() {
                out += &format!("{:indent$}{name}\t<{}>\n", "", type_name(definitions, field));
                out += &all_fields(definitions, field, indent + FIELD_INDENT, followed);
            }
            out
        }
        Is::Primitive(_) | Is::Anything => String::new(),
    }
}

/// Words in lines of eighty letters. Lines of the text are joined, but for those that begin something.
fn wrapped(text: &str, indent: usize) -> String {
    let mut lines: Vec<String> = Vec::new();
    let mut line = String::new();
    let flush = |line: &mut String, lines: &mut Vec<String>| {
        if !line.is_empty() {
            lines.push(std::mem::take(line));
        }
    };
    for own in text.split('\n') {
        // Code stays as it is.
        if own.starts_with("    ") {
            flush(&mut line, &mut lines);
            lines.push(own.to_string());
            continue;
        }
        if own.trim().is_empty() && !(lines.is_empty() && line.is_empty()) {
            flush(&mut line, &mut lines);
            lines.push(String::new());
            continue;
        }
        if line.ends_with(':') || begins_item(own.trim()) {
            flush(&mut line, &mut lines);
        }
        for word in own.split_whitespace() {
            if !line.is_empty() && line.len() + 1 + word.len() > WIDTH - indent {
                flush(&mut line, &mut lines);
            }
            line += if line.is_empty() { "" } else { " " };
            line += word;
        }
    }
    flush(&mut line, &mut lines);
    let padded = |line: &String| if line.is_empty() { "\n".into() } else { format!("{:indent$}{line}\n", "") };
    lines.iter().map(padded).collect()
}

/// `1. x`, `- x` or `* x`.
fn begins_item(line: &str) -> bool {
    let Some((mark, _)) = line.split_once(char::is_whitespace) else { return false };
    let number = mark.strip_suffix('.').unwrap_or(mark);
    mark == "-" || mark == "*" || (!number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_kind_has_fields_and_a_field_a_type() {
        let definitions = json!({"Inner": {"description": "An inner.", "properties": {"x": {"type": "string"}}}});
        let kind = json!({
            "description": "A kind.",
            "required": ["list"],
            "properties": {"list": {"description": "Some:\n- one\n- two", "type": "array", "items": {"$ref": "#/definitions/Inner"}}},
        });
        let expected = "DESCRIPTION:\n     A kind.\n\nFIELDS:\n   list\t<[]Object> -required-\n     Some:\n     - one\n     - two\n\n";
        assert_eq!(body(&definitions, &kind, "", false), expected);
        let list = &kind["properties"]["list"];
        assert!(
            body(&definitions, list, "list", true).starts_with("RESOURCE: list <[]Object>\n\nDESCRIPTION:\n     Some:")
        );
        assert!(body(&definitions, list, "list", true).ends_with("FIELDS:\n   x\t<string>\n"));
    }
}
