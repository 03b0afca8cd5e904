//! The one document of OpenAPI version 2, as JSON or in the protobuf form that kubectl reads.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde_json::{Map, Value, json};

use super::definitions::{self, Definitions};
use super::parameters::{DRY_RUN, FIELD_VALIDATION, Parameter};
use super::paths::{Operation, Path};
use super::v3::write_map;
use super::{VERSION, code_words, protobuf};

pub fn write_json(out: &mut impl Write, paths: &[Path], all: &Definitions) -> io::Result<()> {
    write!(out, "{{\"swagger\":\"2.0\",\"info\":{},\"paths\":", info())?;
    write_map(out, paths.iter().map(|path| (path.path.as_str(), path_item(path))))?;
    write!(out, ",\"definitions\":")?;
    write_map(out, all.iter().map(|(name, schema)| (name.as_str(), definitions::v2(name, schema))))?;
    write!(out, ",\"parameters\":")?;
    write_map(out, shared_parameters(paths).iter().map(|(name, shared)| (name.as_str(), parameter(shared))))?;
    write!(out, ",\"securityDefinitions\":{},\"security\":[{{\"BearerToken\":[]}}]}}", security_definitions())
}

/// The same as a message `openapi.v2.Document`.
pub(crate) fn write_protobuf(out: &mut impl Write, paths: &[Path], all: &Definitions) -> io::Result<()> {
    let mut document = protobuf::Document::new(&info());
    for path in paths {
        document.path(&path.path, &path_item(path));
    }
    for (name, schema) in all.iter() {
        document.definition(name, &definitions::v2(name, schema));
    }
    for (name, shared) in shared_parameters(paths) {
        document.parameter(&name, &parameter(shared));
    }
    out.write_all(&document.finish(&security_definitions()))
}

fn info() -> Value {
    json!({"title": "Kubernetes", "version": VERSION})
}

fn security_definitions() -> Value {
    json!({"BearerToken": super::bearer_token()})
}

/// Parameters that are the same wherever they stand are written once. Old clients look for these two by name in the
/// patch operations themselves, and follow no reference.
fn is_shared(parameter: &Parameter) -> bool {
    let looked_for = [DRY_RUN.name, FIELD_VALIDATION.name].contains(&parameter.name);
    !looked_for && (parameter.place == "query" || parameter.name != "name")
}

fn shared_name(parameter: &Parameter) -> String {
    format!("{}-{}", parameter.name, parameter.place)
}

fn shared_parameters(paths: &[Path]) -> BTreeMap<String, &Parameter> {
    let all = paths.iter().flat_map(|path| {
        let in_operations = path.operations.iter().flat_map(|(_, operation)| operation.parameters);
        path.parameters.iter().chain(in_operations)
    });
    all.filter(|parameter| is_shared(parameter)).map(|parameter| (shared_name(parameter), parameter)).collect()
}

fn path_item(path: &Path) -> Value {
    let mut item = Map::new();
    if !path.parameters.is_empty() {
        item.insert("parameters".into(), path.parameters.iter().map(parameter_or_reference).collect());
    }
    for (method, described) in &path.operations {
        item.insert((*method).into(), operation(described));
    }
    Value::Object(item)
}

fn parameter_or_reference(described: &Parameter) -> Value {
    if is_shared(described) {
        json!({"$ref": format!("#/parameters/{}", shared_name(described))})
    } else {
        parameter(described)
    }
}

fn parameter(parameter: &Parameter) -> Value {
    let mut out = json!({
        "name": parameter.name, "in": parameter.place, "description": parameter.description, "type": parameter.ty,
        "uniqueItems": true,
    });
    if parameter.place == "path" {
        out["required"] = true.into();
    }
    out
}

fn operation(operation: &Operation) -> Value {
    let mut responses = json!({"401": {"description": "Unauthorized"}});
    let answer = schema(&operation.answer.definition);
    for code in operation.codes {
        responses[code.to_string()] = json!({"description": code_words(*code), "schema": answer});
    }
    let mut parameters: Vec<Value> = operation.parameters.iter().map(parameter_or_reference).collect();
    let consumes = operation.body.as_ref().map_or(&["*/*"][..], |body| body.media);
    if let Some(body) = &operation.body {
        let mut described = json!({"name": "body", "in": "body", "schema": schema(&body.definition)});
        if operation.body_required {
            described["required"] = true.into();
        }
        parameters.insert(0, described);
    }
    let mut out = json!({
        "description": operation.description, "operationId": operation.id, "tags": [operation.tag],
        "schemes": ["https"], "consumes": consumes, "produces": operation.answer.media, "responses": responses,
    });
    if !parameters.is_empty() {
        out["parameters"] = parameters.into();
    }
    if !operation.action.is_empty() {
        out["x-kubernetes-action"] = operation.action.into();
    }
    if let Some([group, version, kind]) = &operation.kind {
        out["x-kubernetes-group-version-kind"] = json!({"group": group, "version": version, "kind": kind});
    }
    out
}

fn schema(definition: &Option<String>) -> Value {
    match definition {
        Some(name) => json!({"$ref": format!("#/definitions/{name}")}),
        None => json!({"type": "string"}),
    }
}
