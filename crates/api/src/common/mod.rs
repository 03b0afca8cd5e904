//! Rules that several kinds share: the pod spec, and what all workloads have in common.

pub mod pod_spec;
