//! `kubectl explain`: what the server's OpenAPI documents say of a kind or a field.

use serde_json::Value;

use crate::command::Command;
use crate::failure::{Failure, Result};
use crate::flags::{Flag, Parsed};
use crate::resource::mapping::Mapping;
use crate::session::{Call, Session};
use crate::terminal;

pub(super) static COMMAND: Command = Command {
    name: "explain",
    group: super::INTERMEDIATE,
    short: "Get documentation for a resource.",
    examples: "kubectl explain pods\nkubectl explain deployment.spec.strategy\nkubectl explain pod --recursive",
    usage: "TYPE [--recursive=FALSE|TRUE] [--api-version=api-version-group] [-o|--output=plaintext|plaintext-openapiv2] [options]",
    flags: &[FLAGS],
    run: Some(|session| Box::pin(run(session))),
    ..Command::EMPTY
};

const FLAGS: &[Flag] = &[
    Flag::text("api-version", "", "The group and version to explain."),
    Flag::text("output", "plaintext", "plaintext or plaintext-openapiv2.").short('o'),
    Flag::switch("recursive", "The fields of fields too.").short('R'),
];

async fn run(session: &Session) -> Result<()> {
    let flags = &session.flags;
    let path = check(flags)?;
    let (kind, fields) = split(session, path).await?;
    let mapping = match flags.text("api-version") {
        "" => kind,
        version => session.mapping_of_kind(version, &kind.kind).await?.ok_or_else(|| {
            let slash = if version.contains('/') { "" } else { "/" };
            Failure::message(format!("couldn't find resource for \"{slash}{version}, Resource={}\"", kind.plural))
        })?,
    };
    if flags.text("output") == "plaintext-openapiv2" {
        terminal::out(&super::explain_v2::text(session, &mapping, &fields, flags.on("recursive")).await?);
        return Ok(());
    }
    let path = match mapping.group.as_str() {
        "" => format!("/openapi/v3/api/{}", mapping.version),
        group => format!("/openapi/v3/apis/{group}/{}", mapping.version),
    };
    let document = session.send(&Call::get(path)).await?;
    let schemas = &document["components"]["schemas"];
    let schema = schema_of(schemas, &mapping)?;
    let mut out = String::new();
    if !mapping.group.is_empty() {
        out += &format!("GROUP:      {}\n", mapping.group);
    }
    out += &format!("KIND:       {}\nVERSION:    {}\n\n", mapping.kind, mapping.version);
    let found = fields.iter().try_fold(Shown { schema, descriptions: texts(schema), name: None }, |shown, field| {
        step(schemas, shown.schema, field)
    });
    let Some(shown) = found else {
        terminal::out(&out);
        // Upstream names the end of the path, wherever on the way it ended.
        let last = fields.last().map(String::as_str).unwrap_or_default();
        return Err(Failure::message(format!("field {last:?} does not exist")));
    };
    out += &shown.text(schemas, flags.on("recursive"));
    terminal::out(&out);
    Ok(())
}

fn check(flags: &Parsed) -> Result<&str> {
    let [path] = &flags.arguments[..] else {
        return Err(Failure::message(match flags.arguments.len() {
            0 => {
                "You must specify the type of resource to explain. Use \"kubectl api-resources\" for a complete list of supported resources."
            }
            _ => "We accept only this format: explain RESOURCE",
        }));
    };
    match flags.text("output") {
        "plaintext" | "plaintext-openapiv2" => Ok(path),
        other => Err(Failure::message(format!("unrecognized format: {other}"))),
    }
}

fn schema_of<'a>(schemas: &'a Value, mapping: &Mapping) -> Result<&'a Value> {
    let is_kind = |schema: &&Value| {
        schema["x-kubernetes-group-version-kind"].as_array().into_iter().flatten().any(|known| {
            known["kind"] == mapping.kind.as_str()
                && known["version"] == mapping.version.as_str()
                && known["group"] == mapping.group.as_str()
        })
    };
    let mut all = schemas.as_object().into_iter().flatten().map(|(_, schema)| schema);
    all.find(is_kind)
        .ok_or_else(|| Failure::message(format!("GVK {} not found in OpenAPI schema", mapping.api_version())))
}

