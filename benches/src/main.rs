//! Measures knarr on this machine, beside numbers of etcd and of upstream's API server.
//!
//! `cargo build --release -p knarr && cargo run --release -p benches -- all`. Load goes to loopback only, and every
//! run is bounded in count or time; `all` takes a few minutes.

mod aims;
mod api;
mod cluster;
mod cluster_size;
mod controllers;
mod dashboard;
mod dns;
mod idle;
mod ingress;
mod kubectl;
mod local_cluster;
mod load;
mod memory;
mod node;
mod node_volumes;
mod pods;
mod process;
mod proxy;
mod report;
mod scale;
mod scheduler;
mod storage;
mod upstream;

use clap::{Parser, Subcommand};

// The generator of the load shares the machine with what it measures: it should cost as little as it can.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const AT_ONCE: usize = 100;

#[derive(Parser)]
#[command(name = "benches", about = "How fast knarr is on this machine")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Everything below, in order.
    All,
    /// Durable writes of the embedded store beside those of etcd.
    Store,
    /// The whole API server over TLS, a release build in a process of its own.
    Api {
        /// Only these parts: start, create, change, get, list, watch, patch, and whole for the writes beside scheduler and controllers.
        parts: Vec<String>,
    },
    /// A Deployment of 5,000 replicas, and the end of a namespace with 10,000 objects.
    Controllers,
    /// Pods per second on hollow nodes in the shapes of scheduler_perf.
    Scheduler {
        /// How many nodes; may be given several times.
        #[arg(long, default_values_t = scheduler::NODES)]
        nodes: Vec<usize>,
        /// Only the decisions, without servers.
        #[arg(long)]
        inside: bool,
        /// Only these shapes, such as `basic`.
        shapes: Vec<String>,
    },
    /// Questions about names, with 10,000 Services.
    Dns,
    /// Services in the kernel's rules: one more among many, and all at once, beside the same through `nft`. Needs root.
    Proxy {
        #[arg(long, default_value_t = proxy::SERVICES)]
        services: usize,
    },
    /// Requests through the ingress beside nginx on the same route. Needs root, and nginx for the comparison.
    Ingress,
    /// `kubectl get pods` by ours and by the real one, 100 pods.
    Kubectl,
    /// The dashboard in chromium with 30,000 pods: time to paint and to rows, frames, bytes, what a viewer costs the server.
    Dashboard {
        #[arg(long, default_value_t = dashboard::PODS)]
        pods: usize,
        /// How long each of the costs is watched.
        #[arg(long, default_value_t = dashboard::SECONDS)]
        seconds: u64,
    },
    /// `knarr cluster create` with three nodes, until pods on all of them answer on their Service's address. Needs root.
    Cluster,
    /// Deployments to all pods Ready on hollow nodes at several sizes, what a pod costs at each, and how fast that grows.
    ClusterSize {
        /// How many pods; may be given several times.
        #[arg(long, default_values_t = cluster_size::PODS)]
        pods: Vec<usize>,
        #[arg(long, default_value_t = cluster_size::NODES)]
        nodes: usize,
        #[arg(long, default_value_t = cluster_size::DEPLOYMENTS)]
        deployments: usize,
    },
    /// What the server's memory is for: the program, an empty server, what it stores of pods, the copies of controllers and scheduler, the
    /// past, and what it keeps after everything was deleted.
    Memory {
        /// How many pods; may be given several times.
        #[arg(long, default_values_t = memory::PODS)]
        pods: Vec<usize>,
    },
    /// A cluster of upstream's largest size on this machine, with upstream's objectives, node loss, restart and churn.
    Scale(scale::Sizes),
    /// What a cluster of one node with ten pods costs while nothing happens. Needs root.
    Idle {
        #[arg(long, default_value_t = idle::SECONDS)]
        seconds: u64,
    },
    /// Pods from their creation to Ready on a real node, beside containerd with runc; memory and idle costs. Needs root.
    Node {
        /// Pods that are created at once.
        #[arg(long, default_value_t = AT_ONCE)]
        at_once: usize,
    },
    /// Pods with volumes of a CSI driver, from the claim to Ready, beside the same pods without. Needs root.
    NodeVolumes {
        /// Pods that are created at once.
        #[arg(long, default_value_t = node_volumes::MANY)]
        pods: usize,
    },
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    // Every TLS connection of the process uses the one provider that is compiled in; it is set only here.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    report::machine();
    let outcome = runtime.block_on(run(arguments.command));
    // Also what was measured before something failed.
    report::summary();
    outcome
}

async fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::All => {
            storage::run().await?;
            api::run(&[]).await?;
            controllers::run().await?;
            scheduler::run(&scheduler::NODES, false, &[]).await?;
            cluster_size::run(&cluster_size::PODS, cluster_size::NODES, cluster_size::DEPLOYMENTS).await?;
            memory::run(&memory::PODS).await?;
            dns::run().await?;
            ingress::run().await?;
            kubectl::run().await?;
            dashboard::run(dashboard::PODS, dashboard::SECONDS).await?;
            node::run(AT_ONCE).await?;
            node_volumes::run(node_volumes::MANY).await?;
            idle::run(idle::SECONDS).await?;
            local_cluster::run().await?;
            proxy::run(proxy::SERVICES).await
        }
        Command::Store => storage::run().await,
        Command::Api { parts } => api::run(&parts).await,
        Command::Controllers => controllers::run().await,
        Command::Scheduler { nodes, inside, shapes } => scheduler::run(&nodes, inside, &shapes).await,
        Command::Dns => dns::run().await,
        Command::Proxy { services } => proxy::run(services).await,
        Command::Ingress => ingress::run().await,
        Command::Kubectl => kubectl::run().await,
        Command::Dashboard { pods, seconds } => dashboard::run(pods, seconds).await,
        Command::ClusterSize { pods, nodes, deployments } => cluster_size::run(&pods, nodes, deployments).await,
        Command::Cluster => local_cluster::run().await,
        Command::Memory { pods } => memory::run(&pods).await,
        Command::Scale(sizes) => scale::run(sizes).await,
        Command::Idle { seconds } => idle::run(seconds).await,
        Command::Node { at_once } => node::run(at_once).await,
        Command::NodeVolumes { pods } => node_volumes::run(pods).await,
    }
}
