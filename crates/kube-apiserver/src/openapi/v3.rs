//! Documents of OpenAPI version 3, one per group and version, written piece by piece.

use std::io::{self, Write};

use serde_json::{Map, Value, json};

use super::definitions::{self, Definitions};
use super::parameters::Parameter;
use super::paths::{Content, Operation, Path};
use super::{VERSION, code_words};

pub fn write(out: &mut impl Write, paths: &[Path], all: &Definitions) -> io::Result<()> {
    write!(out, "{{\"openapi\":\"3.0.0\",\"info\":{},\"paths\":", json!({"title": "Kubernetes", "version": VERSION}))?;
    write_map(out, paths.iter().map(|path| (path.path.as_str(), path_item(path))))?;
    write!(out, ",\"components\":{{\"schemas\":")?;
    let roots = paths.iter().flat_map(|path| &path.operations).flat_map(|(_, operation)| {
        let body = operation.body.as_ref().and_then(|body| body.definition.clone());
        body.into_iter().chain(operation.answer.definition.clone())
    });
    let wanted = all.reachable(roots);
    let schemas = all.iter().filter(|(name, _)| wanted.contains(*name));
    write_map(out, schemas.map(|(name, schema)| (name.as_str(), definitions::v3(name, schema))))?;
    write!(out, ",\"securitySchemes\":{}}}}}", json!({"BearerToken": super::bearer_token()}))
}

/// An object whose values are made one after the other and dropped once they are written.
pub(crate) fn write_map<'a>(out: &mut impl Write, entries: impl Iterator<Item = (&'a str, Value)>) -> io::Result<()> {
    let mut before = '{';
    for (key, value) in entries {
        write!(out, "{before}{}:", Value::from(key))?;
        serde_json::to_writer(&mut *out, &value)?;
        before = ',';
    }
    out.write_all(if before == '{' { b"{}" } else { b"}" })
}

fn path_item(path: &Path) -> Value {
    let mut item = Map::new();
    if !path.parameters.is_empty() {
        item.insert("parameters".into(), path.parameters.iter().map(parameter).collect());
    }
    for (method, described) in &path.operations {
        item.insert((*method).into(), operation(described));
    }
    Value::Object(item)
}

fn parameter(parameter: &Parameter) -> Value {
    let mut out = json!({
        "name": parameter.name, "in": parameter.place, "description": parameter.description,
        "schema": {"type": parameter.ty, "uniqueItems": true},
    });
    if parameter.place == "path" {
        out["required"] = true.into();
    }
    out
}

fn operation(operation: &Operation) -> Value {
    let mut responses = json!({"401": {"description": "Unauthorized"}});
    for code in operation.codes {
        responses[code.to_string()] = json!({"description": code_words(*code), "content": content(&operation.answer)});
    }
    let mut out = json!({
        "description": operation.description, "operationId": operation.id, "tags": [operation.tag], "responses": responses,
    });
    if !operation.parameters.is_empty() {
        out["parameters"] = operation.parameters.iter().map(parameter).collect();
    }
    if let Some(body) = &operation.body {
        out["requestBody"] = json!({"content": content(body)});
        if operation.body_required {
            out["requestBody"]["required"] = true.into();
        }
    }
    if !operation.action.is_empty() {
        out["x-kubernetes-action"] = operation.action.into();
    }
    if let Some([group, version, kind]) = &operation.kind {
        out["x-kubernetes-group-version-kind"] = json!({"group": group, "version": version, "kind": kind});
    }
    out
}

fn content(content: &Content) -> Value {
    let schema = match &content.definition {
        Some(name) => json!({"$ref": format!("#/components/schemas/{name}")}),
        None => json!({"type": "string"}),
    };
    content.media.iter().map(|media| ((*media).to_string(), json!({"schema": schema}))).collect::<Map<_, _>>().into()
}
