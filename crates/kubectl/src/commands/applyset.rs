//! `apply --prune --applyset`: a set of objects with a parent that knows of which kinds and in which namespaces they are.
//! What carries the set's label and is in no file any more is pruned; nothing needs to be guessed from annotations.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine;
use serde_json::json;
use sha2::{Digest, Sha256};

use super::change::{APPLY, Change, DryRun};
use crate::failure::{Failure, Result};
use crate::resource::Info;
use crate::resource::mapping::Mapping;
use crate::resource::select::{Query, info_of};
use crate::session::{Call, Session};
use crate::terminal;

const TOOLING: &str = "applyset.kubernetes.io/tooling";
const NAMESPACES: &str = "applyset.kubernetes.io/additional-namespaces";
const KINDS: &str = "applyset.kubernetes.io/contains-group-kinds";
/// What older tools wrote instead of the kinds.
const RESOURCES: &str = "applyset.kubernetes.io/contains-group-resources";
const ID: &str = "applyset.kubernetes.io/id";
const PART_OF: &str = "applyset.kubernetes.io/part-of";
const PARENT_TYPE: &str = "applyset.kubernetes.io/is-parent-type";

const TOOL: &str = "kubectl";
const MANAGER: &str = "kubectl-applyset";

/// Kinds and namespaces in which the members of a set are, or were.
#[derive(Clone, Default)]
struct Extent {
    /// By kind and group, as the parent's annotation has them.
    kinds: BTreeMap<String, Mapping>,
    namespaces: BTreeSet<String>,
}

pub(super) struct ApplySet {
    parent: Mapping,
    name: String,
    namespace: String,
    /// What the parent said before, and what the files say now.
    before: Extent,
    now: Extent,
}

/// It is an alpha feature, which upstream hides behind a variable.
pub(super) fn enabled() -> bool {
    std::env::var("KUBECTL_APPLYSET").is_ok_and(|value| value == "true")
}

impl ApplySet {
    /// From `[RESOURCE][.GROUP]/NAME`, or the name of a secret.
    pub(crate) async fn from(session: &Session, reference: &str) -> Result<ApplySet> {
        let invalid = |why: String| Failure::message(format!("invalid parent reference {reference:?}: {why}"));
        let (kind, name) = reference.split_once('/').unwrap_or(("secrets", reference));
        if name.is_empty() {
            return Err(invalid("name cannot be blank".into()));
        }
        let parent = session.mapping(kind).await.map_err(|_| {
            let (name, group) = kind.split_once('.').unwrap_or((kind, ""));
            invalid(format!("no matches for {group}/, Resource={name}"))
        })?;
        // Only the namespace of the command line counts, or a set would depend on who applies it.
        let given = session.flags.global("namespace").unwrap_or_default();
        let namespace = if parent.namespaced { given.to_string() } else { String::new() };
        Ok(ApplySet { parent, name: name.into(), namespace, before: Extent::default(), now: Extent::default() })
    }

    fn is_built_in(&self) -> bool {
        self.parent.is("", "secrets") || self.parent.is("", "configmaps")
    }

    pub(crate) async fn check(&self, session: &Session) -> Result<()> {
        let mut problems = Vec::new();
        if self.parent.namespaced && self.namespace.is_empty() {
            problems.push("namespace is required to use namespace-scoped ApplySet".to_string());
        }
        if !self.is_built_in() {
            let call =
                Call::get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions").with("labelSelector", PARENT_TYPE);
            let list = session.send(&call).await?;
            let mut definitions = list["items"].as_array().into_iter().flatten();
            if !definitions.any(|definition| definition["metadata"]["name"] == self.parent.resource()) {
                problems.push(format!(
                    "resource {:?} is not permitted as an ApplySet parent",
                    format!("{}, Resource={}", self.parent.api_version_with_slash(), self.parent.plural)
                ));
            }
        }
        match &problems[..] {
            [] => Ok(()),
            [one] => Err(Failure::message(one.clone())),
            many => Err(Failure::message(format!("[{}]", many.join(", ")))),
        }
    }

    fn shown(&self) -> String {
        format!("{}.{}/{}", self.parent.plural, self.parent.group, self.name)
    }

