//! SchedulingGates: a pod with gates is not even tried.

use crate::framework::{Change, Plugin};
use crate::pod_info::PodInfo;

pub struct SchedulingGates;

impl Plugin for SchedulingGates {
    fn name(&self) -> &'static str {
        "SchedulingGates"
    }

    fn admits(&self, pod: &PodInfo) -> Result<(), String> {
        let gates: Vec<&str> = pod.spec().scheduling_gates.iter().flatten().map(|gate| gate.name.as_str()).collect();
        if gates.is_empty() { Ok(()) } else { Err(format!("waiting for scheduling gates: [{}]", gates.join(" "))) }
    }

    fn may_help(&self, _: &PodInfo, change: &Change) -> bool {
        matches!(change, Change::OwnUpdate { .. })
    }
}
