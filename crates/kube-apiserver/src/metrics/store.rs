//! How long the store takes, etcd or our own, under upstream's names of etcd's requests.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use component_base::metrics::{Bounds, Histogram, Metric, Page};
use futures::stream::BoxStream;
use parking_lot::Mutex;
use store::{Change, Entry, Event, Expect, Range, RangeRequest, Revision, Store, StoreError, Written};
use tokio::time::Instant;

use crate::traces::{self, Step};

/// Upstream's, in seconds.
const SECONDS: Bounds = &[
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0,
    45.0, 60.0,
];

/// How long a question for the store's size may hold up `/metrics`.
const SIZE_TIMEOUT: Duration = Duration::from_secs(2);

/// A store whose calls are timed.
pub struct Measured {
    store: Arc<dyn Store>,
    /// By operation and resource; resources are those of the table.
    calls: Mutex<BTreeMap<(&'static str, String), Arc<Calls>>>,
    /// What the store took on disk when it was last asked.
    size_bytes: Mutex<Option<u64>>,
}

struct Calls {
    times: Histogram,
    failed: AtomicU64,
}

impl Measured {
    pub fn new(store: Arc<dyn Store>) -> Arc<Measured> {
        Arc::new(Measured { store, calls: Mutex::default(), size_bytes: Mutex::default() })
    }

