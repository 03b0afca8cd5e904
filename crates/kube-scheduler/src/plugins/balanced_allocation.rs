//! NodeResourcesBalancedAllocation: nodes whose resources would be used evenly are preferred.

use crate::framework::{Change, Plugin, SCORE_MAX, Score, Scoring, View};
use crate::pod_info::PodInfo;
use crate::snapshot::NodeInfo;

pub struct BalancedAllocation {
    pub resources: Vec<String>,
}

impl Default for BalancedAllocation {
    fn default() -> BalancedAllocation {
        BalancedAllocation { resources: vec!["cpu".into(), "memory".into()] }
    }
}

impl Plugin for BalancedAllocation {
    fn name(&self) -> &'static str {
        "NodeResourcesBalancedAllocation"
    }

    fn score<'a>(&'a self, _: View<'a>, pod: &'a PodInfo, _: &[&'a NodeInfo]) -> Scoring<'a> {
        // A pod that asks for nothing changes no balance.
        let asks = pod.requests.milli_cpu > 0 || pod.requests.memory > 0 || !pod.requests.other.is_empty();
        if asks { Scoring::Ask(Box::new(Balance { pod, resources: &self.resources })) } else { Scoring::Skip }
    }

    fn may_help(&self, _: &PodInfo, _: &Change) -> bool {
        false
    }
}

struct Balance<'a> {
    pod: &'a PodInfo,
    resources: &'a [String],
}

impl Score for Balance<'_> {
    fn score(&self, node: &NodeInfo) -> i64 {
        let mut shares = [0.0; 8];
        let mut count = 0;
        for name in self.resources.iter().take(shares.len()) {
            let (used, has) = match name.as_str() {
                "cpu" => (node.requested.milli_cpu + self.pod.requests.milli_cpu, node.allocatable.milli_cpu),
                "memory" => (node.requested.memory + self.pod.requests.memory, node.allocatable.memory),
                "ephemeral-storage" => (
                    node.requested.ephemeral_storage + self.pod.requests.ephemeral_storage,
                    node.allocatable.ephemeral_storage,
                ),
                other => (node.requested.other(other) + self.pod.requests.other(other), node.allocatable.other(other)),
            };
            if has > 0 {
                shares[count] = (used as f64 / has as f64).min(1.0);
                count += 1;
            }
        }
        ((1.0 - deviation(&shares[..count])) * SCORE_MAX as f64) as i64
    }
}

/// How far the shares are from their mean; of two, half their difference.
fn deviation(shares: &[f64]) -> f64 {
    match shares {
        [] | [_] => 0.0,
        [one, other] => ((one - other) / 2.0).abs(),
        more => {
            let mean = more.iter().sum::<f64>() / more.len() as f64;
            (more.iter().map(|share| (share - mean).powi(2)).sum::<f64>() / more.len() as f64).sqrt()
        }
    }
}
