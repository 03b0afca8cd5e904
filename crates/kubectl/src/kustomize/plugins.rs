//! `generators`, `transformers` and `validators`: what a kustomization does by itself, configured as resources of their
//! own. Those are built in; programs of one's own are refused, as kubectl refuses them.

use std::path::Path;

use serde_json::{Value, json};

use super::{Resource, fields, generate, pairs, replace, texts, transform};
use crate::failure::{Failure, Result};

/// The configurations a list names: text of their own, or files and folders.
fn configured(folder: &Path, kustomization: &Value, key: &str) -> Result<Vec<Value>> {
    if let Some(wrong) = kustomization[key].as_array().into_iter().flatten().find(|entry| !entry.is_string()) {
        let kind = if wrong.is_object() { "object" } else { "value" };
        return Err(Failure::message(format!(
            "invalid Kustomization: json: cannot unmarshal {kind} into Go struct field Kustomization.{key} of type string"
        )));
    }
    let mut found = Vec::new();
    for text in texts(kustomization, key) {
        let inline = crate::resource::files::documents("inline", text.as_bytes()).unwrap_or_default();
        if !inline.is_empty() && inline.iter().all(|(_, value)| value["kind"].is_string()) {
            found.extend(inline.into_iter().map(|(_, value)| value));
            continue;
        }
        let place = folder.join(&text);
        let resources = if place.is_dir() {
            super::collect(&place, &[], "Kustomization", &mut Default::default())?
        } else {
            super::read::resources(folder, &text).map_err(|failure| {
                let whole = failure.text();
                Failure::message(whole.strip_prefix("accumulating resources: ").unwrap_or(&whole))
            })?
        };
        found.extend(resources.into_iter().map(|resource| resource.object));
    }
    Ok(found)
}

fn check(config: &Value, known: &[&str]) -> Result<()> {
    let kind = config["kind"].as_str().unwrap_or_default();
    match config["apiVersion"].as_str() {
        Some("builtin") if known.contains(&kind) => Ok(()),
        Some("builtin") => Err(Failure::message(format!("unable to load builtin {kind}.builtin.[noGrp]"))),
        _ => Err(Failure::message(format!("external plugins disabled; unable to load external plugin '{kind}'"))),
    }
}

pub(super) fn generators(folder: &Path, kustomization: &Value, resources: &mut Vec<Resource>) -> Result<()> {
    for config in configured(folder, kustomization, "generators")? {
        check(&config, &["ConfigMapGenerator", "SecretGenerator"])?;
        let mut one = config.clone();
        one["name"] = config["metadata"]["name"].clone();
        if config["metadata"]["namespace"].is_string() {
            one["namespace"] = config["metadata"]["namespace"].clone();
        }
        let list = if config["kind"] == "SecretGenerator" { "secretGenerator" } else { "configMapGenerator" };
        generate::all(folder, &json!({list: [one]}), resources)?;
    }
    Ok(())
}

const TRANSFORMERS: &[&str] = &[
    "PrefixTransformer",
    "SuffixTransformer",
    "LabelTransformer",
    "AnnotationsTransformer",
    "NamespaceTransformer",
    "ImageTagTransformer",
    "ReplicaCountTransformer",
    "PatchTransformer",
    "PatchStrategicMergeTransformer",
    "PatchJson6902Transformer",
    "ReplacementTransformer",
];

pub(super) fn transformers(folder: &Path, kustomization: &Value, resources: &mut Vec<Resource>) -> Result<()> {
    for config in configured(folder, kustomization, "transformers")? {
        check(&config, TRANSFORMERS)?;
        transformed(folder, &config, resources)?;
    }
    for config in configured(folder, kustomization, "validators")? {
        check(&config, TRANSFORMERS)?;
        let mut copy = resources.clone();
        transformed(folder, &config, &mut copy)?;
        if copy.iter().map(|resource| &resource.object).ne(resources.iter().map(|resource| &resource.object)) {
            return Err(Failure::message("validator shouldn't modify the resource map"));
        }
    }
    Ok(())
}

fn transformed(folder: &Path, config: &Value, resources: &mut Vec<Resource>) -> Result<()> {
    let specs = fields::list(config, "fieldSpecs");
    match config["kind"].as_str().unwrap_or_default() {
        "PrefixTransformer" | "SuffixTransformer" => rename(config, &specs, resources),
        "LabelTransformer" => merge_pairs(&config["labels"], &specs, resources),
        "AnnotationsTransformer" => merge_pairs(&config["annotations"], &specs, resources),
        "NamespaceTransformer" => namespaced(config, &specs, resources),
        "ImageTagTransformer" => {
            for resource in resources.iter_mut() {
                transform::images(&mut resource.object, &config["imageTag"]);
                fields::each(&mut resource.object, &specs, |value| {
                    if let Some(image) = value.as_str().and_then(|image| transform::changed(image, &config["imageTag"]))
                    {
                        *value = image.into();
                    }
                });
            }
        }
        "ReplicaCountTransformer" => {
            let replica = &config["replica"];
            for resource in resources.iter_mut().filter(|resource| replica["name"] == resource.first_name.as_str()) {
                fields::each(&mut resource.object, &specs, |value| *value = replica["count"].clone());
            }
        }
        "ReplacementTransformer" => replace::all(folder, config, resources)?,
        kind => transform::patches(folder, &patches(kind, config), resources)?,
    }
    Ok(())
}

