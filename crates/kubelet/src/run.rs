//! The kubelet as a whole: makes its parts, starts them, and ends when told to.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Pod;
use reconcile::events::Recorder;
use reconcile::{Cluster, Shutdown};
use tokio_util::task::AbortOnDropHandle;

use crate::claims::Claims;
use crate::device_plugins::DevicePlugins;
use crate::drivers::Drivers;
use crate::eviction::Eviction;
use crate::managers::Managers;
use crate::node::{self, Health, NodeWatch, StaticPods, machine, mirror};
use crate::objects::Objects;
use crate::operations::CountedRuntime;
use crate::pod::{Shared, source};
use crate::pod_resources::PodResourcesServer;
use crate::pods::Pods;
use crate::server::{self, Server, Settings, Statistic, Statistics};
use crate::stats::own::Counters;
use crate::stats::{Stats, metrics, own};
use crate::volumes::{Volumes, expand};
use crate::{Config, Error, Kubelet, gc, plugins};

/// Runs until told to stop. Containers go on running after it.
pub async fn run(
    config: Config,
    cluster: Cluster,
    runtime: Arc<dyn cri::Runtime>,
    shutdown: Shutdown,
) -> Result<(), Error> {
    let io = |source| Error::Io { step: format!("make {}", config.root_dir.display()), source };
    linux::file::make_private_folder(&config.root_dir).map_err(io)?;
    let client = cluster.client().clone();
    let counters = Arc::new(Counters::default());
    let runtime: Arc<dyn cri::Runtime> = Arc::new(CountedRuntime { inner: runtime, counters: counters.clone() });
    let kubelet = Arc::new(Kubelet {
        events: Recorder::with_clock(client.clone(), "kubelet", &config.node_name, config.clock.clone()),
        objects: Objects::new(client.clone()),
        config,
        client: client.clone(),
        runtime: runtime.clone(),
        shutdown: shutdown.clone(),
        pull_times: Arc::clone(&counters.pulls),
    });
    let pods = Arc::new(Pods::default());
    let stats = Arc::new(Stats::default());
    let health = Arc::new(Health::new(kubelet.config.port));
    let address = serve(&kubelet, &pods, &stats, &counters).await?;
    health.set_port(address.port());

    let drivers = Arc::new(Drivers::new(client.clone(), &kubelet.config.node_name));
    let volumes = Arc::new(Volumes::new(kubelet.clone(), drivers.clone(), health.clone()));
    stats.follow_volumes(volumes.clone());
    let device_plugins = Arc::new(DevicePlugins::new(&kubelet.config.root_dir, health.clone(), pods.clone()));
    let claims = Claims::new(client.clone(), &kubelet.config.root_dir, &kubelet.config.node_name, pods.clone());
    let claims = Arc::new(claims);
    let managers = Arc::new(Managers::start(&kubelet.config)?);
    let devices = (device_plugins.clone(), claims.clone(), managers.clone());
    follow_metrics(&counters, devices.clone());
    let shared = Shared::new(kubelet.clone(), pods.clone(), volumes.clone(), counters.clone(), devices);
    let shared = Arc::new(shared.await?);
    stats.follow_cgroups(&kubelet.config.cgroup_root, shared.node.clone());
    let seen = Arc::new(NodeWatch::default());
    kubelet.objects.follow_node(seen.seen());
    let files = static_pods(&kubelet);
    let in_api = cluster.caches().start::<Pod>(format!("spec.nodeName={}", kubelet.config.node_name));
    let collector = Arc::new(gc::Images::new(pods.clone(), counters.clone()));
    let eviction = Eviction::new(
        kubelet.clone(),
        pods.clone(),
        health.clone(),
        stats,
        collector.clone(),
        counters,
        &BTreeMap::new(),
    );

    let mut parts: Vec<AbortOnDropHandle<()>> = Vec::new();
    let mut start = |part: BoxFuture<'static, ()>| parts.push(AbortOnDropHandle::new(tokio::spawn(part)));
    let (ending, ending_pods, ending_health) = (kubelet.config.power_off.clone(), pods.clone(), health.clone());
    start(async move { ending.run(&ending_pods, &ending_health).await }.boxed());
    start(node::run(kubelet.clone(), health.clone(), seen.clone()).boxed());
    let handlers = plugins::Handlers { drivers, device_plugins, claims };
    start(managers.clone().run(runtime, pods.clone()).boxed());
    start(drive(kubelet.config.root_dir.clone(), handlers, managers, pods.clone(), seen.clone()).boxed());
    start(mirror::run(client, files.pods(), in_api.clone(), seen.seen(), shutdown.clone()).boxed());
    start(async move { eviction.run().await }.boxed());
    start(expand::follow(volumes, pods.clone()).boxed());
    let collecting = kubelet.clone();
    start(async move { collector.run(&collecting).await }.boxed());
    let working = AbortOnDropHandle::new(tokio::spawn(source::run(shared, health.clone(), in_api, files.pods())));
    shutdown.cancelled().await;
    // Workers write what they know last; the others have nothing to end.
    if let Err(error) = working.await {
        tracing::error!(%error, "pod workers failed");
    }
    Ok(())
}

