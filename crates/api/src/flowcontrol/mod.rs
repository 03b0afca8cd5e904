//! Kinds of the API group flowcontrol.apiserver.k8s.io.

pub mod flowschema;
pub mod prioritylevelconfiguration;
