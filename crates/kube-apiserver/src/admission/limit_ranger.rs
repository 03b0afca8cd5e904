//! LimitRanger: LimitRanges give containers their default requests and limits, and say how little and how much a
//! container, a pod and a claim may ask for.

use machinery::object::{Meta, child_mut};
use machinery::quantity::Quantity;
use machinery::status::Status;
use serde_json::{Map, Value};

use super::pod_resources::{Amounts, Side, amounts, of_container, of_containers};
use super::{Operation, Plugin, Request};

const ANNOTATION: &str = "kubernetes.io/limit-ranger";

pub struct LimitRanger;

#[async_trait::async_trait]
impl Plugin for LimitRanger {
    fn name(&self) -> &'static str {
        "LimitRanger"
    }

    async fn mutate(&self, request: &Request<'_>, object: &mut Value) -> Result<(), Status> {
        if request.operation == Operation::Create && request.is("", "pods") {
            for range in request.app.views.all("limitranges", request.namespace) {
                set_defaults(object, &range);
            }
        }
        Ok(())
    }

    async fn validate(&self, request: &Request<'_>, object: Option<&Value>) -> Result<(), Status> {
        let Some(object) = object.filter(|_| applies(request)) else { return Ok(()) };
        for range in request.app.views.all("limitranges", request.namespace) {
            let problems = match request.resource.kind.plural {
                "pods" => pod_problems(object, &range),
                _ => claim_problems(object, &range),
            };
            match problems.as_slice() {
                [] => {}
                [one] => return Err(request.forbidden(Some(object), one)),
                many => return Err(request.forbidden(Some(object), format!("[{}]", many.join(", ")))),
            }
        }
        Ok(())
    }
}

/// What a running pod asks for changes by `resize` only, and what goes anyway is not held to limits.
fn applies(request: &Request<'_>) -> bool {
    let going = request.old.is_some_and(Meta::is_deleting);
    match request.operation {
        Operation::Create => request.is("", "pods") || request.is("", "persistentvolumeclaims"),
        Operation::Update if request.is_for("", "pods") => !going && request.subresource == "resize",
        Operation::Update => !going && request.is("", "persistentvolumeclaims"),
        Operation::Delete | Operation::Connect => false,
    }
}

/// Fills in what containers leave out, and notes it on the pod.
fn set_defaults(pod: &mut Value, range: &Value) {
    let (mut limits, mut requests) = (Map::new(), Map::new());
    for limit in limits_of(range).filter(|limit| limit["type"] == "Container") {
        limits.extend(limit["default"].as_object().cloned().unwrap_or_default());
        requests.extend(limit["defaultRequest"].as_object().cloned().unwrap_or_default());
    }
    let mut notes = Vec::new();
    for (field, word) in [("containers", "container"), ("initContainers", "init container")] {
        let containers = child_mut(pod, "spec").get_mut(field).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            let set_limits = fill(container, Side::Limits, &limits);
            let set_requests = fill(container, Side::Requests, &requests);
            let name = container["name"].as_str().unwrap_or("");
            for (set, side) in [(set_requests, "request"), (set_limits, "limit")] {
                if !set.is_empty() {
                    notes.push(format!("{} {side} for {word} {name}", set.join(", ")));
                }
            }
        }
    }
    if notes.is_empty() {
        return;
    }
    let note = format!("LimitRanger plugin set: {}", notes.join("; "));
    let annotations = pod.meta_mut().entry("annotations").or_insert_with(|| Value::Object(Map::new()));
    annotations[ANNOTATION] = note.into();
}

/// The names that were filled in, in order.
fn fill(container: &mut Value, side: Side, defaults: &Map<String, Value>) -> Vec<String> {
    let resources = child_mut(container, "resources");
    let given = resources.get(side.field());
    let missing = |name: &String| given.is_none_or(|given| given.get(name).is_none());
    let set: Vec<String> = defaults.keys().filter(|name| missing(name)).cloned().collect();
    if !set.is_empty() {
        let slot = resources.entry(side.field()).or_insert_with(|| Value::Object(Map::new()));
        for name in &set {
            slot[name] = defaults[name].clone();
        }
    }
    set
}

