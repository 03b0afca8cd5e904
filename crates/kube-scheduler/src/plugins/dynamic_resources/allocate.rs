//! Chooses devices for all claims of a pod on one node: one for each request, all or nothing.

use std::cell::Cell;
use std::collections::HashSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};
use k8s_openapi::api::resource::v1::{
    AllocationResult, CapacityRequirements, DeviceAllocationConfiguration, DeviceAllocationResult, DeviceAttribute,
    DeviceConstraint, DeviceRequestAllocationResult, DeviceSelector, DeviceToleration, ResourceClaim,
};
use reconcile::Key;

use super::Impossible;
use super::devices::{DeviceId, Offer, Offers, add as add_amounts};
use super::selector::{SelectorError, Selectors, qualified};
use super::shares::{self, Amounts};
use crate::objects::Objects;
use crate::snapshot::NodeInfo;

/// So many devices are tried in all combinations before a node counts as unsuitable.
const STEPS_MAX: usize = 20_000;

#[derive(Debug, PartialEq)]
pub enum Failure {
    NoDevices,
    /// A selector cannot be evaluated.
    Selector(SelectorError),
}

/// A claim without devices.
pub struct Wanted {
    pub claim: Arc<ResourceClaim>,
    /// Each request, and the ways to satisfy it, the best first.
    requests: Vec<Vec<Way>>,
}

struct Way {
    /// As results name it: the request, or request and alternative.
    name: String,
    selectors: Selectors,
    /// None means every device that fits, at least one.
    count: Option<usize>,
    admin_access: bool,
    /// How much of each capacity a device must have, or have left.
    capacity: Amounts,
    tolerations: Vec<DeviceToleration>,
    configuration: Vec<DeviceAllocationConfiguration>,
}

/// The fields that requests and their alternatives share.
struct Asked<'a> {
    class: &'a str,
    selectors: Option<&'a Vec<DeviceSelector>>,
    mode: Option<&'a str>,
    count: Option<i64>,
    tolerations: Option<&'a Vec<DeviceToleration>>,
    capacity: Option<&'a CapacityRequirements>,
    admin_access: bool,
}

impl Wanted {
    pub fn new(objects: &Objects, claim: Arc<ResourceClaim>) -> Result<Wanted, Impossible> {
        let asked = claim.spec.devices.as_ref().and_then(|devices| devices.requests.as_deref()).unwrap_or_default();
        let mut requests = Vec::new();
        for request in asked {
            let mut ways = Vec::new();
            if let Some(one) = &request.exactly {
                let asked = Asked {
                    class: &one.device_class_name,
                    selectors: one.selectors.as_ref(),
                    mode: one.allocation_mode.as_deref(),
                    count: one.count,
                    tolerations: one.tolerations.as_ref(),
                    capacity: one.capacity.as_ref(),
                    admin_access: one.admin_access == Some(true),
                };
                ways.push(Way::new(objects, &claim, request.name.clone(), asked)?);
            }
            for one in request.first_available.iter().flatten() {
                let asked = Asked {
                    class: &one.device_class_name,
                    selectors: one.selectors.as_ref(),
                    mode: one.allocation_mode.as_deref(),
                    count: one.count,
                    tolerations: one.tolerations.as_ref(),
                    capacity: one.capacity.as_ref(),
                    admin_access: false,
                };
                ways.push(Way::new(objects, &claim, format!("{}/{}", request.name, one.name), asked)?);
            }
            requests.push(ways);
        }
        Ok(Wanted { claim, requests })
    }

    fn constraints(&self) -> &[DeviceConstraint] {
        self.claim.spec.devices.as_ref().and_then(|devices| devices.constraints.as_deref()).unwrap_or_default()
    }
}

