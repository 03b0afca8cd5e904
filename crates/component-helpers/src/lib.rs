//! Rules about objects that several components follow: which nodes a pod may go to, what it asks for, whether it is ready.
//! Typed objects in, answers out; no IO.

pub mod labels;
pub mod taints;
pub mod device_taints;
pub mod node_affinity;
pub mod resources;
pub mod pods;
pub mod volumes;
pub mod quota;
pub mod host_ports;
pub mod zpages;
