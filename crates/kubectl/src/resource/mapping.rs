//! From what a user calls a resource (`po`, `pods.v1.`, `deployments.apps`, `Deployment`) to where the server keeps it.

use std::time::Duration;

use serde_json::{Value, json};

use crate::failure::{Failure, Result};
use crate::session::{Call, Session};

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Mapping {
    pub group: String,
    pub version: String,
    pub kind: String,
    pub plural: String,
    pub singular: String,
    pub namespaced: bool,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
    pub verbs: Vec<String>,
}

impl Mapping {
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// `apps/v1`, and `/v1` for the core.
    pub(crate) fn api_version_with_slash(&self) -> String {
        format!("{}/{}", self.group, self.version)
    }

    /// `deployments.apps`.
    pub(crate) fn resource(&self) -> String {
        with_group(&self.plural, &self.group)
    }

    /// `deployment.apps`, which stands before `/name` in messages.
    pub(crate) fn shown(&self) -> String {
        with_group(&self.kind.to_lowercase(), &self.group)
    }

    /// The collection, in a namespace or in all.
    pub(crate) fn collection(&self, namespace: &str) -> String {
        let namespace = escaped(namespace);
        let root = if self.group.is_empty() { "/api".into() } else { format!("/apis/{}", self.group) };
        if self.namespaced && !namespace.is_empty() {
            format!("{root}/{}/namespaces/{namespace}/{}", self.version, self.plural)
        } else {
            format!("{root}/{}/{}", self.version, self.plural)
        }
    }

    pub(crate) fn object(&self, namespace: &str, name: &str) -> String {
        format!("{}/{}", self.collection(namespace), escaped(name))
    }

    pub(crate) fn can(&self, verb: &str) -> bool {
        self.verbs.iter().any(|known| known == verb)
    }

    pub(crate) fn is(&self, group: &str, plural: &str) -> bool {
        self.group == group && self.plural == plural
    }
}

/// A name as a part of a path.
pub(crate) fn escaped(name: &str) -> String {
    percent_encoding::utf8_percent_encode(name, NAME).to_string()
}

const NAME: &percent_encoding::AsciiSet = &percent_encoding::CONTROLS.add(b'/').add(b'?').add(b'#').add(b'%').add(b' ');

fn with_group(name: &str, group: &str) -> String {
    if group.is_empty() { name.to_string() } else { format!("{name}.{group}") }
}

/// A built-in kind, for which nothing needs to be asked.
fn from_kind(kind: &machinery::kind::Kind) -> Mapping {
    let owned = |texts: &[&str]| texts.iter().map(|text| text.to_string()).collect();
    Mapping {
        group: kind.group.into(),
        version: kind.version.into(),
        kind: kind.kind.into(),
        plural: kind.plural.into(),
        singular: kind.singular.into(),
        namespaced: kind.namespaced(),
        short_names: owned(kind.short_names),
        categories: owned(kind.categories),
        verbs: owned(kind.verbs),
    }
}

/// How a user may write a resource: `name`, `name.group`, `name.version.group`.
fn matches(mapping: &Mapping, text: &str) -> bool {
    let text = text.to_lowercase();
    let is_name = |name: &str| {
        mapping.plural == name
            || mapping.singular == name
            || mapping.kind.eq_ignore_ascii_case(name)
            || mapping.short_names.iter().any(|short| short == name)
    };
    match text.split_once('.') {
        None => is_name(&text),
        Some((name, rest)) if is_name(name) => {
            // A part of the group's name is enough: `ing.networking`.
            let versioned = rest
                .split_once('.')
                .is_some_and(|(version, group)| version == mapping.version && mapping.group == group);
            versioned || rest == mapping.group || (!rest.is_empty() && mapping.group.starts_with(&format!("{rest}.")))
        }
        Some(_) => false,
    }
}

impl Session {
    /// The mapping of what a user wrote, or upstream's complaint.
    pub(crate) async fn mapping(&self, text: &str) -> Result<Mapping> {
        match self.find_mapping(|mapping| matches(mapping, text)).await? {
            Some(found) => {
                self.warn_of_others(&found, text);
                Ok(found)
            }
            None => {
                let name = text.split('.').next().unwrap_or(text);
                Err(Failure::message(format!("the server doesn't have a resource type {name:?}")))
            }
        }
    }