    fn observe<T>(&self, operation: &'static str, key: &str, began: Instant, result: &Result<T, StoreError>) {
        let resource = crate::encryption::resource_of(key).map(|resource| resource.to_string()).unwrap_or_default();
        let calls = self.calls.lock().entry((operation, resource)).or_insert_with(Calls::new).clone();
        calls.times.observe_time(began.elapsed());
        if result.is_err() {
            calls.failed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Finds out what `render` says of the store's size. A store that does not answer in time has none.
    pub async fn measure_size(&self) {
        let size = match tokio::time::timeout(SIZE_TIMEOUT, self.store.size_bytes()).await {
            Ok(Ok(size)) => size,
            Ok(Err(error)) => {
                tracing::warn!(%error, "cannot read size of store");
                None
            }
            Err(_) => {
                tracing::warn!(
                    seconds = SIZE_TIMEOUT.as_secs(),
                    "cannot read size of store: it did not answer in time"
                );
                None
            }
        };
        *self.size_bytes.lock() = size;
    }

    pub fn render(&self, page: &mut Page) {
        if let Some(bytes) = *self.size_bytes.lock() {
            page.family(&SIZE).sample(&[("storage_cluster_id", "etcd-0")], bytes);
        }
        let calls = self.calls.lock();
        let mut family = page.family(&DURATIONS);
        for ((operation, resource), calls) in calls.iter() {
            family.histogram(&[("operation", operation), ("type", resource)], &calls.times);
        }
        let mut family = page.family(&REQUESTS);
        for ((operation, resource), calls) in calls.iter() {
            family.sample(&[("operation", operation), ("type", resource)], calls.times.count());
        }
        let mut family = page.family(&ERRORS);
        for ((operation, resource), calls) in calls.iter() {
            let failed = calls.failed.load(Ordering::Relaxed);
            if failed > 0 {
                family.sample(&[("operation", operation), ("type", resource)], failed);
            }
        }
    }
}

/// As upstream's spans of etcd's client are called.
const RANGE: &str = "etcdserverpb.KV/Range";
const TXN: &str = "etcdserverpb.KV/Txn";

fn step(name: &'static str, key: &str) -> Step {
    let mut step = traces::step(name);
    step.note("rpc.system", || "grpc".into());
    step.note("resource", || crate::encryption::resource_of(key).map(|it| it.to_string()).unwrap_or_default());
    step
}

fn note<T>(step: &mut Step, result: &Result<T, StoreError>) {
    if result.is_err() {
        step.failed();
    }
}

impl Calls {
    fn new() -> Arc<Calls> {
        Arc::new(Calls { times: Histogram::new(SECONDS), failed: AtomicU64::new(0) })
    }
}

#[async_trait::async_trait]
impl Store for Measured {
    async fn get(&self, key: &str) -> Result<Option<Entry>, StoreError> {
        let began = Instant::now();
        let mut step = step(RANGE, key);
        let result = self.store.get(key).await;
        note(&mut step, &result);
        self.observe("get", key, began, &result);
        result
    }

    async fn range(&self, request: RangeRequest) -> Result<Range, StoreError> {
        let (began, key) = (Instant::now(), request.prefix.clone());
        let mut step = step(RANGE, &key);
        let result = self.store.range(request).await;
        note(&mut step, &result);
        self.observe("list", &key, began, &result);
        result
    }

    async fn write_if(&self, key: &str, expect: Expect, change: Change) -> Result<Written, StoreError> {
        let operation = match (&change, &expect) {
            (Change::Delete, _) => "delete",
            (Change::Put { .. }, Expect::Absent) => "create",
            (Change::Put { .. }, Expect::At(_)) => "update",
        };
        let began = Instant::now();
        let mut step = step(TXN, key);
        let result = self.store.write_if(key, expect, change).await;
        note(&mut step, &result);
        self.observe(operation, key, began, &result);
        result
    }

    async fn end_if(&self, key: &str, expect: Revision, last: Bytes) -> Result<Written, StoreError> {
        let began = Instant::now();
        let mut step = step(TXN, key);
        let result = self.store.end_if(key, expect, last).await;
        note(&mut step, &result);
        self.observe("delete", key, began, &result);
        result
    }

    async fn revision(&self) -> Result<Revision, StoreError> {
        self.store.revision().await
    }

    async fn watch_from(
        &self,
        after: Revision,
    ) -> Result<BoxStream<'static, Result<Vec<Event>, StoreError>>, StoreError> {
        self.store.watch_from(after).await
    }

    async fn compact(&self, before: Revision) -> Result<(), StoreError> {
        self.store.compact(before).await
    }

    async fn forget_past(&self) -> Result<(), StoreError> {
        self.store.forget_past().await
    }

    async fn size_bytes(&self) -> Result<Option<u64>, StoreError> {
        self.store.size_bytes().await
    }
}

const SIZE: Metric =
    Metric::gauge("apiserver_storage_size_bytes", "Size of the storage database file physically allocated in bytes.");
const DURATIONS: Metric = Metric::histogram(
    "etcd_request_duration_seconds",
    "Etcd request latency in seconds for each operation and object type.",
);
const REQUESTS: Metric =
    Metric::counter("etcd_requests_total", "Etcd request counts for each operation and object type.");
const ERRORS: Metric =
    Metric::counter("etcd_request_errors_total", "Etcd failed request counts for each operation and object type.");

#[cfg(test)]
mod tests {
    use super::*;
    use store::embedded::{Config, EmbeddedStore};

    #[tokio::test]
    async fn every_call_is_timed() {
        let folder = tempfile::tempdir().expect("a folder");
        let measured = Measured::new(EmbeddedStore::open(Config::new(folder.path())).expect("an empty store"));
        let put = || Change::Put { value: Bytes::from_static(b"{}"), ttl: None };
        let key = "/registry/deployments/n/a";
        let Written::Done(revision) = measured.write_if(key, Expect::Absent, put()).await.unwrap() else {
            panic!("nobody else writes")
        };
        measured.write_if(key, Expect::At(revision), put()).await.unwrap();
        measured.get(key).await.unwrap();
        measured.measure_size().await;
        let mut page = Page::default();
        measured.render(&mut page);
        let text = page.text();
        for operation in ["create", "update", "get"] {
            let line = format!("etcd_requests_total{{operation=\"{operation}\",type=\"deployments.apps\"}} 1");
            assert!(text.contains(&line), "{line}\n{text}");
        }
        assert!(!text.contains("etcd_request_errors_total{"), "{text}");
        let size = text
            .lines()
            .find_map(|line| line.strip_prefix("apiserver_storage_size_bytes{storage_cluster_id=\"etcd-0\"} "));
        assert!(size.unwrap().parse::<u64>().unwrap() > 0, "{text}");
    }
}
