//! QoS class of a pod: Guaranteed, Burstable or BestEffort. It decides which pods are killed or evicted first when the node runs short.

use k8s_openapi::api::core::v1::Pod;
use machinery::quantity::Quantity;

use super::amounts::{self, Amounts, Side, amount};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QosClass {
    Guaranteed,
    Burstable,
    BestEffort,
}

impl QosClass {
    /// As `status.qosClass` shows it.
    pub fn as_str(self) -> &'static str {
        match self {
            QosClass::Guaranteed => "Guaranteed",
            QosClass::Burstable => "Burstable",
            QosClass::BestEffort => "BestEffort",
        }
    }

    /// What the API server has written holds for the pod's life; a static pod's is worked out.
    pub fn of(pod: &Pod) -> QosClass {
        let written = pod.status.as_ref().and_then(|status| status.qos_class.as_deref());
        match written {
            Some("Guaranteed") => QosClass::Guaranteed,
            Some("Burstable") => QosClass::Burstable,
            Some("BestEffort") => QosClass::BestEffort,
            _ => QosClass::compute(pod),
        }
    }

    /// From requests and limits of processor and memory; other resources do not count.
    pub fn compute(pod: &Pod) -> QosClass {
        let Some(spec) = &pod.spec else { return QosClass::BestEffort };
        if let Some(own) = &spec.resources {
            let (requests, limits) = (amounts::read(own, Side::Requests), amounts::read(own, Side::Limits));
            if says_something(&requests) || says_something(&limits) {
                return class_of(&[(requests, limits)]);
            }
        }
        let pairs: Vec<(Amounts, Amounts)> = spec
            .containers
            .iter()
            .chain(spec.init_containers.iter().flatten())
            .map(|one| (amounts::of_container(one, Side::Requests), amounts::of_container(one, Side::Limits)))
            .collect();
        class_of(&pairs)
    }
}

const COUNTED: [&str; 2] = ["cpu", "memory"];

fn says_something(amounts: &Amounts) -> bool {
    COUNTED.iter().any(|name| !amount(amounts, name).is_zero())
}

fn class_of(pairs: &[(Amounts, Amounts)]) -> QosClass {
    if !pairs.iter().any(|(requests, limits)| says_something(requests) || says_something(limits)) {
        return QosClass::BestEffort;
    }
    let all_limited = pairs.iter().all(|(_, limits)| COUNTED.iter().all(|name| !amount(limits, name).is_zero()));
    let total = |side: fn(&(Amounts, Amounts)) -> &Amounts, name: &str| {
        pairs.iter().map(|pair| amount(side(pair), name)).fold(Quantity::ZERO, |sum, next| sum + next)
    };
    let equal = COUNTED.iter().all(|name| total(|pair| &pair.0, name) == total(|pair| &pair.1, name));
    if all_limited && equal { QosClass::Guaranteed } else { QosClass::Burstable }
}
