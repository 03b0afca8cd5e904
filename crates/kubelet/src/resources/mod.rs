//! What pods may use: their quality-of-service class, the kernel's words for their requests and limits, and the control
//! groups of the node, the classes and the pods. The containers' own groups are the runtime's.

pub mod node;
pub mod amounts;
pub mod qos;
pub mod cpu;
pub mod swap;
pub mod container;
pub mod pod;
pub mod cgroups;
#[cfg(test)]
mod tests;

pub use cgroups::PodCgroups;
pub use node::Node;
pub use pod::CpuQuota;
pub use qos::QosClass;
pub use swap::SwapBehavior;
