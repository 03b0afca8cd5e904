//! Many nodes are lost at once: how soon that is told, how soon their pods run elsewhere, what else is slow meanwhile; then they
//! come back.

use std::time::{Duration, Instant};

use anyhow::Context;
use serde::de::IgnoredAny;

use super::Sizes;
use super::world::{LOST, World, is_ready};
use crate::report;

/// Requests of somebody else go on meanwhile, one after another.
const ASK_EVERY: Duration = Duration::from_millis(50);
const PAGE: usize = 5_000;

pub async fn run(world: &mut World, sizes: &Sizes) -> anyhow::Result<()> {
    let count = world.lost_count();
    if count == 0 {
        return Ok(());
    }
    let on_lost = pods_on_lost(world, |_| true).await?;
    println!("  {on_lost} pods are on the {count} nodes");
    let (began, cpu_before) = (Instant::now(), world.cpu_seconds()?);
    drop(world.lost.take());
    let asking = super::start_asking(world, ASK_EVERY)?;
    let lost = async || world.nodes(LOST, |node| !is_ready(node)).await;
    world.until_count("nodes called NotReady", count, sizes.stage_max(), lost).await?;
    report::line("scale: loss of nodes until all are called NotReady", began.elapsed().as_secs_f64(), "s");
    // Who has left is replaced elsewhere: no pod of the lost nodes is without an end, and all replicas are ready.
    let replaced = async || Ok(if staying_on_lost(world).await? == 0 { world.pods_ready().await? } else { 0 });
    world.until_count("pods Ready elsewhere", sizes.pods, sizes.stage_max(), replaced).await?;
    let (seconds, cpu) = (began.elapsed().as_secs_f64(), world.cpu_seconds()? - cpu_before);
    report::line("scale: loss of nodes until all pods are replaced", seconds, "s");
    report::line("scale: loss of nodes, processor time per pod", cpu * 1000.0 / on_lost.max(1) as f64, "ms");
    report::line("scale: loss of nodes, requests of others p99", asking.end().await?.ms(0.99), "ms");
    let began = Instant::now();
    world.add_lost(sizes).await?;
    report::line("scale: lost nodes back and Ready", began.elapsed().as_secs_f64(), "s");
    Ok(())
}

/// What is read of a pod. All of a large cluster are looked at again and again, so the rest is skipped.
#[derive(serde::Deserialize)]
struct Page {
    metadata: PageMeta,
    items: Vec<Pod>,
}

#[derive(serde::Deserialize)]
struct PageMeta {
    r#continue: Option<String>,
}

#[derive(serde::Deserialize)]
struct Pod {
    metadata: PodMeta,
    spec: PodSpec,
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodMeta {
    deletion_timestamp: Option<IgnoredAny>,
    owner_references: Option<IgnoredAny>,
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodSpec {
    node_name: Option<String>,
}

async fn pods_on_lost(world: &World, counts: impl Fn(&Pod) -> bool) -> anyhow::Result<usize> {
    let (mut count, mut next) = (0, String::new());
    loop {
        let path = format!("/api/v1/pods?limit={PAGE}{next}");
        let request = http::Request::get(path).body(Vec::new())?;
        let page: Page = world.cluster.client.request(request).await.context("list pods")?;
        let on_lost = |pod: &&Pod| pod.spec.node_name.as_deref().is_some_and(|node| node.starts_with(LOST));
        count += page.items.iter().filter(on_lost).filter(|pod| counts(pod)).count();
        match page.metadata.r#continue.filter(|token| !token.is_empty()) {
            Some(token) => next = format!("&continue={token}"),
            None => return Ok(count),
        }
    }
}

async fn staying_on_lost(world: &World) -> anyhow::Result<usize> {
    // Only pods of Deployments are made anew.
    let stays = |pod: &Pod| pod.metadata.owner_references.is_some() && pod.metadata.deletion_timestamp.is_none();
    pods_on_lost(world, stays).await
}
