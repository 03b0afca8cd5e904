//! `vars`: names for fields of resources, which `$(NAME)` stands for where a value of a container or the like says so.

use serde_json::{Value, json};

use super::{Resource, fields};
use crate::failure::{Failure, Result};
use crate::terminal;

/// Where names are looked for, besides what `configurations` add.
const PLACES: &[&str] = &[
    "spec/template/spec/containers",
    "spec/template/spec/initContainers",
    "spec/jobTemplate/spec/template/spec/containers",
    "spec/jobTemplate/spec/template/spec/initContainers",
    "spec/containers",
    "spec/initContainers",
];
const CONTAINER_FIELDS: &[&str] =
    &["args", "command", "env/value", "image", "volumeMounts/mountPath", "livenessProbe/httpGet/path"];
const FIELDS: &[(&str, &str)] = &[
    ("Ingress", "spec/rules/host"),
    ("Ingress", "spec/tls/hosts"),
    ("Ingress", "spec/tls/secretName"),
    ("Service", "spec/ports/port"),
    ("Service", "spec/type"),
    ("StatefulSet", "spec/volumeClaimTemplates/spec/nfs/server"),
    ("PersistentVolume", "spec/nfs/server"),
    ("", "metadata/labels"),
    ("", "metadata/annotations"),
    ("", "spec/template/metadata/annotations"),
];

pub(crate) fn resolve(vars: &[Value], places: &[Value], resources: &mut [Resource]) -> Result<()> {
    if vars.is_empty() {
        return Ok(());
    }
    let mut values: Vec<(String, Value, bool)> = Vec::new();
    for var in vars {
        values.push((var["name"].as_str().unwrap_or_default().to_string(), value(var, resources)?, false));
    }
    let mut specs: Vec<Value> = places.to_vec();
    for (place, field) in PLACES.iter().flat_map(|place| CONTAINER_FIELDS.iter().map(move |field| (place, field))) {
        specs.push(json!({"path": format!("{place}/{field}")}));
    }
    specs.extend(FIELDS.iter().map(|(kind, path)| json!({"kind": kind, "path": path})));
    for resource in resources.iter_mut() {
        fields::each(&mut resource.object, &specs, |place| put(place, &mut values));
    }
    let unused: Vec<&str> = values.iter().filter(|(_, _, used)| !used).map(|(name, ..)| name.as_str()).collect();
    if !unused.is_empty() {
        let time = jiff::Zoned::now().strftime("%Y/%m/%d %H:%M:%S").to_string();
        terminal::errln(&format!("{time} well-defined vars that were never replaced: {}", unused.join(",")));
    }
    Ok(())
}

fn value(var: &Value, resources: &[Resource]) -> Result<Value> {
    let reference = &var["objref"];
    let path = var["fieldref"]["fieldpath"].as_str().unwrap_or("metadata.name");
    let text = |key: &str| reference[key].as_str().unwrap_or_default();
    let version = text("apiVersion");
    let (group, version) = version.split_once('/').unwrap_or((text("group"), version));
    let spec = json!({"group": group, "version": version, "kind": text("kind")});
    let is_it = |resource: &&Resource| {
        let namespace = resource.object["metadata"]["namespace"].as_str().unwrap_or_default();
        fields::speaks_of(&spec, &resource.object)
            && (resource.first_name == text("name") || resource.object["metadata"]["name"] == text("name"))
            && (text("namespace").is_empty() || text("namespace") == namespace)
    };
    let unknown = || {
        let group = if group.is_empty() { "[noGrp]" } else { group };
        Failure::message(format!(
            "var '{{{} {}.{version}.{group} {{{path}}}}}' cannot be mapped to a field in the set of known resources",
            var["name"].as_str().unwrap_or_default(),
            text("kind")
        ))
    };
    let resource = resources.iter().find(is_it).ok_or_else(unknown)?;
    let mut current = &resource.object;
    for step in path.replace('[', ".").replace(']', "").split('.').filter(|step| !step.is_empty()) {
        let next = match current {
            Value::Array(items) => step.parse::<usize>().ok().and_then(|at| items.get(at)),
            other => other.get(step),
        };
        current = next.ok_or_else(unknown)?;
    }
    Ok(current.clone())
}

fn put(place: &mut Value, values: &mut [(String, Value, bool)]) {
    match place {
        Value::String(text) => *place = expanded(text, values),
        Value::Array(items) => items.iter_mut().for_each(|item| put(item, values)),
        Value::Object(map) => map.values_mut().filter(|value| value.is_string()).for_each(|value| put(value, values)),
        _ => {}
    }
}

/// `$(NAME)` becomes its value, and `$$` a dollar; what has no value stays.
fn expanded(text: &str, values: &mut [(String, Value, bool)]) -> Value {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out += &rest[..at];
        rest = &rest[at..];
        if let Some(after) = rest.strip_prefix("$$") {
            out.push('$');
            rest = after;
            continue;
        }
        let name = rest.strip_prefix("$(").and_then(|inner| inner.split_once(')'));
        match name.and_then(|(name, after)| Some((values.iter_mut().find(|(known, ..)| known == name)?, after))) {
            Some(((_, value, used), after)) => {
                *used = true;
                // A field that is nothing but the name takes the value as it is.
                if out.is_empty() && after.is_empty() && !value.is_string() {
                    return value.clone();
                }
                out += &value.as_str().map_or_else(|| value.to_string(), str::to_string);
                rest = after;
            }
            None => {
                out.push('$');
                rest = &rest[1..];
            }
        }
    }
    (out + rest).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_values() {
        let mut values = vec![("A".to_string(), json!("x"), false), ("N".to_string(), json!(5), false)];
        let mut check = |text: &str, value: Value| assert_eq!(expanded(text, &mut values), value, "{text}");
        check("$(A)-$(A)", json!("x-x"));
        check("$(N)", json!(5));
        check("n$(N)", json!("n5"));
        check("$(OTHER) $$(A) $", json!("$(OTHER) $(A) $"));
    }
}
