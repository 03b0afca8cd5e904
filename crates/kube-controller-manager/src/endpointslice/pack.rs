//! Fits the wished endpoints into the slices that are there, so that few of them are written.
//!
//! What is wished and already somewhere stays there. What is new fills slices that are written anyway, then the one
//! unchanged slice that it fills best, then new slices.

use std::collections::BTreeMap;

use k8s_openapi::api::discovery::v1::{Endpoint, EndpointPort, EndpointSlice};

/// What tells one endpoint from another; all else about it may change in place.
pub(crate) type Identity = (Vec<String>, Option<String>, Option<String>, Option<String>);

pub(crate) fn identity(endpoint: &Endpoint) -> Identity {
    let target = endpoint.target_ref.as_ref();
    (
        endpoint.addresses.clone(),
        endpoint.node_name.clone(),
        target.and_then(|target| target.namespace.clone()),
        target.and_then(|target| target.name.clone()),
    )
}

/// Name, number, protocol and application protocol of a port.
pub(crate) type Port = (Option<String>, Option<i32>, Option<String>, Option<String>);

/// Ports in an order in which equal sets are equal.
pub(crate) fn sorted(ports: &[EndpointPort]) -> Vec<Port> {
    let mut sorted: Vec<_> = ports
        .iter()
        .map(|port| (port.name.clone(), port.port, port.protocol.clone(), port.app_protocol.clone()))
        .collect();
    sorted.sort();
    sorted
}

/// What becomes of the slices of one address type and one set of ports.
#[derive(Debug, Default)]
pub(crate) struct Packed {
    /// The contents of new slices.
    pub create: Vec<Vec<Endpoint>>,
    /// Slices by their place among the existing ones, with what is in them from now on.
    pub keep: BTreeMap<usize, Vec<Endpoint>>,
    pub delete: Vec<usize>,
}

/// `existing` are the slices of that type and those ports, each with whether it must be written for another reason.
pub(crate) fn pack(existing: &[(usize, &EndpointSlice, bool)], wished: Vec<Endpoint>, slice_max: usize) -> Packed {
    let mut wished: BTreeMap<Identity, Endpoint> =
        wished.into_iter().map(|endpoint| (identity(&endpoint), endpoint)).collect();
    let mut packed = Packed::default();
    let (mut written, mut unchanged) = (Vec::new(), Vec::new());
    for (index, slice, must_write) in existing {
        let old = slice.endpoints.as_deref().unwrap_or_default();
        let mut kept = Vec::with_capacity(old.len());
        let mut changed = *must_write;
        for endpoint in old {
            match wished.remove(&identity(endpoint)) {
                // A slice that holds too many, perhaps because the limit was another one, is cut.
                Some(new) if kept.len() < slice_max => {
                    changed |= !is_same(endpoint, &new);
                    kept.push(new);
                }
                Some(new) => {
                    wished.insert(identity(&new), new);
                    changed = true;
                }
                None => changed = true,
            }
        }
        match (kept.is_empty(), changed) {
            (true, _) => packed.delete.push(*index),
            (false, true) => {
                written.push(*index);
                packed.keep.insert(*index, kept);
            }
            (false, false) => {
                unchanged.push(*index);
                packed.keep.insert(*index, kept);
            }
        }
    }
    let mut rest = wished.into_values();
    let mut left = rest.len();
    // The fullest first, so that the others may one day be empty.
    written.sort_by_key(|index| std::cmp::Reverse(packed.keep[index].len()));
    for index in written {
        let slice = packed.keep.get_mut(&index).expect("a written slice is kept");
        let room = slice_max.saturating_sub(slice.len()).min(left);
        slice.extend(rest.by_ref().take(room));
        left -= room;
    }
    while left > 0 {
        let fitting = unchanged.iter().filter(|index| packed.keep[*index].len() + left <= slice_max);
        let fullest = fitting.max_by_key(|index| packed.keep[*index].len()).copied();
        match fullest {
            Some(index) => {
                packed.keep.get_mut(&index).expect("an unchanged slice is kept").extend(rest.by_ref());
                left = 0;
            }
            None => {
                let part = left.min(slice_max);
                packed.create.push(rest.by_ref().take(part).collect());
                left -= part;
            }
        }
    }
    packed
}

/// Whether nothing but the hints differs; those are set for all slices together.
fn is_same(one: &Endpoint, other: &Endpoint) -> bool {
    let content = |endpoint: &Endpoint| {
        let uid = endpoint.target_ref.as_ref().and_then(|target| target.uid.clone());
        (endpoint.conditions.clone(), endpoint.hostname.clone(), endpoint.zone.clone(), uid)
    };
    content(one) == content(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoints(numbers: std::ops::Range<usize>) -> Vec<Endpoint> {
        let one = |number| Endpoint { addresses: vec![format!("10.0.0.{number:04}")], ..Endpoint::default() };
        numbers.map(one).collect()
    }

    fn check(existing: &[std::ops::Range<usize>], wished: std::ops::Range<usize>, expected: &str) {
        let slices: Vec<EndpointSlice> = existing
            .iter()
            .map(|range| EndpointSlice { endpoints: Some(endpoints(range.clone())), ..EndpointSlice::default() })
            .collect();
        let existing: Vec<_> = slices.iter().enumerate().map(|(index, slice)| (index, slice, false)).collect();
        let packed = pack(&existing, endpoints(wished), 100);
        let kept: Vec<String> = packed.keep.iter().map(|(index, kept)| format!("{index}:{}", kept.len())).collect();
        let created: Vec<String> = packed.create.iter().map(|part| format!("+{}", part.len())).collect();
        let deleted: Vec<String> = packed.delete.iter().map(|index| format!("-{index}")).collect();
        assert_eq!([kept, created, deleted].concat().join(" "), expected);
    }

    #[test]
    fn endpoints_stay_where_they_are_and_new_ones_fill_up() {
        check(&[], 0..250, "+100 +100 +50");
        check(&[0..100, 100..150], 0..160, "0:100 1:60");
        // The slice that is written anyway takes the new ones.
        check(&[0..90, 100..150], 10..160, "0:100 1:50");
        check(&[0..100, 100..150], 0..100, "0:100 -1");
        // What does not fit one slice as a whole begins a new one.
        check(&[0..95, 100..195], 0..210, "0:95 1:95 +20");
        check(std::slice::from_ref(&(0..130)), 0..130, "0:100 +30");
    }
}
