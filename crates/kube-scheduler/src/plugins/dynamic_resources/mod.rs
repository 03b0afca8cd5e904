//! DynamicResources: pods that claim devices go where drivers offer them, and get them for themselves.
//!
//! `devices.rs` says which devices there are and which are taken, `shares.rs` what is left of those that are not given whole, `selector.rs` which
//! of them fit, `allocate.rs` chooses, `score.rs` says how good that is, `bind.rs` writes what was chosen, and `conditions.rs` says when it is ready for the pod.
//! `extended.rs` makes claims of what pods ask for as extended resources.

mod allocate;
pub mod bind;
pub mod conditions;
mod devices;
pub(crate) mod extended;
mod score;
mod selector;
mod shares;
#[cfg(test)]
mod tests;

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use component_helpers::node_affinity::selector_matches;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodResourceClaim, PodResourceClaimStatus};
use k8s_openapi::api::resource::v1::{AllocationResult, ResourceClaim, ResourceClaimConsumerReference};
use reconcile::Key;

use crate::framework::{
    Change, DeviceClaim, DeviceClaimState, Filter, Filtering, Plugin, Refusal, Reservation, Scoring, View,
};
use crate::objects::Objects;
use crate::pod_info::PodInfo;
use crate::snapshot::NodeInfo;
use allocate::Wanted;
use conditions::BINDING_TIMEOUT;
use devices::Offers;
use extended::{Extended, NodeClaim};
use selector::SelectorError;

/// Keeps a claim that is allocated from going.
pub const FINALIZER: &str = "resource.kubernetes.io/delete-protection";
/// So many pods may share a claim.
const CONSUMERS_MAX: usize = 256;

pub const NAME: &str = "DynamicResources";

/// Why a node is refused whose devices are not those of a claim that has its own.
const NOT_AVAILABLE: &str = "resourceclaim not available on the node";

pub struct DynamicResources {
    /// How long a pod that has a node waits for its devices.
    pub binding_timeout: Duration,
}

impl Default for DynamicResources {
    fn default() -> DynamicResources {
        DynamicResources { binding_timeout: BINDING_TIMEOUT }
    }
}

impl Plugin for DynamicResources {
    fn name(&self) -> &'static str {
        NAME
    }

    /// A pod waits until each of its templates has become a claim.
    fn admits(&self, pod: &PodInfo) -> bool {
        claims(&pod.pod).all(|one| claim_name(&pod.pod, one).is_some())
    }

    fn filter<'a>(&'a self, view: View<'a>, pod: &'a PodInfo) -> Filtering<'a> {
        match Question::new(view, pod, self.binding_timeout) {
            Ok(question) if question.is_empty() => Filtering::Skip,
            Ok(question) => Filtering::Ask(Box::new(question)),
            Err(why) => Filtering::Refused(Refusal::final_(why.to_string())),
        }
    }

    fn score<'a>(&'a self, view: View<'a>, pod: &'a PodInfo, _: &[&'a NodeInfo]) -> Scoring<'a> {
        match Question::new(view, pod, self.binding_timeout) {
            Ok(question) if question.has_alternatives() => Scoring::Ask(Box::new(question)),
            _ => Scoring::Skip,
        }
    }

    fn reserve(&self, view: View, pod: &PodInfo, node: &NodeInfo) -> Option<Reservation> {
        // The node has just passed, and nothing changed since.
        let question = Question::new(view, pod, self.binding_timeout).ok().filter(|one| !one.is_empty())?;
        let extended = question.extended_on(node).ok()?;
        let mut allocations = question.allocate(node, extended.as_deref()).ok()?.into_iter();
        let chosen = |wanted: &Wanted, allocation, state| {
            let mut claim = ResourceClaim::clone(&wanted.claim);
            claim.status.get_or_insert_default().allocation = Some(allocation);
            DeviceClaim { claim: Arc::new(reserved(claim, pod)), state }
        };
        let mut devices: Vec<DeviceClaim> = Vec::new();
        for (wanted, allocation) in question.wanted.iter().zip(allocations.by_ref()) {
            devices.push(chosen(wanted, allocation, DeviceClaimState::Chosen));
        }
        devices.extend(question.allocated.iter().map(|claim| {
            let stored = view.objects.device_claims.get(&Key::of(&claim.metadata));
            let is_stored = stored.is_some_and(|stored| is_allocated(&stored));
            let state = if is_stored { DeviceClaimState::Allocated } else { DeviceClaimState::Chosen };
            DeviceClaim { claim: Arc::new(reserved(ResourceClaim::clone(claim), pod)), state }
        }));
        // It comes last, as upstream writes it.
        if let (Some(extended), Some(allocation)) = (&extended, allocations.next()) {
            let state = DeviceClaimState::Uncreated(extended.mappings.clone());
            devices.push(chosen(&extended.wanted, allocation, state));
        }
        (!devices.is_empty()).then(|| Reservation { devices, ..Reservation::default() })
    }

    fn may_help(&self, pod: &PodInfo, change: &Change, objects: &Objects) -> bool {
        match change {
            Change::Node { new, .. } => new.is_some(),
            // The names of claims that were made for the pod.
            Change::OwnUpdate { old, new } => {
                let claims = |pod: &Pod| pod.status.as_ref().and_then(|status| status.resource_claim_statuses.clone());
                claims(old) != claims(new)
            }
            Change::PlacedPod { .. } => false,
            // Any claim may have let go of what this one waits for.
            Change::Object { kind, .. } => {
                let wants =
                    || claims(&pod.pod).next().is_some() || !extended::with_class(objects, &pod.requests).is_empty();
                matches!(*kind, "ResourceClaim" | "ResourceSlice" | "DeviceClass") && wants()
            }
        }
    }
}

