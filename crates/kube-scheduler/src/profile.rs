//! A profile: which plugins decide for pods of one `schedulerName`, and how much their scores weigh.

use std::sync::Arc;

use crate::framework::Plugin;
use crate::plugins;

#[derive(Clone)]
pub struct Profile {
    pub scheduler_name: String,
    /// In the order they are asked.
    pub filters: Vec<Arc<dyn Plugin>>,
    pub scores: Vec<(Arc<dyn Plugin>, i64)>,
    /// How many percent of the nodes are looked at; 0 lets the size of the cluster decide.
    pub percentage_of_nodes_to_score: u32,
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
        }
    }

    pub fn plugin(&self, name: &str) -> Option<&Arc<dyn Plugin>> {
        self.filters.iter().find(|plugin| plugin.name() == name)
    }
}