/// `pods.spec.containers` is a resource and fields; where the resource is written in full, its group may follow it:
/// `deployments.apps.spec`.
async fn split(session: &Session, path: &str) -> Result<(Mapping, Vec<String>)> {
    let name = path.split('.').next().unwrap_or_default();
    let mapping = session.mapping(name).await.map_err(|failure| Failure::Plain(failure.text()))?;
    let full = mapping.resource();
    let rest = path.strip_prefix(&full).filter(|rest| rest.is_empty() || rest.starts_with('.'));
    let rest = rest.unwrap_or(&path[name.len()..]);
    Ok((mapping, rest.split('.').filter(|part| !part.is_empty()).map(str::to_string).collect()))
}

/// A schema on the way, with what is said of it where it is used and where it is defined.
struct Shown<'a> {
    schema: &'a Value,
    descriptions: Vec<&'a str>,
    name: Option<(String, &'a Value)>,
}

fn texts(schema: &Value) -> Vec<&str> {
    schema["description"].as_str().into_iter().filter(|text| !text.is_empty()).collect()
}

/// Follows references, which stand alone or inside of `allOf`.
fn resolve<'a>(schemas: &'a Value, schema: &'a Value) -> &'a Value {
    let reference = schema["$ref"].as_str().or(schema["allOf"][0]["$ref"].as_str());
    match reference {
        Some(reference) => &schemas[reference.rsplit('/').next().unwrap_or_default()],
        None => schema,
    }
}

fn step<'a>(schemas: &'a Value, schema: &'a Value, field: &str) -> Option<Shown<'a>> {
    let mut holder = resolve(schemas, schema);
    let mut depth = 0;
    while holder["properties"].is_null() && depth < 8 {
        holder = resolve(
            schemas,
            if holder["items"].is_object() { &holder["items"] } else { &holder["additionalProperties"] },
        );
        depth += 1;
    }
    let used = holder["properties"].get(field)?;
    let mut descriptions = texts(used);
    let mut inner = resolve(schemas, used);
    if !std::ptr::eq(inner, used) {
        descriptions.extend(texts(inner));
    }
    // What a list or map holds is described too.
    let mut depth = 0;
    while depth < 8 {
        let next = if inner["items"].is_object() {
            &inner["items"]
        } else if inner["additionalProperties"].is_object() {
            &inner["additionalProperties"]
        } else {
            break;
        };
        let target = resolve(schemas, next);
        descriptions.extend(texts(next));
        if !std::ptr::eq(target, next) {
            descriptions.extend(texts(target));
        }
        inner = target;
        depth += 1;
    }
    Some(Shown { schema: used, descriptions, name: Some((field.to_string(), used)) })
}

/// `string`, `[]Container`, `map[string]Quantity`, `ObjectMeta`.
fn type_name(schemas: &Value, schema: &Value) -> String {
    if let Some(reference) = schema["$ref"].as_str().or(schema["allOf"][0]["$ref"].as_str()) {
        let name = reference.rsplit('/').next().unwrap_or_default();
        let target = &schemas[name];
        // Names for plain values are shown as what they are.
        return match target["type"].as_str() {
            Some(kind @ ("string" | "integer" | "number" | "boolean"))
                if !name.ends_with("Quantity") && !name.ends_with("IntOrString") =>
            {
                kind.to_string()
            }
            _ => name.rsplit('.').next().unwrap_or(name).to_string(),
        };
    }
    match schema["type"].as_str() {
        Some("array") => format!("[]{}", type_name(schemas, &schema["items"])),
        Some("object") if schema["additionalProperties"].is_object() => {
            format!("map[string]{}", type_name(schemas, &schema["additionalProperties"]))
        }
        Some("object") => "Object".into(),
        Some(kind) => kind.to_string(),
        None => "Object".into(),
    }
}

