//! Kinds of the API group apps.

pub mod controllerrevision;
pub mod daemonset;
pub mod deployment;
pub mod replicaset;
pub mod statefulset;

#[cfg(test)]
mod tests;
