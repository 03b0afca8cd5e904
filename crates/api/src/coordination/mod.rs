//! Kinds of the API group coordination.k8s.io.

pub mod lease;
pub mod leasecandidate;
