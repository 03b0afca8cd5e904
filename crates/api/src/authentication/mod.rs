//! Kinds of the API group authentication.k8s.io.

pub mod selfsubjectreview;
pub mod tokenrequest;
pub mod tokenreview;
