//! Measures knarr on this machine, beside numbers of etcd and of upstream's API server.
//!
//! `cargo build --release -p knarr && cargo run --release -p benches -- all`. Load goes to loopback only, and every
//! run is bounded in count or time; `all` takes a few minutes.

mod api;
mod load;
mod node;
mod pods;
mod process;
mod report;
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
        /// Only these parts: start, create, get, list, watch, patch.
        parts: Vec<String>,
    },
    /// Pods from their creation to Ready on a real node, beside containerd with runc; memory and idle costs. Needs root.
    Node {
        /// Pods that are created at once.
        #[arg(long, default_value_t = AT_ONCE)]
        at_once: usize,
    },
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        report::machine();
        match arguments.command {
            Command::All => {
                storage::run().await?;
                api::run(&[]).await?;
                node::run(AT_ONCE).await
            }
            Command::Store => storage::run().await,
            Command::Api { parts } => api::run(&parts).await,
            Command::Node { at_once } => node::run(at_once).await,
        }
    })
}