fn limits_of(range: &Value) -> impl Iterator<Item = &Value> {
    range.pointer("/spec/limits").and_then(Value::as_array).into_iter().flatten()
}

fn pod_problems(pod: &Value, range: &Value) -> Vec<String> {
    let mut problems = Vec::new();
    for limit in limits_of(range) {
        match limit["type"].as_str() {
            Some("Container") => {
                for field in ["containers", "initContainers"] {
                    for container in pod["spec"][field].as_array().into_iter().flatten() {
                        let (requests, limits) =
                            (of_container(container, Side::Requests), of_container(container, Side::Limits));
                        check("Container", limit, &requests, &limits, &mut problems);
                    }
                }
            }
            Some("Pod") => {
                let (requests, limits) = (of_containers(pod, Side::Requests), of_containers(pod, Side::Limits));
                check("Pod", limit, &requests, &limits, &mut problems);
            }
            _ => {}
        }
    }
    problems.dedup();
    problems
}

/// A claim has requests only.
fn claim_problems(claim: &Value, range: &Value) -> Vec<String> {
    const KIND: &str = "PersistentVolumeClaim";
    let requests = of_container(&claim["spec"], Side::Requests);
    let mut problems = Vec::new();
    for limit in limits_of(range).filter(|limit| limit["type"] == KIND) {
        for (name, bound) in amounts(&limit["min"]) {
            problems.extend(below(KIND, &name, bound, requests.get(&name), None));
        }
        for (name, bound) in amounts(&limit["max"]) {
            let most = format!("maximum {name} usage per {KIND} is {bound}");
            match requests.get(&name) {
                None => problems.push(format!("{most}.  No request is specified")),
                Some(request) if *request > bound => problems.push(format!("{most}, but request is {request}")),
                Some(_) => {}
            }
        }
    }
    problems
}

fn check(kind: &str, limit: &Value, requests: &Amounts, limits: &Amounts, problems: &mut Vec<String>) {
    for (name, bound) in amounts(&limit["min"]) {
        problems.extend(below(kind, &name, bound, requests.get(&name), limits.get(&name)));
    }
    for (name, bound) in amounts(&limit["max"]) {
        problems.extend(above(kind, &name, bound, requests.get(&name), limits.get(&name)));
    }
    for (name, bound) in amounts(&limit["maxLimitRequestRatio"]) {
        problems.extend(too_far_apart(kind, &name, bound, requests.get(&name), limits.get(&name)));
    }
}

fn below(
    kind: &str,
    name: &str,
    bound: Quantity,
    request: Option<&Quantity>,
    limit: Option<&Quantity>,
) -> Option<String> {
    let least = format!("minimum {name} usage per {kind} is {bound}");
    match (request, limit) {
        (None, _) => Some(format!("{least}.  No request is specified")),
        (Some(request), _) if *request < bound => Some(format!("{least}, but request is {request}")),
        (_, Some(limit)) if *limit < bound => Some(format!("{least}, but limit is {limit}")),
        _ => None,
    }
}

fn above(
    kind: &str,
    name: &str,
    bound: Quantity,
    request: Option<&Quantity>,
    limit: Option<&Quantity>,
) -> Option<String> {
    let most = format!("maximum {name} usage per {kind} is {bound}");
    match (request, limit) {
        (_, None) => Some(format!("{most}.  No limit is specified")),
        (_, Some(limit)) if *limit > bound => Some(format!("{most}, but limit is {limit}")),
        (Some(request), _) if *request > bound => Some(format!("{most}, but request is {request}")),
        _ => None,
    }
}

