//! What we aim at, on two cores that the load shares: by the name of the measure, in its unit.

use crate::report::Better;

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
];

pub fn of(measure: &str) -> Option<Aim> {
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
    }
}
