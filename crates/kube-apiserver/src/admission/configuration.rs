//! The file of `--admission-control-config-file`: an `AdmissionConfiguration` with a part for each plugin that has
//! something to choose, in the file itself or in another one that it names.

use std::path::{Path, PathBuf};

use machinery::field::Errors;
use serde_json::Value;

use super::{
    event_rate_limit, image_policy, pod_node_selector, pod_security, pod_toleration_restriction, resource_quota,
};
use crate::configuration::{self, Document, Header, Shape};

/// What the plugins that can be configured were told.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Configuration {
    pub event_rate_limit: Option<Vec<event_rate_limit::Limit>>,
    pub image_policy: Option<image_policy::Settings>,
    pub node_selectors: pod_node_selector::Settings,
    pub pod_security: pod_security::Settings,
    pub tolerations: pod_toleration_restriction::Settings,
    pub limited_resources: Vec<resource_quota::Limited>,
}

#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    #[error("{}: {error}", path.display())]
    File { path: PathBuf, error: configuration::Error },
    #[error("{}: plugins[{index}]: {why}", path.display())]
    Plugin { path: PathBuf, index: usize, why: String },
}

const SHAPE: Shape = Shape::Object(&[
    ("apiVersion", Shape::Text),
    ("kind", Shape::Text),
    (
        "plugins",
        Shape::List(&Shape::Object(&[
            ("name", Shape::Text),
            ("path", Shape::Text),
            ("configuration", Shape::Anything),
        ])),
    ),
]);

/// One plugin's part: where it stands, and in which file.
pub struct Part<'a> {
    document: &'a Document,
    value: &'a Value,
    path: String,
    /// Other files are named as seen from here.
    pub folder: &'a Path,
}

impl<'a> Part<'a> {
    /// The part as one of those kinds, with such fields and no others.
    pub fn read(&self, headers: &[Header], shape: &Shape) -> Result<&'a Value, configuration::Error> {
        let mut outcome = Ok(());
        for header in headers {
            outcome = header.check(self.value);
            if outcome.is_ok() {
                break;
            }
        }
        outcome?;
        self.document.check(shape, self.value, &self.path)?;
        Ok(self.value)
    }

    /// Nothing where there are no errors.
    pub fn refuse(&self, errors: &Errors) -> Result<(), configuration::Error> {
        self.document.refuse_part(errors, &self.path)
    }
}

pub fn load(path: &Path) -> Result<Configuration, Error> {
    let failed = |error| Error::File { path: path.to_owned(), error };
    let text = configuration::read(path).map_err(failed)?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut found = Configuration::default();
    let document = Document::decode(&text).map_err(failed)?;
    // Before there was a kind for it, the file was that of one of these two plugins.
    for (field, name) in [("imagePolicy", "ImagePolicyWebhook"), ("podNodeSelectorPluginConfig", "PodNodeSelector")] {
        if document.value.get("kind").is_none() && document.value.get(field).is_some() {
            let part = Part { document: &document, value: &document.value, path: String::new(), folder };
            found.take(name, &part).map_err(failed)?;
            return Ok(found);
        }
    }
    let document = Document::parse(&text, "AdmissionConfiguration", &SHAPE).map_err(failed)?;
    let mut names: Vec<&str> = Vec::new();
    for (index, plugin) in document.value["plugins"].as_array().into_iter().flatten().enumerate() {
        let name = plugin["name"].as_str().unwrap_or_default();
        let refused = |why: String| Error::Plugin { path: path.to_owned(), index, why };
        if names.contains(&name) {
            return Err(refused(format!("the plugin {name:?} is configured twice")));
        }
        names.push(name);
        match (plugin.get("configuration"), plugin["path"].as_str()) {
            (Some(value), _) => {
                let at = format!("plugins[{index}].configuration");
                let part = Part { document: &document, value, path: at, folder };
                found.take(name, &part).map_err(failed)?;
            }
            (None, Some(other)) => {
                let other = folder.join(other);
                let failed = |error| Error::File { path: other.clone(), error };
                let document = Document::decode(&configuration::read(&other).map_err(failed)?).map_err(failed)?;
                let folder = other.parent().unwrap_or(Path::new(""));
                let part = Part { document: &document, value: &document.value, path: String::new(), folder };
                found.take(name, &part).map_err(failed)?;
            }
            (None, None) if super::names().contains(&name) => {}
            (None, None) => return Err(refused(format!("unknown admission plugin {name:?}"))),
        }
    }
    Ok(found)
}

