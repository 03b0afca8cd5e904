//! A day of churn as fast as it goes: Deployments are scaled to nothing and back, in turns, until so many pods have ended and come
//! again. What memory is kept afterwards is told beside what there was before.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Sizes, world::World};
use crate::report;

const ROUNDS: usize = 4;
/// What was started must have come to rest before memory is compared.
const SETTLE: Duration = Duration::from_secs(15);

pub async fn run(world: &World, sizes: &Sizes) -> anyhow::Result<()> {
    let each = sizes.pods / sizes.services.max(1);
    let deployments = (sizes.churned / ROUNDS / each.max(1)).clamp(1, sizes.services);
    let pods: usize = (0..deployments).map(|number| sizes.replicas(number)).sum();
    let resident_before = world.resident_mib()?;
    let (began, cpu_before) = (Instant::now(), world.cpu_seconds()?);
    let asking = super::start_asking(world, Duration::from_millis(50))?;
    for round in 1..=ROUNDS {
        scale(world, sizes, deployments, false).await?;
        let left = async || Ok(pods - in_first(world, deployments, "replicas").await?.min(pods));
        world.until_count(&format!("pods ended, round {round}"), pods, sizes.stage_max(), left).await?;
        scale(world, sizes, deployments, true).await?;
        let back = async || in_first(world, deployments, "readyReplicas").await;
        world.until_count(&format!("pods Ready, round {round}"), pods, sizes.stage_max(), back).await?;
    }
    let (seconds, cpu) = (began.elapsed().as_secs_f64(), world.cpu_seconds()? - cpu_before);
    let churned = (pods * ROUNDS) as f64;
    report::line("scale: churn, pods ended and made per second", churned / seconds, "/s");
    report::line("scale: churn, processor time per pod", cpu * 1000.0 / churned, "ms");
    report::line("scale: churn, requests of others p99", asking.end().await?.ms(0.99), "ms");
    tokio::time::sleep(SETTLE).await;
    let grown = world.resident_mib()? - resident_before;
    report::line("scale: churn, resident memory more than before", grown, "MiB");
    Ok(())
}

async fn scale(world: &World, sizes: &Sizes, deployments: usize, back: bool) -> anyhow::Result<()> {
    let patches = (0..deployments).map(|number| {
        let path = format!("/apis/apps/v1/namespaces/{}/deployments/web-{number}", sizes.namespace(number));
        let replicas = if back { sizes.replicas(number) } else { 0 };
        (path, json!({"spec": {"replicas": replicas}}))
    });
    world.cluster.patch_each(patches).await
}

/// A number of the status, added up over the first Deployments.
async fn in_first(world: &World, deployments: usize, field: &str) -> anyhow::Result<usize> {
    let number = |one: &Value| one["metadata"]["name"].as_str()?.strip_prefix("web-")?.parse::<usize>().ok();
    let counts = |one: &Value| number(one).is_some_and(|number| number < deployments);
    world.of_deployments(|one| if counts(one) { one["status"][field].as_u64().unwrap_or(0) } else { 0 }).await
}
