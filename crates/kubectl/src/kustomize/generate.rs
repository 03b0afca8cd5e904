//! ConfigMaps and Secrets from literals and files.

use std::path::Path;

use base64::Engine;
use serde_json::{Map, Value, json};

use super::{Origin, Resource, texts};
use crate::failure::{Failure, Result};

pub(crate) fn all(folder: &Path, kustomization: &Value, resources: &mut Vec<Resource>) -> Result<()> {
    for (key, kind) in [("configMapGenerator", "ConfigMap"), ("secretGenerator", "Secret")] {
        for generator in kustomization[key].as_array().into_iter().flatten() {
            let made = one(folder, kustomization, generator, kind)?;
            let same =
                |resource: &&mut Resource| resource.object["kind"] == kind && resource.first_name == made.first_name;
            let behavior = generator["behavior"].as_str().unwrap_or("create");
            match (behavior, resources.iter_mut().find(same)) {
                ("create", None) => resources.push(made),
                ("create", Some(_)) => {
                    return Err(Failure::message(format!(
                        "may not add resource with an already registered id: {kind}.v1.[noGrp]/{}.[noNs]",
                        made.first_name
                    )));
                }
                ("replace", Some(old)) => {
                    // What it was called and marked with stays; what it holds is new.
                    let mut metadata = old.object["metadata"].clone();
                    for list in ["labels", "annotations"] {
                        for (key, value) in made.object["metadata"][list].as_object().into_iter().flatten() {
                            metadata[list][key.as_str()] = value.clone();
                        }
                    }
                    *old = Resource { object: made.object, hashed: old.hashed && made.hashed, ..old.clone() };
                    old.object["metadata"] = metadata;
                }
                ("merge", Some(old)) => {
                    for list in ["data", "binaryData"] {
                        for (key, value) in made.object[list].as_object().into_iter().flatten() {
                            old.object[list][key.as_str()] = value.clone();
                        }
                    }
                    old.hashed |= made.hashed;
                }
                (_, None) => {
                    // Upstream prints its own insides here, an address among them.
                    return Err(Failure::message(format!(
                        "merging from generator &{{0x0 <nil>}}: id resid.ResId{{Gvk:resid.Gvk{{Group:\"\", Version:\"v1\", Kind:{kind:?}, isClusterScoped:false}}, Name:{:?}, Namespace:{:?}}} does not exist; cannot merge or replace",
                        made.first_name,
                        made.object["metadata"]["namespace"].as_str().unwrap_or_default()
                    )));
                }
                (other, Some(_)) => {
                    return Err(Failure::message(format!("unknown behavior {other:?} of a generator")));
                }
            }
        }
    }
    Ok(())
}

fn one(folder: &Path, kustomization: &Value, generator: &Value, kind: &str) -> Result<Resource> {
    let name = generator["name"].as_str().unwrap_or_default().to_string();
    let content = content(folder, generator)?;
    let mut metadata = json!({"name": name});
    if let Some(namespace) = generator["namespace"].as_str() {
        metadata["namespace"] = namespace.into();
    }
    let (general, own) = (&kustomization["generatorOptions"], &generator["options"]);
    for list in ["labels", "annotations"] {
        let mut all = general[list].as_object().cloned().unwrap_or_default();
        all.extend(own[list].as_object().cloned().unwrap_or_default());
        if !all.is_empty() {
            metadata[list] = all.into();
        }
    }
    let mut object = json!({"apiVersion": "v1", "kind": kind, "metadata": metadata});
    if kind == "Secret" {
        object["type"] = generator["type"].as_str().unwrap_or("Opaque").into();
        let data: Map<String, Value> = content.into_iter().map(|(key, bytes)| (key, encoded(&bytes).into())).collect();
        object["data"] = data.into();
    } else {
        for (key, bytes) in content {
            match String::from_utf8(bytes) {
                Ok(text) => object["data"][key] = text.into(),
                Err(raw) => object["binaryData"][key] = encoded(raw.as_bytes()).into(),
            }
        }
    }
    for (list, key) in [(general, "immutable"), (own, "immutable")] {
        if list[key] == true {
            object["immutable"] = true.into();
        }
    }
    let hashed = general["disableNameSuffixHash"] != true && own["disableNameSuffixHash"] != true;
    let file = std::fs::canonicalize(folder).unwrap_or_default().join("kustomization.yaml");
    let generator = Some(if kind == "Secret" { "SecretGenerator" } else { "ConfigMapGenerator" });
    Ok(Resource { object, first_name: name, hashed, origin: Origin { file, generator } })
}

fn encoded(bytes: &[u8]) -> String {
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

fn content(folder: &Path, generator: &Value) -> Result<Vec<(String, Vec<u8>)>> {
    let mut found = Vec::new();
    let open = |path: &str| {
        std::fs::read(folder.join(path)).map_err(|error| {
            Failure::message(format!("open {}: {}", folder.join(path).display(), crate::failure::go_io_error(&error)))
        })
    };
    for literal in texts(generator, "literals") {
        let Some((key, value)) = literal.split_once('=') else {
            return Err(Failure::message(format!("invalid literal source {literal}, expected key=value")));
        };
        found.push((key.to_string(), value.trim_matches(['"', '\'']).as_bytes().to_vec()));
    }
    for source in texts(generator, "files") {
        let (key, path) = match source.split_once('=') {
            Some((key, path)) => (key.to_string(), path),
            None => (source.rsplit('/').next().unwrap_or(&source).to_string(), source.as_str()),
        };
        found.push((key, open(path)?));
    }
    let mut environments = texts(generator, "envs");
    environments.extend(generator["env"].as_str().map(str::to_string));
    for path in environments {
        let text = String::from_utf8_lossy(&open(&path)?).into_owned();
        for line in text.lines().map(str::trim_start).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let (key, value) = line.split_once('=').unwrap_or((line, ""));
            found.push((key.to_string(), value.as_bytes().to_vec()));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn generators_hold_literals_files_and_variables() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.txt"), "file").unwrap();
        std::fs::write(folder.path().join("env"), "# comment\nA=1\n").unwrap();
        let generator = json!({"name": "m", "literals": ["k='v'"], "files": ["a.txt", "b=a.txt"], "envs": ["env"],
            "options": {"labels": {"x": "y"}, "immutable": true}});
        let made = one(folder.path(), &json!({}), &generator, "ConfigMap").unwrap();
        assert_eq!(made.object["data"], json!({"k": "v", "a.txt": "file", "b": "file", "A": "1"}));
        assert_eq!((&made.object["immutable"], &made.object["metadata"]["labels"]["x"]), (&json!(true), &json!("y")));
        assert!(made.hashed);
    }

    #[test]
    fn secrets_are_encoded_and_may_keep_their_name() {
        let kustomization = json!({"generatorOptions": {"disableNameSuffixHash": true}});
        let generator = json!({"name": "s", "namespace": "team", "literals": ["k=hi"]});
        let made = one(Path::new("/"), &kustomization, &generator, "Secret").unwrap();
        assert_eq!((&made.object["type"], &made.object["data"]["k"]), (&json!("Opaque"), &json!("aGk=")));
        assert_eq!((made.hashed, &made.object["metadata"]["namespace"]), (false, &json!("team")));
        let wrong = json!({"name": "s", "literals": ["k"]});
        let refused = one(Path::new("/"), &json!({}), &wrong, "Secret").unwrap_err().text();
        assert_eq!(refused, "invalid literal source k, expected key=value");
    }
}
