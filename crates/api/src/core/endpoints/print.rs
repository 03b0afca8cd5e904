//! The columns of `kubectl get endpoints`: three addresses at most.

use jiff::Timestamp;
use machinery::kind::age;
use machinery::object::Meta;
use machinery::table::Cell;
use serde_json::Value;

use crate::core::print::{first_three, text};

pub(super) fn row(endpoints: &Value, now: Timestamp) -> Vec<Cell> {
    vec![endpoints.name().into(), addresses(endpoints).into(), age(endpoints, now)]
}

fn addresses(endpoints: &Value) -> String {
    let subsets = list(endpoints, "subsets");
    if subsets.is_empty() {
        return "<none>".into();
    }
    first_three(subsets.iter().flat_map(|subset| {
        let (addresses, ports) = (list(subset, "addresses"), list(subset, "ports"));
        // A headless Service may have endpoints without ports.
        let bare = addresses.iter().filter(|_| ports.is_empty()).map(|address| text(address, "/ip").to_string());
        let full =
            ports.iter().flat_map(|port| addresses.iter().map(|address| join(text(address, "/ip"), &port["port"])));
        bare.chain(full).collect::<Vec<_>>()
    }))
}

fn join(ip: &str, port: &Value) -> String {
    if ip.contains(':') { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") }
}

fn list<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value.get(field).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}
