//! What a pod asks for and may use at most, all containers together: containers that run at the same time add up,
//! init containers run before them, one after the other.

use std::collections::BTreeMap;

use machinery::quantity::Quantity;
use serde_json::Value;

/// Amounts by resource name.
pub type Amounts = BTreeMap<String, Quantity>;

/// `requests` or `limits` of a container or a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Requests,
    Limits,
}

impl Side {
    pub fn field(self) -> &'static str {
        match self {
            Side::Requests => "requests",
            Side::Limits => "limits",
        }
    }
}

/// The amounts in `resources.requests` or `resources.limits` of a container, pod or claim. What is no quantity was
/// refused before.
pub fn of_container(container: &Value, side: Side) -> Amounts {
    amounts(container.get("resources").and_then(|resources| resources.get(side.field())).unwrap_or(&Value::Null))
}

/// A map of names and quantities.
pub fn amounts(list: &Value) -> Amounts {
    let entries = list.as_object().into_iter().flatten();
    entries.filter_map(|(name, value)| Some((name.clone(), Quantity::from_value(value).ok()?))).collect()
}

/// The sum over the pod's containers, without the overhead of its runtime.
pub fn of_containers(pod: &Value, side: Side) -> Amounts {
    let spec = &pod["spec"];
    let mut running = Amounts::new();
    for container in list(spec, "containers") {
        add(&mut running, &of_container(container, side));
    }
    // Sidecars are init containers that stay: they run along with all that start after them.
    let mut sidecars = Amounts::new();
    let mut starting = Amounts::new();
    for container in list(spec, "initContainers") {
        let mut own = of_container(container, side);
        if container["restartPolicy"] == "Always" {
            add(&mut running, &own);
            add(&mut sidecars, &own);
            own = sidecars.clone();
        } else {
            add(&mut own, &sidecars);
        }
        raise(&mut starting, &own);
    }
    raise(&mut running, &starting);
    // What the pod as a whole asks for stands for the sum of its containers.
    running.extend(of_container(spec, side));
    running
}

/// The same with the overhead; a limit that is not there has none.
pub fn of_pod(pod: &Value, side: Side) -> Amounts {
    let mut total = of_containers(pod, side);
    for (name, extra) in amounts(&pod["spec"]["overhead"]) {
        match total.get_mut(&name) {
            Some(amount) if side == Side::Requests || !amount.is_zero() => *amount = *amount + extra,
            None if side == Side::Requests => {
                total.insert(name, extra);
            }
            _ => {}
        }
    }
    total
}

pub fn add(into: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        match into.get_mut(name) {
            Some(sum) => *sum = *sum + *amount,
            None => {
                into.insert(name.clone(), *amount);
            }
        }
    }
}

fn raise(into: &mut Amounts, other: &Amounts) {
    for (name, amount) in other {
        let slot = into.entry(name.clone()).or_insert(*amount);
        *slot = (*slot).max(*amount);
    }
}

/// Whether nothing in the pod asks for processor or memory time of its own.
pub fn is_best_effort(pod: &Value) -> bool {
    let spec = &pod["spec"];
    let asks = |value: &Value| {
        [Side::Requests, Side::Limits].into_iter().any(|side| {
            of_container(value, side)
                .iter()
                .any(|(name, amount)| matches!(name.as_str(), "cpu" | "memory") && amount.sign() > 0)
        })
    };
    !asks(spec) && !["containers", "initContainers"].into_iter().any(|field| list(spec, field).iter().any(asks))
}

fn list<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value.get(field).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn cpu(amount: &str) -> Value {
        json!({"resources": {"requests": {"cpu": amount}, "limits": {"cpu": amount}}})
    }

    fn check(spec: Value, requests: &str, limits: &str) {
        let pod = json!({"spec": spec});
        let shown = |side| of_pod(&pod, side).get("cpu").map_or("none".into(), Quantity::canonical);
        assert_eq!((shown(Side::Requests).as_str(), shown(Side::Limits).as_str()), (requests, limits), "{pod}");
    }

    #[test]
    fn containers_add_up_and_init_containers_do_not() {
        check(json!({"containers": [cpu("1"), cpu("500m")]}), "1500m", "1500m");
        check(json!({"containers": [cpu("1")], "initContainers": [cpu("3"), cpu("2")]}), "3", "3");
        let mut sidecar = cpu("1");
        sidecar["restartPolicy"] = "Always".into();
        check(json!({"containers": [cpu("1")], "initContainers": [sidecar, cpu("3")]}), "4", "4");
        check(json!({"containers": [cpu("1")], "overhead": {"cpu": "100m"}}), "1100m", "1100m");
        check(json!({"containers": [{}], "overhead": {"cpu": "100m"}}), "100m", "none");
        check(json!({"containers": [cpu("1")], "resources": {"requests": {"cpu": "2"}}}), "2", "1");
    }

    #[test]
    fn best_effort_asks_for_nothing() {
        assert!(is_best_effort(&json!({"spec": {"containers": [{"name": "c"}]}})));
        assert!(!is_best_effort(&json!({"spec": {"containers": [cpu("1")]}})));
        let storage = json!({"resources": {"requests": {"ephemeral-storage": "1Gi"}}});
        assert!(is_best_effort(&json!({"spec": {"containers": [storage]}})));
    }
}
