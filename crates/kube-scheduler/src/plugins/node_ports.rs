//! NodePorts: two pods cannot have the same port of the same node.

use crate::framework::{Change, Filter, Filtering, Plugin, Refusal, View};
use crate::objects::Objects;
use crate::pod_info::PodInfo;
use crate::snapshot::NodeInfo;

pub struct NodePorts;

impl Plugin for NodePorts {
    fn name(&self) -> &'static str {
        "NodePorts"
    }

    fn filter<'a>(&'a self, _: View<'a>, pod: &'a PodInfo) -> Filtering<'a> {
        if pod.host_ports.is_empty() { Filtering::Skip } else { Filtering::Ask(Box::new(Free { pod })) }
    }

    fn may_help(&self, pod: &PodInfo, change: &Change, _: &Objects) -> bool {
        match change {
            Change::Node { old: None, new: Some(_) } => true,
            Change::PlacedPod { old: Some(gone), new: None } => conflict(pod, &PodInfo::new(gone.clone())),
            // Ports of pods never change.
            Change::Node { .. } | Change::PlacedPod { .. } | Change::OwnUpdate { .. } | Change::Object { .. } => false,
        }
    }
}

fn conflict(one: &PodInfo, other: &PodInfo) -> bool {
    one.host_ports.iter().any(|ours| other.host_ports.iter().any(|theirs| ours.conflicts_with(theirs)))
}

struct Free<'a> {
    pod: &'a PodInfo,
}

impl Filter for Free<'_> {
    fn check(&self, node: &NodeInfo) -> Result<(), Refusal> {
        if node.pods.iter().any(|other| conflict(self.pod, other)) {
            Err(Refusal::resolvable("node(s) didn't have free ports for the requested pod ports"))
        } else {
            Ok(())
        }
    }
}
