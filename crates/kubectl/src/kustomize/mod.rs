//! Kustomizations: a folder that names manifests and what is to be changed in them. One pass collects resources, one
//! after the other transforms them, in kustomize's own order.

mod custom;
mod fields;
mod generate;
pub(crate) mod hash;
mod helm;
mod operations;
mod plugins;
mod read;
mod rename;
mod replace;
mod sort;
mod transform;
mod vars;

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use self::read::{read_inside, shown};
use crate::failure::{Failure, Result};
use crate::resource::files;
use crate::terminal;

/// How deep folders may name each other.
const DEPTH_MAX: usize = 50;

/// A resource on its way, with the name it had in its file: references are written in that name.
#[derive(Clone, Debug)]
pub(crate) struct Resource {
    pub object: Value,
    pub first_name: String,
    /// Made by a generator here; its name gets the content's hash.
    pub hashed: bool,
    pub origin: Origin,
}

/// Where a resource comes from: a file, or a generator of a kustomization.
#[derive(Clone, Debug, Default)]
pub(crate) struct Origin {
    pub file: PathBuf,
    pub generator: Option<&'static str>,
}

/// What kustomizations at any depth say for the end, when all names are known.
#[derive(Default)]
struct Later {
    /// The program that renders charts, where one may be run.
    helm: Option<String>,
    vars: Vec<Value>,
    var_places: Vec<Value>,
    references: Vec<Value>,
}

pub(crate) fn build(folder: &Path) -> Result<Vec<Value>> {
    build_with(folder, None)
}

/// The same with a program that renders charts.
pub(crate) fn build_with(folder: &Path, helm: Option<String>) -> Result<Vec<Value>> {
    if !folder.is_dir() {
        let here = std::env::current_dir().unwrap_or_default().join(folder);
        return Err(Failure::message(format!(
            "must build at directory: not a valid directory: evalsymlink failure on '{}' : lstat {}: no such file or directory",
            folder.display(),
            here.display()
        )));
    }
    let mut later = Later { helm, ..Later::default() };
    let mut resources = collect(folder, &[], "Kustomization", &mut later)?;
    rename::hashes(&mut resources);
    rename::references(&mut resources, &later.references);
    vars::resolve(&later.vars, &later.var_places, &mut resources)?;
    let kustomization = read::kustomization(folder)?;
    metadata(folder, &kustomization, &mut resources);
    let options = &kustomization["sortOptions"];
    match options["order"].as_str() {
        Some("fifo") => Ok(resources.into_iter().map(|resource| resource.object).collect()),
        None | Some("legacy" | "") => Ok(sort::in_order(resources, &options["legacySortOptions"])),
        Some(_) => Err(Failure::message("the field 'sortOptions.order' must be one of [fifo, legacy]")),
    }
}

/// What `buildMetadata` asks for: where each resource came from, and who built it.
fn metadata(folder: &Path, kustomization: &Value, resources: &mut [Resource]) {
    let wanted = texts(kustomization, "buildMetadata");
    let root = std::fs::canonicalize(folder).unwrap_or_else(|_| folder.to_path_buf());
    for resource in resources {
        if wanted.iter().any(|word| word == "originAnnotations") {
            let path = relative(&root, &resource.origin.file);
            let text = match resource.origin.generator {
                None => format!("path: {path}\n"),
                Some(kind) => format!("configuredIn: {path}\nconfiguredBy:\n  apiVersion: builtin\n  kind: {kind}\n"),
            };
            resource.object["metadata"]["annotations"]["config.kubernetes.io/origin"] = text.into();
        }
        if wanted.iter().any(|word| word == "managedByLabel") {
            resource.object["metadata"]["labels"]["app.kubernetes.io/managed-by"] = "kustomize-v5.8.1".into();
        }
    }
}

/// The way from one folder to a file, over their common parent.
fn relative(from: &Path, to: &Path) -> String {
    let (from, to): (Vec<_>, Vec<_>) = (from.components().collect(), to.components().collect());
    let common = from.iter().zip(&to).take_while(|(one, other)| one == other).count();
    let up = std::iter::repeat_n("..".to_string(), from.len() - common);
    let down = to[common..].iter().map(|part| part.as_os_str().to_string_lossy().into_owned());
    up.chain(down).collect::<Vec<_>>().join("/")
}

fn collect(folder: &Path, above: &[PathBuf], kind: &str, later: &mut Later) -> Result<Vec<Resource>> {
    collect_onto(folder, above, kind, Vec::new(), later)
}

