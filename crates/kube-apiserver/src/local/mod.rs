//! The server as parts of its process use it: without a socket, and with pages of their own below a path.

mod loopback;
pub mod mount;

pub use crate::app::{Advertised, App};
pub use crate::bootstrap::ensure;
pub use crate::reduced::{GROUP as REDUCED_GROUP, PATHS as REDUCED_PATHS};
pub use crate::revisions::of as revisions_of;
pub use loopback::Loopback;
