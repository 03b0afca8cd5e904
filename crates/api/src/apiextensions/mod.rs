//! Kinds of the API group apiextensions.k8s.io.

pub mod customresourcedefinition;
