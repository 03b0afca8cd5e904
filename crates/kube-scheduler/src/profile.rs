//! A profile: which plugins decide for pods of one `schedulerName`, and how much their scores weigh.

use std::sync::Arc;
use std::time::Duration;

use crate::framework::Plugin;
use crate::plugins;
use crate::plugins::dynamic_resources::conditions::BINDING_TIMEOUT;
use crate::plugins::volume_binding::VolumeBinding;
use crate::preempt::{CANDIDATES_MIN, CANDIDATES_PERCENT};

#[derive(Clone)]
pub struct Profile {
    pub scheduler_name: String,
    /// In the order they are asked.
    pub filters: Vec<Arc<dyn Plugin>>,
    pub scores: Vec<(Arc<dyn Plugin>, i64)>,
    /// How many percent of the nodes are looked at; 0 lets the size of the cluster decide.
    pub percentage_of_nodes_to_score: u32,
    /// Whether less important pods may be ended for more important ones.
    pub preempts: bool,
    /// At least so many nodes are looked at for that, and at least this share of them.
    pub candidates_min: usize,
    pub candidates_percent: usize,
    /// How long a pod that has a node waits for its volumes.
    pub volume_bind_timeout: Duration,
    /// How long it waits for its devices.
    pub device_bind_timeout: Duration,
}

impl Profile {
    /// What upstream does when nobody configures anything.
    pub fn standard() -> Profile {
        let all = plugins::standard();
        Profile {
            scheduler_name: "default-scheduler".into(),
            filters: all.iter().map(|(plugin, _)| plugin.clone()).collect(),
            scores: all.iter().filter(|(_, weight)| *weight > 0).cloned().collect(),
            percentage_of_nodes_to_score: 0,
            preempts: true,
            candidates_min: CANDIDATES_MIN,
            candidates_percent: CANDIDATES_PERCENT,
            volume_bind_timeout: VolumeBinding::default().bind_timeout,
            device_bind_timeout: BINDING_TIMEOUT,
        }
    }

    pub fn plugin(&self, name: &str) -> Option<&Arc<dyn Plugin>> {
        self.filters.iter().find(|plugin| plugin.name() == name)
    }
}
