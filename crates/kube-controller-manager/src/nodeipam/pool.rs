//! The ranges that nodes have, and the first one that none has.

use std::collections::HashMap;
use std::net::IpAddr;

use ipnet::IpNet;
use parking_lot::Mutex;

use crate::Config;

/// Kept up to date by every change of a node, so that finding a free range does not look at all nodes. A range that was chosen
/// for a node stays its own while the node is there, even where nobody knows whether the write of it was done.
#[derive(Default)]
pub(super) struct Pool(Mutex<State>);

#[derive(Default)]
struct State {
    /// By the node's uid.
    held: HashMap<String, Vec<IpNet>>,
    /// How many hold a range: somebody may have given one twice.
    holders: HashMap<IpNet, usize>,
    /// Below these places of each of the cluster's ranges nothing is free.
    full_below: HashMap<IpNet, usize>,
}

impl Pool {
    pub fn hold(&self, uid: &str, ranges: Vec<IpNet>) {
        let mut state = self.0.lock();
        if state.held.get(uid) != Some(&ranges) {
            state.release(uid);
            state.hold(uid, ranges);
        }
    }

    pub fn release(&self, uid: &str) {
        self.0.lock().release(uid);
    }

    /// One range of each of the cluster's, which are the node's from now on; nothing where one of them is used up.
    pub fn choose(&self, config: &Config, uid: &str) -> Option<Vec<IpNet>> {
        let mut state = self.0.lock();
        if let Some(held) = state.held.get(uid) {
            return Some(held.clone());
        }
        let chosen = config.cluster_cidrs.iter().map(|cluster| {
            let prefix = match cluster.addr() {
                IpAddr::V4(_) => config.node_cidr_mask_size_ipv4,
                IpAddr::V6(_) => config.node_cidr_mask_size_ipv6,
            };
            state.first_free(cluster, prefix, &config.service_cidrs)
        });
        let chosen: Vec<IpNet> = chosen.collect::<Option<_>>()?;
        state.hold(uid, chosen.clone());
        Some(chosen)
    }
}

impl State {
    fn hold(&mut self, uid: &str, ranges: Vec<IpNet>) {
        for range in &ranges {
            *self.holders.entry(*range).or_default() += 1;
        }
        self.held.insert(uid.to_owned(), ranges);
    }

    fn release(&mut self, uid: &str) {
        for range in self.held.remove(uid).into_iter().flatten() {
            self.full_below.clear();
            if let Some(count) = self.holders.get_mut(&range) {
                *count -= 1;
                if *count == 0 {
                    self.holders.remove(&range);
                }
            }
        }
    }

    fn first_free(&mut self, cluster: &IpNet, prefix: u8, reserved: &[IpNet]) -> Option<IpNet> {
        let overlaps = |one: &IpNet, other: &IpNet| one.contains(other) || other.contains(one);
        // Ranges of another size are few: only those that somebody else has given.
        let odd: Vec<IpNet> = self.holders.keys().filter(|range| range.prefix_len() != prefix).copied().collect();
        let begin = self.full_below.get(cluster).copied().unwrap_or(0);
        let mut candidates = cluster.subnets(prefix).ok()?.enumerate().skip(begin);
        let (place, free) = candidates.find(|(_, candidate)| {
            !self.holders.contains_key(candidate) && !odd.iter().chain(reserved).any(|taken| overlaps(taken, candidate))
        })?;
        self.full_below.insert(*cluster, place);
        Some(free)
    }
}
