//! Kinds of the API group admissionregistration.k8s.io.

mod binding;
mod defaults;
pub mod mutatingadmissionpolicy;
pub mod mutatingadmissionpolicybinding;
pub mod mutatingwebhookconfiguration;
pub(crate) mod older;
mod policy;
mod print;
mod rules;
pub mod validatingadmissionpolicy;
pub mod validatingadmissionpolicybinding;
pub mod validatingwebhookconfiguration;
mod webhook;

#[cfg(test)]
mod tests;
