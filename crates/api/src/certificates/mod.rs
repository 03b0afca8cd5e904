//! Kinds of the API group certificates.k8s.io.

pub mod certificatesigningrequest;
pub mod clustertrustbundle;
mod pem;
pub mod podcertificaterequest;
pub(crate) mod signer;
