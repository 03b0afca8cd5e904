//! How objects are printed: `-o`.

pub(crate) mod columns;
mod custom_columns;
pub(crate) mod json;
pub(crate) mod kyaml;
pub(crate) mod order;
pub(crate) mod table;
pub(crate) mod template;
pub(crate) mod yaml;

use machinery::jsonpath;
use serde_json::Value;

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
    CustomColumns(custom_columns::CustomColumns),
}

impl Format {
    pub(crate) fn from(flags: &Parsed, tables: bool) -> Result<Format> {
        let output = flags.text("output");
        let given = flags.text("template");
        let (name, argument) = output.split_once('=').unwrap_or((output, ""));
        let lower = output.to_lowercase();
        let name = match lower.as_str() {
            "json" | "yaml" | "kyaml" | "name" => &lower,
            // These take no argument.
            _ if ["json", "yaml", "kyaml", "name", "wide"].contains(&name) && name != output => output,
            _ => name,
        };
        let strict = flags.has("allow-missing-template-keys") && !flags.on("allow-missing-template-keys");
        let argument = if argument.is_empty() { given } else { argument };
        let word = if name == "custom-columns-file" { "template" } else { "--template" };
        let from_file = |path: &str| {
            std::fs::read_to_string(path).map_err(|error| {
                Failure::message(format!(
                    "error reading {word} {path}, open {path}: {}",
                    crate::failure::go_io_error(&error)
                ))
            })
        };
        let need = |argument: &str| {
            if argument.is_empty() {
                return Err(Failure::message("template format specified but no template given".to_string()));
            }
            Ok(argument.to_string())
        };
        let path = |text: &str| {
            jsonpath::Template::parse(text)
                .map(|template| template.strict(strict))
                .map_err(|error| Failure::message(format!("error parsing jsonpath {text}, {error}")))
        };
        let template = |text: &str| {
            template::Template::parse(text)
                .map(|template| template.strict(strict))
                .map_err(|error| Failure::message(format!("error parsing template {text}, {error}")))
        };
        Ok(match name {
            "" if !given.is_empty() => Format::Template(template(given)?),
            "" => Format::Human { wide: false },
            "wide" if tables => Format::Human { wide: true },
            "yaml" => Format::Yaml,
            "json" => Format::Json,
            "kyaml" => Format::Kyaml,
            "name" => Format::Name,
            "jsonpath" => Format::JsonPath(path(&need(argument)?)?),
            "jsonpath-as-json" => Format::JsonPathAsJson(path(&need(argument)?)?),
            "jsonpath-file" => Format::JsonPath(path(&from_file(&need(argument)?)?)?),
            "go-template" | "template" => Format::Template(template(&need(argument)?)?),
            "go-template-file" | "templatefile" => Format::Template(template(&from_file(&need(argument)?)?)?),
            "custom-columns" if tables => {
                if argument.is_empty() {
                    return Err(Failure::message("custom-columns format specified but no custom columns given"));
                }
                Format::CustomColumns(custom_columns::CustomColumns::parse(argument)?)
            }
            "custom-columns-file" if tables => {
                if argument.is_empty() {
                    return Err(Failure::message("custom-columns format specified but no custom columns given"));
                }
                Format::CustomColumns(custom_columns::CustomColumns::parse_file(&from_file(&need(argument)?)?)?)
            }
            _ => {
                let formats = if tables {
                    "custom-columns,custom-columns-file,go-template,go-template-file,json,jsonpath,jsonpath-as-json,jsonpath-file,kyaml,name,template,templatefile,wide,yaml"
                } else {
                    "go-template,go-template-file,json,jsonpath,jsonpath-as-json,jsonpath-file,kyaml,name,template,templatefile,yaml"
                };
                return Err(Failure::message(format!(
                    "unable to match a printer suitable for the output format {output:?}, allowed formats are: {formats}"
                )));
            }
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
