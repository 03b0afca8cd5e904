//! Kinds of the API group flowcontrol.apiserver.k8s.io.

pub mod flowschema;
mod mandatory;
pub mod prioritylevelconfiguration;

#[cfg(test)]
mod tests;
