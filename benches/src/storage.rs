//! Durable writes: the embedded store beside a real etcd on the same disk, 2 KiB each, one writer and 64.
//! Every write states the revision it expects, as the API server's do.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use bytes::Bytes;
use store::embedded::{Config, EmbeddedStore};
use store::etcd::client::{Client, Compare, Options, RequestOp, TxnRequest};
use store::{Change, Expect, Store, Written};

use crate::report::{self, Better, Latencies};

const VALUE_BYTES: usize = 2 << 10;
const KEYS_PER_WRITER: usize = 100;
const RUN: Duration = Duration::from_secs(5);
const WRITERS: [usize; 2] = [1, 64];
/// gRPC connections to etcd that the writers share.
const CONNECTIONS: usize = 8;

struct Run {
    latencies: Latencies,
    per_second: f64,
}

pub async fn run() -> anyhow::Result<()> {
    report::head("Durable writes of 2 KiB, each waiting for the disk", "etcd");
    let folder = tempfile::Builder::new().prefix("knarr-bench-").tempdir()?;
    let store = EmbeddedStore::open(Config::new(folder.path().join("store")))?;
    let etcd = testkit::Etcd::start()?;
    for writers in WRITERS {
        let ours = embedded(&store, writers).await?;
        let theirs = match &etcd {
            Some(etcd) => Some(real_etcd(etcd, writers).await?),
            None => None,
        };
        let name = |what: &str| format!("{writers} writers: {what}");
        let show = |what: &str, ours: f64, theirs: Option<f64>, unit: &str, better: Better| match theirs {
            Some(theirs) => report::compare(&name(what), ours, theirs, unit, better),
            None => report::line(&name(what), ours, unit),
        };
        let p = |part: f64| theirs.as_ref().map(|run| run.latencies.ms(part));
        show("writes", ours.per_second, theirs.as_ref().map(|run| run.per_second), "/s", Better::More);
        show("latency p50", ours.latencies.ms(0.5), p(0.5), "ms", Better::Less);
        show("latency p99", ours.latencies.ms(0.99), p(0.99), "ms", Better::Less);
    }
    if etcd.is_none() {
        println!("this machine has no etcd to compare with");
    }
    Ok(())
}

/// One of many that write at once.
trait Writer: Send + 'static {
    /// Writes its key of that number, and returns when the write is durable.
    fn write(&mut self, number: usize) -> impl Future<Output = anyhow::Result<()>> + Send;
}

struct EmbeddedWriter {
    store: Arc<EmbeddedStore>,
    prefix: String,
    value: Bytes,
    expected: [Expect; KEYS_PER_WRITER],
}

impl Writer for EmbeddedWriter {
    async fn write(&mut self, number: usize) -> anyhow::Result<()> {
        let key = format!("{}{number}", self.prefix);
        let put = Change::Put { value: self.value.clone(), ttl: None };
        match self.store.write_if(&key, self.expected[number], put).await? {
            Written::Done(revision) => self.expected[number] = Expect::At(revision),
            Written::Conflict(current) => bail!("conflict with {current:?}"),
        }
        Ok(())
    }
}

async fn embedded(store: &Arc<EmbeddedStore>, writers: usize) -> anyhow::Result<Run> {
    let writer = |number: usize| EmbeddedWriter {
        store: store.clone(),
        prefix: format!("/registry/bench/{writers}/{number}/"),
        value: Bytes::from(vec![b'x'; VALUE_BYTES]),
        expected: [Expect::Absent; KEYS_PER_WRITER],
    };
    timed((0..writers).map(writer)).await
}

struct EtcdWriter {
    client: Client,
    prefix: String,
    value: Vec<u8>,
    /// The revision of each key; 0 where it is absent.
    expected: [i64; KEYS_PER_WRITER],
}

impl Writer for EtcdWriter {
    async fn write(&mut self, number: usize) -> anyhow::Result<()> {
        let key = format!("{}{number}", self.prefix);
        let txn = TxnRequest {
            compare: vec![Compare::mod_revision(key.as_str(), self.expected[number])],
            success: vec![RequestOp::put(key.as_str(), self.value.as_slice(), 0)],
            failure: Vec::new(),
        };
        let done = self.client.txn(txn).await?;
        if !done.succeeded {
            bail!("conflict in etcd");
        }
        self.expected[number] = done.header.context("etcd answered without a revision")?.revision;
        Ok(())
    }
}

async fn real_etcd(etcd: &testkit::Etcd, writers: usize) -> anyhow::Result<Run> {
    let mut connections = Vec::new();
    for _ in 0..CONNECTIONS.min(writers) {
        connections.push(Client::new(&[&etcd.endpoint], &Options::default()).context("reach etcd")?);
    }
    let writer = |number: usize| EtcdWriter {
        client: connections[number % connections.len()].clone(),
        prefix: format!("/registry/bench/{writers}/{number}/"),
        value: vec![b'x'; VALUE_BYTES],
        expected: [0; KEYS_PER_WRITER],
    };
    timed((0..writers).map(writer)).await
}

/// Runs all writers at once until the time is over.
async fn timed<W: Writer>(writers: impl Iterator<Item = W>) -> anyhow::Result<Run> {
    let began = Instant::now();
    let mut running = tokio::task::JoinSet::new();
    for mut writer in writers {
        running.spawn(async move {
            let mut latencies = Vec::new();
            while began.elapsed() < RUN {
                let sent = Instant::now();
                writer.write(latencies.len() % KEYS_PER_WRITER).await?;
                latencies.push(sent.elapsed());
            }
            anyhow::Ok(latencies)
        });
    }
    let mut latencies = Vec::new();
    while let Some(done) = running.join_next().await {
        latencies.extend(done??);
    }
    let per_second = latencies.len() as f64 / began.elapsed().as_secs_f64();
    Ok(Run { latencies: Latencies::new(latencies), per_second })
}