impl Way {
    fn new(objects: &Objects, claim: &ResourceClaim, name: String, asked: Asked) -> Result<Way, Impossible> {
        let class = objects.device_classes.get(&Key::cluster(asked.class));
        let class =
            class.ok_or_else(|| Impossible::NoClass { request: name.clone(), class: asked.class.to_owned() })?;
        let mut selectors = Selectors::default();
        selectors.add(&format!("class {}", asked.class), class.spec.selectors.as_ref())?;
        selectors.add(&format!("claim {}", Key::of(&claim.metadata)), asked.selectors)?;
        let configuration = class.spec.config.iter().flatten().map(|one| DeviceAllocationConfiguration {
            source: "FromClass".into(),
            requests: Some(vec![name.clone()]),
            opaque: one.opaque.clone(),
        });
        Ok(Way {
            selectors,
            count: match asked.mode {
                Some("All") => None,
                _ => Some(usize::try_from(asked.count.unwrap_or(1)).unwrap_or(usize::MAX)),
            },
            admin_access: asked.admin_access,
            capacity: shares::amounts(asked.capacity.and_then(|capacity| capacity.requests.as_ref())),
            tolerations: asked.tolerations.cloned().unwrap_or_default(),
            configuration: configuration.collect(),
            name,
        })
    }
}

pub fn allocate(wanted: &[&Wanted], offers: &Offers, node: &NodeInfo) -> Result<Vec<AllocationResult>, Failure> {
    let here = offers.on(node);
    let has_shared = here.iter().any(Offer::is_shared);
    let search = Search { wanted, offers, here, has_shared, steps: Cell::new(0) };
    let mut state = State::default();
    if search.request(0, 0, &mut state)? {
        Ok((0..wanted.len()).map(|claim| search.result(claim, &state, node)).collect())
    } else {
        Err(Failure::NoDevices)
    }
}

struct Search<'a> {
    wanted: &'a [&'a Wanted],
    offers: &'a Offers,
    here: Vec<Offer<'a>>,
    /// Some of them may be chosen more than once.
    has_shared: bool,
    steps: Cell<usize>,
}

#[derive(Default)]
struct State<'a> {
    chosen: Vec<Chosen<'a>>,
    taken: HashSet<DeviceId>,
}

struct Chosen<'a> {
    claim: usize,
    way: &'a Way,
    offer: Offer<'a>,
    /// Of a device that several claims share.
    share: Option<Amounts>,
}

