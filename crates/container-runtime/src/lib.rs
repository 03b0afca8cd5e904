//! knarr's own container runtime: images, pods and containers, behind the same seam as any CRI runtime.
//!
//! Every pod has one small process, the shim, which outlives this one: see [`shim`].

pub mod apparmor;
pub mod image;
pub mod image_store;
pub mod logs;
pub mod rootfs;
pub mod spec;
pub mod shim;
pub mod usage;

mod cdi;
mod client;
mod compress;
mod container;
mod create;
mod exec;
mod handlers;
mod records;
mod reserve;
mod runtime;
mod sandbox;
mod selinux;
mod service;
mod stats;
mod streams;

pub use client::ANSWER_WITHIN;
pub use runtime::ContainerRuntime;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cri::Network;

/// What the runtime is told.
#[derive(Clone)]
pub struct Config {
    /// Images, snapshots and what is remembered of pods: `<data>/runtime`. Survives reboots.
    pub root_dir: PathBuf,
    /// Sockets, namespaces and states that are of no use after a reboot: `/run/knarr` unless told otherwise.
    pub state_dir: PathBuf,
    /// The program that becomes a pod's shim when it is started with `shim` as its first argument: knarr itself.
    pub shim_program: PathBuf,
    pub network: Arc<dyn Network>,
    pub registries: image::registries::Registries,
    /// Pulls of layers that run at the same time.
    pub layer_pulls_max: usize,
    pub log_max_size: u64,
    pub log_max_files: u32,
    /// OCI runtimes of the host by the handler of a RuntimeClass that names them. Handlers beside these are our own runtime's.
    pub handlers: BTreeMap<String, PathBuf>,
    /// How long a pod's shim may take to answer: [`ANSWER_WITHIN`] unless told otherwise.
    pub shim_answers_within: Duration,
}
