//! PodNodeSelector: a namespace's annotation, or a selector for the whole cluster, says on which nodes its pods run; the
//! file of admission configuration may name for a namespace the labels that pods can ask for at all.

use std::collections::BTreeMap;
use std::sync::Arc;

use machinery::field::{Errors, FieldError, Problem};
use machinery::names;
use machinery::object::{Meta, child_mut};
use machinery::status::Status;
use serde_json::{Map, Value};

use super::configuration::Part;
use super::{Operation, Plugin, Request};
use crate::configuration::{self, Shape};
use crate::refusal::Refusal;
use crate::write::store_status;

const ANNOTATION: &str = "scheduler.alpha.kubernetes.io/node-selector";
/// The entry of the configuration that is for namespaces without an annotation.
const CLUSTER_DEFAULT: &str = "clusterDefaultNodeSelector";
const FIELD: &str = "podNodeSelectorPluginConfig";
const SHAPE: Shape = Shape::Object(&[(FIELD, Shape::Map(&Shape::Text))]);
const CONFLICT: &str = "pod node label selector conflicts with its namespace node label selector";
const NOT_LISTED: &str = "pod node label selector labels conflict with its namespace whitelist";

type Labels = BTreeMap<String, String>;

/// Selectors by namespace, and the one of the cluster under its name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings(pub BTreeMap<String, String>);

pub struct PodNodeSelector {
    pub settings: Settings,
}

#[async_trait::async_trait]
impl Plugin for PodNodeSelector {
    fn name(&self) -> &'static str {
        "PodNodeSelector"
    }

    async fn mutate(&self, request: &Request<'_>, object: &mut Value) -> Result<(), Status> {
        if !concerns(request) {
            return Ok(());
        }
        let namespace = namespace(request).await?;
        let selector = self.settings.of_namespace(&namespace).map_err(internal)?;
        merge(object, &selector).map_err(|why| refused(request, object, why))?;
        self.check(request, object, &selector)
    }

    async fn validate(&self, request: &Request<'_>, object: Option<&Value>) -> Result<(), Status> {
        let Some(pod) = object.filter(|_| concerns(request)) else { return Ok(()) };
        let namespace = namespace(request).await?;
        let selector = self.settings.of_namespace(&namespace).map_err(internal)?;
        self.check(request, pod, &selector)
    }
}

impl PodNodeSelector {
    fn check(&self, request: &Request<'_>, pod: &Value, selector: &Labels) -> Result<(), Status> {
        let listed = self.settings.listed(request.namespace).map_err(internal)?;
        check(pod, selector, &listed).map_err(|why| refused(request, pod, why))
    }
}

pub fn read(part: &Part<'_>) -> Result<Settings, configuration::Error> {
    let value = part.read(&[], &SHAPE)?;
    let entries = value[FIELD].as_object().into_iter().flatten();
    let settings: BTreeMap<String, String> =
        entries.map(|(name, text)| (name.clone(), text.as_str().unwrap_or_default().to_owned())).collect();
    let mut errors = Errors::default();
    for (name, text) in &settings {
        if let Err(why) = parse(text) {
            errors.push(FieldError::new(
                Problem::Invalid,
                format!("{FIELD}.{name}"),
                format!("{text:?}"),
                why.to_string(),
            ));
        }
    }
    part.refuse(&errors)?;
    Ok(Settings(settings))
}

impl Settings {
    /// What the namespace adds to its pods' selectors.
    fn of_namespace(&self, namespace: &Value) -> Result<Labels, LabelsError> {
        match namespace.annotation(ANNOTATION) {
            Some(text) => parse(text),
            None => self.listed(CLUSTER_DEFAULT),
        }
    }

    fn listed(&self, name: &str) -> Result<Labels, LabelsError> {
        parse(self.0.get(name).map_or("", String::as_str))
    }
}

fn concerns(request: &Request<'_>) -> bool {
    request.operation == Operation::Create && request.is("", "pods")
}

fn internal(error: LabelsError) -> Status {
    Status::internal(error.to_string())
}

fn refused(request: &Request<'_>, pod: &Value, why: Refusal) -> Status {
    Status::forbidden(request.resource.group_resource(), pod.name(), &why.to_string())
}

async fn namespace(request: &Request<'_>) -> Result<Arc<Value>, Status> {
    let look = || request.app.views.one("namespaces", "", request.namespace);
    if let Some(found) = look() {
        return Ok(found);
    }
    request.app.cache.fresh().await.map_err(store_status)?;
    look().ok_or_else(|| Status::internal(format!("namespace {} does not exist", request.namespace)))
}

