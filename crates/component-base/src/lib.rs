//! What every component needs and none should write for itself. It knows nothing of the API's kinds.

pub mod tasks;
pub mod shutdown;
pub mod clock;
pub mod features;
pub mod files;
pub mod inotify;
pub mod metrics;
pub mod status_page;

pub use clock::Clock;
pub use shutdown::Shutdown;
