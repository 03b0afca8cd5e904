//! Creating pods with 1, 16 and 64 clients, and 64 clients patching one object.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::bail;
use bytes::Bytes;
use testkit::Server;

use crate::load::{self, Bounds, Client, Connection, Outcome, Protocol};
use crate::pods::{self, Template};
use crate::report::{self, Better};
use crate::upstream;

/// Bounded by what a machine with little memory holds; the time is what usually ends a run.
const CREATES_MAX: usize = 60_000;
const RUN: Duration = Duration::from_secs(4);

pub struct Creator {
    pub template: Arc<Template>,
    pub prefix: String,
    /// What the time of sending is counted from.
    pub clock: Instant,
}

impl Client for Creator {
    async fn step(&mut self, connection: &mut Connection, number: usize) -> anyhow::Result<bool> {
        let pod = self.template.pod(&format!("{}-{number}", self.prefix), self.clock.elapsed().as_nanos());
        match connection.send("POST", pods::PATH, "application/json", pod).await?.0 {
            201 => Ok(true),
            429 => Ok(false),
            code => bail!("a pod was refused with {code}"),
        }
    }
}

pub async fn create(
    server: &Server,
    protocol: Protocol,
    clients: usize,
    bounds: Bounds,
    prefix: &str,
) -> anyhow::Result<Outcome> {
    let (template, clock) = (Arc::new(Template::new()), Instant::now());
    let creator = |client: usize| Creator { template: template.clone(), prefix: format!("{prefix}-{client}"), clock };
    load::run(server, protocol, bounds, (0..clients).map(creator).collect()).await
}

pub async fn creates(server: &Server) -> anyhow::Result<()> {
    for (clients, theirs) in upstream::CREATES {
        let bounds = Bounds { requests_each_max: CREATES_MAX / 2 / clients, time_max: RUN };
        let outcome = create(server, Protocol::Http1, clients, bounds, &format!("c{clients}")).await?;
        let name = |what: &str| format!("create pods, {clients} clients: {what}");
        report::compare(&name("rate"), outcome.per_second(), theirs, "/s", Better::More);
        report::line(&name("latency p50"), outcome.latencies.ms(0.5), "ms");
        report::line(&name("latency p99"), outcome.latencies.ms(0.99), "ms");
        match clients {
            64 => report::compare(
                &name("processor time each"),
                outcome.cpu_ms_each(),
                upstream::CREATE_CPU_MS,
                "ms",
                Better::Less,
            ),
            _ => report::line(&name("processor time each"), outcome.cpu_ms_each(), "ms"),
        }
    }
    let bounds = Bounds { requests_each_max: CREATES_MAX / 2 / 64, time_max: RUN };
    let outcome = create(server, Protocol::Http2, 64, bounds, "h2").await?;
    report::compare(
        "create pods, 64 clients over HTTP/2: rate",
        outcome.per_second(),
        upstream::CREATES[2].1,
        "/s",
        Better::More,
    );
    report::line("create pods, 64 clients over HTTP/2: latency p99", outcome.latencies.ms(0.99), "ms");
    Ok(())
}

struct Patcher {
    number: usize,
}

impl Client for Patcher {
    async fn step(&mut self, connection: &mut Connection, number: usize) -> anyhow::Result<bool> {
        let patch = format!(r#"{{"metadata":{{"annotations":{{"patched-by-{}":"{number}"}}}}}}"#, self.number);
        let path = format!("{}/patched", pods::PATH);
        match connection.send("PATCH", &path, "application/merge-patch+json", patch.into()).await?.0 {
            200 => Ok(true),
            409 | 429 => Ok(false),
            code => bail!("a patch was refused with {code}"),
        }
    }
}

pub async fn patches(server: &Server) -> anyhow::Result<()> {
    let mut connection = Connection::open(&server.client()?, Protocol::Http1).await?;
    let pod: Bytes = Template::new().pod("patched", 0);
    if connection.send("POST", pods::PATH, "application/json", pod).await?.0 != 201 {
        bail!("the pod to patch was refused");
    }
    let bounds = Bounds { requests_each_max: usize::MAX, time_max: RUN };
    let outcome =
        load::run(server, Protocol::Http1, bounds, (0..64).map(|number| Patcher { number }).collect()).await?;
    report::compare("64 clients patch one pod: rate", outcome.per_second(), upstream::PATCHES, "/s", Better::More);
    report::line("64 clients patch one pod: latency p99", outcome.latencies.ms(0.99), "ms");
    report::line("64 clients patch one pod: refused", outcome.refused as f64, "");
    report::line("64 clients patch one pod: processor time each", outcome.cpu_ms_each(), "ms");
    Ok(())
}
