//! PodTolerationRestriction: a namespace's annotations say which taints its pods tolerate by default, and which they may
//! tolerate at all; the file of admission configuration says it for namespaces that are silent.

use std::sync::Arc;

use machinery::object::{Meta, child_mut};
use machinery::status::{GroupResource, Status};
use serde_json::{Value, json};

use super::configuration::Part;
use super::pod_resources::is_best_effort;
use super::{Operation, Plugin, Request};
use crate::configuration::{self, Header, Shape};
use crate::write::store_status;

const DEFAULTS: &str = "scheduler.alpha.kubernetes.io/defaultTolerations";
const ALLOWED: &str = "scheduler.alpha.kubernetes.io/tolerationsWhitelist";
const HEADERS: [Header; 1] =
    [Header { kind: "Configuration", group: "podtolerationrestriction.admission.k8s.io", versions: &["v1alpha1"] }];
const TOLERATIONS: Shape = Shape::List(&Shape::Object(&[
    ("key", Shape::Text),
    ("operator", Shape::Text),
    ("value", Shape::Text),
    ("effect", Shape::Text),
    ("tolerationSeconds", Shape::Number),
]));
const SHAPE: Shape = Shape::Object(&[
    ("apiVersion", Shape::Text),
    ("kind", Shape::Text),
    ("default", TOLERATIONS),
    ("whitelist", TOLERATIONS),
]);
const MEMORY_PRESSURE: &str = "node.kubernetes.io/memory-pressure";

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    pub default: Vec<Value>,
    pub whitelist: Vec<Value>,
}

pub fn read(part: &Part<'_>) -> Result<Settings, configuration::Error> {
    let value = part.read(&HEADERS, &SHAPE)?;
    let list = |field: &str| value[field].as_array().cloned().unwrap_or_default();
    Ok(Settings { default: list("default"), whitelist: list("whitelist") })
}

pub struct PodTolerationRestriction {
    pub settings: Settings,
}

#[async_trait::async_trait]
impl Plugin for PodTolerationRestriction {
    fn name(&self) -> &'static str {
        "PodTolerationRestriction"
    }

    async fn mutate(&self, request: &Request<'_>, object: &mut Value) -> Result<(), Status> {
        if !concerns(request) {
            return Ok(());
        }
        let namespace = namespace(request).await?;
        let mut more = Vec::new();
        if request.operation == Operation::Create {
            let given = of_annotation(&namespace, DEFAULTS).map_err(internal)?;
            more = given.unwrap_or_else(|| self.settings.default.clone());
        }
        if !is_best_effort(object) {
            more.push(json!({"key": MEMORY_PRESSURE, "operator": "Exists", "effect": "NoSchedule"}));
        }
        if !more.is_empty() {
            let spec = child_mut(object, "spec");
            let own = spec.get("tolerations").and_then(Value::as_array).cloned().unwrap_or_default();
            spec.insert("tolerations".into(), merged(own, more).into());
        }
        self.check(&namespace, object)
    }

    async fn validate(&self, request: &Request<'_>, object: Option<&Value>) -> Result<(), Status> {
        let Some(pod) = object.filter(|_| concerns(request)) else { return Ok(()) };
        self.check(&*namespace(request).await?, pod)
    }
}

impl PodTolerationRestriction {
    fn check(&self, namespace: &Value, pod: &Value) -> Result<(), Status> {
        let of_namespace = of_annotation(namespace, ALLOWED).map_err(internal)?;
        let (scope, allowed) = match &of_namespace {
            Some(list) => ("namespace", list),
            None => ("cluster", &self.settings.whitelist),
        };
        let mut own = pod.pointer("/spec/tolerations").and_then(Value::as_array).into_iter().flatten();
        if allowed.is_empty() || own.all(|one| allowed.iter().any(|wider| covers(wider, one))) {
            return Ok(());
        }
        // Upstream's refusal is a plain error, which its clients see as an internal one.
        let why = "pod tolerations (possibly merged with namespace default tolerations) conflict with its";
        Err(Status::internal(format!("{why} {scope} whitelist")))
    }
}

fn concerns(request: &Request<'_>) -> bool {
    matches!(request.operation, Operation::Create | Operation::Update) && request.is("", "pods")
}

async fn namespace(request: &Request<'_>) -> Result<Arc<Value>, Status> {
    let look = || request.app.views.one("namespaces", "", request.namespace);
    if let Some(found) = look() {
        return Ok(found);
    }
    request.app.cache.fresh().await.map_err(store_status)?;
    look().ok_or_else(|| Status::not_found(GroupResource { group: "", resource: "namespaces" }, request.namespace))
}

