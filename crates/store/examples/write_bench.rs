//! How fast the embedded store writes: 64 writers of 2 KiB, each waiting for its write to be durable.
//!
//! `cargo run --release -p store --example write_bench [directory]`

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use store::embedded::{Config, EmbeddedStore};
use store::{Change, Expect, Store, StoreError, Written};

const WRITERS: usize = 64;
const VALUE_BYTES: usize = 2 << 10;
const KEYS_PER_WRITER: usize = 100;
const RUN: Duration = Duration::from_secs(10);

#[tokio::main]
async fn main() -> Result<(), StoreError> {
    let dir = std::env::args().nth(1).unwrap_or_else(|| format!("write-bench-{}", std::process::id()));
    let store = EmbeddedStore::open(Config::new(&dir))?;
    for writers in [1, WRITERS] {
        let started = Instant::now();
        let running: Vec<_> = (0..writers).map(|writer| tokio::spawn(write(store.clone(), writers, writer))).collect();
        let mut latencies = Vec::new();
        for writer in running {
            latencies.extend(writer.await.map_err(|error| StoreError::Other(error.to_string()))??);
        }
        let elapsed = started.elapsed();
        latencies.sort_unstable();
        let at = |part: f64| latencies[((latencies.len() - 1) as f64 * part) as usize];
        println!(
            "{writers} writers of {VALUE_BYTES} bytes: {:.0} writes/s, p50 {:?}, p99 {:?}, p99.9 {:?}, max {:?}",
            latencies.len() as f64 / elapsed.as_secs_f64(),
            at(0.5),
            at(0.99),
            at(0.999),
            at(1.0),
        );
    }
    drop(store);
    let started = Instant::now();
    let store = EmbeddedStore::open(Config::new(&dir))?;
    println!("reopened at revision {} in {:?}", store.revision().await?, started.elapsed());
    drop(store);
    std::fs::remove_dir_all(&dir).map_err(|error| StoreError::Other(error.to_string()))
}

async fn write(store: Arc<EmbeddedStore>, writers: usize, writer: usize) -> Result<Vec<Duration>, StoreError> {
    let value = Bytes::from(vec![b'x'; VALUE_BYTES]);
    let mut expected = [Expect::Absent; KEYS_PER_WRITER];
    let mut latencies = Vec::new();
    let started = Instant::now();
    while started.elapsed() < RUN {
        let number = latencies.len() % KEYS_PER_WRITER;
        let key = format!("/registry/bench/{writers}/{writer}/{number}");
        let begun = Instant::now();
        match store.write_if(&key, expected[number], Change::Put { value: value.clone(), ttl: None }).await? {
            Written::Done(revision) => expected[number] = Expect::At(revision),
            Written::Conflict(current) => return Err(StoreError::Other(format!("conflict with {current:?}"))),
        }
        latencies.push(begun.elapsed());
    }
    Ok(latencies)
}
