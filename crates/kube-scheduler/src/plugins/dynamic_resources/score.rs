//! Of nodes that have the devices, those that have what claims would rather have: requests list alternatives, the best first.

use std::collections::HashSet;

use k8s_openapi::api::resource::v1::{AllocationResult, ResourceClaim};

use super::Question;
use crate::framework::{Score, normalize_by_largest};
use crate::snapshot::NodeInfo;

/// A request has so many alternatives at most.
const ALTERNATIVES_MAX: i64 = 8;

impl Question<'_> {
    /// Whether nodes can differ: otherwise nothing need be chosen on each of them again.
    pub(super) fn has_alternatives(&self) -> bool {
        let requests = self.wanted.iter().flat_map(|wanted| requests(&wanted.claim));
        requests.into_iter().any(|request| request.first_available.as_ref().is_some_and(|list| list.len() > 1))
    }
}

impl Score for Question<'_> {
    fn score(&self, node: &NodeInfo) -> i64 {
        // The node has just passed, and nothing changed since.
        let Ok(extended) = self.extended_on(node) else { return 0 };
        let Ok(allocations) = self.allocate(node, extended.as_deref()) else { return 0 };
        let chosen = self.wanted.iter().zip(&allocations).map(|(wanted, allocation)| value(&wanted.claim, allocation));
        let had = self.allocated.iter().filter_map(|claim| {
            let allocation = claim.status.as_ref().and_then(|status| status.allocation.as_ref())?;
            Some(value(claim, allocation))
        });
        chosen.chain(had).sum()
    }

    fn normalize(&self, _: &[&NodeInfo], scores: &mut [i64]) {
        normalize_by_largest(scores, false);
    }
}

fn requests(claim: &ResourceClaim) -> impl Iterator<Item = &k8s_openapi::api::resource::v1::DeviceRequest> {
    claim.spec.devices.iter().flat_map(|devices| devices.requests.iter().flatten())
}

/// The earlier the alternative that was taken, the better.
fn value(claim: &ResourceClaim, allocation: &AllocationResult) -> i64 {
    let results = allocation.devices.iter().flat_map(|devices| devices.results.iter().flatten());
    let taken: HashSet<&str> = results.map(|result| result.request.as_str()).collect();
    let mut value = 0;
    for request in requests(claim) {
        for (place, alternative) in request.first_available.iter().flatten().enumerate() {
            if taken.contains(format!("{}/{}", request.name, alternative.name).as_str()) {
                value += ALTERNATIVES_MAX - place as i64;
            }
        }
    }
    value
}
