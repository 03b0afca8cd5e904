//! Devices of a node: how plugins offer them, how drivers prepare those that pods claimed, and who has which.
//!
//! The messages are those of device plugins v1beta1, of dynamic resource allocation v1 and v1beta1 with the health of devices v1alpha1, and of pod resources v1 (`proto/`, from
//! which `generated/` is made). [`Plugin`] and [`Driver`] are the clients that a kubelet uses; every call ends within a named time.

pub mod plugin;
pub mod driver;

/// The messages, clients and servers of device plugins.
#[allow(clippy::all)]
pub mod v1beta1 {
    include!("generated/deviceplugin.v1beta1.rs");
}

/// The messages, clients and servers of drivers of claimed devices.
#[allow(clippy::all)]
pub mod dra {
    pub mod v1 {
        include!("generated/dra.v1.rs");
    }
    pub mod v1beta1 {
        include!("generated/dra.v1beta1.rs");
    }
    /// How a driver's devices are.
    pub mod health {
        include!("generated/drahealth.v1alpha1.rs");
    }
}

/// The messages, clients and servers that tell who has which device.
#[allow(clippy::all)]
pub mod podresources {
    include!("generated/podresources.v1.rs");
}

pub use csi::{Error, Result};
pub use driver::{Driver, Version};
pub use plugin::Plugin;
