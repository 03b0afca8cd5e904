//! Kinds of the API group discovery.k8s.io.

pub mod endpointslice;

#[cfg(test)]
mod tests;
