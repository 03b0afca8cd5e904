//! The kubelet: makes the pods that are bound to its node run, and says how they are.

pub mod config;
pub mod node;
pub mod stats;
pub mod eviction;
pub mod gc;
pub mod shutdown;
pub mod pods;
pub mod pod;
pub mod objects;
pub mod tokens;
pub mod volumes;
pub mod probe;
pub mod images;
pub mod resources;
pub mod server;
mod run;
#[cfg(test)]
mod fake_api;

pub use config::Config;
pub use run::run;

use std::sync::Arc;

use reconcile::Shutdown;
use reconcile::events::Recorder;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{step}")]
    Io {
        step: String,
        #[source]
        source: std::io::Error,
    },
    #[error("{step}: {source}")]
    Api {
        step: String,
        #[source]
        source: kube::Error,
    },
    #[error("{step}: {source}")]
    Runtime {
        step: String,
        #[source]
        source: cri::Error,
    },
    #[error("{0}")]
    Other(String),
}

/// What every part of the kubelet works with.
pub struct Kubelet {
    pub config: Config,
    pub client: kube::Client,
    pub runtime: Arc<dyn cri::Runtime>,
    pub events: Recorder,
    /// Objects that pods refer to.
    pub objects: Arc<objects::Objects>,
    pub shutdown: Shutdown,
}

impl Kubelet {
    pub fn now(&self) -> jiff::Timestamp {
        jiff::Timestamp::now()
    }
}

/// Runs until told to stop. Containers go on running after it.
pub async fn run(
    config: Config,
    cluster: Cluster,
    runtime: Arc<dyn cri::Runtime>,
    shutdown: Shutdown,
) -> Result<(), Error> {
    let client = cluster.client().clone();
    let kubelet = Arc::new(Kubelet {
        events: Recorder::new(client.clone(), "kubelet", &config.node_name),
        objects: objects::Objects::new(client.clone()),
        client: client.clone(),
        config,
        runtime,
        shutdown: shutdown.clone(),
    });
    let pods = Arc::new(pods::Pods::default());
    let volumes = Arc::new(volumes::Volumes::new(kubelet.clone()));
    let shared = Arc::new(pod::Shared::new(kubelet.clone(), pods.clone(), volumes).await?);

    let config = &kubelet.config;
    let files = config.static_pod_path.clone();
    let static_pods = node::StaticPods::start(files, &config.node_name, Clock::system(), shutdown.clone());
    // A cache's selector lives as long as the program, and so does the node's name.
    let bound_here: &'static str = Box::leak(format!("spec.nodeName={}", config.node_name).into_boxed_str());
    let in_api = Caches::new(client.clone(), shutdown.clone()).start(bound_here);
    let health = Arc::new(node::Health::new(config.port));
    let object = Arc::new(node::NodeWatch::default());
    let counters = Arc::new(stats::metrics::Counters::default());
    let unused_images = Arc::new(gc::Images::new(pods.clone(), counters.clone()));
    let eviction = eviction::Eviction::new(
        kubelet.clone(),
        pods,
        health.clone(),
        Arc::new(stats::Stats::default()),
        unused_images.clone(),
        counters,
        &Default::default(),
    );
    let mirrors = node::mirror::run(client, static_pods.pods(), in_api.clone(), object.seen(), shutdown);
    tokio::join!(
        node::run(kubelet.clone(), health, object.clone()),
        mirrors,
        pod::source::run(shared, in_api, static_pods.pods()),
        eviction.run(),
        unused_images.run(&kubelet),
    );
    Ok(())
}
