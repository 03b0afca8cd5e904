//! How objects are printed: `-o`.

pub(crate) mod columns;
pub(crate) mod custom_columns;
pub(crate) mod json;
pub(crate) mod kyaml;
pub(crate) mod order;
pub(crate) mod table;
pub(crate) mod template;
pub(crate) mod yaml;

use machinery::jsonpath;
use serde_json::Value;

use self::custom_columns::CustomColumns;
use crate::failure::{Failure, Result};
use crate::flags::{Flag, Parsed};

pub(crate) const FLAGS: &[Flag] = &[
    Flag::text(
        "output",
        "",
        "Output format: json, yaml, kyaml, name, jsonpath=..., go-template=..., custom-columns=...",
    )
    .short('o'),
    Flag::text("template", "", "The template of -o go-template and -o jsonpath."),
    Flag::on("allow-missing-template-keys", "Ignore what a template names and an object lacks."),
    Flag::switch("show-managed-fields", "Keep managedFields when printing objects."),
];

pub(crate) enum Format {
    /// Tables for `get`, a sentence for commands that change things.
    Human {
        wide: bool,
    },
    Yaml,
    Json,
    Kyaml,
    Name,
    JsonPath(jsonpath::Template),
    JsonPathAsJson(jsonpath::Template),
    Template(template::Template),
    CustomColumns(CustomColumns),
}

impl Format {
    pub(crate) fn from(flags: &Parsed, tables: bool) -> Result<Format> {
        let output = flags.text("output");
        let given = flags.text("template");
        let (name, argument) = name_and_argument(output);
        let argument = if argument.is_empty() { given } else { argument };
        let strict = flags.has("allow-missing-template-keys") && !flags.on("allow-missing-template-keys");
        let word = if name == "custom-columns-file" { "template" } else { "--template" };
        let needed = || Some(argument).filter(|argument| !argument.is_empty());
        let need = || needed().ok_or_else(|| Failure::message("template format specified but no template given"));
        let columns =
            || needed().ok_or_else(|| Failure::message("custom-columns format specified but no custom columns given"));
        Ok(match name.as_str() {
            "" if !given.is_empty() => Format::Template(go_template(given, strict)?),
            "" => Format::Human { wide: false },
            "wide" if tables => Format::Human { wide: true },
            "yaml" => Format::Yaml,
            "json" => Format::Json,
            "kyaml" => Format::Kyaml,
            "name" => Format::Name,
            "jsonpath" => Format::JsonPath(json_path(need()?, strict)?),
            "jsonpath-as-json" => Format::JsonPathAsJson(json_path(need()?, strict)?),
            "jsonpath-file" => Format::JsonPath(json_path(&from_file(need()?, word)?, strict)?),
            "go-template" | "template" => Format::Template(go_template(need()?, strict)?),
            "go-template-file" | "templatefile" => Format::Template(go_template(&from_file(need()?, word)?, strict)?),
            "custom-columns" if tables => Format::CustomColumns(CustomColumns::parse(columns()?)?),
            "custom-columns-file" if tables => {
                Format::CustomColumns(CustomColumns::parse_file(&from_file(columns()?, word)?)?)
            }
            _ => return Err(no_printer(output, tables)),
        })
    }

    /// Only whole objects are printed without who manages which field; templates may ask for it.
    pub(crate) fn leaves_out_managed_fields(&self) -> bool {
        matches!(self, Format::Yaml | Format::Json | Format::Kyaml)
    }

    pub(crate) fn is_human(&self) -> bool {
        matches!(self, Format::Human { .. })
    }

    /// The text of an object that upstream holds in one of its types: in JSON its fields have the order of the type.
    pub(crate) fn typed_text(&self, object: &Value) -> Result<String> {
        match self {
            Format::Json => Ok(format!("{}\n", order::pretty(object))),
            Format::Kyaml => Ok(kyaml::typed_text(object)),
            other => other.text(object),
        }
    }

