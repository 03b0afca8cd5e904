//! Watch delivery: many watchers of all pods while pods are created, and how long a pod takes to reach them,
//! counted from when its creator sent it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::bail;
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;

use super::writes::Creator;
use crate::load::{self, Bounds, Client, Connection, Protocol};
use crate::pods::{self, Template};
use crate::report::{self, Better, Latencies};
use crate::{process, upstream};

const RUN: Duration = Duration::from_secs(5);
const CREATORS: usize = 16;
/// How many watchers look at each pod's time of sending; the others count, as looking costs the machine's time.
const LOOKING: usize = 10;
/// How long watchers may take to receive what was written.
const DRAIN_MAX: Duration = Duration::from_secs(20);

pub async fn watches() -> anyhow::Result<()> {
    for (protocol, watchers, pace) in [
        (Protocol::Http1, 100, Pace::Full),
        (Protocol::Http1, 100, Pace::PerSecond(100)),
        (Protocol::Http1, 1000, Pace::Full),
        (Protocol::Http1, 1000, Pace::PerSecond(20)),
        (Protocol::Http2, 1000, Pace::Full),
    ] {
        watch(protocol, watchers, pace).await?;
    }
    Ok(())
}

#[derive(Clone, Copy)]
enum Pace {
    /// As fast as the server takes them.
    Full,
    PerSecond(u32),
}

/// A creator that waits between requests, so that delivery is measured on a machine with time to spare.
struct Paced(Creator, Pace);

impl Client for Paced {
    async fn step(&mut self, connection: &mut Connection, number: usize) -> anyhow::Result<bool> {
        if let Pace::PerSecond(rate) = self.1 {
            tokio::time::sleep(Duration::from_secs(1) * CREATORS as u32 / rate).await;
        }
        self.0.step(connection, number).await
    }
}

async fn watch(protocol: Protocol, watchers: usize, pace: Pace) -> anyhow::Result<()> {
    let server = super::ready_server().await?;
    let clock = Instant::now();
    let received = Arc::new(AtomicU64::new(0));
    let mut running = tokio::task::JoinSet::new();
    for (number, mut connection) in
        Connection::open_all(&server.client()?, protocol, watchers).await?.into_iter().enumerate()
    {
        let answer = connection.open_answer("GET", &format!("{}?watch=true", pods::PATH), "", Bytes::new()).await?;
        if answer.status() != 200 {
            bail!("the watch was refused with {}", answer.status());
        }
        let (received, looking) = (received.clone(), number < LOOKING);
        running.spawn(async move {
            // The connection lives as long as its watch is read.
            let _connection = connection;
            follow(answer.into_body(), clock, looking, &received).await
        });
    }
    let cpu_before = process::cpu_seconds(server.pid())?;
    let began = Instant::now();
    let bounds = Bounds { requests_each_max: usize::MAX, time_max: RUN };
    let template = Arc::new(Template::new());
    let creator =
        |client: usize| Paced(Creator { template: template.clone(), prefix: format!("w{client}"), clock }, pace);
    let written = load::run(&server, Protocol::Http1, bounds, (0..CREATORS).map(creator).collect()).await?;
    let expected = (written.latencies.count() * watchers) as u64;
    while received.load(Ordering::Relaxed) < expected && began.elapsed() < RUN + DRAIN_MAX {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let (elapsed, got) = (began.elapsed(), received.load(Ordering::Relaxed));
    let cpu = process::cpu_seconds(server.pid())? - cpu_before;
    let resident = process::resident_mib(server.pid())?;
    drop(server);
    let mut latencies = Vec::new();
    while let Some(done) = running.join_next().await {
        latencies.extend(done?);
    }
    let latencies = Latencies::new(latencies);
    let speed = match pace {
        Pace::Full => "full load".to_string(),
        Pace::PerSecond(rate) => format!("{rate} writes/s"),
    };
    let name = |what: &str| format!("{watchers} watchers, {}, {speed}: {what}", protocol.name());
    let (rate, p99) = (got as f64 / elapsed.as_secs_f64(), latencies.ms(0.99));
    match (watchers, pace) {
        (100, Pace::Full) => {
            report::compare(&name("events"), rate, upstream::WATCH_EVENTS, "/s", Better::More);
            report::compare(&name("delivery p99"), p99, upstream::WATCH_P99_MS, "ms", Better::Less);
        }
        _ => {
            report::line(&name("events"), rate, "/s");
            report::line(&name("delivery p99"), p99, "ms");
        }
    }
    report::line(&name("delivery p50"), latencies.ms(0.5), "ms");
    report::line(&name("writes"), written.per_second(), "/s");
    report::line(&name("processor time per 10,000 events"), cpu * 10_000.0 / got.max(1) as f64, "s");
    report::line(&name("resident memory"), resident, "MiB");
    if got != expected {
        println!("{got} of {expected} events arrived");
    }
    Ok(())
}

/// Counts the events of a watch until it ends.
async fn follow(mut body: Incoming, clock: Instant, looking: bool, received: &AtomicU64) -> Vec<Duration> {
    let (mut latencies, mut open) = (Vec::new(), Vec::new());
    while let Some(Ok(frame)) = body.frame().await {
        let Some(data) = frame.data_ref() else { continue };
        let events = data.iter().filter(|byte| **byte == b'\n').count();
        received.fetch_add(events as u64, Ordering::Relaxed);
        if !looking {
            continue;
        }
        // Events may be cut anywhere: whole lines are looked at, the rest is kept.
        open.extend_from_slice(data);
        let Some(end) = open.iter().rposition(|byte| *byte == b'\n') else { continue };
        let now = clock.elapsed();
        let lines = open.drain(..=end).collect::<Vec<_>>();
        let text = String::from_utf8_lossy(&lines);
        for line in text.lines() {
            let sent = line.split_once(pods::SENT).and_then(|(_, rest)| rest.split('"').next()?.parse().ok());
            latencies.extend(sent.map(|sent| now.saturating_sub(Duration::from_nanos(sent))));
        }
    }
    latencies
}
