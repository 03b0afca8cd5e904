//! The server is killed and started again with every kubelet connected: how soon it is ready, how soon all watch again, whether
//! what comes at once makes it slow, and whether any node is called lost for it.

use std::time::{Duration, Instant};

use super::Sizes;
use super::world::{World, is_ready};
use crate::{process, report};

/// How long the server is watched once it is ready.
const AFTERWARDS: Duration = Duration::from_secs(30);
const ASK_EVERY: Duration = Duration::from_millis(20);
const WATCHES: &str = "apiserver_longrunning_requests{";

pub async fn run(world: &mut World, sizes: &Sizes) -> anyhow::Result<()> {
    let before = watches(world).await?;
    // Nodes that an earlier stage has ended.
    let gone = world.nodes("", |node| !is_ready(node)).await?;
    let began = Instant::now();
    world.cluster.server.restart()?;
    report::line("scale: restart until the server is ready", began.elapsed().as_secs_f64(), "s");
    let pid = world.cluster.server.pid();
    let (ready_at, cpu_ready) = (Instant::now(), process::cpu_seconds(pid)?);
    println!("  {before} watches before, {cpu_ready:.1} s of processor time to be ready");
    let asking = super::start_asking(world, ASK_EVERY)?;
    // Those that were there last may be of clients that are gone.
    let wanted = before.min(sizes.nodes);
    let connected = async || watches(world).await;
    world.until_count("watches of pods", wanted, sizes.stage_max(), connected).await?;
    report::line("scale: restart until every kubelet watches again", ready_at.elapsed().as_secs_f64(), "s");
    tokio::time::sleep(AFTERWARDS.saturating_sub(ready_at.elapsed())).await;
    let (seconds, cpu) = (ready_at.elapsed().as_secs_f64(), process::cpu_seconds(pid)? - cpu_ready);
    report::line("scale: after a restart, processors busy", cpu / seconds, "");
    report::line("scale: after a restart, requests of others p99", asking.end().await?.ms(0.99), "ms");
    report::line("scale: after a restart, requests refused (429)", refused(world).await?, "");
    let lost = world.nodes("", |node| !is_ready(node)).await?;
    report::line("scale: after a restart, nodes called NotReady", lost.saturating_sub(gone) as f64, "");
    Ok(())
}

/// How many watch pods, at the server that is restarted.
async fn watches(world: &World) -> anyhow::Result<usize> {
    let text = world.cluster.server.client()?.get("/metrics").await?.text().to_string();
    let lines = text.lines().filter(|line| line.starts_with(WATCHES) && line.contains("resource=\"pods\""));
    Ok(lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum::<f64>() as usize)
}

async fn refused(world: &World) -> anyhow::Result<f64> {
    let text = world.cluster.server.client()?.get("/metrics").await?.text().to_string();
    let lines =
        text.lines().filter(|line| line.starts_with("apiserver_request_total{") && line.contains("code=\"429\""));
    // The sum of nothing is minus zero, which reads like a number of something.
    Ok(lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum::<f64>() + 0.0)
}
