//! NodeName: a pod that names its node goes nowhere else.

use crate::framework::{Change, Filter, Filtering, Plugin, Refusal, View};
use crate::objects::Objects;
use crate::pod_info::PodInfo;
use crate::snapshot::NodeInfo;

pub struct NodeName;

impl Plugin for NodeName {
    fn name(&self) -> &'static str {
        "NodeName"
    }

    fn filter<'a>(&'a self, _: View<'a>, pod: &'a PodInfo) -> Filtering<'a> {
        match pod.spec().node_name.as_deref() {
            None | Some("") => Filtering::Skip,
            Some(name) => Filtering::Ask(Box::new(Named(name))),
        }
    }

    fn is_concerned(&self, change: &Change) -> bool {
        matches!(change, Change::Node { .. })
    }

    fn may_help(&self, pod: &PodInfo, change: &Change, _: &Objects) -> bool {
        let wanted = pod.spec().node_name.as_deref();
        matches!(change, Change::Node { old: None, new: Some(node) } if node.metadata.name.as_deref() == wanted)
    }
}

struct Named<'a>(&'a str);

impl Filter for Named<'_> {
    fn check(&self, node: &NodeInfo) -> Result<(), Refusal> {
        if node.name == self.0 { Ok(()) } else { Err(Refusal::final_("node(s) didn't match the requested node name")) }
    }
}
