//! Our kubectl beside the real one, on the same server: what one question costs who asks it, mostly the start of a program.

use std::path::Path;
use std::process::Stdio;
use std::time::Instant;

use anyhow::{Context, ensure};
use testkit::{Kubectl, kubectl};

use crate::cluster::Cluster;
use crate::pods::{self, Template};
use crate::report::{self, Better, Latencies};

const PODS: usize = 100;
const ROUNDS: usize = 50;
/// What asking should cost at most, in milliseconds of processor time.
const MOST_MS: f64 = 20.0;
const TICKS_PER_SECOND: f64 = 100.0;

pub async fn run() -> anyhow::Result<()> {
    let cluster = Cluster::start().await?;
    cluster.server.default_account(pods::NAMESPACE)?;
    let template = Template::new();
    let all = (0..PODS).map(|number| template.pod(&format!("pod-{number}"), 0));
    cluster.create_all(pods::PATH, all.filter_map(|pod| serde_json::from_slice(&pod).ok())).await?;

    let real = kubectl::programs().into_iter().rfind(|program| !kubectl::is_debians(program));
    let real = real.or_else(|| kubectl::programs().pop());
    let of = |program: &Path| Kubectl::new(program, &cluster.server.kubeconfig());
    let (wall, cpu) = measure(&of(&testkit::server::binary()?), &["kubectl", "get", "pods"])?;
    report::head(&format!("kubectl get pods, {PODS} pods, {ROUNDS} times"), "kubectl");
    match real {
        Some(real) => {
            let (their_wall, their_cpu) = measure(&of(&real), &["get", "pods"])?;
            report::compare("until it is done, median", wall.ms(0.5), their_wall.ms(0.5), "ms", Better::Less);
            report::compare("processor time of its own", cpu, their_cpu, "ms", Better::Less);
        }
        None => {
            report::line("until it is done, median", wall.ms(0.5), "ms");
            report::line("processor time of its own", cpu, "ms");
            println!("there is no other kubectl here: run `make tools`");
        }
    }
    report::line("until it is done, the slowest of twenty", wall.ms(0.95), "ms");
    if cpu > MOST_MS {
        println!("processor time: {cpu:.1} ms is more than the {MOST_MS} it should stay below");
    }
    Ok(())
}

/// How long each run took, and the milliseconds of processor time of one, in user and kernel mode together.
fn measure(kubectl: &Kubectl, arguments: &[&str]) -> anyhow::Result<(Latencies, f64)> {
    // The first one fills caches: pages of the program, and what it keeps of the server's discovery.
    let output = kubectl.run(arguments)?;
    let lines = output.stdout.iter().filter(|byte| **byte == b'\n').count();
    ensure!(lines == PODS + 1, "kubectl shows {lines} lines: {}", String::from_utf8_lossy(&output.stderr));
    let before = cpu_of_children()?;
    let mut all = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let began = Instant::now();
        let mut command = kubectl.command(arguments);
        let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status().context("run kubectl")?;
        ensure!(status.success(), "kubectl fails: {status}");
        all.push(began.elapsed());
    }
    let ms = (cpu_of_children()? - before) * 1000.0 / ROUNDS as f64;
    Ok((Latencies::new(all), ms))
}

/// Seconds of processor time of the children that have ended: the server, which runs on, is not among them.
fn cpu_of_children() -> anyhow::Result<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    let ticks = |index: usize| fields.get(index).and_then(|text| text.parse::<f64>().ok()).context("a field of stat");
    Ok((ticks(13)? + ticks(14)?) / TICKS_PER_SECOND)
}
