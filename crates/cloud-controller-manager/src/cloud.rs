//! What a cloud offers. A provider has some of it or all.

use std::sync::Arc;

use async_trait::async_trait;
use ipnet::IpNet;
use k8s_openapi::api::core::v1::{LoadBalancerStatus, Node, NodeAddress, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct CloudError(pub String);

pub trait Cloud: Send + Sync {
    fn instances(&self) -> Option<&dyn Instances>;
    fn load_balancers(&self) -> Option<&dyn LoadBalancers>;
    fn routes(&self) -> Option<&dyn Routes>;
}

/// The machines that are nodes.
#[async_trait]
pub trait Instances: Send + Sync {
    /// `None` where the cloud has no such machine any more.
    async fn get(&self, node: &Node) -> Result<Option<Instance>, CloudError>;
}

/// What a cloud knows of a machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Instance {
    pub provider_id: String,
    pub kind: String,
    pub zone: String,
    pub region: String,
    pub addresses: Vec<NodeAddress>,
    pub shut_down: bool,
}

/// A Service that is to be reached from outside, with everything that matters for it.
pub struct Balance<'a> {
    pub service: &'a Service,
    /// The nodes that may take its traffic.
    pub nodes: &'a [Arc<Node>],
    /// All other Services that want a load balancer of this cloud.
    pub others: &'a [Arc<Service>],
    /// Those of its namespace.
    pub slices: &'a [Arc<EndpointSlice>],
}

#[async_trait]
pub trait LoadBalancers: Send + Sync {
    /// Whether the cloud finds out by itself which nodes have endpoints of a Service. Otherwise only those are given to it when
    /// traffic must not go on to another node.
    fn checks_health(&self) -> bool;
    /// Whether a Service that is refused loses what it had: then it is reached there no more. With most clouds a failure says
    /// nothing about what is there.
    fn refusal_withdraws(&self) -> bool {
        false
    }
    /// Makes it so, which it may be already, and answers where it is reached.
    async fn ensure(&self, balance: &Balance<'_>) -> Result<LoadBalancerStatus, CloudError>;
    /// It may be gone already.
    async fn delete(&self, service: &Service) -> Result<(), CloudError>;
}

/// How the cloud's network finds the pods of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    pub node: String,
    pub destination: IpNet,
}

#[async_trait]
pub trait Routes: Send + Sync {
    async fn list(&self) -> Result<Vec<Route>, CloudError>;
    async fn create(&self, route: &Route) -> Result<(), CloudError>;
    async fn delete(&self, route: &Route) -> Result<(), CloudError>;
}
