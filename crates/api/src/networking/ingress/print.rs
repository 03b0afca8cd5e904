//! The columns of `kubectl get ingress`.

use jiff::Timestamp;
use machinery::kind::age;
use machinery::object::Meta;
use machinery::table::Cell;
use serde_json::Value;

/// Hosts and addresses are cut to this many, with a count of the rest.
const HOSTS_MAX: usize = 3;

pub(super) fn row(ingress: &Value, now: Timestamp) -> Vec<Cell> {
    let spec = &ingress["spec"];
    let class = spec["ingressClassName"].as_str().unwrap_or("<none>");
    let ports = if spec["tls"].as_array().is_some_and(|tls| !tls.is_empty()) { "80, 443" } else { "80" };
    vec![
        ingress.name().into(),
        class.into(),
        hosts(&spec["rules"]).into(),
        addresses(&ingress["status"]["loadBalancer"]).into(),
        ports.into(),
        age(ingress, now),
    ]
}

fn hosts(rules: &Value) -> String {
    let all: Vec<&str> = rules
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|rule| rule["host"].as_str())
        .filter(|host| !host.is_empty())
        .collect();
    match all.len() {
        0 => "*".into(),
        count if count > HOSTS_MAX => format!("{} + {} more...", all[..HOSTS_MAX].join(","), count - HOSTS_MAX),
        _ => all.join(","),
    }
}

/// Every address or name that the load balancer has, each once; the whole text is kept short only by kubectl.
fn addresses(balancer: &Value) -> String {
    let mut all: Vec<&str> = Vec::new();
    for entry in balancer["ingress"].as_array().into_iter().flatten() {
        let text = ["ip", "hostname"].iter().find_map(|field| entry[*field].as_str().filter(|text| !text.is_empty()));
        all.extend(text);
    }
    all.sort_unstable();
    all.dedup();
    all.join(",")
}
