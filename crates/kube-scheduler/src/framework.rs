//! The plugin interface: for one pod a plugin says once what it will ask of every node, then is asked about nodes.
//!
//! Upstream's PreFilter and Filter are [`Plugin::filter`] and [`Filter`]; PreScore, Score and NormalizeScore are
//! [`Plugin::score`] and [`Score`]; queueing hints are [`Plugin::may_help`].

use std::borrow::Cow;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    ContainerExtendedResourceRequest, Node, PersistentVolume, PersistentVolumeClaim, Pod,
};
use k8s_openapi::api::resource::v1::ResourceClaim;
use reconcile::Key;

use crate::objects::Objects;
use crate::pod_info::PodInfo;
use crate::snapshot::{NodeIndex, NodeInfo, Snapshot};

/// The largest score a plugin gives.
pub(crate) const SCORE_MAX: i64 = 100;

/// What a plugin may look at.
#[derive(Clone, Copy)]
pub struct View<'a> {
    pub snapshot: &'a Snapshot,
    /// Volumes, claims, classes and whatever else pods refer to.
    pub objects: &'a Objects,
    pub now: Timestamp,
}

/// Why a node does not take a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// In upstream's words, as counted in `0/5 nodes are available: 3 Insufficient cpu, ...`.
    pub reasons: Reasons,
    /// Whether ending other pods could help.
    pub resolvable: bool,
    /// Something is wrong with the pod or with what it refers to: it goes nowhere, whatever other nodes say.
    pub is_error: bool,
}

impl Refusal {
    pub fn resolvable(reason: impl Into<Reason>) -> Refusal {
        Refusal { reasons: Reasons(reason.into(), Vec::new()), resolvable: true, is_error: false }
    }

    pub(crate) fn final_(reason: impl Into<Reason>) -> Refusal {
        Refusal { reasons: Reasons(reason.into(), Vec::new()), resolvable: false, is_error: false }
    }

    pub(crate) fn error(reason: impl Into<Reason>) -> Refusal {
        Refusal { reasons: Reasons(reason.into(), Vec::new()), resolvable: false, is_error: true }
    }
}

/// Most are the same text for every node, which is not copied.
type Reason = Cow<'static, str>;

/// At least one reason. The first is kept in place: a decision about a pod that fits nowhere makes one of these for every node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reasons(Reason, Vec<Reason>);

impl From<&'static str> for Reasons {
    fn from(reason: &'static str) -> Reasons {
        Reasons(reason.into(), Vec::new())
    }
}

impl Reasons {
    /// One more, or the first.
    pub(crate) fn push(reasons: &mut Option<Reasons>, reason: impl Into<Reason>) {
        match reasons {
            Some(Reasons(_, more)) => more.push(reason.into()),
            None => *reasons = Some(Reasons(reason.into(), Vec::new())),
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&self.0).chain(&self.1).map(|reason| &**reason)
    }

    pub(crate) fn join(&self, between: &str) -> String {
        self.iter().collect::<Vec<&str>>().join(between)
    }
}

pub enum Filtering<'a> {
    /// Nothing to ask of any node.
    Skip,
    /// No node can take the pod, whatever it is like.
    Refused(Refusal),
    Ask(Box<dyn Filter + 'a>),
}

/// One plugin's question about one pod, put to every node.
pub trait Filter {
    /// The only nodes that can pass, when they are few and known.
    fn only(&self) -> Option<Vec<NodeIndex>> {
        None
    }

    fn check(&self, node: &NodeInfo) -> Result<(), Refusal>;

    /// What if that pod were on that node too, or no longer? Asked while looking for pods to preempt.
    fn add_pod(&mut self, _pod: &PodInfo, _node: &NodeInfo) {}
    fn remove_pod(&mut self, _pod: &PodInfo, _node: &NodeInfo) {}
}

pub enum Scoring<'a> {
    Skip,
    Ask(Box<dyn Score + 'a>),
}

pub trait Score {
    fn score(&self, node: &NodeInfo) -> i64;

    /// Brings the scores of all nodes between 0 and `SCORE_MAX`.
    fn normalize(&self, _nodes: &[&NodeInfo], _scores: &mut [i64]) {}
}