/// The resources of a folder; a component's changes also go to those that were there before.
fn collect_onto(
    folder: &Path,
    above: &[PathBuf],
    kind: &str,
    before: Vec<Resource>,
    later: &mut Later,
) -> Result<Vec<Resource>> {
    let here = std::fs::canonicalize(folder).unwrap_or_else(|_| folder.to_path_buf());
    if above.contains(&here) || above.len() > DEPTH_MAX {
        return Err(Failure::message(format!(
            "cycle detected: candidate root '{}' contains visited root '{}'",
            here.display(),
            here.display()
        )));
    }
    let above: Vec<PathBuf> = above.iter().cloned().chain([here.clone()]).collect();
    let kustomization = read::kustomization(folder)?;
    let is_component = kustomization["kind"] == "Component";
    if is_component != (kind == "Component") {
        return Err(Failure::message(if is_component {
            format!("expected kind != 'Component' for path '{}'", here.display())
        } else {
            format!("expected kind 'Component' for path '{}' but got 'Kustomization'", here.display())
        }));
    }
    for (old, new) in [
        ("bases", "resources"),
        ("commonLabels", "labels"),
        ("patchesStrategicMerge", "patches"),
        ("patchesJson6902", "patches"),
    ] {
        if !kustomization[old].is_null() {
            terminal::errln(&format!(
                "# Warning: '{old}' is deprecated. Please use '{new}' instead. Run 'kustomize edit fix' to update your Kustomization automatically."
            ));
        }
    }
    if !kustomization["vars"].is_null() {
        terminal::errln(
            "# Warning: 'vars' is deprecated. Please use 'replacements' instead. [EXPERIMENTAL] Run 'kustomize edit fix' to update your Kustomization automatically.",
        );
    }
    // What goes wrong from here on goes wrong inside of this folder.
    let inside = above.len() > 1;
    accumulated(&here, &above, &kustomization, before, later).map_err(|failure| {
        if inside { within(&format!("recursed accumulation of path '{}': ", here.display()), failure) } else { failure }
    })
}

fn accumulated(
    folder: &Path,
    above: &[PathBuf],
    kustomization: &Value,
    before: Vec<Resource>,
    later: &mut Later,
) -> Result<Vec<Resource>> {
    let mut resources = before;
    for path in texts(kustomization, "resources").into_iter().chain(texts(kustomization, "bases")) {
        let place = folder.join(&path);
        if path.starts_with("http://") || path.starts_with("https://") {
            return Err(Failure::message(format!("resources from URLs are not supported: {path:?}")));
        }
        if place.is_dir() {
            let from = format!(
                "accumulating resources: accumulation err='accumulating resources from '{path}': '{}' must resolve to a file': ",
                shown(&place)
            );
            let found = collect(&place, above, "Kustomization", later).map_err(|failure| within(&from, failure))?;
            add(&mut resources, found)?;
        } else {
            let found = read::resources(folder, &path)?;
            add(&mut resources, found)?;
        }
    }
    let config = configurations(folder, kustomization)?;
    later.vars.extend(fields::list(kustomization, "vars"));
    later.var_places.extend(fields::list(&config, "varReference"));
    later.references.extend(fields::list(&config, "nameReference"));
    generate::all(folder, kustomization, &mut resources)?;
    helm::all(folder, kustomization, later.helm.as_deref(), &mut resources)?;
    plugins::generators(folder, kustomization, &mut resources)?;
    for path in texts(kustomization, "components") {
        let collected = collect_onto(&folder.join(&path), above, "Component", resources, later);
        resources = collected.map_err(|failure| {
            Failure::message(format!("accumulating components: accumulateDirectory: {:?}", failure.text()))
        })?;
    }
    transform::all(folder, kustomization, &config, &mut resources)?;
    replace::all(folder, kustomization, &mut resources)?;
    plugins::transformers(folder, kustomization, &mut resources)?;
    Ok(resources)
}

/// All files of `configurations` as one: lists of field specs by what they are for.
fn configurations(folder: &Path, kustomization: &Value) -> Result<Value> {
    let mut all = Map::new();
    for path in texts(kustomization, "crds") {
        // Definitions only add references of their own, which are written as configurations today; they must be there.
        read_inside(folder, &path).map_err(|failure| {
            let named = texts(kustomization, "crds").join(" ");
            Failure::message(format!("loading CRDs [{named}]: {}", failure.text()))
        })?;
    }
    for path in texts(kustomization, "configurations") {
        for (_, document) in files::documents(&path, &read_inside(folder, &path)?)? {
            for (key, specs) in document.as_object().into_iter().flatten() {
                let list = all.entry(key.clone()).or_insert_with(|| Value::Array(Vec::new()));
                if let (Some(list), Some(specs)) = (list.as_array_mut(), specs.as_array()) {
                    list.extend(specs.iter().cloned());
                }
            }
        }
    }
    Ok(all.into())
}

