//! Kinds of the API group apiregistration.k8s.io.

pub mod apiservice;

#[cfg(test)]
mod tests;
