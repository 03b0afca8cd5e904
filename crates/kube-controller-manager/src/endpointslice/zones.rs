//! Topology-aware routing (`service.kubernetes.io/topology-mode: Auto`): endpoints are shared out among zones by the
//! processors of their nodes, unless a zone would be overloaded by that.

use std::collections::BTreeMap;
use std::sync::Arc;

use component_helpers::resources::Resources;
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointHints, ForZone};

use crate::common::serving::zone_of;

/// How much more load than its share an endpoint may get before the hints do more harm than good.
const OVERLOAD_MAX: f64 = 0.2;

pub(super) fn are_wished(service: &Service) -> bool {
    let annotation = |key: &str| service.metadata.annotations.as_ref().and_then(|all| all.get(key));
    let mode = annotation("service.kubernetes.io/topology-aware-hints")
        .or_else(|| annotation("service.kubernetes.io/topology-mode"));
    mode.is_some_and(|mode| mode == "Auto" || mode == "auto")
}

/// Whether a change of a node changes the share of its zone.
pub(super) fn matters(old: &Node, new: &Node) -> bool {
    capacity(old) != capacity(new) || zone_of(old) != zone_of(new)
}

/// The share of every zone of the processors of the nodes that are ready.
pub(super) struct Zones {
    shares: BTreeMap<String, f64>,
}

impl Zones {
    /// No shares where a node does not tell its zone or its processors, or there is only one zone.
    pub fn of(nodes: &[Arc<Node>]) -> Zones {
        let mut processors: BTreeMap<String, i64> = BTreeMap::new();
        for node in nodes {
            let Some(capacity) = capacity(node) else { continue };
            match zone_of(node) {
                Some(zone) if capacity > 0 => *processors.entry(zone.clone()).or_default() += capacity,
                _ => return Zones { shares: BTreeMap::new() },
            }
        }
        if processors.len() < 2 {
            return Zones { shares: BTreeMap::new() };
        }
        let total = processors.values().sum::<i64>() as f64;
        Zones { shares: processors.into_iter().map(|(zone, share)| (zone, share as f64 / total)).collect() }
    }

    /// Sets the hints of all endpoints, or none.
    pub fn hint(&self, endpoints: &mut [&mut Endpoint]) {
        let given = self.assign(endpoints);
        for (index, endpoint) in endpoints.iter_mut().enumerate() {
            endpoint.hints = given.as_ref().and_then(|given| given[index].clone()).map(|zone| EndpointHints {
                for_zones: Some(vec![ForZone { name: zone }]),
                ..EndpointHints::default()
            });
        }
    }

    /// The zone of each endpoint: its own where that zone has not more than its share, one with too few otherwise.
    fn assign(&self, endpoints: &[&mut Endpoint]) -> Option<Vec<Option<String>>> {
        let is_ready = |endpoint: &Endpoint| endpoint.conditions.as_ref().and_then(|all| all.ready) != Some(false);
        let ready: Vec<usize> = (0..endpoints.len()).filter(|index| is_ready(endpoints[*index])).collect();
        if self.shares.is_empty() || ready.len() < self.shares.len() {
            return None;
        }
        let least = |share: f64| ((share * ready.len() as f64) / (1.0 + OVERLOAD_MAX)).ceil() as usize;
        let mut missing: BTreeMap<&str, usize> =
            self.shares.iter().map(|(zone, share)| (zone.as_str(), least(*share))).collect();
        if missing.values().sum::<usize>() > ready.len() {
            return None;
        }
        let mut given: Vec<Option<String>> = vec![None; endpoints.len()];
        let mut spare = Vec::new();
        for index in ready {
            let zone = endpoints[index].zone.as_deref()?;
            match missing.get_mut(zone) {
                Some(count) if *count > 0 => *count -= 1,
                Some(_) => spare.push(index),
                None => return None,
            }
            given[index] = Some(zone.to_owned());
        }
        for (zone, count) in missing {
            for _ in 0..count {
                given[spare.pop()?] = Some(zone.to_owned());
            }
        }
        Some(given)
    }
}

/// Thousandths of processors of a node that takes work; nothing for one that does not.
fn capacity(node: &Node) -> Option<i64> {
    let labels = node.metadata.labels.as_ref();
    let left_out = labels.is_some_and(|labels| {
        labels.contains_key("node-role.kubernetes.io/control-plane")
            || labels.contains_key("node-role.kubernetes.io/master")
    });
    let status = node.status.as_ref()?;
    let ready = status.conditions.iter().flatten().any(|one| one.type_ == "Ready" && one.status == "True");
    if left_out || !ready {
        return None;
    }
    Some(Resources::from_list(status.allocatable.iter().flatten()).milli_cpu)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(shares: &[(&str, f64)], zones: &str, expected: &str) {
        let shares = shares.iter().map(|(zone, share)| (zone.to_string(), *share)).collect();
        let mut endpoints: Vec<Endpoint> =
            zones.split_whitespace().map(|zone| Endpoint { zone: Some(zone.into()), ..Endpoint::default() }).collect();
        Zones { shares }.hint(&mut endpoints.iter_mut().collect::<Vec<_>>());
        let hint = |endpoint: &Endpoint| {
            let hints = endpoint.hints.as_ref().and_then(|hints| hints.for_zones.as_ref());
            hints.map_or("-".to_owned(), |zones| zones[0].name.clone())
        };
        assert_eq!(endpoints.iter().map(hint).collect::<Vec<_>>().join(" "), expected);
    }

    #[test]
    fn zones_get_their_share() {
        check(&[("a", 0.5), ("b", 0.5)], "a a b b", "a a b b");
        check(&[("a", 0.5), ("b", 0.5)], "a a a a", "a a b b");
        check(&[("a", 0.5), ("b", 0.5)], "a", "-");
        check(&[("a", 0.5), ("b", 0.5)], "a c", "- -");
        check(&[], "a b", "- -");
    }
}
