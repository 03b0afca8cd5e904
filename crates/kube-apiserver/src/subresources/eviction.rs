//! `pods/eviction`: a delete that disruption budgets may refuse.

use bytes::Bytes;
use machinery::object::{Meta, child_mut};
use machinery::selector::LabelSelector;
use machinery::status::{Cause, Details, Status};
use serde_json::{Map, Value, json};

use crate::admission;
use crate::call::{Call, decode_as};
use crate::decode::Expected;
use crate::respond::{self, Reply};
use crate::verbs::delete;
use crate::write::{self, Owner, Part, Update, store_status};

pub async fn create(call: &Call, body: Bytes) -> Result<Reply, Status> {
    let shape = api::schema::schemas().by_name("io.k8s.api.policy.v1.Eviction").ok_or_else(Status::no_such_resource)?;
    let expected = Expected {
        group: "policy",
        version: "v1",
        kind: "Eviction",
        shape,
        defaults: |_| {},
        custom: None,
        packed: false,
    };
    let strictness = call.strictness("CreateOptions")?;
    let mut eviction = decode_as(call, &expected, &body, strictness)?;
    let (namespace, name) = (call.target.namespace.as_str(), call.target.name.as_str());
    if !eviction.name().is_empty() && eviction.name() != name {
        return Err(Status::bad_request("name in URL does not match name in Eviction object"));
    }
    let mut options = delete::Options::from_value(eviction.get("deleteOptions").unwrap_or(&Value::Null))?;
    options.dry_run |= call.dry_run("CreateOptions")?;
    call.app.cache.fresh().await.map_err(store_status)?;
    let key = call.resource.key(namespace, name)?;
    let item =
        call.resource.state()?.get(&key).ok_or_else(|| Status::not_found(call.resource.group_resource(), name))?;
    let pod = call.resource.conversion.decode(&item)?;
    let asked = admission::Request::create_of(call, &call.resource, &pod, "eviction", options.dry_run);
    call.app.admission.mutate_sent(&asked, &mut eviction).await?;
    call.app.admission.validate(&asked, Some(&eviction)).await?;
    if !ignores_budgets(&pod) {
        take_from_budget(call, &pod, options.dry_run).await?;
    }
    if !options.dry_run && !pod.is_deleting() {
        tell_reason(call, namespace, name).await?;
    }
    delete::one(call, namespace, name, &options).await?;
    let done = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
    Ok(respond::value(201, &call.answer, &done))
}

/// Job controllers and people read from the pod's conditions that it did not fail by itself.
async fn tell_reason(call: &Call, namespace: &str, name: &str) -> Result<(), Status> {
    let now = call.app.clock.stamp();
    // No manager owns what the server itself says.
    let (resource, part, owner) = (&call.resource, Part::Status, Owner::Applied);
    let update = Update { call, resource, namespace, name, part, owner: &owner, dry_run: false };
    write::update(update, |pod| Ok(with_reason(pod, &now))).await?;
    Ok(())
}

fn with_reason(pod: &Value, now: &str) -> Value {
    let mut condition = json!({
        "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting", "lastProbeTime": null, "lastTransitionTime": now,
    });
    if let Some(generation) = pod.meta("generation") {
        condition["observedGeneration"] = generation.clone();
    }
    let mut next = pod.clone();
    let list = child_mut(&mut next, "status").entry("conditions").or_insert_with(|| Value::Array(Vec::new()));
    if let Some(list) = list.as_array_mut() {
        list.retain(|entry| entry["type"] != "DisruptionTarget");
        list.push(condition);
    }
    next
}

/// A pod that serves nobody, or goes anyway, can always be evicted.
fn ignores_budgets(pod: &Value) -> bool {
    let phase = pod.pointer("/status/phase").and_then(Value::as_str).unwrap_or("");
    pod.is_deleting() || matches!(phase, "Succeeded" | "Failed" | "Pending")
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod.pointer("/status/conditions").and_then(Value::as_array);
    conditions.is_some_and(|list| list.iter().any(|entry| entry["type"] == "Ready" && entry["status"] == "True"))
}

