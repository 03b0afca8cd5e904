//! SchedulingGates: a pod with gates is not even tried.

use crate::framework::{Change, Plugin};
use crate::pod_info::PodInfo;

pub struct SchedulingGates;

impl Plugin for SchedulingGates {
    fn name(&self) -> &'static str {
        "SchedulingGates"
    }

    fn admits(&self, pod: &PodInfo) -> bool {
        pod.spec().scheduling_gates.iter().flatten().next().is_none()
    }

    fn may_help(&self, _: &PodInfo, change: &Change) -> bool {
        matches!(change, Change::OwnUpdate { .. })
    }
}
