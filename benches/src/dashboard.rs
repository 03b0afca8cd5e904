//! The dashboard in Debian's chromium, with very many pods: how soon it is seen, what is sent, how it scrolls, what a viewer costs
//! the server. `tests/browser/measure.mjs` is the browser's side.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::report::{self, Better};
use crate::{process, upstream};

const CHROMIUM: &str = "/usr/bin/chromium";
const BROWSER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/browser");
const NAMESPACE: &str = "load";
/// A list of a third of them is timed, one of all is scrolled.
pub const PODS: usize = 30_000;
const SCROLL_MS: u64 = 5_000;
/// Pages beside the first one.
const VIEWERS: usize = 5;
/// What was begun must have come to rest.
const SETTLE: Duration = Duration::from_secs(15);
pub const SECONDS: u64 = 60;
/// Changes of pods per second that viewers are told of.
const CHANGES: u32 = 10;

/// What it should stay below.
const MOST_PAINT_MS: f64 = 1000.0;
const MOST_SEARCH_MS: f64 = 50.0;
const MOST_VIEWER_PERCENT: f64 = 0.5;
const MOST_FRAME_MS: f64 = 17.0;

pub async fn run(pods: usize, seconds: u64) -> anyhow::Result<()> {
    let timed = pods / 3;
    if let Some(missing) = missing() {
        println!("\nThe dashboard is not measured: {missing}");
        return Ok(());
    }
    let cluster = Cluster::start().await?;
    cluster.namespace(NAMESPACE).await?;
    create(&cluster, 0..timed).await?;
    tokio::time::sleep(SETTLE).await;
    let pid = cluster.server.pid();
    let quiet = cpu_percent(pid, seconds).await?;
    let before = process::resident_mib(pid)?;

    let mut browser = Browser::start(&cluster)?;
    browser.step("sign-in")?;
    let paint = browser.step("paint")?;
    report::head(&format!("The dashboard in chromium, {timed} pods"), "Headlamp");
    let bytes = number(&paint, "bytes")? / 1000.0;
    report::line("first paint of the overview, nothing cached", number(&paint, "paint_ms")?, "ms");
    report::line("until the overview is all there", number(&paint, "usable_ms")?, "ms");
    report::compare("sent for it, page and data", bytes, upstream::HEADLAMP_KB, "kB", Better::Less);
    let rows = number(&browser.step(&format!("list {timed}"))?, "ms")?;
    report::line(&format!("until {timed} pods are listed, first row drawn"), rows, "ms");
    let again = number(&browser.step(&format!("list {timed}"))?, "ms")?;
    report::line("the same list opened again", again, "ms");
    let search = browser.step("search hollow-0009")?;
    report::line("search over everything, in the server", number(&search, "server_ms")?, "ms");
    report::line("until the page has the answer", number(&search, "ms")?, "ms");

    create(&cluster, timed..pods).await?;
    browser.step(&format!("list {pods}"))?;
    let scroll = browser.step(&format!("scroll {SCROLL_MS}"))?;
    println!("scrolled through {pods} rows in {} s:", SCROLL_MS / 1000);
    report::line("frames a second", number(&scroll, "fps")?, "");
    report::line("frame, median", number(&scroll, "median_ms")?, "ms");
    report::line("frame, the slowest of twenty", number(&scroll, "p95_ms")?, "ms");
    report::line("frame, the slowest", number(&scroll, "worst_ms")?, "ms");
    println!("a viewer of {pods} pods:");
    viewers(&cluster, &mut browser, (quiet, before), seconds).await?;

    complain("first paint", number(&paint, "paint_ms")?, MOST_PAINT_MS);
    complain("search", number(&search, "server_ms")?, MOST_SEARCH_MS);
    complain("frame", number(&scroll, "p95_ms")?, MOST_FRAME_MS);
    println!("Headlamp: {}", upstream::HEADLAMP_SOURCE);
    Ok(())
}

