//! The columns of `kubectl get ipaddress`.

use jiff::Timestamp;
use machinery::object::Meta;
use machinery::table::Cell;
use serde_json::Value;

pub(super) fn row(address: &Value, _now: Timestamp) -> Vec<Cell> {
    let parent = &address["spec"]["parentRef"];
    let parts = ["resource", "group", "namespace", "name"].map(|field| parent[field].as_str().unwrap_or(""));
    let [resource, group, namespace, name] = parts;
    let kind = if group.is_empty() { resource.to_string() } else { format!("{resource}.{group}") };
    let place = if namespace.is_empty() { name.to_string() } else { format!("{namespace}/{name}") };
    vec![address.name().into(), format!("{kind}/{place}").into()]
}
