//! Kinds of the API group networking.k8s.io.

pub mod ingress;
pub mod ingressclass;
pub mod ipaddress;
pub mod networkpolicy;
mod reference;
pub mod servicecidr;
pub(crate) mod v1beta1;

#[cfg(test)]
mod tests;
