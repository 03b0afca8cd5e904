//! Addresses and ports of Services. Placeholder of the seam: see `Allocators`.

use machinery::status::Status;
use serde_json::Value;

use crate::resources::Resource;

/// Which addresses and ports are taken.
#[derive(Default)]
pub struct Allocators {}

/// What was set aside for a write; given back unless the write took place.
#[must_use]
pub struct Reserved {}

impl Reserved {
    pub fn keep(self) {}
}

impl Allocators {
    pub fn for_create(&self, _resource: &Resource, _object: &mut Value) -> Result<Reserved, Status> {
        Ok(Reserved {})
    }

    pub fn for_update(&self, _resource: &Resource, _new: &mut Value, _old: &Value) -> Result<Reserved, Status> {
        Ok(Reserved {})
    }

    pub fn release(&self, _resource: &Resource, _old: &Value) {}
}

/// The first address of the range belongs to the Service `kubernetes`.
pub fn first_address(range: &ipnet::IpNet) -> std::net::IpAddr {
    range.hosts().next().unwrap_or(range.addr())
}