    /// A short name that several resources have is worth a word.
    fn warn_of_others(&self, found: &Mapping, text: &str) {
        if !found.short_names.iter().any(|short| short == text) {
            return;
        }
        let built_in = api::KINDS.iter().map(|kind| from_kind(kind));
        let mut others: Vec<String> = built_in
            .filter(|kind| kind.group != found.group && kind.short_names.iter().any(|short| short == text))
            .map(|kind| kind.resource())
            .collect();
        others.dedup();
        for other in others {
            self.warn_once(&format!("short name {text:?} could also match lower priority resource {other}"));
        }
    }

    pub(crate) async fn mapping_of_kind(&self, api_version: &str, kind: &str) -> Result<Option<Mapping>> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        self.find_mapping(|mapping| mapping.group == group && mapping.version == version && mapping.kind == kind).await
    }

    async fn find_mapping(&self, wanted: impl Fn(&Mapping) -> bool) -> Result<Option<Mapping>> {
        if let Some(kind) = api::KINDS.iter().map(|kind| from_kind(kind)).find(|mapping| wanted(mapping)) {
            return Ok(Some(kind));
        }
        if let Some(found) = self.discovered(false).await?.into_iter().find(|mapping| wanted(mapping)) {
            return Ok(Some(found));
        }
        // What is kept on disk may be older than the kind.
        Ok(self.discovered(true).await?.into_iter().find(|mapping| wanted(mapping)))
    }

    /// Everything the server has, from disk where that is fresh.
    pub(crate) async fn discovered(&self, fresh: bool) -> Result<Vec<Mapping>> {
        if !fresh && let Some(known) = self.discovered.borrow().as_ref() {
            return Ok(known.clone());
        }
        let file = self.cache_file()?;
        if !fresh && let Some(known) = read_cache(&file) {
            *self.discovered.borrow_mut() = Some(known.clone());
            return Ok(known);
        }
        let known = self.discover().await?;
        write_cache(&file, &known);
        *self.discovered.borrow_mut() = Some(known.clone());
        Ok(known)
    }

    async fn discover(&self) -> Result<Vec<Mapping>> {
        let mut found = Vec::new();
        for path in ["/api", "/apis"] {
            let answer = self.send(&Call::get(path).accept(AGGREGATED)).await.map_err(unread)?;
            if answer["kind"] == "APIGroupDiscoveryList" {
                found.extend(aggregated(&answer));
            } else {
                found.extend(self.discover_one_by_one(path, &answer).await?);
            }
        }
        Ok(found)
    }

    /// For servers that do not know the aggregated form.
    async fn discover_one_by_one(&self, path: &str, answer: &Value) -> Result<Vec<Mapping>> {
        let mut versions: Vec<String> = Vec::new();
        for version in answer["versions"].as_array().into_iter().flatten() {
            versions.extend(version.as_str().map(str::to_string));
        }
        for group in answer["groups"].as_array().into_iter().flatten() {
            let mut preferred: Vec<&str> = group["preferredVersion"]["groupVersion"].as_str().into_iter().collect();
            let all = group["versions"].as_array().into_iter().flatten();
            preferred.extend(all.filter_map(|version| version["groupVersion"].as_str()));
            for version in preferred {
                if !versions.iter().any(|known| known == version) {
                    versions.push(version.to_string());
                }
            }
        }
        let mut found = Vec::new();
        for version in versions {
            let Ok(list) = self.send(&Call::get(format!("{path}/{version}"))).await else { continue };
            for resource in list["resources"].as_array().into_iter().flatten() {
                let name = resource["name"].as_str().unwrap_or_default();
                if name.contains('/') {
                    continue;
                }
                let (group, version) = version.split_once('/').unwrap_or(("", &version));
                found.push(Mapping {
                    group: group.into(),
                    version: version.into(),
                    kind: resource["kind"].as_str().unwrap_or_default().into(),
                    plural: name.into(),
                    singular: resource["singularName"].as_str().unwrap_or_default().into(),
                    namespaced: resource["namespaced"].as_bool().unwrap_or(false),
                    short_names: texts(&resource["shortNames"]),
                    categories: texts(&resource["categories"]),
                    verbs: texts(&resource["verbs"]),
                });
            }
        }
        Ok(found)
    }

    fn cache_file(&self) -> Result<std::path::PathBuf> {
        let server = &self.settings()?.server;
        let host = server.split("://").nth(1).unwrap_or(server);
        let safe: String = host.chars().map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '_' }).collect();
        let folder = match self.flags.text("cache-dir") {
            "" | crate::command::CACHE => match std::env::var_os("KUBECACHEDIR").filter(|folder| !folder.is_empty()) {
                Some(folder) => folder.into(),
                None => crate::config::home().join(".kube/cache"),
            },
            folder => folder.into(),
        };
        Ok(folder.join("discovery").join(safe).join("resources.json"))
    }
}