/// What the first viewer costs, what each further one does, and what it costs to tell them of changes.
async fn viewers(
    cluster: &Cluster,
    browser: &mut Browser,
    (quiet, before): (f64, f64),
    seconds: u64,
) -> anyhow::Result<()> {
    let pid = cluster.server.pid();
    tokio::time::sleep(SETTLE).await;
    let watched = cpu_percent(pid, seconds).await?;
    let first = process::resident_mib(pid)?;
    let told_one = changing(cluster, pid, seconds).await?;
    browser.step(&format!("viewers {VIEWERS}"))?;
    tokio::time::sleep(SETTLE).await;
    let all = process::resident_mib(pid)?;
    let told_all = changing(cluster, pid, seconds).await?;
    browser.step("leave")?;
    report::line("processor time, nothing changes, nobody looks, of a core", quiet, "%");
    report::line("the same with one viewer", watched, "%");
    report::line("memory of the server without a viewer", before, "MiB");
    report::line("with all of the pods and one viewer", first, "MiB");
    let each = |all: f64, one: f64| (all - one).max(0.0) / VIEWERS as f64;
    report::line("each further viewer of the same user", each(all, first), "MiB");
    report::line(&format!("processor time, {CHANGES} changes a second, one viewer"), told_one, "%");
    report::line("each further viewer of them", each(told_all, told_one), "%");
    complain("one viewer of a quiet cluster", watched - quiet, MOST_VIEWER_PERCENT);
    Ok(())
}

fn complain(what: &str, is: f64, most: f64) {
    if is > most {
        println!("{what}: {is:.1} is more than the {most} it should stay below");
    }
}

/// Percent of a core over that time.
async fn cpu_percent(pid: u32, seconds: u64) -> anyhow::Result<f64> {
    let before = process::cpu_seconds(pid)?;
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    Ok((process::cpu_seconds(pid)? - before) / seconds as f64 * 100.0)
}

/// The same while the first pods change, one after the other.
async fn changing(cluster: &Cluster, pid: u32, seconds: u64) -> anyhow::Result<f64> {
    let before = process::cpu_seconds(pid)?;
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / CHANGES);
    for number in 0..seconds as usize * CHANGES as usize {
        ticks.tick().await;
        let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{}", name(number % 50));
        let patch = json!({"metadata": {"annotations": {"example.com/round": number.to_string()}}}).to_string();
        let request = http::Request::patch(path).header("content-type", "application/merge-patch+json");
        cluster.client.request::<Value>(request.body(patch.into_bytes())?).await?;
    }
    Ok((process::cpu_seconds(pid)? - before) / seconds as f64 * 100.0)
}

fn name(number: usize) -> String {
    format!("hollow-{number:05}")
}

/// Nobody schedules them: they are there to be listed.
async fn create(cluster: &Cluster, numbers: std::ops::Range<usize>) -> anyhow::Result<()> {
    let pod = |number| {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name(number), "labels": {"app": "hollow"}},
            "spec": {"schedulerName": "nobody", "containers": [{"name": "app", "image": "registry.example/app:1"}]}})
    };
    cluster.create_all(&format!("/api/v1/namespaces/{NAMESPACE}/pods"), numbers.map(pod)).await
}

fn number(answer: &Value, field: &str) -> anyhow::Result<f64> {
    answer[field].as_f64().with_context(|| format!("the browser told no {field}: {answer}"))
}

/// Why there is no browser, if so.
fn missing() -> Option<&'static str> {
    if !Path::new(CHROMIUM).exists() {
        return Some("there is no chromium: run `make tools`");
    }
    let driver = Path::new(BROWSER).join("node_modules/playwright-core");
    (!driver.exists()).then_some("its driver is not installed: run `make tools`")
}

/// Ended when dropped.
struct Browser {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Browser {
    fn start(cluster: &Cluster) -> anyhow::Result<Browser> {
        let open = Command::new(testkit::server::binary()?)
            .args(["dashboard", "open", "--print", "--data-dir"])
            .arg(cluster.server.data_dir())
            .output()
            .context("run knarr dashboard open")?;
        let address = String::from_utf8(open.stdout)?;
        let (url, code) = address.trim().split_once("/dashboard/signin#code=").context("an address with a code")?;
        let mut node = Command::new("node");
        node.current_dir(BROWSER).args(["measure.mjs", "--url", url, "--code", code, "--chromium", CHROMIUM]);
        let mut child = node.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("start node")?;
        let input = child.stdin.take().context("the input of node")?;
        let output = BufReader::new(child.stdout.take().context("the output of node")?);
        Ok(Browser { child, input, output })
    }

    fn step(&mut self, words: &str) -> anyhow::Result<Value> {
        writeln!(self.input, "{words}")?;
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        let answer: Value = serde_json::from_str(&line).with_context(|| format!("{words}: {line}"))?;
        ensure!(answer["error"].is_null(), "{words}: {}", answer["error"]);
        ensure!(answer["faults"].as_array().is_some_and(Vec::is_empty), "{words}: {}", answer["faults"]);
        Ok(answer)
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
