//! `componentstatuses`: an old view of the control plane's health, computed when asked.

use jiff::Timestamp;
use machinery::status::Status;
use serde_json::{Value, json};

use crate::call::Call;
use crate::negotiate::Form;
use crate::respond::{self, Reply};
use crate::table::{self, Include};

const NAMES: &[&str] = &["controller-manager", "scheduler", "etcd-0"];

pub async fn get(call: &Call) -> Result<Reply, Status> {
    let name = call.target.name.as_str();
    if !NAMES.contains(&name) {
        return Err(Status::not_found(call.resource.group_resource(), name));
    }
    let object = component(call, name).await;
    respond::object(call, &call.resource, 200, object)
}

pub async fn list(call: &Call) -> Result<Reply, Status> {
    let mut items = Vec::new();
    for name in NAMES {
        items.push(component(call, name).await);
    }
    if call.answer.form == Form::Table {
        let now = call.app.clock.now();
        let row = |object: &Value| {
            table::row(&call.resource, object, Include::from(&call.query), call.answer.meta_version, now)
        };
        let rows = items.iter().map(row).collect();
        return Ok(respond::value(
            200,
            &call.answer,
            &table::whole(&call.resource, json!({}), rows, call.answer.meta_version, true),
        ));
    }
    Ok(respond::value(
        200,
        &call.answer,
        &json!({"kind": "ComponentStatusList", "apiVersion": "v1", "metadata": {}, "items": items}),
    ))
}

/// The store is asked; scheduler and controllers are known by their leases.
async fn component(call: &Call, name: &str) -> Value {
    let (healthy, message, error) = match name {
        "etcd-0" => match call.app.cache.store().revision().await {
            Ok(_) => (true, "ok".to_string(), String::new()),
            Err(error) => (false, String::new(), error.to_string()),
        },
        _ => {
            let lease = format!("kube-{name}");
            if renewed_recently(call, &lease) {
                (true, "ok".to_string(), String::new())
            } else {
                (false, String::new(), format!("no server holds the lease kube-system/{lease}"))
            }
        }
    };
    let mut condition = json!({"type": "Healthy", "status": if healthy { "True" } else { "False" }});
    if !message.is_empty() {
        condition["message"] = message.into();
    }
    if !error.is_empty() {
        condition["error"] = error.into();
    }
    json!({"kind": "ComponentStatus", "apiVersion": "v1", "metadata": {"name": name}, "conditions": [condition]})
}

fn renewed_recently(call: &Call, name: &str) -> bool {
    let table = call.app.table.load();
    let Some(leases) = table.get("coordination.k8s.io", "v1", "leases") else { return false };
    let Ok(key) = leases.key("kube-system", name) else { return false };
    let Some(item) = leases.state.as_ref().and_then(|state| state.get(&key)) else { return false };
    let Ok(lease) = leases.conversion.decode(&item) else { return false };
    let renewed =
        lease.pointer("/spec/renewTime").and_then(Value::as_str).and_then(|time| time.parse::<Timestamp>().ok());
    let seconds = lease.pointer("/spec/leaseDurationSeconds").and_then(Value::as_i64).unwrap_or(15);
    renewed.is_some_and(|renewed| call.app.clock.now().as_second() - renewed.as_second() <= 2 * seconds)
}