async fn take_from_budget(call: &Call, pod: &Value, dry_run: bool) -> Result<(), Status> {
    let labels = pod.meta("labels").cloned().unwrap_or_else(|| Value::Object(Map::new()));
    let covers = |budget: &Value| {
        let selector = budget.pointer("/spec/selector").filter(|selector| !selector.is_null());
        selector
            .and_then(|selector| LabelSelector::from_object(selector).ok())
            .is_some_and(|selector| selector.matches(|key| labels.get(key).and_then(Value::as_str)))
    };
    let budgets: Vec<_> = call
        .app
        .views
        .all("poddisruptionbudgets", pod.namespace())
        .into_iter()
        .filter(|budget| covers(budget))
        .collect();
    let budget = match budgets.as_slice() {
        [] => return Ok(()),
        [budget] => budget,
        _ => {
            let message =
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
            return Err(Status::internal(message));
        }
    };
    if !is_ready(pod) && unhealthy_may_go(budget) {
        return Ok(());
    }
    let internal = Call::internal(&call.app, &json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget"}))?;
    let (namespace, name) = (budget.namespace().to_string(), budget.name().to_string());
    let now = call.app.clock.stamp();
    let owner = Owner::Update("kube-apiserver".into());
    let change = |budget: &Value| decremented(budget, pod.name(), &now);
    let taken = write::update(
        Update {
            call: &internal,
            resource: &internal.resource,
            namespace: &namespace,
            name: &name,
            part: Part::Status,
            owner: &owner,
            dry_run,
        },
        change,
    )
    .await;
    match taken {
        // The budget went meanwhile: nothing protects the pod any more.
        Err(status) if status.code == 404 => Ok(()),
        outcome => outcome.map(|_| ()),
    }
}

/// Running pods that are not ready may go when the application is healthy without them, or always, as the budget says.
fn unhealthy_may_go(budget: &Value) -> bool {
    let number = |field: &str| budget["status"][field].as_i64().unwrap_or(0);
    match budget["spec"]["unhealthyPodEvictionPolicy"].as_str() {
        Some("AlwaysAllow") => true,
        _ => number("currentHealthy") >= number("desiredHealthy") && number("desiredHealthy") > 0,
    }
}

fn decremented(budget: &Value, pod: &str, now: &str) -> Result<Value, Status> {
    let status = &budget["status"];
    let number = |field: &str| status[field].as_i64().unwrap_or(0);
    let name = budget.name();
    if number("observedGeneration") < budget.meta("generation").and_then(Value::as_i64).unwrap_or(0) {
        let cause = format!("The disruption budget {name} is still being processed by the server.");
        let mut refused = refused(cause);
        refused.details.get_or_insert_default().retry_after_seconds = Some(10);
        return Err(refused);
    }
    if number("disruptionsAllowed") <= 0 {
        return Err(refused(exhausted(name, status)));
    }
    let mut next = budget.clone();
    let status = child_mut(&mut next, "status");
    status.insert("disruptionsAllowed".into(), (number("disruptionsAllowed") - 1).into());
    let disrupted = status.entry("disruptedPods").or_insert_with(|| Value::Object(Map::new()));
    disrupted[pod] = now.into();
    Ok(next)
}

/// Why a budget allows nothing now.
fn exhausted(name: &str, status: &Value) -> String {
    let number = |field: &str| status[field].as_i64().unwrap_or(0);
    let (wanted, found) = (number("desiredHealthy"), number("currentHealthy"));
    let mut conditions = status["conditions"].as_array().into_iter().flatten();
    let condition = conditions.find(|entry| entry["type"] == "DisruptionAllowed" && entry["status"] == "False");
    let text = |field: &str| condition.and_then(|entry| entry[field].as_str()).unwrap_or("");
    let refusal = format!("The disruption budget {name} does not allow evicting pods currently");
    match (text("reason"), text("message")) {
        // The numbers mean nothing after a failure, so this comes first.
        ("SyncFailed", why) if !why.is_empty() => format!("{refusal} because it failed sync: {why}"),
        _ if found <= wanted => {
            format!("The disruption budget {name} needs {wanted} healthy pods and has {found} currently")
        }
        (reason, why) if !why.is_empty() => format!("{refusal} ({reason}): {why}"),
        _ => refusal,
    }
}

fn refused(cause: String) -> Status {
    let cause = Cause { reason: "DisruptionBudget".into(), message: cause, field: String::new() };
    let details = Details { causes: vec![cause], ..Details::default() };
    let message = "Cannot evict pod as it would violate the pod's disruption budget.";
    Status { details: Some(details), ..Status::new(429, "TooManyRequests", message) }
}
