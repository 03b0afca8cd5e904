//! Rules that several kinds share: the pod spec, and what all workloads have in common.

pub mod diff;
pub mod pod_spec;
pub mod selector;
pub mod workload;
