//! Rules of other components that the dashboard explains things by. Components do not know each other: whoever puts them
//! together hands these in.

use async_trait::async_trait;
use machinery::status::Status;
use serde_json::Value;

use crate::access::User;
use crate::kinds::Kind;

/// What the scheduler says of a pod and every node.
pub trait Scheduling: Send + Sync {
    /// All objects are JSON as the API has them; `pods` are all that are on nodes.
    fn verdicts(&self, asked: &SchedulingFacts) -> Result<Vec<Verdict>, Status>;
}

/// What the decision is made from.
pub struct SchedulingFacts {
    pub pod: Value,
    pub nodes: Vec<Value>,
    pub pods: Vec<Value>,
    pub namespaces: Vec<Value>,
    /// Claims, volumes, classes and whatever else plugins look up, each with its apiVersion and kind.
    pub others: Vec<Value>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// Empty where it is said of all nodes at once.
    pub node: String,
    /// None where the node would take the pod.
    pub refused: Option<Refused>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Refused {
    pub plugin: String,
    pub reasons: Vec<String>,
    /// Whether ending less important pods could help.
    pub resolvable: bool,
}

/// What NetworkPolicies say of traffic between two pods.
pub trait Policy: Send + Sync {
    fn verdict(&self, asked: &Traffic) -> Result<TrafficVerdict, Status>;
}

pub struct Traffic {
    pub from: Value,
    pub to: Value,
    pub port: u16,
    pub protocol: String,
    pub policies: Vec<Value>,
    pub namespaces: Vec<Value>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct TrafficVerdict {
    pub egress: Side,
    pub ingress: Side,
}

/// One direction: whether any policy isolates the pod, and which rules let this traffic pass.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Side {
    /// Policies that select the pod, as `namespace/name`.
    pub isolated_by: Vec<String>,
    /// The policy and the number of its rule.
    pub allowed_by: Vec<(String, usize)>,
}

impl Side {
    pub fn is_allowed(&self) -> bool {
        self.isolated_by.is_empty() || !self.allowed_by.is_empty()
    }
}

/// Earlier states of an object.
#[async_trait]
pub trait Revisions: Send + Sync {
    /// Newest first; whether the list goes back to the object's creation. Only what that user may get.
    async fn of(&self, user: &User, object: &Named) -> Result<(Vec<Revision>, bool), Status>;
}

pub struct Named {
    pub group: String,
    pub version: String,
    pub resource: String,
    pub namespace: String,
    pub name: String,
}

impl Named {
    pub(crate) fn new(kind: Kind, namespace: &str, name: &str) -> Named {
        let Kind { group, version, resource } = kind;
        Named { group, version, resource, namespace: namespace.into(), name: name.into() }
    }
}

pub struct Revision {
    pub revision: u64,
    pub object: Value,
}