    /// The text of one object, or of a list, for every format but the human one.
    pub(crate) fn text(&self, object: &Value) -> Result<String> {
        Ok(match self {
            Format::Human { .. } => String::new(),
            Format::Yaml => crate::output::yaml::text(object),
            Format::Json => format!("{}\n", json::pretty(object)),
            Format::Kyaml => kyaml::text(object),
            Format::Name => {
                let items = crate::resource::flatten(object.clone());
                items.iter().map(|item| format!("{}\n", name_of(item))).collect()
            }
            Format::JsonPath(template) => template
                .print(object, json::text)
                .map_err(|error| Failure::message(explained("jsonpath", template.source(), &error, object)))?,
            Format::JsonPathAsJson(template) => {
                // Each expression is an array of its own.
                let each = template
                    .each_values(object)
                    .map_err(|error| Failure::message(explained("jsonpath", template.source(), &error, object)))?;
                let owned = |values: Vec<&Value>| Value::from(values.into_iter().cloned().collect::<Vec<_>>());
                each.into_iter().map(|values| format!("{}\n", json::pretty(&owned(values)))).collect()
            }
            Format::Template(template) => match template.print(object) {
                Ok(text) => text,
                Err(error) => return Err(template_failed(template.source(), &error, object)),
            },
            Format::CustomColumns(columns) => columns.text(object, true)?,
        })
    }
}

/// `jsonpath={.kind}` is a name and an argument. Names of whole objects are known in any case and take no argument.
fn name_and_argument(output: &str) -> (String, &str) {
    let lower = output.to_lowercase();
    if ["json", "yaml", "kyaml", "name"].contains(&lower.as_str()) {
        return (lower, "");
    }
    match output.split_once('=') {
        Some(("json" | "yaml" | "kyaml" | "name" | "wide", argument)) => (output.into(), argument),
        Some((name, argument)) => (name.into(), argument),
        None => (output.into(), ""),
    }
}

fn from_file(path: &str, word: &str) -> Result<String> {
    std::fs::read_to_string(path).map_err(|error| {
        let error = crate::failure::go_io_error(&error);
        Failure::message(format!("error reading {word} {path}, open {path}: {error}"))
    })
}

fn json_path(text: &str, strict: bool) -> Result<jsonpath::Template> {
    jsonpath::Template::parse(text)
        .map(|template| template.strict(strict))
        .map_err(|error| Failure::message(format!("error parsing jsonpath {text}, {error}")))
}

fn go_template(text: &str, strict: bool) -> Result<template::Template> {
    template::Template::parse(text)
        .map(|template| template.strict(strict))
        .map_err(|error| Failure::message(format!("error parsing template {text}, {error}")))
}

fn no_printer(output: &str, tables: bool) -> Failure {
    let formats = if tables {
        "custom-columns,custom-columns-file,go-template,go-template-file,json,jsonpath,jsonpath-as-json,jsonpath-file,kyaml,name,template,templatefile,wide,yaml"
    } else {
        "go-template,go-template-file,json,jsonpath,jsonpath-as-json,jsonpath-file,kyaml,name,template,templatefile,yaml"
    };
    Failure::message(format!(
        "unable to match a printer suitable for the output format {output:?}, allowed formats are: {formats}"
    ))
}

fn explained(engine: &str, template: &str, error: &jsonpath::Error, object: &Value) -> String {
    format!(
        "error executing {engine} {template:?}: Error executing template: {error}. Printing more information for debugging the template:\n\ttemplate was:\n\t\t{template}\n\tobject given to {engine} engine was:\n\t\t{}\n\n",
        go_syntax(object)
    )
}

/// What was asked and of what goes to standard output, as upstream does it.
fn template_failed(template: &str, error: &template::Error, object: &Value) -> Failure {
    crate::terminal::out(&format!(
        "Error executing template: {error}. Printing more information for debugging the template:\n\ttemplate was:\n\t\t{template}\n\traw data was:\n\t\t{}\n\tobject given to template engine was:\n\t\t{}\n\n",
        json::compact(object),
        custom_columns::shown(object)
    ));
    Failure::message(format!("error executing template {template:?}: {error}"))
}

/// As Go's `%q` shows it.
fn go_quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            '\r' => quoted.push_str("\\r"),
            control if (control as u32) < 0x20 || control as u32 == 0x7f => {
                quoted.push_str(&format!("\\x{:02x}", control as u32));
            }
            other => quoted.push(other),
        }
    }
    quoted + "\""
}

/// As Go's `%#v` shows it.
pub(crate) fn go_syntax(value: &Value) -> String {
    let joined = |texts: Vec<String>| texts.join(", ");
    match value {
        Value::Null => "interface {}(nil)".into(),
        Value::String(text) => go_quoted(text),
        Value::Array(items) => format!("[]interface {{}}{{{}}}", joined(items.iter().map(go_syntax).collect())),
        Value::Object(map) => {
            let entries = map.iter().map(|(key, value)| format!("{}:{}", go_quoted(key), go_syntax(value))).collect();
            format!("map[string]interface {{}}{{{}}}", joined(entries))
        }
        other => other.to_string(),
    }
}