async fn serve(
    kubelet: &Arc<Kubelet>,
    pods: &Arc<Pods>,
    stats: &Arc<Stats>,
    counters: &Arc<Counters>,
) -> Result<SocketAddr, Error> {
    server::start(Server {
        settings: Settings::of(&kubelet.config),
        client: kubelet.client.clone(),
        runtime: kubelet.runtime.clone(),
        pods: pods.clone(),
        statistics: statistics(kubelet, pods, stats, counters),
        counters: counters.clone(),
        shutdown: kubelet.shutdown.clone(),
    })
    .await
}

fn follow_metrics(
    counters: &Counters,
    (device_plugins, claims, managers): (Arc<DevicePlugins>, Arc<Claims>, Arc<Managers>),
) {
    counters.follow(move |page| {
        device_plugins.write_metrics(page);
        claims.write_metrics(page);
        managers.write_metrics(page);
    });
}

fn static_pods(kubelet: &Kubelet) -> StaticPods {
    let Config { static_pod_path, node_name, clock, .. } = &kubelet.config;
    StaticPods::start(static_pod_path.clone(), node_name, clock.clone(), kubelet.shutdown.clone())
}

/// Drivers and plugins of all kinds, and who asks what of theirs pods have.
async fn drive(
    root: PathBuf,
    handlers: plugins::Handlers,
    managers: Arc<Managers>,
    pods: Arc<Pods>,
    seen: Arc<NodeWatch>,
) {
    let (device_plugins, claims) = (handlers.device_plugins.clone(), handlers.claims.clone());
    let (of_plugins, of_claims) = (device_plugins.clone(), claims.clone());
    let resources = PodResourcesServer { pods, device_plugins: of_plugins, claims: of_claims, managers };
    tokio::join!(
        plugins::run(&root, handlers, seen.seen()),
        resources.run(&root),
        device_plugins.run(),
        claims.wipe(seen.seen()),
    );
}

fn statistics(kubelet: &Arc<Kubelet>, pods: &Arc<Pods>, stats: &Arc<Stats>, counters: &Arc<Counters>) -> Statistics {
    let summary = {
        let (kubelet, pods, stats) = (kubelet.clone(), pods.clone(), stats.clone());
        move || {
            let (kubelet, pods, stats) = (kubelet.clone(), pods.clone(), stats.clone());
            async move { stats.summary(&kubelet, &pods).await }
        }
    };
    let (for_cadvisor, for_resource) = (summary.clone(), summary.clone());
    let (kubelet, pods, counters, stats) = (kubelet.clone(), pods.clone(), counters.clone(), stats.clone());
    let for_probes = counters.clone();
    Statistics {
        summary: statistic(move |_| {
            let summary = summary();
            async move { Ok(serde_json::to_vec(&summary.await?)?) }
        }),
        cadvisor: statistic(move |_| {
            let summary = for_cadvisor();
            async move { Ok(metrics::cadvisor(&summary.await?, &machine::read()).into_bytes()) }
        }),
        resource: statistic(move |_| {
            let summary = for_resource();
            async move { Ok(metrics::resource(summary.await.ok().as_ref()).into_bytes()) }
        }),
        metrics: statistic(move |_| {
            let claims = stats.of_claims(&pods);
            let text = own::kubelet(&kubelet.config.node_name, &pods.list(), &counters, &claims);
            async move { Ok(text.into_bytes()) }
        }),
        probes: statistic(move |_| {
            let text = for_probes.probes.text();
            async move { Ok(text.into_bytes()) }
        }),
    }
}

fn statistic<F>(answer: impl Fn(String) -> F + Send + Sync + 'static) -> Statistic
where
    F: Future<Output = Result<Vec<u8>, Error>> + Send + 'static,
{
    Arc::new(move |query| {
        let answer = answer(query);
        async move { answer.await.map(Bytes::from) }.boxed()
    })
}
