//! The scheduler in the shapes of upstream's scheduler_perf: through the API on hollow nodes, and its decisions alone.

mod inside;
mod shapes;
mod through_api;

use crate::report::{self, Better};
use crate::upstream;

use shapes::SHAPES;

pub async fn run(nodes: &[usize], only: &[String]) -> anyhow::Result<()> {
    report::head("scheduler, upstream's floors are those of 5,000 nodes on 6 cores", "upstream");
    for count in nodes {
        for shape in SHAPES.iter().filter(|shape| only.is_empty() || only.iter().any(|name| name == shape.name)) {
            let what = format!("{} on {count} nodes", shape.name);
            let inside = inside::decisions_per_second(shape, *count);
            report::line(&format!("{what}: decisions inside"), inside, "/s");
            let outcome = through_api::run(shape, *count).await?;
            let measured = format!("{what}: pods bound through the API");
            match upstream::scheduled_per_second(shape.name) {
                Some(floor) => report::compare(&measured, outcome.per_second, floor, "/s", Better::More),
                None => report::line(&measured, outcome.per_second, "/s"),
            }
            report::line(&format!("{what}: create to bound, p50"), outcome.latencies.ms(0.5), "ms");
            report::line(&format!("{what}: create to bound, p99"), outcome.latencies.ms(0.99), "ms");
        }
    }
    Ok(())
}