/// `deployment.apps/web`, from the object itself.
pub(crate) fn name_of(object: &Value) -> String {
    let kind = object["kind"].as_str().unwrap_or_default().to_lowercase();
    let group = object["apiVersion"].as_str().and_then(|version| version.split_once('/')).map(|(group, _)| group);
    let name = object["metadata"]["name"].as_str().filter(|name| !name.is_empty()).unwrap_or("<unknown>");
    match group {
        Some(group) if !group.is_empty() => format!("{kind}.{group}/{name}"),
        _ => format!("{kind}/{name}"),
    }
}

/// Who manages which field is left out unless it is asked for.
pub(crate) fn without_managed_fields(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    for item in object.get_mut("items").and_then(Value::as_array_mut).into_iter().flatten() {
        without_managed_fields(item);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn format(line: &str, tables: bool) -> Result<Format> {
        let line: Vec<String> = line.split_whitespace().map(str::to_string).collect();
        Format::from(&Parsed::parse(&[FLAGS], &line).unwrap(), tables)
    }

    fn printed(line: &str, object: &Value) -> String {
        format(line, true).and_then(|format| format.text(object)).unwrap_or_else(|failure| panic!("{failure}"))
    }

    #[test]
    fn formats_print_an_object() {
        let object = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}});
        assert_eq!(printed("-o name", &object), "deployment.apps/web\n");
        assert_eq!(printed("-o NAME", &object), "deployment.apps/web\n");
        assert_eq!(printed("-o jsonpath={.kind}", &object), "Deployment");
        assert_eq!(printed("-o jsonpath-as-json={.kind}", &object), "[\n    \"Deployment\"\n]\n");
        assert_eq!(printed("-o go-template={{.kind}}", &object), "Deployment");
        assert_eq!(printed("--template={{.kind}}", &object), "Deployment");
        assert_eq!(printed("-o custom-columns=N:.metadata.name", &object), "N\nweb\n");
        assert!(printed("-o yaml", &object).starts_with("apiVersion: apps/v1\nkind: Deployment\n"));
        assert!(format("-o wide", true).is_ok_and(|format| format.is_human()));
    }

    #[test]
    fn templates_may_stand_in_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t");
        std::fs::write(&path, "{.kind}").unwrap();
        assert_eq!(printed(&format!("-o jsonpath-file={}", path.display()), &json!({"kind": "Pod"})), "Pod");
        let failure = format("-o jsonpath-file=/no/such", true).err().map(|failure| failure.text());
        let missing = "error reading --template /no/such, open /no/such: no such file or directory";
        assert_eq!(failure.as_deref(), Some(missing));
    }

    #[test]
    fn unknown_formats_are_refused_with_the_known_ones() {
        let refused = |line: &str, tables: bool| format(line, tables).err().map(|failure| failure.text()).unwrap();
        assert!(refused("-o xml", true).contains("output format \"xml\", allowed formats are: custom-columns,"));
        assert!(refused("-o wide", false).contains("allowed formats are: go-template,"));
        assert!(refused("-o json=x", true).contains("output format \"json=x\""));
        assert_eq!(refused("-o jsonpath", true), "template format specified but no template given");
        let none = "custom-columns format specified but no custom columns given";
        assert_eq!(refused("-o custom-columns=", true), none);
        assert_eq!(refused("-o jsonpath={.a", true), "error parsing jsonpath {.a, unclosed action");
    }

    #[test]
    fn a_strict_template_explains_what_is_missing() {
        let format = format("-o jsonpath={.a} --allow-missing-template-keys=false", true).unwrap_or_else(|_| panic!());
        let text = format.text(&json!({"b": 1})).unwrap_err().text();
        assert!(text.starts_with("error executing jsonpath \"{.a}\": Error executing template: a is not found."));
        assert!(text.contains("map[string]interface {}{\"b\":1}"), "{text}");
    }

    #[test]
    fn managed_fields_are_left_out_of_lists_too() {
        let mut list = json!({"metadata": {"managedFields": []}, "items": [{"metadata": {"managedFields": [1]}}]});
        without_managed_fields(&mut list);
        assert_eq!(list, json!({"metadata": {}, "items": [{"metadata": {}}]}));
    }

    #[test]
    fn values_are_shown_as_go_does() {
        assert_eq!(go_quoted("a\"b\n\u{1}"), "\"a\\\"b\\n\\x01\"");
        assert_eq!(go_syntax(&json!([null, "a", 1])), "[]interface {}{interface {}(nil), \"a\", 1}");
        assert_eq!(name_of(&json!({"kind": "Pod", "apiVersion": "v1"})), "pod/<unknown>");
    }
}
