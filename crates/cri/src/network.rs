//! What a runtime asks of the pod network.

use std::net::IpAddr;
use std::path::PathBuf;

use async_trait::async_trait;

use crate::{Result, v1};

/// A pod that wants to be, or is, on the network.
#[derive(Clone, Debug)]
pub struct SandboxNetwork {
    /// The sandbox's id: the one name under which addresses are kept.
    pub sandbox: String,
    pub namespace: String,
    pub name: String,
    pub uid: String,
    /// The network namespace, a path that `setns` takes.
    pub netns: PathBuf,
    pub port_mappings: Vec<v1::PortMapping>,
    pub annotations: std::collections::HashMap<String, String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Addresses {
    /// The first is the pod's `podIP`.
    pub ips: Vec<IpAddr>,
}

/// Gives pods their addresses and links. Repeating a call is harmless.
#[async_trait]
pub trait Network: Send + Sync {
    /// Links the namespace and gives the same addresses when it is asked again for the same sandbox.
    async fn attach(&self, pod: &SandboxNetwork) -> Result<Addresses>;
    /// Takes link, addresses and port mappings back; the namespace may be gone already.
    async fn detach(&self, pod: &SandboxNetwork) -> Result<()>;
    /// Everything of sandboxes that are not among these is taken back: what a crash left behind.
    async fn keep_only(&self, sandboxes: &[String]) -> Result<()>;
    /// The range of this node's pod addresses.
    async fn set_pod_cidr(&self, pod_cidr: &str) -> Result<()>;
    /// Why pods cannot be linked now, in words for the node's Ready condition.
    async fn not_ready(&self) -> Option<String>;
}
