//! What a whole cluster of one node costs while nothing happens: control plane, kubelet, runtime, proxy, DNS and ingress with ten
//! sleeping pods.

use std::sync::Arc;
use std::time::Duration;

use testkit::{Machine, Options, Server};

use crate::report::{self, Better};
use crate::{node, pods, process, upstream};

const PODS: usize = 10;
pub const SECONDS: u64 = 300;
/// What was started must have come to rest.
const SETTLE: Duration = Duration::from_secs(20);

/// What it should stay below, whatever upstream needs.
const MOST_MIB: f64 = 60.0;
const MOST_CORE_PERCENT: f64 = 1.0;
const MOST_WRITTEN: f64 = 1024.0;

pub async fn run(seconds: u64) -> anyhow::Result<()> {
    report::head(&format!("A node with everything, idle for {seconds} s with {PODS} pods"), "upstream");
    let machine = Arc::new(Machine::start()?);
    let server = Server::start_with(Options { arguments: Vec::new(), machine: Some(machine) })?;
    server.default_account(pods::NAMESPACE)?;
    let client = server.client()?;
    let names: Vec<String> = (0..PODS).map(|n| format!("idle-{n}")).collect();
    node::create(&client, &names).await?;
    tokio::time::sleep(SETTLE).await;

    let mut all = node::shims(&server);
    all.push(server.pid());
    let count = || {
        let sum = |of: fn(u32) -> anyhow::Result<f64>| all.iter().filter_map(|pid| of(*pid).ok()).sum::<f64>();
        (sum(process::cpu_seconds), sum(process::written_bytes))
    };
    let (cpu, written) = count();
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let (cpu_after, written_after) = count();

    let seconds = seconds as f64;
    let mib = all.iter().filter_map(|pid| process::proportional_mib(*pid).ok()).sum::<f64>();
    report::compare("resident memory, knarr and shims", mib, upstream::NODE_MIB, "MiB", Better::Less);
    report::line("of which knarr", process::resident_mib(server.pid())?, "MiB");
    report::line("of which its own, not pages of the program", process::anonymous_mib(server.pid())?, "MiB");
    let percent = ((cpu_after - cpu) / seconds * 100.0).max(0.01);
    let theirs = upstream::IDLE_CORE_PERCENT_PER_POD * PODS as f64;
    report::compare("processor time, of a core", percent, theirs, "%", Better::Less);
    let written = (written_after - written) / seconds;
    report::line("written to disk", written, "B/s");
    for (what, is, most) in
        [("memory", mib, MOST_MIB), ("processor", percent, MOST_CORE_PERCENT), ("disk", written, MOST_WRITTEN)]
    {
        if is > most {
            println!("{what}: {is:.1} is more than the {most} it should stay below");
        }
    }
    println!("upstream: {}", upstream::NODE_SOURCE);
    Ok(())
}
