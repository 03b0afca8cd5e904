//! Which devices drivers offer, where, and which of them are taken.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use component_helpers::device_taints::tolerates;
use component_helpers::node_affinity::selector_matches;
use k8s_openapi::api::core::v1::NodeSelector;
use k8s_openapi::api::resource::v1::{Device, DeviceToleration, ResourceSlice};

use super::shares::{self, Amounts, Counters};
use crate::objects::Objects;
use crate::snapshot::NodeInfo;

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceId {
    pub driver: String,
    pub pool: String,
    pub device: String,
}

/// Everything that is offered, of pools that are complete.
#[derive(Default)]
pub struct Offers {
    slices: Vec<Arc<ResourceSlice>>,
    pub taken: HashSet<DeviceId>,
    /// What claims have of devices that several of them share.
    pub(super) shared: HashMap<DeviceId, Amounts>,
    pub(super) counters: Counters,
}

/// A device on a node.
#[derive(Clone, Copy)]
pub struct Offer<'a> {
    pub slice: &'a ResourceSlice,
    pub device: &'a Device,
}

impl<'a> Offer<'a> {
    fn pool(&self) -> (&'a str, &'a str) {
        (&self.slice.spec.driver, &self.slice.spec.pool.name)
    }
}

impl Offer<'_> {
    pub fn id(&self) -> DeviceId {
        let spec = &self.slice.spec;
        DeviceId { driver: spec.driver.clone(), pool: spec.pool.name.clone(), device: self.device.name.clone() }
    }

    /// Whether several claims may have it at the same time, each a share.
    pub(crate) fn is_shared(&self) -> bool {
        self.device.allow_multiple_allocations == Some(true)
    }

    /// Where it can be reached from: a node, a selector of nodes, or everywhere.
    pub fn place(&self) -> (Option<&str>, Option<&NodeSelector>) {
        let spec = &self.slice.spec;
        match spec.per_device_node_selection {
            Some(true) => (self.device.node_name.as_deref(), self.device.node_selector.as_ref()),
            _ => (spec.node_name.as_deref(), spec.node_selector.as_ref()),
        }
    }

    /// Whether nothing about it keeps claims away that tolerate only this.
    pub(crate) fn is_open_to(&self, tolerations: &[DeviceToleration]) -> bool {
        let taints = self.device.taints.iter().flatten();
        taints.filter(|taint| taint.effect != "None").all(|taint| tolerations.iter().any(|one| tolerates(one, taint)))
    }

    fn slice_has_conditions(&self) -> bool {
        self.slice.spec.devices.iter().flatten().any(|device| device.binding_conditions.is_some())
    }

    fn is_on(&self, node: &NodeInfo) -> bool {
        let everywhere = match self.slice.spec.per_device_node_selection {
            Some(true) => self.device.all_nodes,
            _ => self.slice.spec.all_nodes,
        };
        match self.place() {
            (Some(name), _) => name == node.name,
            (None, Some(selector)) => selector_matches(selector, &node.name, &node.labels),
            (None, None) => everywhere == Some(true),
        }
    }
}

impl Offers {
    pub fn new(objects: &Objects) -> Offers {
        let mut taken = HashSet::new();
        let mut shared: HashMap<DeviceId, Amounts> = HashMap::new();
        for claim in objects.device_claims() {
            let allocation = claim.status.as_ref().and_then(|status| status.allocation.as_ref());
            let results = allocation.and_then(|one| one.devices.as_ref()).and_then(|devices| devices.results.as_ref());
            // Who only looks after a device takes nothing away.
            let exclusive = results.into_iter().flatten().filter(|result| result.admin_access != Some(true));
            for result in exclusive {
                let id = DeviceId {
                    driver: result.driver.clone(),
                    pool: result.pool.clone(),
                    device: result.device.clone(),
                };
                if result.share_id.is_some() {
                    add(shared.entry(id).or_default(), shares::amounts(result.consumed_capacity.as_ref()));
                } else {
                    taken.insert(id);
                }
            }
        }
        let slices = complete(objects.slices.list());
        let is_taken = |id: &DeviceId| taken.contains(id) || shared.contains_key(id);
        let counters = Counters::new(slices.iter().map(|slice| &**slice), is_taken);
        Offers { slices, taken, shared, counters }
    }

    /// The devices that can be reached from a node, those first that can be used without waiting: whoever finds devices in a pool without
    /// binding conditions has no need of one with them.
    pub fn on<'a>(&'a self, node: &'a NodeInfo) -> Vec<Offer<'a>> {
        let all = self.slices.iter().flat_map(|slice| {
            let devices = slice.spec.devices.iter().flatten();
            devices.map(move |device| Offer { slice, device })
        });
        let mut here: Vec<Offer> = all.filter(|offer| offer.is_on(node)).collect();
        let waited_for = here.iter().filter(|offer| offer.slice_has_conditions()).map(Offer::pool);
        let waited_for: HashSet<(&str, &str)> = waited_for.collect();
        if !waited_for.is_empty() {
            here.sort_by_key(|offer| waited_for.contains(&offer.pool()));
        }
        here
    }
}

pub(super) fn add(to: &mut Amounts, more: Amounts) {
    for (name, amount) in more {
        let there = to.entry(name).or_insert(machinery::quantity::Quantity::ZERO);
        *there = *there + amount;
    }
}

/// The slices of the newest generation of each pool, where all of them are there: a driver may be in the middle of an update.
fn complete(slices: Vec<Arc<ResourceSlice>>) -> Vec<Arc<ResourceSlice>> {
    let mut pools: BTreeMap<(String, String), Vec<Arc<ResourceSlice>>> = BTreeMap::new();
    for slice in slices {
        let pool = pools.entry((slice.spec.driver.clone(), slice.spec.pool.name.clone())).or_default();
        match pool.first().map_or(slice.spec.pool.generation, |first| first.spec.pool.generation) {
            newest if slice.spec.pool.generation > newest => *pool = vec![slice],
            newest if slice.spec.pool.generation == newest => pool.push(slice),
            _ => {}
        }
    }
    let whole = |pool: &Vec<Arc<ResourceSlice>>| {
        pool.first().is_some_and(|first| i64::try_from(pool.len()) == Ok(first.spec.pool.resource_slice_count))
    };
    pools.into_values().filter(whole).flatten().collect()
}