/// Why a text is no list of labels.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum LabelsError {
    #[error("invalid selector: [{}]", .0.join(" "))]
    Form(Vec<String>),
    #[error("invalid selector: {part}: {problem}")]
    Label { part: String, problem: String },
}

/// `a=b,c=d`, as upstream reads it: only equalities.
fn parse(text: &str) -> Result<Labels, LabelsError> {
    let mut labels = Labels::new();
    for part in text.split(',').filter(|_| !text.is_empty()) {
        let words: Vec<&str> = part.split('=').collect();
        let [key, value] = words[..] else {
            return Err(LabelsError::Form(words.into_iter().map(Into::into).collect()));
        };
        let (key, value) = (key.trim(), value.trim());
        let problem = names::qualified_name(key).into_iter().chain(names::label_value(value)).next();
        if let Some(problem) = problem {
            return Err(LabelsError::Label { part: part.to_owned(), problem });
        }
        labels.insert(key.to_owned(), value.to_owned());
    }
    Ok(labels)
}

/// The namespace's labels and the pod's own, which must not contradict each other.
fn merge(pod: &mut Value, selector: &Labels) -> Result<(), Refusal> {
    if conflicts(pod, selector) {
        return Err(CONFLICT.into());
    }
    if selector.is_empty() {
        return Ok(());
    }
    let own = child_mut(pod, "spec").entry("nodeSelector").or_insert_with(|| Value::Object(Map::new()));
    for (key, value) in selector {
        own[key] = value.as_str().into();
    }
    Ok(())
}

fn check(pod: &Value, selector: &Labels, listed: &Labels) -> Result<(), Refusal> {
    if conflicts(pod, selector) {
        return Err(CONFLICT.into());
    }
    let is_listed = |(key, value): (&String, &Value)| listed.get(key).map(String::as_str) == value.as_str();
    if !listed.is_empty() && !own(pod).all(is_listed) {
        return Err(NOT_LISTED.into());
    }
    Ok(())
}

fn own(pod: &Value) -> impl Iterator<Item = (&String, &Value)> {
    pod.pointer("/spec/nodeSelector").and_then(Value::as_object).into_iter().flatten()
}

fn conflicts(pod: &Value, selector: &Labels) -> bool {
    own(pod).any(|(key, value)| selector.get(key).is_some_and(|wanted| Some(wanted.as_str()) != value.as_str()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(selector: Value) -> Value {
        json!({"spec": {"nodeSelector": selector}})
    }

    #[test]
    fn a_pod_gets_its_namespaces_labels() {
        let selector = parse("env = test , disk=ssd").unwrap();
        let mut one = pod(json!({"own": "x", "disk": "ssd"}));
        merge(&mut one, &selector).unwrap();
        assert_eq!(one, pod(json!({"own": "x", "disk": "ssd", "env": "test"})));
        assert_eq!(merge(&mut pod(json!({"env": "live"})), &selector), Err(CONFLICT.into()));
        let mut bare = json!({"spec": {}});
        merge(&mut bare, &selector).unwrap();
        assert_eq!(bare, pod(json!({"disk": "ssd", "env": "test"})));
        assert_eq!(check(&bare, &selector, &Labels::new()), Ok(()));
        assert_eq!(check(&bare, &selector, &parse("env=test").unwrap()), Err(NOT_LISTED.into()));
        assert_eq!(check(&bare, &selector, &parse("env=test,disk=ssd,more=1").unwrap()), Ok(()));
    }

    #[test]
    fn an_annotation_comes_before_the_clusters_default() {
        let settings = Settings([(CLUSTER_DEFAULT.to_owned(), "a=b".to_owned())].into());
        let annotated = json!({"metadata": {"annotations": {ANNOTATION: ""}}});
        assert_eq!(settings.of_namespace(&annotated), Ok(Labels::new()));
        assert_eq!(settings.of_namespace(&json!({"metadata": {}})), parse("a=b"));
    }

    #[test]
    fn only_equalities_are_selectors() {
        assert_eq!(parse("a").unwrap_err().to_string(), "invalid selector: [a]");
        assert_eq!(parse("a==b").unwrap_err().to_string(), "invalid selector: [a  b]");
        assert!(parse("a b=c").is_err());
        assert_eq!(parse(""), Ok(Labels::new()));
    }
}
