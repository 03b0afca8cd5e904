//! Kinds of the API group rbac.authorization.k8s.io.

mod binding;
pub mod clusterrole;
pub mod clusterrolebinding;
pub mod role;
pub mod rolebinding;
mod rules;

#[cfg(test)]
mod tests;
