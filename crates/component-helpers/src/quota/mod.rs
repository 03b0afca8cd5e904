//! What objects take of a ResourceQuota: admission reserves by it, the controller counts by it.

pub mod devices;
pub mod pod_resources;
pub mod scopes;
pub mod usage;
