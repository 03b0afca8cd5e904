//! A rolling update of many Deployments at once: every pod of them is replaced while as many as wanted stay available.

use std::time::Instant;

use serde_json::{Value, json};

use super::{Sizes, world::World};
use crate::report;

pub async fn run(world: &World, sizes: &Sizes) -> anyhow::Result<()> {
    let (mut pods, mut deployments) = (0, 0);
    while pods < sizes.rolled.min(sizes.pods) {
        pods += sizes.replicas(deployments);
        deployments += 1;
    }
    let version = "bench/version";
    let patch = json!({"spec": {"template": {"metadata": {"annotations": {version: "2"}}}}});
    let path = |number: usize| format!("/apis/apps/v1/namespaces/{}/deployments/web-{number}", sizes.namespace(number));
    let (began, cpu_before) = (Instant::now(), world.cpu_seconds()?);
    world.cluster.patch_each((0..deployments).map(|number| (path(number), patch.clone()))).await?;
    let replaced = |one: &Value| {
        if one["spec"]["template"]["metadata"]["annotations"][version] != "2" {
            return 0;
        }
        let status = |name: &str| one["status"][name].as_u64().unwrap_or(0);
        let observed = one["status"]["observedGeneration"] == one["metadata"]["generation"];
        // Those that are new, of which as many are available as are not beside old ones.
        let old = status("replicas").saturating_sub(status("updatedReplicas"));
        if observed { status("updatedReplicas").min(status("availableReplicas").saturating_sub(old)) } else { 0 }
    };
    let count = async || world.of_deployments(replaced).await;
    world.until_count("pods replaced", pods, sizes.stage_max(), count).await?;
    let (seconds, cpu) = (began.elapsed().as_secs_f64(), world.cpu_seconds()? - cpu_before);
    report::line(&format!("scale: rolling update of {pods} pods"), seconds, "s");
    report::line("scale: rolling update, pods per second", pods as f64 / seconds, "/s");
    report::line("scale: rolling update, processor time per pod", cpu * 1000.0 / pods as f64, "ms");
    Ok(())
}
