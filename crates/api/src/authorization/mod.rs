//! Kinds of the API group authorization.k8s.io.

pub mod localsubjectaccessreview;
mod review;
pub mod selfsubjectaccessreview;
pub mod selfsubjectrulesreview;
pub mod subjectaccessreview;
