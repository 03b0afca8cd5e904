//! The quality of service of a pod: who is evicted first when a node runs short.

use std::collections::BTreeMap;

use machinery::quantity::Quantity;
use serde_json::Value;

type Amounts = BTreeMap<String, Quantity>;

/// `Guaranteed`, `Burstable` or `BestEffort`, from the requests and limits of processor and memory.
pub fn class(spec: &Value) -> &'static str {
    let (mut requests, mut limits) = (Amounts::new(), Amounts::new());
    let mut guaranteed = true;
    let own = &spec["resources"];
    let asks_itself = own["requests"].is_object() || own["limits"].is_object();
    let containers = ["containers", "initContainers"]
        .into_iter()
        .flat_map(|list| spec[list].as_array().into_iter().flatten().map(|container| &container["resources"]));
    let parts: Vec<&Value> = if asks_itself { vec![own] } else { containers.collect() };
    for resources in parts {
        add(&mut requests, &resources["requests"]);
        // A guarantee needs both limits on every container.
        guaranteed &= add(&mut limits, &resources["limits"]) == 2;
    }
    let equal = requests.len() == limits.len()
        && requests.iter().all(|(name, request)| limits.get(name).is_some_and(|limit| limit == request));
    match (requests.is_empty() && limits.is_empty(), guaranteed && equal) {
        (true, _) => "BestEffort",
        (false, true) => "Guaranteed",
        (false, false) => "Burstable",
    }
}

/// Adds the amounts that count, and answers with how many there were.
fn add(sum: &mut Amounts, list: &Value) -> usize {
    let mut found = 0;
    for name in ["cpu", "memory"] {
        let amount = list.get(name).and_then(|amount| Quantity::from_value(amount).ok());
        if let Some(amount) = amount.filter(|amount| amount.sign() > 0) {
            found += 1;
            let total = sum.get(name).copied().unwrap_or(Quantity::ZERO) + amount;
            sum.insert(name.into(), total);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::class;

    fn check(resources: &[Value], expected: &str) {
        let containers: Vec<Value> = resources.iter().map(|resources| json!({ "resources": resources })).collect();
        assert_eq!(class(&json!({ "containers": containers })), expected, "{resources:?}");
    }

    #[test]
    fn classes() {
        let full =
            json!({ "requests": { "cpu": "1", "memory": "1Gi" }, "limits": { "cpu": "1000m", "memory": "1Gi" } });
        check(&[json!({})], "BestEffort");
        check(&[json!({ "requests": { "nvidia.com/gpu": 1 } })], "BestEffort");
        check(&[json!({ "requests": { "cpu": "0" } })], "BestEffort");
        check(std::slice::from_ref(&full), "Guaranteed");
        check(&[full.clone(), full.clone()], "Guaranteed");
        check(&[full.clone(), json!({})], "Burstable");
        check(&[json!({ "limits": { "cpu": "1", "memory": "1Gi" } })], "Burstable");
        check(&[json!({ "requests": { "cpu": "1" } })], "Burstable");
        let own = json!({ "containers": [{}], "resources": full });
        assert_eq!(class(&own), "Guaranteed");
    }
}