/// The larger the better: the largest becomes 100, or with `reverse` 0.
pub(crate) fn normalize_by_largest(scores: &mut [i64], reverse: bool) {
    let largest = scores.iter().copied().max().unwrap_or(0);
    for score in scores {
        *score = match (largest, reverse) {
            (0, true) => SCORE_MAX,
            (0, false) => 0,
            (largest, true) => SCORE_MAX - *score * SCORE_MAX / largest,
            (largest, false) => *score * SCORE_MAX / largest,
        };
    }
}

/// Something that happened in the cluster and may let a waiting pod pass.
#[derive(Clone, Debug)]
pub enum Change {
    Node {
        old: Option<Arc<Node>>,
        new: Option<Arc<Node>>,
    },
    /// A pod that is on a node, or was.
    PlacedPod {
        old: Option<Arc<Pod>>,
        new: Option<Arc<Pod>>,
    },
    /// The waiting pod itself.
    OwnUpdate {
        old: Arc<Pod>,
        new: Arc<Pod>,
    },
    /// An object of another kind that plugins read.
    Object {
        kind: &'static str,
        key: Key,
    },
}

impl Change {
    /// Whether the waiting pod itself got other labels.
    pub(crate) fn relabels_itself(&self) -> bool {
        matches!(self, Change::OwnUpdate { old, new } if old.metadata.labels != new.metadata.labels)
    }

    /// Whether the waiting pod itself got other tolerations.
    pub(crate) fn changes_own_tolerations(&self) -> bool {
        let tolerations = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.tolerations.clone());
        matches!(self, Change::OwnUpdate { old, new } if tolerations(old) != tolerations(new))
    }
}

/// What a plugin wants written, and waited for, before the pod is bound to its node. Until then the decisions after this one
/// assume that it is so.
#[derive(Clone, Debug, Default)]
pub struct Reservation {
    /// Volumes that are given to claims of the pod.
    pub volumes: Vec<Arc<PersistentVolume>>,
    /// Claims whose volume is to be made for the node.
    pub claims: Vec<Arc<PersistentVolumeClaim>>,
    /// Claims that must be bound in the end.
    pub awaited: Vec<Key>,
    pub devices: Vec<DeviceClaim>,
}

/// A claim for devices that the pod will use.
#[derive(Clone, Debug)]
pub struct DeviceClaim {
    /// With what it gets, and the pod among its users.
    pub claim: Arc<ResourceClaim>,
    pub state: DeviceClaimState,
}

#[derive(Clone, Debug, PartialEq)]
pub enum DeviceClaimState {
    /// Its devices are stored already, as others use them too.
    Allocated,
    /// Its devices were chosen by this decision, or by one that is not written yet.
    Chosen,
    /// It stands for extended resources of the pod, and is created with the devices that were chosen: which request is for which container.
    Uncreated(Vec<ContainerExtendedResourceRequest>),
}

impl Reservation {
    /// What both want.
    pub fn and(mut self, other: Reservation) -> Reservation {
        self.volumes.extend(other.volumes);
        self.claims.extend(other.claims);
        self.awaited.extend(other.awaited);
        self.devices.extend(other.devices);
        self
    }
}

pub trait Plugin: Send + Sync {
    /// Upstream's name, as in a configuration file.
    fn name(&self) -> &'static str;

    /// Whether the pod may enter the queue of pods to schedule (scheduling gates).
    fn admits(&self, _pod: &PodInfo) -> bool {
        true
    }

    fn filter<'a>(&'a self, _view: View<'a>, _pod: &'a PodInfo) -> Filtering<'a> {
        Filtering::Skip
    }

    fn score<'a>(&'a self, _view: View<'a>, _pod: &'a PodInfo, _feasible: &[&'a NodeInfo]) -> Scoring<'a> {
        Scoring::Skip
    }

    /// What the choice of that node means for other objects.
    fn reserve(&self, _view: View, _pod: &PodInfo, _node: &NodeInfo) -> Option<Reservation> {
        None
    }

    /// Whether a change can help any pod at all that this plugin refused: asked once, before every pod is.
    fn is_concerned(&self, _change: &Change) -> bool {
        true
    }

    /// Whether a pod that this plugin refused may pass now.
    fn may_help(&self, pod: &PodInfo, change: &Change, objects: &Objects) -> bool;
}
