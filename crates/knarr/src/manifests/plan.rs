//! Decides which manifest files to apply and which objects to delete. Pure.

use std::fmt::{Display, Formatter};

use serde::{Deserialize, Serialize};
use serde_json::Value;

const ENDINGS: [&str; 3] = [".yaml", ".yml", ".json"];
const SKIP: &str = ".skip";

/// Which object is meant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Reference {
    pub api_version: String,
    pub kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    pub name: String,
}

impl Reference {
    pub fn of(object: &Value) -> Option<Reference> {
        let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        Some(Reference {
            api_version: text(&object["apiVersion"])?,
            kind: text(&object["kind"])?,
            namespace: text(&object["metadata"]["namespace"]),
            name: text(&object["metadata"]["name"])?,
        })
    }

    fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }

    /// Whether both mean one object, whatever the version. A file need not say `default`, and no kind is both in a namespace
    /// and in none.
    fn is_same(&self, other: &Reference) -> bool {
        let place = |reference: &Reference| reference.namespace.clone().unwrap_or_else(|| "default".into());
        self.group() == other.group()
            && self.kind == other.kind
            && self.name == other.name
            && place(self) == place(other)
    }
}

impl Display for Reference {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{} {namespace}/{}", self.kind, self.name),
            None => write!(f, "{} {}", self.kind, self.name),
        }
    }
}

/// Of what a file made, what neither it nor any other file has now; the last made goes first.
pub fn gone(made_once: &[Reference], made_now: &[Reference], wanted: &[Reference]) -> Vec<Reference> {
    let is_wanted = |one: &&Reference| made_now.iter().chain(wanted).any(|other| one.is_same(other));
    made_once.iter().rev().filter(|one| !is_wanted(one)).cloned().collect()
}

/// Those of a folder's files that are manifests and are not skipped, in their order.
pub fn manifests(mut paths: Vec<String>) -> Vec<String> {
    let skips: Vec<String> = paths.iter().filter_map(|path| Some(path.strip_suffix(SKIP)?.to_owned())).collect();
    let is_hidden = |path: &String| path.split('/').any(|part| part.starts_with('.'));
    paths.retain(|path| base(path).is_some() && !is_hidden(path) && !skips.contains(path));
    paths.sort();
    paths
}

/// What `--disable` calls a file: its name without the ending, and the folders it is in.
pub fn names(path: &str) -> Vec<String> {
    let mut names: Vec<String> = path.match_indices('/').map(|(at, _)| path[..at].to_owned()).collect();
    names.extend(base(path).map(str::to_owned));
    names
}

pub fn is_disabled(path: &str, disabled: &[String]) -> bool {
    names(path).iter().any(|name| disabled.contains(name))
}

/// A manifest's name without folder and ending.
fn base(path: &str) -> Option<&str> {
    let name = path.rsplit('/').next().unwrap_or(path);
    let ending = ENDINGS.iter().find(|ending| name.to_ascii_lowercase().ends_with(**ending))?;
    Some(&name[..name.len() - ending.len()])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reference(text: &str) -> Reference {
        let mut parts = text.split(' ');
        let mut next = || parts.next().unwrap().to_owned();
        let (api_version, kind, name) = (next(), next(), next());
        match name.split_once('.') {
            Some((namespace, name)) => {
                Reference { api_version, kind, namespace: Some(namespace.into()), name: name.into() }
            }
            None => Reference { api_version, kind, namespace: None, name },
        }
    }

    #[test]
    fn what_no_file_has_any_more_goes_the_last_first() {
        let check = |once: &[&str], now: &[&str], wanted: &[&str], expected: &[&str]| {
            let all = |texts: &[&str]| texts.iter().map(|text| reference(text)).collect::<Vec<_>>();
            assert_eq!(gone(&all(once), &all(now), &all(wanted)), all(expected));
        };
        check(&["v1 A a.x", "v1 B b", "v1 C c"], &["v1 B b"], &[], &["v1 C c", "v1 A a.x"]);
        // It moved to another file.
        check(&["v1 A a.x"], &[], &["v1 A a.x"], &[]);
        // Another version of the same object.
        check(&["apps/v1beta1 A a.x"], &["apps/v1 A a.x"], &[], &[]);
        check(&["apps/v1 A a.x"], &["batch/v1 A a.x"], &[], &["apps/v1 A a.x"]);
        // A file need not name the default namespace.
        check(&["v1 A default.x"], &[], &["v1 A x"], &[]);
        check(&["v1 A other.x"], &[], &["v1 A x"], &["v1 A other.x"]);
    }

    #[test]
    fn files_are_taken_by_their_endings_and_names() {
        let paths = [
            "b.yml",
            "a.yaml",
            "c.JSON",
            "d.txt",
            "e.yaml.skip",
            "e.yaml",
            ".f.yaml",
            "g/h.yaml",
            "g/.i/j.yaml",
            "k.yaml~",
        ];
        let taken = manifests(paths.map(str::to_owned).to_vec());
        assert_eq!(taken, ["a.yaml", "b.yml", "c.JSON", "g/h.yaml"]);
    }

    #[test]
    fn files_and_folders_are_disabled_by_name() {
        let disabled = |path: &str, name: &str| is_disabled(path, &[name.to_owned()]);
        assert!(disabled("web.yaml", "web") && disabled("a/web.yaml", "web") && disabled("a/web.yaml", "a"));
        assert!(disabled("a/b/web.yaml", "a/b"));
        assert!(!disabled("web.yaml", "we") && !disabled("a/web.yaml", "a/web"));
    }
}
