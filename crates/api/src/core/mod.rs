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
pub(crate) mod words;

#[cfg(test)]
mod tests;