#[derive(Debug, thiserror::Error)]
#[error("cannot decode {key}: {error}")]
struct AnnotationError {
    key: &'static str,
    error: serde_json::Error,
}

fn internal(error: AnnotationError) -> Status {
    Status::internal(error.to_string())
}

/// None where the namespace says nothing; an empty text is an empty list.
fn of_annotation(namespace: &Value, key: &'static str) -> Result<Option<Vec<Value>>, AnnotationError> {
    match namespace.annotation(key) {
        None => Ok(None),
        Some("") => Ok(Some(Vec::new())),
        Some(text) => serde_json::from_str(text).map(Some).map_err(|error| AnnotationError { key, error }),
    }
}

/// Both lists without what another entry covers; of equals the first stays.
fn merged(own: Vec<Value>, more: Vec<Value>) -> Vec<Value> {
    let all: Vec<Value> = own.into_iter().chain(more).collect();
    let mut kept: Vec<Value> = Vec::new();
    for (index, one) in all.iter().enumerate() {
        let by_kept = kept.iter().any(|wider| covers(wider, one));
        let by_later = all[index + 1..].iter().any(|wider| wider != one && covers(wider, one));
        if !by_kept && !by_later {
            kept.push(one.clone());
        }
    }
    kept
}

/// Whether the first tolerates all that the second does.
fn covers(wide: &Value, narrow: &Value) -> bool {
    if wide == narrow {
        return true;
    }
    let text = |of: &Value, field: &str| of.get(field).and_then(Value::as_str).unwrap_or("").to_owned();
    let any_key = text(wide, "key").is_empty() && text(wide, "operator") == "Exists";
    if text(wide, "key") != text(narrow, "key") && !any_key {
        return false;
    }
    let effect = text(wide, "effect");
    if effect != text(narrow, "effect") && !effect.is_empty() {
        return false;
    }
    let seconds = |of: &Value| of.get("tolerationSeconds").and_then(Value::as_i64);
    if let Some(most) = seconds(wide).filter(|_| effect == "NoExecute")
        && seconds(narrow).is_none_or(|asked| asked > most)
    {
        return false;
    }
    match text(wide, "operator").as_str() {
        "Equal" | "" => text(narrow, "operator") == "Equal" && text(wide, "value") == text(narrow, "value"),
        operator => operator == "Exists",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wider_tolerations_cover_narrower_ones() {
        let check = |wide: Value, narrow: Value, expected: bool| {
            assert_eq!(covers(&wide, &narrow), expected, "{wide} {narrow}");
        };
        let all = json!({"operator": "Exists"});
        check(all.clone(), json!({"key": "a", "operator": "Equal", "value": "b", "effect": "NoSchedule"}), true);
        check(json!({"key": "a", "operator": "Exists"}), json!({"key": "b", "operator": "Exists"}), false);
        check(json!({"key": "a", "operator": "Equal", "value": "x"}), json!({"key": "a", "operator": "Exists"}), false);
        let minute = json!({"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60});
        let longer = json!({"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 61});
        check(minute.clone(), longer.clone(), false);
        check(longer, minute, true);
        check(
            json!({"key": "a", "operator": "Exists", "effect": "NoSchedule"}),
            json!({"key": "a", "operator": "Exists"}),
            false,
        );
    }

    #[test]
    fn merged_tolerations_have_no_doubles() {
        let all = json!({"operator": "Exists"});
        let one = json!({"key": "a", "operator": "Exists"});
        assert_eq!(merged(vec![one.clone()], vec![all.clone()]), [all]);
        assert_eq!(merged(vec![one.clone()], vec![one.clone()]), [one]);
    }

    #[test]
    fn pods_keep_to_the_list_of_their_namespace_or_cluster() {
        let listed = json!({"key": "a", "operator": "Exists"});
        let plugin =
            PodTolerationRestriction { settings: Settings { default: vec![], whitelist: vec![listed.clone()] } };
        let pod = json!({"spec": {"tolerations": [{"key": "b", "operator": "Exists"}]}});
        let silent = json!({"metadata": {}});
        let refused = plugin.check(&silent, &pod).unwrap_err();
        assert_eq!(
            refused.message,
            "Internal error occurred: pod tolerations (possibly merged with namespace default tolerations) conflict with its cluster whitelist"
        );
        let open = json!({"metadata": {"annotations": {ALLOWED: ""}}});
        assert!(plugin.check(&open, &pod).is_ok());
        let wide = json!({"metadata": {"annotations": {ALLOWED: "[{\"operator\":\"Exists\"}]"}}});
        assert!(plugin.check(&wide, &pod).is_ok());
        assert!(plugin.check(&silent, &json!({"spec": {"tolerations": [listed]}})).is_ok());
    }
}
