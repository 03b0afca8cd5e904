//! `helmCharts`: charts are rendered by helm itself, where the command line allows it to be run.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use super::{Origin, Resource, fields, texts};
use crate::failure::{Failure, Result};
use crate::resource::{files, flatten};

/// Where charts lie, unless `helmGlobals` say otherwise.
const HOME: &str = "charts";

/// `program` is what renders, if it may.
pub(crate) fn all(
    folder: &Path,
    kustomization: &Value,
    program: Option<&str>,
    resources: &mut Vec<Resource>,
) -> Result<()> {
    for key in ["helmCharts", "helmChartInflationGenerator"] {
        for chart in fields::list(kustomization, key) {
            let Some(program) = program else {
                return Err(Failure::message(format!(
                    "trouble configuring builtin HelmChartInflationGenerator with config: `\n{}`: must specify --enable-helm",
                    crate::output::yaml::text(&chart)
                )));
            };
            for object in rendered(folder, &kustomization["helmGlobals"], &chart, program)? {
                let first_name = object["metadata"]["name"].as_str().unwrap_or_default().to_string();
                let file = std::fs::canonicalize(folder).unwrap_or_default().join("kustomization.yaml");
                let origin = Origin { file, generator: Some("HelmChartInflationGenerator") };
                super::add(resources, vec![Resource { object, first_name, hashed: false, origin }])?;
            }
        }
    }
    Ok(())
}

fn rendered(folder: &Path, globals: &Value, chart: &Value, program: &str) -> Result<Vec<Value>> {
    let text = |key: &str| chart[key].as_str().filter(|text| !text.is_empty());
    // Nothing of the person's own settings of helm goes into what is built.
    let own = tempfile::Builder::new().prefix("kustomize-helm-").rand_bytes(9).tempdir()?;
    run(folder, own.path(), program, &["version".into(), "--short".into()])?;
    let home = folder.join(globals["chartHome"].as_str().unwrap_or(HOME));
    let name = text("name").unwrap_or_default();
    let place = home.join(name);
    if !place.exists() {
        let Some(repository) = text("repo") else {
            return Err(Failure::message(format!(
                "no repo specified for pull, no chart found at '{}'",
                place.display()
            )));
        };
        let mut words = vec!["pull".to_string(), "--untar".into(), "--untardir".into(), home.display().to_string()];
        match repository.strip_suffix('/').unwrap_or(repository) {
            stored if stored.starts_with("oci://") => words.push(format!("{stored}/{name}")),
            server => words.extend(["--repo".into(), server.into(), name.into()]),
        }
        words.extend(text("version").into_iter().flat_map(|version| ["--version".to_string(), version.into()]));
        run(folder, own.path(), program, &words)?;
    }
    let mut words = vec!["template".to_string()];
    words.push(text("releaseName").map_or("--generate-name".into(), str::to_string));
    let option = |name: &str, key: &str| {
        text(key).into_iter().flat_map(|value| [name.to_string(), value.into()]).collect::<Vec<_>>()
    };
    words.extend(option("--namespace", "namespace"));
    words.extend(option("--name-template", "nameTemplate"));
    words.push(place.display().to_string());
    let values = text("valuesFile").map(|file| folder.join(file));
    for file in values.into_iter().chain(texts(chart, "additionalValuesFiles").iter().map(|file| folder.join(file))) {
        words.extend(["-f".to_string(), file.display().to_string()]);
    }
    if chart["valuesInline"].is_object() {
        let file = own.path().join("values.yaml");
        std::fs::write(&file, crate::output::yaml::text(&chart["valuesInline"]))?;
        words.extend(["-f".to_string(), file.display().to_string()]);
    }
    texts(chart, "apiVersions").into_iter().for_each(|version| words.extend(["--api-versions".to_string(), version]));
    words.extend(option("--kube-version", "kubeVersion"));
    for (key, word) in [("includeCRDs", "--include-crds"), ("skipTests", "--skip-tests"), ("skipHooks", "--no-hooks")] {
        if chart[key] == true {
            words.push(word.into());
        }
    }
    let output = run(folder, own.path(), program, &words)?;
    let documents = files::documents("helm", &output.stdout)?;
    Ok(documents.into_iter().flat_map(|(_, document)| flatten(document)).collect())
}

fn run(folder: &Path, own: &Path, program: &str, words: &[String]) -> Result<Output> {
    let own = own.join("helm");
    let variables = [("CONFIG", own.clone()), ("CACHE", own.join(".cache")), ("DATA", own.join(".data"))]
        .map(|(name, path)| (format!("HELM_{name}_HOME"), path.display().to_string()));
    let failed = |why: String| {
        let shown: Vec<String> = variables.iter().map(|(name, value)| format!("{name}={value}")).collect();
        Failure::message(format!(
            "unable to run: '{program} {}' with env=[{}] (is '{program}' installed?): {why}",
            words.join(" "),
            shown.join(" ")
        ))
    };
    let output =
        Command::new(program).args(words).current_dir(folder).envs(variables.clone()).output().map_err(|error| {
            let error = crate::failure::go_io_error(&error);
            failed(if program.contains('/') {
                format!("fork/exec {program}: {error}")
            } else {
                format!("exec: {program:?}: executable file not found in $PATH")
            })
        })?;
    match output.status.code() {
        Some(0) => Ok(output),
        code => {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_string();
            Err(failed(format!("exit status {}: {said}", code.unwrap_or(-1))))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_the_program_prints_is_taken() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("helm");
        let script = "#!/bin/sh\n[ \"$1\" = version ] && exit\necho '{apiVersion: v1, kind: ConfigMap, metadata: {name: made}}'\necho \"$@\" > asked\n";
        std::fs::write(&program, script).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::create_dir_all(folder.path().join("charts/web")).unwrap();
        let kustomization =
            json!({"helmCharts": [{"name": "web", "releaseName": "r", "namespace": "n", "includeCRDs": true}]});
        let mut resources = Vec::new();
        assert!(all(folder.path(), &kustomization, None, &mut resources).unwrap_err().text().contains("--enable-helm"));
        all(folder.path(), &kustomization, program.to_str(), &mut resources).unwrap();
        assert_eq!(resources[0].first_name, "made");
        let asked = std::fs::read_to_string(folder.path().join("asked")).unwrap();
        let chart = folder.path().join("charts/web");
        assert_eq!(asked.trim(), format!("template r --namespace n {} --include-crds", chart.display()));
    }
}