/// Upstream's client does not read why discovery was refused.
fn unread(failure: Failure) -> Failure {
    match failure {
        Failure::Status { status, .. } => {
            let code = status["code"].as_u64().and_then(|code| u16::try_from(code).ok()).unwrap_or_default();
            Failure::status(crate::session::refusal(code, b"unknown"))
        }
        other => other,
    }
}

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";

/// How long discovery is believed. A kind that is missing is asked for again before that.
const CACHE_MAX: Duration = Duration::from_secs(6 * 3600);

fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_string).collect()
}

fn aggregated(answer: &Value) -> Vec<Mapping> {
    let mut found = Vec::new();
    for group in answer["items"].as_array().into_iter().flatten() {
        for version in group["versions"].as_array().into_iter().flatten() {
            for resource in version["resources"].as_array().into_iter().flatten() {
                let kind = &resource["responseKind"];
                found.push(Mapping {
                    group: group["metadata"]["name"].as_str().unwrap_or_default().into(),
                    version: version["version"].as_str().unwrap_or_default().into(),
                    kind: kind["kind"].as_str().unwrap_or_default().into(),
                    plural: resource["resource"].as_str().unwrap_or_default().into(),
                    singular: resource["singularResource"].as_str().unwrap_or_default().into(),
                    namespaced: resource["scope"] == "Namespaced",
                    short_names: texts(&resource["shortNames"]),
                    categories: texts(&resource["categories"]),
                    verbs: texts(&resource["verbs"]),
                });
            }
        }
    }
    found
}

fn read_cache(file: &std::path::Path) -> Option<Vec<Mapping>> {
    let age = std::fs::metadata(file).ok()?.modified().ok()?.elapsed().ok()?;
    if age > CACHE_MAX {
        return None;
    }
    let value: Value = serde_json::from_slice(&std::fs::read(file).ok()?).ok()?;
    let mut found = Vec::new();
    for entry in value.as_array()? {
        let text = |key: &str| entry[key].as_str().unwrap_or_default().to_string();
        found.push(Mapping {
            group: text("group"),
            version: text("version"),
            kind: text("kind"),
            plural: text("plural"),
            singular: text("singular"),
            namespaced: entry["namespaced"].as_bool().unwrap_or(false),
            short_names: texts(&entry["shortNames"]),
            categories: texts(&entry["categories"]),
            verbs: texts(&entry["verbs"]),
        });
    }
    Some(found)
}

/// A cache that cannot be written only costs time.
fn write_cache(file: &std::path::Path, known: &[Mapping]) {
    let entries: Vec<Value> = known
        .iter()
        .map(|mapping| {
            json!({"group": mapping.group, "version": mapping.version, "kind": mapping.kind, "plural": mapping.plural,
                "singular": mapping.singular, "namespaced": mapping.namespaced, "shortNames": mapping.short_names,
                "categories": mapping.categories, "verbs": mapping.verbs})
        })
        .collect();
    let Some(folder) = file.parent() else { return };
    let _ = std::fs::create_dir_all(folder);
    let new = folder.join(format!("resources.{}", std::process::id()));
    if std::fs::write(&new, Value::from(entries).to_string()).is_ok() {
        let _ = std::fs::rename(&new, file);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn built_in() -> Vec<Mapping> {
        api::KINDS.iter().map(|kind| from_kind(kind)).collect()
    }

    #[test]
    fn resources_have_many_names() {
        let find =
            |text: &str| built_in().into_iter().find(|mapping| matches(mapping, text)).map(|found| found.resource());
        for text in ["po", "pod", "pods", "Pod", "pods.v1."] {
            assert_eq!(find(text).as_deref(), Some("pods"), "{text}");
        }
        for text in ["deploy", "deployments.apps", "deployments.v1.apps", "Deployment"] {
            assert_eq!(find(text).as_deref(), Some("deployments.apps"), "{text}");
        }
        for text in ["ing.networking", "ingresses.networking.k8s.io"] {
            assert_eq!(find(text).as_deref(), Some("ingresses.networking.k8s.io"), "{text}");
        }
        for text in ["bananas", "pods.v2.", "deployments.batch"] {
            assert_eq!(find(text), None, "{text}");
        }
        let deployments = built_in().into_iter().find(|mapping| matches(mapping, "deploy")).unwrap();
        assert_eq!(deployments.object("a", "b"), "/apis/apps/v1/namespaces/a/deployments/b");
        assert_eq!(deployments.collection(""), "/apis/apps/v1/deployments");
        assert_eq!(deployments.shown(), "deployment.apps");
    }
}
