//! Kinds of the API group node.k8s.io.

pub mod runtimeclass;