fn rename(config: &Value, specs: &[Value], resources: &mut [Resource]) {
    let text = |key: &str| config[key].as_str().unwrap_or_default();
    for resource in resources.iter_mut().filter(|resource| transform::is_renamed(&resource.object)) {
        fields::each(&mut resource.object, specs, |value| {
            if let Value::String(name) = value {
                *name = format!("{}{name}{}", text("prefix"), text("suffix"));
            }
        });
    }
}

fn merge_pairs(added: &Value, specs: &[Value], resources: &mut [Resource]) {
    let added = pairs(added);
    for resource in resources {
        fields::each(&mut resource.object, specs, |value| fields::merge(value, &added));
    }
}

fn namespaced(config: &Value, specs: &[Value], resources: &mut [Resource]) {
    let of_metadata = config["metadata"]["namespace"].as_str().filter(|name| !name.is_empty());
    let named = of_metadata.or(config["namespace"].as_str()).unwrap_or_default();
    for resource in resources {
        let kept = config["unsetOnly"] == true && resource.object["metadata"]["namespace"].is_string();
        if !kept {
            transform::namespace(&mut resource.object, named);
        }
        fields::each(&mut resource.object, specs, |value| {
            if value.is_string() {
                *value = named.into();
            }
        });
    }
}

/// What a transformer says of patches, as a kustomization would say it.
fn patches(kind: &str, config: &Value) -> Value {
    match kind {
        "PatchStrategicMergeTransformer" => {
            let mut all = texts(config, "paths");
            all.extend(config["patches"].as_str().map(str::to_string));
            json!({"patchesStrategicMerge": all})
        }
        "PatchJson6902Transformer" => {
            let mut one = json!({"target": config["target"]});
            for (from, to) in [("path", "path"), ("jsonOp", "patch")] {
                if config[from].is_string() {
                    one[to] = config[from].clone();
                }
            }
            json!({"patchesJson6902": [one]})
        }
        _ => json!({"patches": [config]}),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn transform(config: Value, object: Value) -> Value {
        let mut all = vec![Resource { object, first_name: "web".into(), hashed: false, origin: Default::default() }];
        transformed(Path::new("/"), &config, &mut all).unwrap_or_else(|failure| panic!("{failure}"));
        all.remove(0).object
    }

    fn web() -> Value {
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {"replicas": 1}})
    }

    #[test]
    fn transformers_change_the_fields_they_name() {
        let name = json!([{"path": "metadata/name"}]);
        let renamed = transform(json!({"kind": "PrefixTransformer", "prefix": "pre-", "fieldSpecs": name}), web());
        assert_eq!(renamed["metadata"]["name"], "pre-web");
        let labels = json!({"kind": "LabelTransformer", "labels": {"a": "b"},
            "fieldSpecs": [{"path": "metadata/labels", "create": true}]});
        assert_eq!(transform(labels, web())["metadata"]["labels"], json!({"a": "b"}));
        let replicas = json!({"kind": "ReplicaCountTransformer", "replica": {"name": "web", "count": 3},
            "fieldSpecs": [{"path": "spec/replicas"}]});
        assert_eq!(transform(replicas, web())["spec"]["replicas"], 3);
        let namespace = json!({"kind": "NamespaceTransformer", "metadata": {"namespace": "team"}});
        assert_eq!(transform(namespace, web())["metadata"]["namespace"], "team");
    }

    #[test]
    fn patches_are_those_of_a_kustomization() {
        let config = json!({"paths": ["a.yaml"], "patches": "inline"});
        let merged = patches("PatchStrategicMergeTransformer", &config);
        assert_eq!(merged, json!({"patchesStrategicMerge": ["a.yaml", "inline"]}));
        let config = json!({"target": {"kind": "Pod"}, "jsonOp": "[]"});
        let json6902 = patches("PatchJson6902Transformer", &config);
        assert_eq!(json6902, json!({"patchesJson6902": [{"target": {"kind": "Pod"}, "patch": "[]"}]}));
        let plain = patches("PatchTransformer", &json!({"patch": "x"}));
        assert_eq!(plain, json!({"patches": [{"patch": "x"}]}));
    }

    #[test]
    fn patches_reach_their_target() {
        let patch = "[{\"op\": \"replace\", \"path\": \"/spec/replicas\", \"value\": 5}]";
        let config = json!({"kind": "PatchTransformer", "target": {"kind": "Deployment"}, "patch": patch});
        assert_eq!(transform(config, web())["spec"]["replicas"], 5);
    }
}