impl Configuration {
    fn take(&mut self, name: &str, part: &Part<'_>) -> Result<(), configuration::Error> {
        match name {
            "EventRateLimit" => self.event_rate_limit = Some(event_rate_limit::read(part)?),
            "ImagePolicyWebhook" => self.image_policy = Some(image_policy::read(part)?),
            "PodNodeSelector" => self.node_selectors = pod_node_selector::read(part)?,
            "PodSecurity" => self.pod_security = pod_security::Settings::read(part)?,
            "PodTolerationRestriction" => self.tolerations = pod_toleration_restriction::read(part)?,
            "ResourceQuota" => self.limited_resources = resource_quota::read_limited(part)?,
            _ => {
                let why = format!("admission plugin {name:?} takes no configuration");
                return Err(configuration::Error::Fields(vec![why]));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loaded(text: &str, others: &[(&str, &str)]) -> Result<Configuration, String> {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in others {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let path = folder.path().join("admission.yaml");
        std::fs::write(&path, text).unwrap();
        let shown = format!("{}/", folder.path().display());
        load(&path).map_err(|error| error.to_string().replace(&shown, ""))
    }

    fn with(plugins: &str) -> String {
        format!("apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n{plugins}")
    }

    #[test]
    fn parts_are_in_the_file_or_beside_it() {
        let text = with(
            "- name: PodSecurity\n  configuration:\n    apiVersion: pod-security.admission.config.k8s.io/v1\n    kind: PodSecurityConfiguration\n    defaults: {enforce: baseline}\n- name: EventRateLimit\n  path: events.yaml\n",
        );
        let events = "apiVersion: eventratelimit.admission.k8s.io/v1alpha1\nkind: Configuration\nlimits:\n- {type: Namespace, qps: 50, burst: 100, cacheSize: 2000}\n- {type: User, qps: 10, burst: 50}\n";
        let found = loaded(&text, &[("events.yaml", events)]).unwrap();
        assert_eq!(found.event_rate_limit.map(|limits| limits.len()), Some(2));
        assert_ne!(found.pod_security, pod_security::Settings::default());
        let old = loaded("podNodeSelectorPluginConfig:\n  clusterDefaultNodeSelector: a=b\n", &[]).unwrap();
        assert_eq!(old.node_selectors.0.len(), 1);
    }

    #[test]
    fn mistakes_are_told_with_their_place() {
        let check = |plugins: &str, expected: &str| {
            assert_eq!(loaded(&with(plugins), &[]).unwrap_err(), expected, "{plugins}");
        };
        check(
            "- {name: LimitRanger, configuration: {}}\n",
            "admission.yaml: admission plugin \"LimitRanger\" takes no configuration",
        );
        check("- {name: Nonsense}\n", "admission.yaml: plugins[0]: unknown admission plugin \"Nonsense\"");
        check(
            "- {name: LimitRanger}\n- {name: LimitRanger}\n",
            "admission.yaml: plugins[1]: the plugin \"LimitRanger\" is configured twice",
        );
        check("- {nam: LimitRanger}\n", "admission.yaml: line 4: unknown field \"plugins[0].nam\"");
        check(
            "- name: PodSecurity\n  configuration:\n    apiVersion: pod-security.admission.config.k8s.io/v1\n    kind: PodSecurityConfiguration\n    defaults:\n      enforce: strict\n",
            "admission.yaml: line 9: plugins[0].configuration.defaults.enforce: Invalid value: \"strict\": must be one of privileged, baseline, restricted",
        );
        check(
            "- name: EventRateLimit\n  configuration:\n    apiVersion: v1\n    kind: Configuration\n",
            "admission.yaml: expected kind \"Configuration\" of eventratelimit.admission.k8s.io/v1alpha1, found \"Configuration\" of \"v1\"",
        );
    }
}