    /// Of the parent's name, namespace, kind and group.
    fn id(&self) -> String {
        let whole = [&self.name, &self.namespace, &self.parent.kind, &self.parent.group].map(String::as_str).join(".");
        let sum = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(Sha256::digest(whole.as_bytes()));
        format!("applyset-{sum}-v1")
    }

    pub(super) fn add_label(&self, info: &mut Info) -> Result<()> {
        let labels = &mut info.object["metadata"]["labels"];
        if !labels[PART_OF].is_null() {
            return Err(Failure::message(format!("ApplySet label {PART_OF:?} already set in input data")));
        }
        labels[PART_OF] = self.id().into();
        Ok(())
    }

    /// Before anything is applied the parent hears of all that will be: whoever is interrupted leaves nothing behind that
    /// the set does not know.
    pub(crate) async fn begin(&mut self, change: &Change<'_>, infos: &[Info]) -> Result<()> {
        self.read_parent(change.session).await?;
        for info in infos {
            self.now.kinds.entry(group_kind(&info.mapping)).or_insert_with(|| info.mapping.clone());
            if info.mapping.namespaced && !info.namespace.is_empty() {
                self.now.namespaces.insert(info.namespace.clone());
            }
        }
        let mut both = self.before.clone();
        both.kinds.extend(self.now.kinds.clone());
        both.namespaces.extend(self.now.namespaces.clone());
        self.write_parent(change, &both).await
    }

    async fn read_parent(&mut self, session: &Session) -> Result<()> {
        let shown = self.shown();
        let parent = match session.send(&Call::get(self.parent.object(&self.namespace, &self.name))).await {
            Ok(parent) => parent,
            Err(failure) if failure.is_not_found() && self.is_built_in() => return Ok(()),
            Err(failure) if failure.is_not_found() => {
                return Err(Failure::message("custom resource ApplySet parents cannot be created automatically"));
            }
            Err(failure) => {
                return Err(Failure::message(format!(
                    "failed to fetch ApplySet parent object {shown:?}: {}",
                    failure.text()
                )));
            }
        };
        let annotation = |name: &str| parent["metadata"]["annotations"][name].as_str();
        let refuse = |why: String| Err(Failure::message(format!("ApplySet parent object {shown:?} {why}")));
        let Some(tooling) = annotation(TOOLING) else {
            return refuse(format!("already exists and is missing required annotation {TOOLING:?}"));
        };
        let tool = tooling.rsplit_once('/').map_or(tooling, |(tool, _)| tool);
        if tool != TOOL {
            return refuse(format!("already exists and is managed by tooling {tool:?} instead of {TOOL:?}"));
        }
        match parent["metadata"]["labels"][ID].as_str() {
            None => return refuse(format!("exists and does not have required label {ID}")),
            Some(id) if id != self.id() => {
                return refuse(format!(
                    "exists and has incorrect value for label {ID:?} (got: {id}, want: {})",
                    self.id()
                ));
            }
            Some(_) => {}
        }
        let parsing = |why: String| Failure::message(format!("parsing ApplySet annotation on {shown:?}: {why}"));
        let Some(kinds) = annotation(KINDS).or(annotation(RESOURCES).filter(|kinds| !kinds.is_empty())) else {
            return Err(parsing(format!(
                "kubectl requires the {KINDS:?} annotation to be set on all ApplySet parent objects"
            )));
        };
        for kind in kinds.split(',').filter(|kind| !kind.is_empty()) {
            let mapping = session.mapping(kind).await.map_err(|_| {
                parsing(format!(
                    "could not find mapping for kind in {KINDS:?} annotation: no matches for kind {kind:?}"
                ))
            })?;
            self.before.kinds.insert(group_kind(&mapping), mapping);
        }
        let others = annotation(NAMESPACES).unwrap_or_default();
        self.before.namespaces = others.split(',').filter(|name| !name.is_empty()).map(str::to_string).collect();
        if self.parent.namespaced {
            self.before.namespaces.insert(self.namespace.clone());
        }
        Ok(())
    }

