//! What we aim at, on two cores that the load shares: by the name of the measure, in its unit.

use crate::report::{Better, EXPONENT_MAX};

#[derive(Clone, Copy)]
pub struct Aim {
    pub value: f64,
    better: Better,
}

impl Aim {
    pub fn is_met(self, measured: f64) -> bool {
        match self.better {
            Better::More => measured >= self.value,
            Better::Less => measured <= self.value,
        }
    }
}

const AIMS: &[(&str, f64, Better)] = &[
    ("create pods, 64 clients: rate", 8600.0, Better::More),
    ("create pods, 64 clients: processor time each", 0.2, Better::Less),
    ("merge patch pods, 64 clients: processor time each", 0.2, Better::Less),
    ("apply pods (server-side), 64 clients: processor time each", 0.2, Better::Less),
    ("64 clients patch one pod: rate", 1000.0, Better::More),
    ("delete a collection of 10,000 pods", 1000.0, Better::Less),
    ("100 watchers, HTTP/1.1, full load: events", 500_000.0, Better::More),
    ("100 watchers, HTTP/1.1, full load: delivery p99", 20.0, Better::Less),
    ("1000 watchers, HTTP/1.1, full load: events", 500_000.0, Better::More),
    ("1000 watchers, HTTP/1.1, full load: delivery p99", 20.0, Better::Less),
    ("resident memory with 10,000 pods", 150.0, Better::Less),
    ("10,000 pods, whole server: resident memory", 150.0, Better::Less),
    ("create to Ready, one at a time, p50", 60.0, Better::Less),
    ("100 pods at once, until all are Ready", 2.0, Better::Less),
    ("scale: mutating calls, worst p99 of a verb and resource", 1000.0, Better::Less),
    ("scale: reads of an object, worst p99 of a resource", 1000.0, Better::Less),
    ("scale: reads of a namespace, worst p99 of a resource", 5000.0, Better::Less),
    ("scale: reads of the cluster, worst p99 of a resource", 30_000.0, Better::Less),
    ("scale: LIST of all pods in JSON", 30_000.0, Better::Less),
    ("scale: LIST of all pods in protobuf", 30_000.0, Better::Less),
    ("scale: Table of all pods", 30_000.0, Better::Less),
    ("scale: LIST of a namespace's pods in JSON", 5000.0, Better::Less),
    ("scale: pod start p99", 5000.0, Better::Less),
    ("scale: resident memory with 150000 pods", 2560.0, Better::Less),
    ("scale: restart until the server is ready", 5.0, Better::Less),
    ("scale: after a restart, requests of others p99", 1000.0, Better::Less),
    ("scale: after a restart, requests refused (429)", 0.0, Better::Less),
    ("scale: after a restart, nodes called NotReady", 0.0, Better::Less),
    ("scale: loss of nodes, requests of others p99", 1000.0, Better::Less),
    ("scale: churn, requests of others p99", 1000.0, Better::Less),
];

/// Pods bound per second through the API, whatever their shape.
const SCHEDULED: &[(&str, f64)] =
    &[("on 1000 nodes: pods bound through the API", 4000.0), ("on 5000 nodes: pods bound through the API", 2000.0)];

pub fn of(measure: &str) -> Option<Aim> {
    if measure.ends_with(": exponent") {
        return Some(Aim { value: EXPONENT_MAX, better: Better::Less });
    }
    if let Some((_, value)) = SCHEDULED.iter().find(|(end, _)| measure.ends_with(end)) {
        return Some(Aim { value: *value, better: Better::More });
    }
    let found = AIMS.iter().find(|(name, ..)| *name == measure)?;
    Some(Aim { value: found.1, better: found.2 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_aim_is_met_on_its_own_side() {
        let rate = of("create pods, 64 clients: rate").unwrap();
        assert!(rate.is_met(8600.0) && !rate.is_met(8599.0));
        let cost = of("create pods, 64 clients: processor time each").unwrap();
        assert!(cost.is_met(0.2) && !cost.is_met(0.21));
        assert!(of("something else").is_none());
        let spread = of("topology spread on 5000 nodes: pods bound through the API").unwrap();
        assert!(spread.is_met(2000.0) && !spread.is_met(1999.0));
        assert!(of("anything: exponent").is_some_and(|aim| aim.is_met(1.1) && !aim.is_met(1.2)));
    }
}