fn enumeration<'a>(schemas: &'a Value, schema: &'a Value) -> Vec<String> {
    let target = resolve(schemas, schema);
    let values = if schema["enum"].is_array() { &schema["enum"] } else { &target["enum"] };
    values
        .as_array()
        .into_iter()
        .flatten()
        .map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_string))
        .collect()
}

impl Shown<'_> {
    fn text(&self, schemas: &Value, recursive: bool) -> String {
        let mut out = String::new();
        if let Some((name, used)) = &self.name {
            out += &format!("FIELD: {name} <{}>\n", type_name(schemas, used));
            let values = enumeration(schemas, used);
            if values.is_empty() {
                out += "\n\n";
            } else {
                out += "ENUM:\n";
                values
                    .iter()
                    .for_each(|value| out += &format!("    {}\n", if value.is_empty() { "\"\"" } else { value }));
                out += "\n";
            }
        }
        out += "DESCRIPTION:\n";
        if self.descriptions.is_empty() {
            out += "    <empty>\n";
        }
        self.descriptions.iter().for_each(|text| out += &wrapped(text, 4));
        out += "    \n";
        let mut holder = resolve(schemas, self.schema);
        let mut depth = 0;
        while holder["properties"].is_null()
            && depth < 8
            && (holder["items"].is_object() || holder["additionalProperties"].is_object())
        {
            holder = resolve(
                schemas,
                if holder["items"].is_object() { &holder["items"] } else { &holder["additionalProperties"] },
            );
            depth += 1;
        }
        if holder["properties"].is_object() {
            out += "FIELDS:\n";
            out += &fields(schemas, holder, 1, recursive, &mut Vec::new());
        }
        out + "\n"
    }
}

