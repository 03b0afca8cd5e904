//! Sums of requests and limits over a pod's containers.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource;
use machinery::quantity::Quantity;

pub type Amounts = BTreeMap<String, Quantity>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Requests,
    Limits,
}

/// What a pod as a whole requests or is limited to: its containers together, or more while it initializes, what is said
/// for the pod itself, and its overhead.
pub fn of_pod(pod: &Pod, side: Side) -> Amounts {
    let Some(spec) = &pod.spec else { return Amounts::new() };
    let mut total = of_containers(spec, side);
    if let Some(own) = &spec.resources {
        // A pod's own word replaces the sum of its containers.
        for (name, amount) in read(own, side) {
            total.insert(name, amount);
        }
    }
    for (name, amount) in spec.overhead.iter().flatten() {
        let more = parse(amount);
        // An overhead is no limit for what has none.
        if side == Side::Requests || total.get(name).is_some_and(|there| !there.is_zero()) {
            let there = total.remove(name).unwrap_or(Quantity::ZERO);
            total.insert(name.clone(), there + more);
        }
    }
    total
}

/// A sidecar runs beside all that start after it; other init containers run alone with the sidecars before them.
fn of_containers(spec: &PodSpec, side: Side) -> Amounts {
    let mut running = Amounts::new();
    for container in &spec.containers {
        add(&mut running, &of_container(container, side));
    }
    let mut sidecars = Amounts::new();
    let mut peak = Amounts::new();
    for container in spec.init_containers.iter().flatten() {
        let own = of_container(container, side);
        if is_sidecar(container) {
            add(&mut running, &own);
            add(&mut sidecars, &own);
            raise(&mut peak, &sidecars);
        } else {
            let mut alone = sidecars.clone();
            add(&mut alone, &own);
            raise(&mut peak, &alone);
        }
    }
    raise(&mut running, &peak);
    running
}

pub fn of_container(container: &Container, side: Side) -> Amounts {
    container.resources.as_ref().map(|resources| read(resources, side)).unwrap_or_default()
}

pub fn read(resources: &ResourceRequirements, side: Side) -> Amounts {
    let list = match side {
        Side::Requests => &resources.requests,
        Side::Limits => &resources.limits,
    };
    let mut amounts: Amounts = list.iter().flatten().map(|(name, amount)| (name.clone(), parse(amount))).collect();
    if side == Side::Requests {
        // Static pods have not passed through the API server's defaults: a limit alone is also the request.
        for (name, amount) in resources.limits.iter().flatten() {
            amounts.entry(name.clone()).or_insert_with(|| parse(amount));
        }
    }
    amounts
}

pub(crate) fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

/// The amount of one resource; nothing said is zero.
pub fn amount(amounts: &Amounts, name: &str) -> Quantity {
    amounts.get(name).copied().unwrap_or(Quantity::ZERO)
}

/// What cannot be read was refused by the API server; in a file it counts as nothing.
fn parse(quantity: &resource::Quantity) -> Quantity {
    Quantity::parse(&quantity.0).unwrap_or(Quantity::ZERO)
}

fn add(to: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        let there = to.remove(name).unwrap_or(Quantity::ZERO);
        to.insert(name.clone(), there + *amount);
    }
}

fn raise(to: &mut Amounts, other: &Amounts) {
    for (name, amount) in other {
        let there = to.remove(name).unwrap_or(Quantity::ZERO);
        to.insert(name.clone(), there.max(*amount));
    }
}