impl<'a> Search<'a> {
    /// Satisfies this request and all after it.
    fn request(&self, claim: usize, request: usize, state: &mut State<'a>) -> Result<bool, Failure> {
        let Some(wanted) = self.wanted.get(claim) else { return Ok(true) };
        let Some(ways) = wanted.requests.get(request) else { return self.request(claim + 1, 0, state) };
        for way in ways {
            let done = match way.count {
                Some(count) => self.some(claim, request, way, count, 0, state)?,
                None => self.every(claim, request, way, state)?,
            };
            if done {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// So many more devices, those from that one on: their order does not matter.
    fn some(
        &self,
        claim: usize,
        request: usize,
        way: &'a Way,
        count: usize,
        from: usize,
        state: &mut State<'a>,
    ) -> Result<bool, Failure> {
        if count == 0 {
            return self.request(claim, request + 1, state);
        }
        for (place, offer) in self.here.iter().enumerate().skip(from) {
            self.steps.set(self.steps.get() + 1);
            let enough = self.has_shared || self.here.len() - place >= count;
            if self.steps.get() > STEPS_MAX || !enough {
                return Ok(false);
            }
            if !self.is_free(way, offer, state) || !self.fits(way, offer)? || !self.keeps(claim, way, offer, state) {
                continue;
            }
            self.choose(claim, way, *offer, state);
            // Of a device that is shared there may be more.
            let next = if offer.is_shared() { place } else { place + 1 };
            if self.some(claim, request, way, count - 1, next, state)? {
                return Ok(true);
            }
            self.drop_last(state);
        }
        Ok(false)
    }

    /// Every device that fits; one that is taken, or that a constraint keeps out, makes it fail.
    fn every(&self, claim: usize, request: usize, way: &'a Way, state: &mut State<'a>) -> Result<bool, Failure> {
        let before = state.chosen.len();
        let mut all = true;
        for offer in &self.here {
            if !self.fits(way, offer)? {
                continue;
            }
            all &= self.is_free(way, offer, state) && self.keeps(claim, way, offer, state);
            if !all {
                break;
            }
            self.choose(claim, way, *offer, state);
        }
        if all && state.chosen.len() > before && self.request(claim, request + 1, state)? {
            return Ok(true);
        }
        while state.chosen.len() > before {
            self.drop_last(state);
        }
        Ok(false)
    }

    fn fits(&self, way: &Way, offer: &Offer) -> Result<bool, Failure> {
        Ok(offer.is_open_to(&way.tolerations) && way.selectors.hold(offer).map_err(Failure::Selector)?)
    }

    fn is_free(&self, way: &Way, offer: &Offer, state: &State) -> bool {
        let id = offer.id();
        if way.admin_access {
            return true;
        }
        if self.offers.taken.contains(&id) || state.taken.contains(&id) || self.share(way, offer, state).is_none() {
            return false;
        }
        let given = state.chosen.iter().filter(|chosen| !chosen.way.admin_access).map(|chosen| chosen.offer);
        // A share of a device that is given already consumes no counters again.
        let is_given = self.offers.shared.contains_key(&id) || given.clone().any(|other| other.id() == id);
        is_given || self.offers.counters.allow(offer, given)
    }

    /// What this request has of the device; nothing where it has too little, or too little left.
    fn share(&self, way: &Way, offer: &Offer, state: &State) -> Option<Amounts> {
        let mut consumed = Amounts::new();
        if offer.is_shared() {
            let id = offer.id();
            consumed = self.offers.shared.get(&id).cloned().unwrap_or_default();
            for chosen in state.chosen.iter().filter(|chosen| chosen.offer.id() == id) {
                add_amounts(&mut consumed, chosen.share.clone().unwrap_or_default());
            }
        } else if way.capacity.is_empty() {
            return Some(consumed);
        }
        shares::share(offer.device, &way.capacity, &consumed)
    }

    fn choose(&self, claim: usize, way: &'a Way, offer: Offer<'a>, state: &mut State<'a>) {
        let share = self.share(way, &offer, state).filter(|_| offer.is_shared() && !way.admin_access);
        if !way.admin_access && !offer.is_shared() {
            state.taken.insert(offer.id());
        }
        state.chosen.push(Chosen { claim, way, offer, share });
    }

    fn drop_last(&self, state: &mut State<'a>) {
        if let Some(chosen) = state.chosen.pop().filter(|chosen| !chosen.way.admin_access) {
            state.taken.remove(&chosen.offer.id());
        }
    }

    /// Whether the claim's constraints hold with that device too.
    fn keeps(&self, claim: usize, way: &Way, offer: &Offer, state: &State) -> bool {
        self.wanted[claim].constraints().iter().filter(|one| concerns(one, &way.name)).all(|constraint| {
            let others =
                state.chosen.iter().filter(|chosen| chosen.claim == claim && concerns(constraint, &chosen.way.name));
            let mut others = others.map(|chosen| chosen.offer);
            match (&constraint.match_attribute, &constraint.distinct_attribute) {
                (Some(name), _) => {
                    let own = attribute(offer, name);
                    own.is_some() && others.all(|other| attribute(&other, name) == own)
                }
                (None, Some(name)) => {
                    let own = attribute(offer, name);
                    own.is_some() && others.all(|other| attribute(&other, name) != own)
                }
                (None, None) => true,
            }
        })
    }

    fn result(&self, claim: usize, state: &State, node: &NodeInfo) -> AllocationResult {
        let own = || state.chosen.iter().filter(|chosen| chosen.claim == claim);
        let results = own().map(|chosen| {
            let id = chosen.offer.id();
            DeviceRequestAllocationResult {
                request: chosen.way.name.clone(),
                driver: id.driver,
                pool: id.pool,
                device: id.device,
                admin_access: chosen.way.admin_access.then_some(true),
                tolerations: Some(chosen.way.tolerations.clone()).filter(|list| !list.is_empty()),
                binding_conditions: chosen.offer.device.binding_conditions.clone(),
                binding_failure_conditions: chosen.offer.device.binding_failure_conditions.clone(),
                share_id: chosen.share.is_some().then(new_uid),
                consumed_capacity: chosen.share.as_ref().map(shares::written).filter(|amounts| !amounts.is_empty()),
            }
        });
        let results = results.collect();
        let mut config: Vec<DeviceAllocationConfiguration> = Vec::new();
        for chosen in own() {
            let new = chosen.way.configuration.iter().filter(|one| !config.contains(one)).cloned().collect::<Vec<_>>();
            config.extend(new);
        }
        let given = self.wanted[claim].claim.spec.devices.as_ref().and_then(|devices| devices.config.clone());
        config.extend(given.unwrap_or_default().into_iter().map(|one| DeviceAllocationConfiguration {
            source: "FromClaim".into(),
            requests: one.requests,
            opaque: one.opaque,
        }));
        AllocationResult {
            devices: Some(DeviceAllocationResult {
                results: Some(results),
                config: Some(config).filter(|config| !config.is_empty()),
            }),
            node_selector: place(own().map(|chosen| chosen.offer), node),
            // It counts from when the claim is written.
            allocation_timestamp: None,
        }
    }
}

/// Names one share of a device, for ever.
fn new_uid() -> String {
    let bits: u128 = rand::random();
    let hex = format!("{bits:032x}");
    format!("{}-{}-4{}-8{}-{}", &hex[..8], &hex[8..12], &hex[13..16], &hex[17..20], &hex[20..])
}

/// A constraint names requests, which stand for all of their alternatives; one that names none is about all.
fn concerns(constraint: &DeviceConstraint, request: &str) -> bool {
    let names = constraint.requests.as_deref().unwrap_or_default();
    names.is_empty() || names.iter().any(|name| name == request || request.split('/').next() == Some(name))
}

fn attribute<'a>(offer: &Offer<'a>, name: &str) -> Option<&'a DeviceAttribute> {
    let driver = offer.slice.spec.driver.as_str();
    let wanted = qualified(name, driver);
    let mut all = offer.device.attributes.iter().flatten();
    all.find(|(name, _)| qualified(name, driver) == wanted).map(|(_, attribute)| attribute)
}

/// The nodes from which all of these devices can be reached; none means everywhere.
fn place<'a>(offers: impl Iterator<Item = Offer<'a>>, node: &NodeInfo) -> Option<NodeSelector> {
    let mut term = NodeSelectorTerm::default();
    for offer in offers {
        let binds = offer.device.binds_to_node == Some(true);
        match offer.place() {
            (place, _) if place.is_some() || binds => {
                let only = NodeSelectorRequirement {
                    key: "metadata.name".into(),
                    operator: "In".into(),
                    values: Some(vec![node.name.clone()]),
                };
                term = NodeSelectorTerm { match_fields: Some(vec![only]), match_expressions: None };
                break;
            }
            (_, Some(selector)) => {
                // Selectors of slices have one term, which the server sees to.
                for given in selector.node_selector_terms.iter().take(1) {
                    add(&mut term.match_expressions, given.match_expressions.as_ref());
                    add(&mut term.match_fields, given.match_fields.as_ref());
                }
            }
            (_, None) => {}
        }
    }
    let says = term.match_expressions.is_some() || term.match_fields.is_some();
    says.then(|| NodeSelector { node_selector_terms: vec![term] })
}

fn add(to: &mut Option<Vec<NodeSelectorRequirement>>, from: Option<&Vec<NodeSelectorRequirement>>) {
    for requirement in from.into_iter().flatten() {
        let list = to.get_or_insert_default();
        if !list.contains(requirement) {
            list.push(requirement.clone());
        }
    }
}
