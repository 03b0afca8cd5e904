//! Total resource requests and limits of a pod.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use machinery::quantity::{Format, Quantity as Parsed};

use super::resize::quantity_milli;
use super::spec;

/// Amounts in thousandths, by resource.
pub type Amounts = BTreeMap<String, i128>;

/// The pod's requests, and the limits of those resources that every container limits. `resources` says what counts for a
/// container, and `own` what does for the pod as a whole.
pub fn of(
    pod: &Pod,
    own: &ResourceRequirements,
    resources: impl Fn(&Container) -> ResourceRequirements,
) -> ResourceRequirements {
    let requests = total(pod, |container| milli(resources(container).requests.as_ref()), Overhead::Counts);
    let mut limits = total(pod, |container| milli(resources(container).limits.as_ref()), Overhead::Ignored);
    let all: Vec<_> = spec::init_containers(pod)
        .filter(|container| spec::is_sidecar(container))
        .chain(spec::regular_containers(pod))
        .map(|container| resources(container).limits.unwrap_or_default())
        .collect();
    limits.retain(|name, _| all.iter().all(|limits| limits.contains_key(name)));
    let written = |amounts: Amounts, own: &Option<BTreeMap<String, Quantity>>| {
        let mut quantities: BTreeMap<String, Quantity> = amounts
            .into_iter()
            .map(|(name, amount)| {
                let text = write(&name, amount);
                (name, Quantity(text))
            })
            .collect();
        quantities.extend(own.clone().unwrap_or_default());
        (!quantities.is_empty()).then_some(quantities)
    };
    ResourceRequirements {
        requests: written(requests, &own.requests),
        limits: written(limits, &own.limits),
        claims: None,
    }
}

/// What the node must have free for the pod.
pub fn requests(pod: &Pod) -> Amounts {
    let of =
        |container: &Container| milli(container.resources.as_ref().and_then(|resources| resources.requests.as_ref()));
    let mut requests = total(pod, of, Overhead::Counts);
    if let Some(own) = spec::wishes(pod).resources.as_ref().and_then(|resources| resources.requests.as_ref()) {
        requests.extend(milli(Some(own)));
    }
    requests
}

pub fn milli(quantities: Option<&BTreeMap<String, Quantity>>) -> Amounts {
    let pairs = quantities.into_iter().flatten();
    pairs.filter_map(|(name, quantity)| Some((name.clone(), quantity_milli(quantity)?))).collect()
}

enum Overhead {
    Counts,
    Ignored,
}

/// The larger of what init containers need at their turn and what runs together afterwards.
fn total(pod: &Pod, of: impl Fn(&Container) -> Amounts, overhead: Overhead) -> Amounts {
    let mut together = Amounts::new();
    for container in spec::regular_containers(pod) {
        add(&mut together, &of(container));
    }
    let mut sidecars = Amounts::new();
    let mut init = Amounts::new();
    for container in spec::init_containers(pod) {
        let own = of(container);
        if spec::is_sidecar(container) {
            add(&mut together, &own);
            add(&mut sidecars, &own);
            raise(&mut init, &sidecars);
        } else {
            let mut at_its_turn = sidecars.clone();
            add(&mut at_its_turn, &own);
            raise(&mut init, &at_its_turn);
        }
    }
    raise(&mut together, &init);
    if let Overhead::Counts = overhead {
        add(&mut together, &milli(spec::wishes(pod).overhead.as_ref()));
    }
    together
}

fn add(to: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        *to.entry(name.clone()).or_default() += amount;
    }
}

fn raise(to: &mut Amounts, other: &Amounts) {
    for (name, amount) in other {
        let entry = to.entry(name.clone()).or_default();
        *entry = (*entry).max(*amount);
    }
}

fn write(name: &str, amount: i128) -> String {
    let binary = name == "memory" || name == "ephemeral-storage" || name.starts_with("hugepages-");
    let format = if binary { Format::BinarySi } else { Format::DecimalSi };
    match amount % 1000 {
        0 => Parsed::from_int((amount / 1000) as i64, format).canonical(),
        _ => Parsed::from_milli(amount as i64, format).canonical(),
    }
}
