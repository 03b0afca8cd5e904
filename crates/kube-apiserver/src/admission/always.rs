//! AlwaysAdmit and AlwaysDeny. Upstream calls both deprecated; clusters of tests still name them.

use machinery::status::Status;
use serde_json::Value;
use std::sync::atomic::Ordering;

use super::{Plugin, Request};

const DENIED: &str = "admission control is denying all modifications";

pub struct AlwaysAdmit;

#[async_trait::async_trait]
impl Plugin for AlwaysAdmit {
    fn name(&self) -> &'static str {
        "AlwaysAdmit"
    }
}

pub struct AlwaysDeny;

impl AlwaysDeny {
    /// What a server writes before it serves is not denied: it would never be ready to deny anything.
    fn deny(&self, request: &Request<'_>, object: Option<&Value>) -> Result<(), Status> {
        if request.app.health.bootstrapped.load(Ordering::Acquire) {
            return Err(request.forbidden(object, DENIED));
        }
        Ok(())
    }
}

#[async_trait::async_trait]
impl Plugin for AlwaysDeny {
    fn name(&self) -> &'static str {
        "AlwaysDeny"
    }

    /// Connections are denied, too.
    fn is_outside(&self) -> bool {
        true
    }

    async fn mutate(&self, request: &Request<'_>, object: &mut Value) -> Result<(), Status> {
        self.deny(request, Some(object))
    }

    async fn validate(&self, request: &Request<'_>, object: Option<&Value>) -> Result<(), Status> {
        self.deny(request, object)
    }
}
