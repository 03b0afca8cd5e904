//! What a folder holds: its kustomization, and the files that it names.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{Origin, Resource};
use crate::failure::{Failure, Result};
use crate::resource::{files, flatten};

const FILES: [&str; 3] = ["kustomization.yaml", "kustomization.yml", "Kustomization"];

const KNOWN: &[&str] = &[
    "apiVersion",
    "kind",
    "metadata",
    "resources",
    "bases",
    "components",
    "namespace",
    "namePrefix",
    "nameSuffix",
    "labels",
    "commonLabels",
    "commonAnnotations",
    "patches",
    "patchesStrategicMerge",
    "patchesJson6902",
    "images",
    "replicas",
    "configMapGenerator",
    "secretGenerator",
    "generatorOptions",
    "sortOptions",
    "buildMetadata",
    "openapi",
    "replacements",
    "vars",
    "transformers",
    "validators",
    "generators",
    "configurations",
    "crds",
    "helmCharts",
    "helmChartInflationGenerator",
    "helmGlobals",
];

/// The kustomization of a folder, of which every field is known.
pub(super) fn kustomization(folder: &Path) -> Result<Value> {
    let file = file(folder)?;
    let bytes = std::fs::read(&file)?;
    if String::from_utf8_lossy(&bytes).trim().is_empty() {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        return Err(Failure::message(format!("{name} is empty")));
    }
    let decoded = machinery::codec::decode_yaml(&bytes)
        .map_err(|error| Failure::message(format!("invalid Kustomization: {error}")))?;
    check(&decoded.value)?;
    Ok(decoded.value)
}

fn file(folder: &Path) -> Result<PathBuf> {
    let mut found: Vec<PathBuf> = FILES.iter().map(|name| folder.join(name)).filter(|path| path.is_file()).collect();
    match found.len() {
        1 => Ok(found.remove(0)),
        0 => Err(Failure::message(format!(
            "unable to find one of 'kustomization.yaml', 'kustomization.yml' or 'Kustomization' in directory '{}'",
            shown(folder)
        ))),
        _ => Err(Failure::message(format!("Found multiple kustomization files under: {}", shown(folder)))),
    }
}

fn check(kustomization: &Value) -> Result<()> {
    for key in kustomization.as_object().into_iter().flatten().map(|(key, _)| key) {
        if !KNOWN.contains(&key.as_str()) {
            return Err(Failure::message(format!("invalid Kustomization: json: unknown field {key:?}")));
        }
    }
    for key in ["commonLabels", "commonAnnotations"] {
        let kind = |value: &Value| match value {
            Value::Bool(_) => Some("bool"),
            Value::Number(_) => Some("number"),
            _ => None,
        };
        if let Some(kind) = kustomization[key].as_object().and_then(|pairs| pairs.values().find_map(kind)) {
            return Err(Failure::message(format!(
                "invalid Kustomization: json: cannot unmarshal {kind} into Go struct field Kustomization.{key} of type string"
            )));
        }
    }
    Ok(())
}

/// A file in or below the folder; a kustomization reads nothing else.
pub(in crate::kustomize) fn read_inside(folder: &Path, path: &str) -> Result<Vec<u8>> {
    let place = folder.join(path);
    let missing = |place: &Path| {
        let place = std::path::absolute(place).unwrap_or_else(|_| place.to_path_buf());
        Failure::message(format!(
            "evalsymlink failure on '{0}' : lstat {0}: no such file or directory",
            place.display()
        ))
    };
    let real = std::fs::canonicalize(&place).map_err(|_| missing(&place))?;
    let root = std::fs::canonicalize(folder).map_err(|_| missing(folder))?;
    if !real.starts_with(&root) {
        return Err(Failure::message(format!(
            "security; file '{}' is not in or below '{}'",
            real.display(),
            root.display()
        )));
    }
    Ok(std::fs::read(&real)?)
}

pub(super) fn shown(folder: &Path) -> String {
    std::fs::canonicalize(folder).unwrap_or_else(|_| folder.to_path_buf()).display().to_string()
}

/// The resources of a manifest.
pub(super) fn resources(folder: &Path, path: &str) -> Result<Vec<Resource>> {
    let bytes = read_inside(folder, path).map_err(|failure| unreadable(folder, path, &failure))?;
    let mut found = Vec::new();
    for (_, document) in files::documents(path, &bytes)? {
        for object in flatten(document) {
            let first_name = object["metadata"]["name"].as_str().unwrap_or_default().to_string();
            let file = std::fs::canonicalize(folder.join(path)).unwrap_or_default();
            found.push(Resource { object, first_name, hashed: false, origin: Origin { file, generator: None } });
        }
    }
    Ok(found)
}

/// Upstream takes what is no file for a folder, and says of both why they are not.
fn unreadable(folder: &Path, path: &str, failure: &Failure) -> Failure {
    let why = failure.text();
    let tail = if why.contains("security;") {
        format!("must build at directory: '{}': file is not directory", shown(&folder.join(path)))
    } else {
        let place = std::path::absolute(folder.join(path)).unwrap_or_default();
        let place = place.display();
        format!(
            "must build at directory: not a valid directory: evalsymlink failure on '{place}' : lstat {place}: no such file or directory"
        )
    };
    Failure::message(format!(
        "accumulating resources: accumulation err='accumulating resources from '{path}': {why}': {tail}"
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_field_is_known() {
        assert!(check(&json!({"resources": [], "commonLabels": {"a": "b"}})).is_ok());
        let refused = |value: Value| check(&value).unwrap_err().text();
        assert_eq!(refused(json!({"resource": []})), "invalid Kustomization: json: unknown field \"resource\"");
        let number = refused(json!({"commonLabels": {"a": 1}}));
        assert!(number.contains("cannot unmarshal number into Go struct field Kustomization.commonLabels"), "{number}");
    }

    #[test]
    fn a_folder_has_one_kustomization() {
        let folder = tempfile::tempdir().unwrap();
        let refused = || kustomization(folder.path()).unwrap_err().text();
        assert!(refused().starts_with("unable to find one of 'kustomization.yaml'"));
        std::fs::write(folder.path().join("kustomization.yaml"), "\n").unwrap();
        assert_eq!(refused(), "kustomization.yaml is empty");
        std::fs::write(folder.path().join("Kustomization"), "resources: []\n").unwrap();
        assert!(refused().starts_with("Found multiple kustomization files under: "));
    }

    #[test]
    fn nothing_outside_of_the_folder_is_read() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("inner")).unwrap();
        std::fs::write(folder.path().join("a.yaml"), "kind: Pod\n").unwrap();
        assert!(read_inside(folder.path(), "a.yaml").is_ok());
        let refused = read_inside(&folder.path().join("inner"), "../a.yaml").unwrap_err().text();
        assert!(refused.starts_with("security; file '"), "{refused}");
        let missing = resources(folder.path(), "b.yaml").unwrap_err().text();
        assert!(missing.contains("not a valid directory: evalsymlink failure"), "{missing}");
    }
}
