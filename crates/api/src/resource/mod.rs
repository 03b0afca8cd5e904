//! Kinds of the API group resource.k8s.io.

mod claim;
pub mod deviceclass;
mod devices;
pub mod resourceclaim;
pub mod resourceclaimtemplate;
pub mod resourceslice;
pub(crate) mod v1beta1;
pub(crate) mod v1beta2;

#[cfg(test)]
mod tests;