fn fields<'a>(
    schemas: &'a Value,
    holder: &'a Value,
    level: usize,
    recursive: bool,
    seen: &mut Vec<*const Value>,
) -> String {
    let pad = "  ".repeat(level);
    let required: Vec<&str> = holder["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let mut out = String::new();
    for (name, used) in holder["properties"].as_object().into_iter().flatten() {
        let needed = if required.contains(&name.as_str()) { " -required-" } else { "" };
        out += &format!("{pad}{name}\t<{}>{needed}\n", type_name(schemas, used));
        let values: Vec<String> = enumeration(schemas, used)
            .into_iter()
            .map(|value| if value.is_empty() { "\"\"".into() } else { value })
            .collect();
        if !values.is_empty() {
            // A line of many values is cut after the fourth.
            let shown = if values.len() > 4 { format!("{}, ....", values[..4].join(", ")) } else { values.join(", ") };
            out += &format!("{pad}enum: {shown}\n");
        }
        if !recursive {
            let texts: Vec<&str> = used["description"].as_str().into_iter().collect();
            match texts.first().filter(|text| !text.is_empty()) {
                Some(text) => out += &wrapped(text, 4),
                None => out += "    <no description>\n",
            }
            out += "\n";
            continue;
        }
        let mut inner = resolve(schemas, used);
        let mut depth = 0;
        while inner["properties"].is_null()
            && depth < 8
            && (inner["items"].is_object() || inner["additionalProperties"].is_object())
        {
            inner = resolve(
                schemas,
                if inner["items"].is_object() { &inner["items"] } else { &inner["additionalProperties"] },
            );
            depth += 1;
        }
        let place = inner as *const Value;
        // A type inside of itself is named, not followed.
        if inner["properties"].is_object() && !seen.contains(&place) {
            seen.push(place);
            out += &fields(schemas, inner, level + 1, recursive, seen);
            seen.pop();
        }
    }
    out
}

/// Words in lines of eighty letters. The text's own lines and the space before them stay.
fn wrapped(text: &str, indent: usize) -> String {
    let pad = " ".repeat(indent);
    let width = 80 - indent;
    let mut out = String::new();
    for paragraph in text.trim_end().split('\n') {
        let mut line = String::new();
        for word in words(paragraph.trim_end()) {
            if !line.trim_end().is_empty() && line.chars().count() + word.trim_end().chars().count() > width {
                out += &format!("{pad}{}\n", line.trim_end());
                line.clear();
            }
            line.push_str(word);
        }
        out += &format!("{pad}{}\n", line.trim_end());
    }
    out
}

/// Words with the space behind them.
fn words(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut start = 0;
    let mut in_space = false;
    for (at, letter) in text.char_indices() {
        if letter == ' ' {
            in_space = true;
        } else if in_space {
            found.push(&text[start..at]);
            start = at;
            in_space = false;
        }
    }
    found.push(&text[start..]);
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schemas() -> Value {
        json!({
            "Pod": {"description": "A pod.", "properties": {
                "kind": {"type": "string", "description": "Its kind."},
                "spec": {"allOf": [{"$ref": "#/components/schemas/io.PodSpec"}], "description": "What is wanted."},
            }, "required": ["spec"], "x-kubernetes-group-version-kind": [{"group": "", "version": "v1", "kind": "Pod"}]},
            "io.PodSpec": {"description": "A spec.", "properties": {
                "containers": {"type": "array", "items": {"$ref": "#/components/schemas/io.Container"}},
                "policy": {"type": "string", "enum": ["Always", "Never", ""]},
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            }},
            "io.Container": {"description": "A container.", "properties": {"name": {"type": "string"}}},
        })
    }

    #[test]
    fn schemas_are_found_by_kind() {
        let mapping = |kind: &str| Mapping { version: "v1".into(), kind: kind.into(), ..Default::default() };
        assert_eq!(schema_of(&schemas(), &mapping("Pod")).unwrap()["description"], "A pod.");
        assert_eq!(schema_of(&schemas(), &mapping("Node")).unwrap_err().text(), "GVK v1 not found in OpenAPI schema");
    }

    #[test]
    fn types_have_names() {
        let schemas = schemas();
        let of = |field: &str| type_name(&schemas, &schemas["io.PodSpec"]["properties"][field]);
        assert_eq!((of("containers").as_str(), of("policy").as_str()), ("[]Container", "string"));
        assert_eq!(of("labels"), "map[string]string");
        assert_eq!(type_name(&schemas, &schemas["Pod"]["properties"]["spec"]), "PodSpec");
    }

    #[test]
    fn a_path_leads_through_lists() {
        let schemas = schemas();
        let spec = step(&schemas, &schemas["Pod"], "spec").unwrap();
        assert_eq!(spec.descriptions, ["What is wanted.", "A spec."]);
        let containers = step(&schemas, spec.schema, "containers").unwrap();
        assert!(step(&schemas, containers.schema, "name").is_some());
        assert!(step(&schemas, containers.schema, "none").is_none());
        let text = step(&schemas, spec.schema, "policy").unwrap().text(&schemas, false);
        assert!(text.starts_with("FIELD: policy <string>\nENUM:\n    Always\n    Never\n    \"\"\n"), "{text}");
    }

    #[test]
    fn fields_are_listed_flat_or_as_a_tree() {
        let schemas = schemas();
        let shown = Shown { schema: &schemas["Pod"], descriptions: texts(&schemas["Pod"]), name: None };
        let flat = shown.text(&schemas, false);
        assert!(flat.contains("FIELDS:\n  kind\t<string>\n    Its kind.\n\n  spec\t<PodSpec> -required-\n"), "{flat}");
        let tree = shown.text(&schemas, true);
        assert!(
            tree.contains("  spec\t<PodSpec> -required-\n    containers\t<[]Container>\n      name\t<string>\n"),
            "{tree}"
        );
    }

    #[test]
    fn long_texts_are_wrapped() {
        let text = wrapped(&"word ".repeat(20), 4);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2);
        assert!(lines.iter().all(|line| line.len() <= 80 && line.starts_with("    word")), "{text}");
        assert_eq!(wrapped("a\n  b", 2), "  a\n    b\n");
    }
}
