//! SchedulingGates: a pod with gates is not even tried.

use k8s_openapi::api::core::v1::Pod;

use crate::framework::{Change, Plugin};
use crate::objects::Objects;
use crate::pod_info::PodInfo;

pub struct SchedulingGates;

impl Plugin for SchedulingGates {
    fn name(&self) -> &'static str {
        "SchedulingGates"
    }

    fn admits(&self, pod: &PodInfo) -> bool {
        pod.spec().scheduling_gates.iter().flatten().next().is_none()
    }

    fn may_help(&self, _: &PodInfo, change: &Change, _: &Objects) -> bool {
        let gated = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.scheduling_gates.as_ref()).is_some();
        matches!(change, Change::OwnUpdate { old, new } if gated(old) && !gated(new))
    }
}