/// What the pod claims, without what its status says it can do without: an entry that names no object.
fn claims(pod: &Pod) -> impl Iterator<Item = &PodResourceClaim> {
    let all = pod.spec.iter().flat_map(|spec| spec.resource_claims.iter().flatten());
    all.filter(|claim| {
        let is_waived = || status_of(pod, claim).is_some_and(|status| status.resource_claim_name.is_none());
        claim.resource_claim_name.is_some() || !is_waived()
    })
}

/// The name of the object; none while it is not made.
fn claim_name<'a>(pod: &'a Pod, claim: &'a PodResourceClaim) -> Option<&'a str> {
    let made = || status_of(pod, claim).and_then(|status| status.resource_claim_name.as_deref());
    claim.resource_claim_name.as_deref().or_else(made)
}

fn status_of<'a>(pod: &'a Pod, claim: &PodResourceClaim) -> Option<&'a PodResourceClaimStatus> {
    let mut statuses = pod.status.iter().flat_map(|status| status.resource_claim_statuses.iter().flatten());
    statuses.find(|status| status.name == claim.name)
}

fn is_reserved(claim: &ResourceClaim, pod: &PodInfo) -> bool {
    users(claim).iter().any(|user| user.uid == pod.uid)
}

fn users(claim: &ResourceClaim) -> &[ResourceClaimConsumerReference] {
    claim.status.as_ref().and_then(|status| status.reserved_for.as_deref()).unwrap_or_default()
}

/// The claim with the pod among its users.
fn reserved(mut claim: ResourceClaim, pod: &PodInfo) -> ResourceClaim {
    if !is_reserved(&claim, pod) {
        claim.status.get_or_insert_default().reserved_for.get_or_insert_default().push(user(pod));
    }
    claim
}

fn user(pod: &PodInfo) -> ResourceClaimConsumerReference {
    ResourceClaimConsumerReference {
        api_group: None,
        resource: "pods".into(),
        name: pod.key.name.clone(),
        uid: pod.uid.clone(),
    }
}

fn is_allocated(claim: &ResourceClaim) -> bool {
    claim.status.as_ref().is_some_and(|status| status.allocation.is_some())
}

/// What is done about the claims of a pod that no node takes.
#[derive(Debug, PartialEq)]
pub enum CleanUp {
    /// It has no claims.
    NoClaims,
    /// None of them is in its way.
    Nothing,
    /// This one holds it to nodes that do not take it, or to devices that failed, and nobody else uses it: without its devices it may get
    /// others.
    Free(Arc<ResourceClaim>),
    /// This one was made for its extended resources by an earlier decision, which failed.
    Delete(Arc<ResourceClaim>),
}

impl CleanUp {
    /// As the pod's message says it.
    pub(crate) fn message(&self) -> &'static str {
        match self {
            CleanUp::NoClaims => "no new claims to deallocate",
            CleanUp::Nothing => "still not schedulable",
            CleanUp::Free(_) => "deallocation of ResourceClaim completed",
            CleanUp::Delete(_) => "deletion of ResourceClaim completed",
        }
    }
}

/// `refused` are the nodes that were asked and refused the pod.
pub fn clean_up<'a>(
    view: View<'a>,
    pod: &PodInfo,
    refused: impl Iterator<Item = (&'a NodeInfo, &'a Refusal)>,
    timeout: Duration,
) -> CleanUp {
    let named = claims(&pod.pod).filter_map(|one| claim_name(&pod.pod, one));
    let found = named.filter_map(|name| view.objects.device_claim(&Key::new(pod.key.namespace.clone(), name)));
    let found: Vec<Arc<ResourceClaim>> = found.collect();
    let is_extended = !extended::with_class(view.objects, &pod.requests).is_empty();
    if found.is_empty() && !is_extended {
        return CleanUp::NoClaims;
    }
    let by_claims = refused.filter(|(_, refusal)| refusal.reasons.iter().any(|reason| reason == NOT_AVAILABLE));
    let nodes: Vec<&NodeInfo> = by_claims.map(|(node, _)| node).collect();
    let in_the_way = |claim: &&Arc<ResourceClaim>| {
        is_allocated(claim)
            && users(claim).iter().all(|user| user.uid == pod.uid)
            && nodes.iter().any(|node| !is_available(claim, node, view.now, timeout))
    };
    if let Some(claim) = found.iter().find(in_the_way) {
        return CleanUp::Free(claim.clone());
    }
    let made = is_extended.then(|| extended::made_for(view.objects, pod)).flatten();
    made.map_or(CleanUp::Nothing, CleanUp::Delete)
}