fn too_far_apart(
    kind: &str,
    name: &str,
    bound: Quantity,
    request: Option<&Quantity>,
    limit: Option<&Quantity>,
) -> Option<String> {
    let most = format!("{name} max limit to request ratio per {kind} is {bound}");
    let given = |amount: Option<&Quantity>| amount.copied().filter(|amount| !amount.is_zero());
    let Some(request) = given(request) else {
        return Some(format!("{most}, but no request is specified or request is 0"));
    };
    let Some(limit) = given(limit) else {
        return Some(format!("{most}, but no limit is specified or limit is 0"));
    };
    let ratio = limit.as_f64() / request.as_f64();
    (ratio > bound.as_f64()).then(|| format!("{most}, but provided ratio is {ratio:.6}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn range(limit: Value) -> Value {
        json!({"spec": {"limits": [limit]}})
    }

    #[test]
    fn defaults_are_filled_in_and_noted() {
        let mut pod = json!({"metadata": {"name": "p"}, "spec": {
            "containers": [{"name": "a"}, {"name": "b", "resources": {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1"}}}],
            "initContainers": [{"name": "i", "resources": {"requests": {"cpu": "1", "memory": "1Mi"}}}],
        }});
        let defaults = json!({"type": "Container", "default": {"cpu": "500m", "memory": "64Mi"}, "defaultRequest": {"cpu": "100m"}});
        set_defaults(&mut pod, &range(defaults));
        let first = &pod["spec"]["containers"][0]["resources"];
        assert_eq!(first, &json!({"limits": {"cpu": "500m", "memory": "64Mi"}, "requests": {"cpu": "100m"}}));
        assert_eq!(pod["spec"]["containers"][1]["resources"]["limits"]["cpu"], "2");
        assert_eq!(
            pod.annotation(ANNOTATION),
            Some(
                "LimitRanger plugin set: cpu request for container a; cpu, memory limit for container a; \
                  cpu, memory limit for init container i"
            )
        );
    }

    #[test]
    fn bounds_are_kept() {
        let check = |limit: Value, resources: Value, expected: &[&str]| {
            let pod = json!({"spec": {"containers": [{"name": "c", "resources": resources}]}});
            assert_eq!(pod_problems(&pod, &range(limit)), expected);
        };
        let min = json!({"type": "Container", "min": {"cpu": "100m"}});
        check(min.clone(), json!({}), &["minimum cpu usage per Container is 100m.  No request is specified"]);
        check(
            min,
            json!({"requests": {"cpu": "50m"}}),
            &["minimum cpu usage per Container is 100m, but request is 50m"],
        );
        let max = json!({"type": "Pod", "max": {"memory": "1Gi"}});
        check(max.clone(), json!({}), &["maximum memory usage per Pod is 1Gi.  No limit is specified"]);
        check(
            max.clone(),
            json!({"limits": {"memory": "2Gi"}}),
            &["maximum memory usage per Pod is 1Gi, but limit is 2Gi"],
        );
        check(max, json!({"limits": {"memory": "1Gi"}}), &[]);
        let ratio = json!({"type": "Container", "maxLimitRequestRatio": {"cpu": "2"}});
        check(ratio.clone(), json!({"limits": {"cpu": "2"}, "requests": {"cpu": "1"}}), &[]);
        check(
            ratio,
            json!({"limits": {"cpu": "3"}, "requests": {"cpu": "1"}}),
            &["cpu max limit to request ratio per Container is 2, but provided ratio is 3.000000"],
        );
    }

    #[test]
    fn claims_are_bound_by_their_request() {
        let limit = json!({"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}, "max": {"storage": "2Gi"}});
        let check = |request: &str, expected: &[&str]| {
            let claim = json!({"spec": {"resources": {"requests": {"storage": request}}}});
            assert_eq!(claim_problems(&claim, &range(limit.clone())), expected);
        };
        check("1Gi", &[]);
        check("3Gi", &["maximum storage usage per PersistentVolumeClaim is 2Gi, but request is 3Gi"]);
        check("1Mi", &["minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 1Mi"]);
    }
}
