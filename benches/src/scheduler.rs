//! The scheduler in the shapes of upstream's scheduler_perf: through the API on hollow nodes, and its decisions alone.

mod inside;
mod shapes;
mod through_api;

use crate::report::{self, Better};
use crate::upstream;

use shapes::SHAPES;
use through_api::Outcome;

pub const NODES: [usize; 3] = [100, 1000, 5000];

pub async fn run(nodes: &[usize], only_inside: bool, only: &[String]) -> anyhow::Result<()> {
    report::head("scheduler, upstream's floors are those of 5,000 nodes on 6 cores", "upstream");
    for shape in SHAPES.iter().filter(|shape| only.is_empty() || only.iter().any(|name| name == shape.name)) {
        let (mut inside, mut through) = (Vec::new(), Vec::new());
        for count in nodes {
            if shape.inside {
                let per_second = inside::decisions_per_second(shape, *count);
                report::line(&format!("{} on {count} nodes: decisions inside", shape.name), per_second, "/s");
                inside.push((*count as f64, 1e6 / per_second));
            }
            if only_inside {
                continue;
            }
            // Others are worth measuring where one shape breaks.
            match through_api::run(shape, *count).await {
                Ok(outcome) => through.push((*count as f64, show(shape.name, *count, &outcome))),
                Err(error) => report::broke(&format!("{} on {count} nodes", shape.name), &format!("{error:#}")),
            }
        }
        // A decision may look at every node: its cost may grow with the nodes, not faster.
        report::growth(&format!("{}: time of a decision", shape.name), "nodes", "us", &inside);
        report::growth(&format!("{}: processor time of a pod through the API", shape.name), "nodes", "ms", &through);
    }
    Ok(())
}

/// Prints an outcome, and answers the processor time of the server for a pod in milliseconds.
fn show(shape: &str, nodes: usize, outcome: &Outcome) -> f64 {
    let what = format!("{shape} on {nodes} nodes");
    let measured = format!("{what}: pods bound through the API");
    match upstream::scheduled_per_second(shape) {
        Some(floor) => report::compare(&measured, outcome.per_second, floor, "/s", Better::More),
        None => report::line(&measured, outcome.per_second, "/s"),
    }
    report::line(&format!("{what}: create to bound, p50"), outcome.latencies.ms(0.5), "ms");
    report::line(&format!("{what}: create to bound, p99"), outcome.latencies.ms(0.99), "ms");
    report::line(&format!("{what}: processor time of the server, each"), outcome.cpu_ms, "ms");
    println!("    load average {}", report::load_average());
    outcome.cpu_ms
}
