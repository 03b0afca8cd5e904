//! Kinds of the API group certificates.k8s.io.

pub mod certificatesigningrequest;