/// Only a folder's own failure to be built is told with the way to it.
fn within(from: &str, failure: Failure) -> Failure {
    match failure {
        Failure::Message(text) => Failure::Message(format!("{from}{text}")),
        other => other,
    }
}

/// No two resources may have the same kind and name in the same namespace.
fn add(resources: &mut Vec<Resource>, found: Vec<Resource>) -> Result<()> {
    for resource in found {
        let id = |resource: &Resource| {
            let object = &resource.object;
            (
                object["apiVersion"].clone(),
                object["kind"].clone(),
                object["metadata"]["namespace"].clone(),
                object["metadata"]["name"].clone(),
            )
        };
        if resources.iter().any(|known| id(known) == id(&resource)) {
            let object = &resource.object;
            let version = object["apiVersion"].as_str().unwrap_or_default();
            let (group, version) = version.split_once('/').unwrap_or(("[noGrp]", version));
            return Err(Failure::message(format!(
                "may not add resource with an already registered id: {}.{version}.{group}/{}.{}",
                object["kind"].as_str().unwrap_or_default(),
                object["metadata"]["name"].as_str().unwrap_or_default(),
                object["metadata"]["namespace"].as_str().unwrap_or("[noNs]")
            )));
        }
        resources.push(resource);
    }
    Ok(())
}

fn texts(value: &Value, key: &str) -> Vec<String> {
    value[key].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_string).collect()
}

fn pairs(value: &Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files by name, the first being the root's kustomization; the result as YAML.
    fn built(files: &[(&str, &str)], root: &str) -> String {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let objects = build(&folder.path().join(root)).unwrap_or_else(|failure| panic!("{}", failure.text()));
        objects.iter().map(crate::output::yaml::text).collect::<Vec<_>>().join("---\n")
    }

    #[test]
    fn an_overlay_changes_its_base() {
        let base = "resources: [web.yaml]\nconfigMapGenerator: [{name: settings, literals: [color=red]}]\n";
        let web = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec:\n  selector: {matchLabels: {app: web}}\n  template:\n    metadata: {labels: {app: web}}\n    spec:\n      containers: [{name: web, image: \"nginx:1\", envFrom: [{configMapRef: {name: settings}}]}]\n---\napiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {selector: {app: web}, ports: [{port: 80}]}\n";
        let overlay = "resources: [../base]\nnamespace: team\nnamePrefix: pre-\nlabels: [{pairs: {tier: front}, includeSelectors: true}]\nimages: [{name: nginx, newTag: \"2\"}]\nreplicas: [{name: web, count: 3}]\npatches:\n- patch: |\n    apiVersion: apps/v1\n    kind: Deployment\n    metadata: {name: web}\n    spec: {template: {spec: {containers: [{name: web, env: [{name: A, value: b}]}]}}}\n- target: {kind: Service}\n  patch: '[{\"op\": \"add\", \"path\": \"/spec/type\", \"value\": \"NodePort\"}]'\n";
        let text = built(
            &[("base/kustomization.yaml", base), ("base/web.yaml", web), ("over/kustomization.yaml", overlay)],
            "over",
        );
        for expected in [
            "namespace: team",
            "name: pre-web",
            "image: nginx:2",
            "replicas: 3",
            "tier: front",
            "type: NodePort",
            "value: b",
        ] {
            assert!(text.contains(expected), "{expected} in {text}");
        }
        // The generated name, prefix and hash with it, is what the container names too.
        let name = text
            .lines()
            .find_map(|line| line.trim().strip_prefix("name: ").filter(|name| name.starts_with("pre-settings-")))
            .unwrap();
        assert_eq!(text.matches(name).count(), 2, "{text}");
        assert!(text.starts_with("apiVersion: v1\ndata:\n  color: red\nkind: ConfigMap\n"), "{text}");
    }

    #[test]
    fn components_change_what_is_already_there() {
        let text = built(
            &[
                ("kustomization.yaml", "resources: [a.yaml]\ncomponents: [more]\n"),
                ("a.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"),
                (
                    "more/kustomization.yaml",
                    "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\nnameSuffix: -x\n",
                ),
            ],
            "",
        );
        assert!(text.contains("name: a-x"), "{text}");
    }
}
