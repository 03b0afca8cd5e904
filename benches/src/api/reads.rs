//! Reading from a server that holds 10,000 pods: one by one, all at once, and in pages.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use bytes::Bytes;
use http_body_util::BodyExt;
use testkit::Server;

use super::PODS;
use crate::load::{self, Bounds, Client, Connection, Protocol};
use crate::report::{self, Better, Latencies};
use crate::{pods, process, upstream};

const RUN: Duration = Duration::from_secs(3);
const LISTS: usize = 8;
const PAGE: usize = 500;

struct Getter {
    number: usize,
}

impl Client for Getter {
    async fn step(&mut self, connection: &mut Connection, number: usize) -> anyhow::Result<bool> {
        // Spread over all pods: the names are those that `full_server` gave.
        let spread = (number * 7919 + self.number * 104_729) % PODS;
        let path = format!("{}/pod-{}-{}", pods::PATH, spread % 16, spread / 16);
        match connection.send("GET", &path, "", Bytes::new()).await?.0 {
            200 => Ok(true),
            429 => Ok(false),
            code => bail!("GET {path} answered {code}"),
        }
    }
}

pub async fn gets(server: &Server) -> anyhow::Result<()> {
    for (protocol, clients) in [(Protocol::Http1, 16), (Protocol::Http1, 64), (Protocol::Http2, 64)] {
        let bounds = Bounds { requests_each_max: usize::MAX, time_max: RUN };
        let outcome =
            load::run(server, protocol, bounds, (0..clients).map(|number| Getter { number }).collect()).await?;
        let name = |what: &str| format!("get a pod, {clients} clients over {}: {what}", protocol.name());
        report::compare(&name("rate"), outcome.per_second(), upstream::GETS, "/s", Better::More);
        report::line(&name("latency p50"), outcome.latencies.ms(0.5), "ms");
        report::line(&name("latency p99"), outcome.latencies.ms(0.99), "ms");
        report::compare(&name("processor time each"), outcome.cpu_ms_each(), upstream::GET_CPU_MS, "ms", Better::Less);
    }
    Ok(())
}

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

pub async fn lists(server: &Server) -> anyhow::Result<()> {
    let forms = [(Protocol::Http1, "JSON", ""), (Protocol::Http2, "JSON", ""), (Protocol::Http2, "protobuf", PROTOBUF)];
    for (protocol, form, media) in forms {
        let mut connection = Connection::open(&server.client()?, protocol).await?;
        let name = |what: &str| format!("list 10,000 pods in {form} over {}: {what}", protocol.name());
        let upstream_ms = if media.is_empty() { upstream::LIST_MS } else { upstream::LIST_PROTOBUF_MS };
        let (mut latencies, mut bytes) = (Vec::new(), 0);
        let cpu_before = process::cpu_seconds(server.pid())?;
        let began = Instant::now();
        for _ in 0..LISTS {
            let sent = Instant::now();
            let (code, length) = connection.send("GET", pods::PATH, media, Bytes::new()).await?;
            if code != 200 {
                bail!("the list was refused with {code}");
            }
            latencies.push(sent.elapsed());
            bytes += length;
        }
        let megabytes = bytes as f64 / 1e6;
        let rate = megabytes / began.elapsed().as_secs_f64();
        let cpu = process::cpu_seconds(server.pid())? - cpu_before;
        let latencies = Latencies::new(latencies);
        report::compare(&name("latency p50"), latencies.ms(0.5), upstream_ms, "ms", Better::Less);
        report::line(&name("size"), megabytes / LISTS as f64, "MB");
        match media {
            "" => {
                let upstream_rate = upstream::LIST_MB / (upstream_ms / 1000.0);
                report::compare(&name("throughput"), rate, upstream_rate, "MB/s", Better::More);
            }
            _ => report::line(&name("throughput"), rate, "MB/s"),
        }
        report::line(&name("processor time each"), cpu * 1000.0 / LISTS as f64, "ms");
        if media.is_empty() {
            report::line(&name("in pages of 500"), in_pages(&mut connection).await?, "ms");
        }
    }
    report::line("resident memory after these lists", process::resident_mib(server.pid())?, "MiB");
    Ok(())
}

/// How many milliseconds it takes to read all pods page by page.
async fn in_pages(connection: &mut Connection) -> anyhow::Result<f64> {
    let began = Instant::now();
    let mut token = String::new();
    for _ in 0..PODS / PAGE {
        let path = format!("{}?limit={PAGE}&continue={token}", pods::PATH);
        let answer = connection.open_answer("GET", &path, "", Bytes::new()).await?;
        if answer.status() != 200 {
            bail!("a page was refused with {}", answer.status());
        }
        let page = answer.into_body().collect().await?.to_bytes();
        token = continue_token(&page).context("a page without metadata")?;
    }
    match token.is_empty() {
        true => Ok(began.elapsed().as_secs_f64() * 1000.0),
        false => bail!("there are more pages than there should be"),
    }
}

/// The list's own metadata stand before or behind its items; either is found without reading the items as JSON.
fn continue_token(page: &[u8]) -> Option<String> {
    let ends = [&page[..page.len().min(300)], &page[page.len().saturating_sub(300)..]];
    ends.iter().find(|end| contains(end, b"\"resourceVersion\"") || contains(end, b"\"metadata\":{}"))?;
    let found = ends.iter().find_map(|end| {
        let text = String::from_utf8_lossy(end).into_owned();
        let (_, rest) = text.split_once("\"continue\":\"")?;
        Some(rest.split('"').next()?.to_string())
    });
    Some(found.unwrap_or_default().replace('+', "%2B").replace('=', "%3D"))
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}
