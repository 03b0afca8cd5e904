//! The plugins, one file each, and the list of those that run by default.

mod node_name;
mod node_unschedulable;
mod node_resources_fit;

use std::sync::Arc;

use crate::framework::Plugin;

/// Upstream's default plugins in their order, with the weight of their scores; 0 for those that give none.
pub fn standard() -> Vec<(Arc<dyn Plugin>, i64)> {
    vec![
        (Arc::new(node_unschedulable::NodeUnschedulable), 0),
        (Arc::new(node_name::NodeName), 0),
        (Arc::new(node_resources_fit::NodeResourcesFit::default()), 1),
    ]
}
