//! Kinds of the API group core.

pub mod binding;
pub mod componentstatus;
pub mod configmap;
pub mod endpoints;
pub mod event;
pub mod limitrange;
pub mod namespace;
pub mod node;
pub mod persistentvolume;
pub mod persistentvolumeclaim;
pub mod pod;
pub mod podtemplate;
pub mod replicationcontroller;
pub mod resourcequota;
pub mod secret;
pub mod service;
pub mod serviceaccount;

pub(crate) mod check;
pub(crate) mod print;
pub(crate) mod resources;
pub(crate) mod selectors;

#[cfg(test)]
mod amount_tests;
#[cfg(test)]
mod data_tests;
#[cfg(test)]
mod policy_tests;
#[cfg(test)]
mod print_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod update_tests;

pub(crate) const ENDPOINTS_DEPRECATED: &str =
    "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice";

/// The sentence that goes with every answer about a deprecated kind, reads included.
pub(crate) fn deprecation(group: &str, version: &str, kind: &str) -> Option<&'static str> {
    match (group, version, kind) {
        ("", "v1", "Endpoints") => Some(ENDPOINTS_DEPRECATED),
        ("", "v1", "ComponentStatus") => Some("v1 ComponentStatus is deprecated in v1.19+"),
        _ => None,
    }
}
