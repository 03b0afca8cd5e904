//! What tests share: real servers in folders of their own, a small HTTPS client, real kubectl and etcd.
//! Everything made here is taken away again when it is dropped, also when the test fails.

pub mod agent;
pub mod client;
pub mod component;
pub mod containerd;
pub mod csi;
pub mod debian;
pub mod devices;
pub mod etcd;
pub mod fake_api;
pub mod hub;
pub mod kms;
pub mod kubectl;
pub mod local_cluster;
pub mod machine;
pub mod attack;
pub mod server;
pub mod session;
pub mod side_by_side;
pub mod signer;
mod socket;
pub mod vm;
pub mod watch;

pub use agent::{Agent, Cluster};
pub use client::{Client, Reply};
pub use component::Component;
pub use csi::CsiDriver;
pub use debian::{Debian, Terminal};
pub use etcd::Etcd;
pub use fake_api::{FakeApi, Fault, Link};
pub use hub::{Hub, Place};
pub use kms::KmsPlugin;
pub use kubectl::Kubectl;
pub use local_cluster::LocalCluster;
pub use machine::Machine;
pub use server::{Options, Server};
pub use signer::Signer;
pub use vm::Vm;
pub use watch::Watch;
