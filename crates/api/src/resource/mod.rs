//! Kinds of the API group resource.k8s.io.

mod claim;
pub mod deviceclass;
mod devices;
pub mod resourceclaim;
pub mod resourceclaimtemplate;
pub mod resourceslice;

#[cfg(test)]
mod tests;
