pub mod bootstrap;
//! kube-apiserver: the one door to the cluster's objects.

pub mod authn;
pub mod authz;
pub mod pki;