    async fn write_parent(&self, change: &Change<'_>, extent: &Extent) -> Result<()> {
        if change.local() {
            return Ok(());
        }
        let kinds: Vec<&str> = extent.kinds.keys().map(String::as_str).collect();
        let others = extent.namespaces.iter().filter(|name| **name != self.namespace);
        let others: Vec<&str> = others.map(String::as_str).collect();
        let mut parent = json!({"apiVersion": self.parent.api_version(), "kind": self.parent.kind, "metadata": {
            "name": self.name,
            "annotations": {
                TOOLING: format!("{TOOL}/{}", crate::VERSION),
                KINDS: kinds.join(","),
                NAMESPACES: others.join(","),
            },
            "labels": {ID: self.id()},
        }});
        if !self.namespace.is_empty() {
            parent["metadata"]["namespace"] = self.namespace.clone().into();
        }
        let path = self.parent.object(&self.namespace, &self.name);
        let call = change.call_as(Call::patch(path, APPLY, &parent), MANAGER);
        let sent = match change.session.send(&call).await {
            Err(failure) if failure.reason() == "Conflict" => {
                terminal::log(
                    'W',
                    "applyset.go:455",
                    &format!(
                        "WARNING: failed to update ApplySet: {}\nApplySet field manager {MANAGER} should own these fields. Retrying with conflicts forced.",
                        failure.text()
                    ),
                );
                change.session.send(&call.with("force", "true")).await
            }
            sent => sent,
        };
        sent.map(|_| ()).map_err(|failure| match failure {
            Failure::Status { status, .. } => Failure::Status { status, prefix: "failed to update ApplySet: ".into() },
            other => other,
        })
    }

    /// Deletes the members that were not applied, and tells the parent what is left.
    pub(super) async fn prune(&self, change: &Change<'_>, applied: &[Info]) -> Result<()> {
        let session = change.session;
        let kept: Vec<&str> = applied.iter().filter_map(|info| info.object["metadata"]["uid"].as_str()).collect();
        let members = Query { selector: format!("{PART_OF}={}", self.id()), chunk: 500, ..Query::default() };
        for mapping in self.before.kinds.values() {
            let places: Vec<&str> =
                if mapping.namespaced { self.before.namespaces.iter().map(String::as_str).collect() } else { vec![""] };
            for namespace in places {
                for object in session.list(mapping, namespace, &members).await? {
                    let info = info_of(mapping, object);
                    let uid = info.object["metadata"]["uid"].clone();
                    if uid.as_str().is_some_and(|uid| kept.contains(&uid)) {
                        continue;
                    }
                    if !change.local() {
                        let mut options = super::delete::options(session, session.flags.integer("grace-period"))?;
                        options["preconditions"] = json!({"uid": uid});
                        let mut call = Call::delete(info.path(), &options);
                        if change.dry == DryRun::Server {
                            call = call.with("dryRun", "All");
                        }
                        match session.send(&call).await {
                            Ok(_) => {}
                            Err(failure) if failure.is_not_found() => {}
                            Err(failure) => {
                                return Err(Failure::message(format!(
                                    "pruning {} {}/{}: {}",
                                    mapping.kind,
                                    info.namespace,
                                    info.name,
                                    failure.text()
                                )));
                            }
                        }
                    }
                    change.report(&info.shown(), &info.object, "pruned")?;
                }
            }
        }
        self.write_parent(change, &self.now).await
    }
}

/// `Deployment.apps`, and `ConfigMap` for the core.
fn group_kind(mapping: &Mapping) -> String {
    if mapping.group.is_empty() { mapping.kind.clone() } else { format!("{}.{}", mapping.kind, mapping.group) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_those_of_other_tools() {
        let parent =
            Mapping { kind: "Secret".into(), version: "v1".into(), plural: "secrets".into(), ..Mapping::default() };
        let set = ApplySet {
            parent,
            name: "set1".into(),
            namespace: "r".into(),
            before: Extent::default(),
            now: Extent::default(),
        };
        // As a real kubectl labelled it.
        assert_eq!(set.id(), "applyset-AwpuNhvvMeIdaDdw9yPxArbtE9GdRMKDxZ5RWC4293c-v1");
    }
}