/// Whether the devices of a claim that has some are good for a pod on that node.
fn is_available(claim: &ResourceClaim, node: &NodeInfo, now: Timestamp, timeout: Duration) -> bool {
    let allocation = claim.status.as_ref().and_then(|status| status.allocation.as_ref());
    let place = allocation.and_then(|allocation| allocation.node_selector.as_ref());
    place.is_none_or(|place| selector_matches(place, &node.name, &node.labels))
        && !conditions::has_failed(claim, now, timeout)
}

/// Why no node can help: users read it in the message of the pod.
#[derive(Debug, thiserror::Error)]
enum Impossible {
    #[error("pod claim {0:?} is not created yet")]
    NotCreated(String),
    #[error("resourceclaim {0:?} not found")]
    NotFound(String),
    #[error("resourceclaim {0:?} is being deleted")]
    Deleted(String),
    #[error("resourceclaim {claim:?} was not created for pod {pod}")]
    Foreign { claim: String, pod: Key },
    #[error("resourceclaim in use")]
    InUse,
    #[error("request {request}: device class {class} does not exist")]
    NoClass { request: String, class: String },
    #[error(transparent)]
    Selector(#[from] SelectorError),
}

/// What is asked of every node.
struct Question<'a> {
    /// Claims that have their devices already.
    allocated: Vec<Arc<ResourceClaim>>,
    wanted: Vec<Wanted>,
    /// What it asks for by the names of extended resources.
    extended: Option<Extended<'a>>,
    offers: Offers,
    now: Timestamp,
    binding_timeout: Duration,
}

impl<'a> Question<'a> {
    /// Fails where no node can help: the words say why.
    fn new(view: View<'a>, pod: &'a PodInfo, binding_timeout: Duration) -> Result<Question<'a>, Impossible> {
        let (mut allocated, mut wanted) = (Vec::new(), Vec::new());
        for one in claims(&pod.pod) {
            let name = claim_name(&pod.pod, one).ok_or_else(|| Impossible::NotCreated(one.name.clone()))?;
            let claim = view.objects.device_claim(&Key::new(pod.key.namespace.clone(), name));
            let claim = claim.ok_or_else(|| Impossible::NotFound(name.to_owned()))?;
            if claim.metadata.deletion_timestamp.is_some() {
                return Err(Impossible::Deleted(name.to_owned()));
            }
            if one.resource_claim_template_name.is_some() && !is_owned(&claim, pod) {
                return Err(Impossible::Foreign { claim: name.to_owned(), pod: pod.key.clone() });
            }
            match claim.status.as_ref().and_then(|status| status.allocation.as_ref()) {
                Some(_) if !is_reserved(&claim, pod) && users(&claim).len() >= CONSUMERS_MAX => {
                    return Err(Impossible::InUse);
                }
                Some(_) => allocated.push(claim),
                None => wanted.push(Wanted::new(view.objects, claim)?),
            }
        }
        let extended = Extended::new(view.objects, pod);
        // Who needs nothing new need not know what there is.
        let needs_devices = !wanted.is_empty() || extended.is_some();
        let offers = if needs_devices { Offers::new(view.objects) } else { Offers::default() };
        Ok(Question { allocated, wanted, extended, offers, now: view.now, binding_timeout })
    }

    /// Whether the pod wants no devices at all.
    fn is_empty(&self) -> bool {
        self.allocated.is_empty() && self.wanted.is_empty() && self.extended.is_none()
    }

    /// The claim that the pod needs on that node for its extended resources.
    fn extended_on(&self, node: &NodeInfo) -> Result<Option<Rc<NodeClaim>>, Refusal> {
        self.extended.as_ref().map_or(Ok(None), |extended| extended.on(node))
    }

    /// For each claim that wants devices; that for extended resources comes last.
    fn allocate(
        &self,
        node: &NodeInfo,
        extended: Option<&NodeClaim>,
    ) -> Result<Vec<AllocationResult>, allocate::Failure> {
        let wanted: Vec<&Wanted> = self.wanted.iter().chain(extended.map(|one| &one.wanted)).collect();
        allocate::allocate(&wanted, &self.offers, node)
    }
}

fn is_owned(claim: &ResourceClaim, pod: &PodInfo) -> bool {
    component_helpers::pods::is_controlled_by(&claim.metadata, &pod.uid)
}

impl Filter for Question<'_> {
    fn check(&self, node: &NodeInfo) -> Result<(), Refusal> {
        let extended = self.extended_on(node)?;
        if self.allocated.iter().any(|claim| !is_available(claim, node, self.now, self.binding_timeout)) {
            return Err(Refusal::final_(NOT_AVAILABLE));
        }
        if self.wanted.is_empty() && extended.is_none() {
            return Ok(());
        }
        self.allocate(node, extended.as_deref()).map(|_| ()).map_err(|failure| match failure {
            // Devices are not taken from less important pods, as upstream does not.
            allocate::Failure::NoDevices => Refusal::final_("cannot allocate all claims"),
            allocate::Failure::Selector(why) => Refusal::error(why.to_string()),
        })
    }
}
