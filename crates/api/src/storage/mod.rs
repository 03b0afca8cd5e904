//! Kinds of the API group storage.k8s.io.

pub mod csidriver;
pub mod csinode;
pub mod csistoragecapacity;
pub mod storageclass;
pub mod volumeattachment;
pub mod volumeattributesclass;
pub(crate) mod v1beta1;

mod common;

pub(crate) use common::driver_name;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod class_tests;
