//! Changing what is there, 64 clients on objects of their own: merge patches, server-side apply, updates, deletes; then a whole
//! collection of 10,000 pods at once.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use bytes::Bytes;
use http_body_util::BodyExt;
use testkit::Server;

use super::{PODS, writes};
use crate::load::{self, Bounds, Client, Connection, Protocol};
use crate::pods::{self, Template};
use crate::{process, report};

const CLIENTS: usize = 64;
/// How many pods each client has, and changes in turn.
const PODS_EACH: usize = 16;
const CHANGES_EACH: usize = 160;
const RUN: Duration = Duration::from_secs(20);
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// What a client does to its pods.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    Merge,
    Apply,
    /// Reads the pod and writes it back with another annotation.
    Update,
    Delete,
}

impl Change {
    fn name(self) -> &'static str {
        match self {
            Change::Merge => "merge patch pods",
            Change::Apply => "apply pods (server-side)",
            Change::Update => "get and update pods",
            Change::Delete => "delete pods",
        }
    }
}

struct Changer {
    number: usize,
    change: Change,
    template: Arc<Template>,
}

impl Changer {
    async fn send(&self, connection: &mut Connection, number: usize) -> anyhow::Result<u16> {
        let name = format!("changed-{}-{}", self.number, number % PODS_EACH);
        let path = format!("{}/{name}", pods::PATH);
        let sent = match self.change {
            Change::Merge => {
                let patch = format!(r#"{{"metadata":{{"annotations":{{"bench/change":"{number}"}}}}}}"#);
                connection.send("PATCH", &path, "application/merge-patch+json", patch.into()).await?
            }
            Change::Apply => {
                let path = format!("{path}?fieldManager=benches&force=true");
                let pod = self.template.pod(&name, number as u128);
                connection.send("PATCH", &path, "application/apply-patch+yaml", pod).await?
            }
            Change::Update => {
                let answer = connection.open_answer("GET", &path, "", Bytes::new()).await?;
                let pod = answer.into_body().collect().await?.to_bytes();
                let pod =
                    with_annotation(std::str::from_utf8(&pod)?, number).context("a pod without its annotation")?;
                connection.send("PUT", &path, "application/json", pod.into()).await?
            }
            Change::Delete => connection.send("DELETE", &path, "", Bytes::new()).await?,
        };
        Ok(sent.0)
    }
}

/// The pod's text with another value of an annotation that all pods have.
fn with_annotation(pod: &str, number: usize) -> Option<String> {
    let (head, rest) = pod.split_once("\"prometheus.io/scrape\":\"")?;
    let (_, tail) = rest.split_once('"')?;
    Some(format!("{head}\"prometheus.io/scrape\":\"{number}\"{tail}"))
}

impl Client for Changer {
    async fn step(&mut self, connection: &mut Connection, number: usize) -> anyhow::Result<bool> {
        match self.send(connection, number).await? {
            200 => Ok(true),
            409 | 429 => Ok(false),
            code => bail!("{} answered {code}", self.change.name()),
        }
    }
}

struct ConfigMaps {
    number: usize,
}

impl Client for ConfigMaps {
    async fn step(&mut self, connection: &mut Connection, number: usize) -> anyhow::Result<bool> {
        let value = "value ".repeat(100);
        let map = format!(
            r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"c{}-{number}"}},"data":{{"key":"{value}"}}}}"#,
            self.number
        );
        match connection.send("POST", CONFIG_MAPS, "application/json", map.into()).await?.0 {
            201 => Ok(true),
            429 => Ok(false),
            code => bail!("a ConfigMap was refused with {code}"),
        }
    }
}

pub async fn changes(server: &Server) -> anyhow::Result<()> {
    let bounds = Bounds { requests_each_max: CHANGES_EACH, time_max: RUN };
    let maps = load::run(server, Protocol::Http1, bounds, (0..CLIENTS).map(|number| ConfigMaps { number }).collect());
    say("create ConfigMaps", &maps.await?);
    let each = Bounds { requests_each_max: PODS_EACH, time_max: RUN };
    writes::create(server, Protocol::Http1, CLIENTS, each, "changed").await?;
    let template = Arc::new(Template::new());
    for change in [Change::Merge, Change::Apply, Change::Update, Change::Delete] {
        let bounds = if change == Change::Delete { each } else { bounds };
        let clients = (0..CLIENTS).map(|number| Changer { number, change, template: template.clone() }).collect();
        say(change.name(), &load::run(server, Protocol::Http1, bounds, clients).await?);
    }
    collection(server).await
}

fn say(what: &str, outcome: &load::Outcome) {
    report::line(&format!("{what}, 64 clients: rate"), outcome.per_second(), "/s");
    report::line(&format!("{what}, 64 clients: latency p99"), outcome.latencies.ms(0.99), "ms");
    report::line(&format!("{what}, 64 clients: processor time each"), outcome.cpu_ms_each(), "ms");
}

async fn collection(server: &Server) -> anyhow::Result<()> {
    super::full_server(server).await?;
    let mut connection = Connection::open(&server.client()?, Protocol::Http1).await?;
    let (began, cpu_before) = (Instant::now(), process::cpu_seconds(server.pid())?);
    let (code, _) = connection.send("DELETE", pods::PATH, "", Bytes::new()).await?;
    if code != 200 {
        bail!("the deletion of the collection answered {code}");
    }
    report::line("delete a collection of 10,000 pods", began.elapsed().as_secs_f64() * 1000.0, "ms");
    let cpu = process::cpu_seconds(server.pid())? - cpu_before;
    report::line("delete a collection: processor time each", cpu * 1000.0 / PODS as f64, "ms");
    tokio::time::sleep(Duration::from_secs(15)).await;
    report::line("resident memory 15 s after the collection", process::resident_mib(server.pid())?, "MiB");
    Ok(())
}
