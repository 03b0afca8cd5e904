//! Long pure work leaves the runtime's workers: a request that computes for seconds may not keep others, health checks
//! and TLS handshakes waiting. Whatever is known to be heavy (large bodies and objects, expressions, lists that are
//! encoded anew, schemas) is polled here: the worker hands its queue to another thread first, and only as many such polls
//! run at once as there are cores, so that the workers keep their share of them.
//!
//! Heavy writes also share a bounded amount of memory: an object takes many times its text once it is decoded, and a write
//! that waits (for its turn on a key, a webhook, the disk) holds it meanwhile.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use http::header::CONTENT_TYPE;
use machinery::status::Status;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::call::Call;

/// Bodies, stored objects and lists of this size and more are heavy: some milliseconds of work, beside which the change
/// of threads costs nothing.
pub(crate) const HEAVY_BYTES: usize = 64 * 1024;

/// What all heavy writes together may take, in KiB. One that takes more than that by itself runs alone.
const MEMORY_KIB_MAX: u32 = 256 * 1024;
/// What an entry of a map or a list takes, with its part of the managed fields: measured with 150,000 keys without values.
const ENTRY_BYTES: usize = 400;
/// What the text itself takes: as it came, and as it is stored.
const TEXT_FACTOR: usize = 3;
/// Where entries cannot be counted, they are taken to be as short as this.
const UNKNOWN_ENTRY_BYTES: usize = 10;
/// How long a heavy write waits for memory before its client is told to come back.
const MEMORY_TIMEOUT: Duration = Duration::from_secs(60);

pub struct Offload {
    turns: Semaphore,
    memory: Arc<Semaphore>,
}

/// Memory that a heavy write may take as long as this lives.
pub type Memory = OwnedSemaphorePermit;

impl Default for Offload {
    fn default() -> Offload {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Offload { turns: Semaphore::new(cores), memory: Arc::new(Semaphore::new(MEMORY_KIB_MAX as usize)) }
    }
}

impl Offload {
    /// Runs heavy work. A turn is held while it computes and given back while it waits, so that work which waits for
    /// other heavy work (a webhook that asks this server) cannot stop it.
    pub async fn run<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        loop {
            let turn = self.turns.acquire().await;
            let polled = poll_fn(|cx| Poll::Ready(in_place(|| work.as_mut().poll(cx)))).await;
            drop(turn);
            match polled {
                Poll::Ready(done) => return done,
                Poll::Pending => woken().await,
            }
        }
    }

    /// Waits until there is memory for a heavy write.
    pub async fn memory(&self, bytes: usize) -> Result<Memory, Status> {
        let kib = u32::try_from(bytes.div_ceil(1024)).unwrap_or(MEMORY_KIB_MAX).clamp(1, MEMORY_KIB_MAX);
        let taken = tokio::time::timeout(MEMORY_TIMEOUT, self.memory.clone().acquire_many_owned(kib)).await;
        // The semaphore is never closed.
        taken
            .ok()
            .and_then(Result::ok)
            .ok_or_else(|| Status::too_many_requests("too many large requests at once, please try again later", 1))
    }

    pub(crate) async fn run_if<T>(&self, heavy: bool, work: impl Future<Output = T>) -> T {
        if heavy { self.run(work).await } else { work.await }
    }
}

/// How much memory a heavy write may take: for what it brings, and for what is there.
pub(crate) fn memory_of(call: &Call, body: &[u8]) -> usize {
    let media = call.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let is_text = !media.contains("protobuf") && !media.contains("cbor");
    let key = call.resource.key(&call.target.namespace, &call.target.name).ok();
    let stored = key.and_then(|key| call.resource.state.as_ref()?.get(&key));
    decoded_bytes(body, is_text) + stored.map_or(0, |item| decoded_bytes(&item.value, true))
}

/// What an object takes once it is decoded, by the number of its entries: in a text, each but one stands behind a comma or
/// begins a line.
fn decoded_bytes(text: &[u8], is_text: bool) -> usize {
    let entries = if is_text {
        text.iter().filter(|byte| matches!(byte, b',' | b'\n')).count()
    } else {
        text.len() / UNKNOWN_ENTRY_BYTES
    };
    text.len() * TEXT_FACTOR + entries * ENTRY_BYTES
}

/// Whether a request is known to be heavy before it is looked at closely.
pub(crate) fn is_heavy(call: &Call, body: &[u8]) -> bool {
    if body.len() >= HEAVY_BYTES {
        return true;
    }
    let resource = &call.resource;
    let writes = !call.target.verb.reads();
    if writes && resource.custom.as_ref().is_some_and(|custom| custom.has_rules()) {
        return true;
    }
    let (Some(state), false) = (&resource.state, call.target.name.is_empty()) else { return false };
    let key = resource.key(&call.target.namespace, &call.target.name);
    let stored = key.ok().and_then(|key| state.get(&key));
    stored.is_some_and(|item| item.value.len() >= HEAVY_BYTES)
}

/// A runtime of one thread, as in tests, has nobody to hand its queue to.
fn in_place<T>(work: impl FnOnce() -> T) -> T {
    match Handle::current().runtime_flavor() {
        RuntimeFlavor::MultiThread => tokio::task::block_in_place(work),
        _ => work(),
    }
}

/// Waits for something where nothing can be awaited. `None` on a runtime of one thread, where that would wait for itself.
pub(crate) fn wait_in_place<T>(wait: impl Future<Output = T>) -> Option<T> {
    match Handle::current().runtime_flavor() {
        RuntimeFlavor::MultiThread => Some(tokio::task::block_in_place(|| Handle::current().block_on(wait))),
        _ => None,
    }
}

/// Until somebody wakes the task: what was polled last has left its waker where it waits.
async fn woken() {
    let mut waited = false;
    poll_fn(|_| if std::mem::replace(&mut waited, true) { Poll::Ready(()) } else { Poll::Pending }).await;
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn workers_stay_free() {
        let offload = Arc::new(Offload::default());
        let busy: Vec<_> = (0..8)
            .map(|_| {
                let offload = offload.clone();
                tokio::spawn(async move {
                    let work = async {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                        std::thread::sleep(Duration::from_millis(300));
                    };
                    offload.run(work).await;
                })
            })
            .collect();
        let mut slowest = Duration::ZERO;
        while !busy.iter().all(tokio::task::JoinHandle::is_finished) {
            let began = Instant::now();
            tokio::spawn(tokio::time::sleep(Duration::from_millis(5))).await.expect("a task ends");
            slowest = slowest.max(began.elapsed());
        }
        assert!(slowest < Duration::from_millis(200), "a small task took {slowest:?}");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn heavy_work_may_wait_for_heavy_work() {
        let offload = Arc::new(Offload { turns: Semaphore::new(1), ..Offload::default() });
        let inner = offload.clone();
        let nested = offload.run(async move {
            let other = tokio::spawn(async move { inner.run(async { 1 }).await });
            other.await.expect("it ends") + 1
        });
        assert_eq!(nested.await, 2);
    }

    #[test]
    fn entries_count_more_than_letters() {
        let entries: Vec<String> = (0..150_000).map(|number| format!("\"{number:x}\":\"\"")).collect();
        let many = format!("{{\"data\":{{{}}}}}", entries.join(","));
        let one = format!("{{\"data\":{{\"a\":\"{}\"}}}}", "x".repeat(many.len()));
        let mib = |text: &str| decoded_bytes(text.as_bytes(), true) >> 20;
        assert!((55..70).contains(&mib(&many)), "{}", mib(&many));
        assert!(mib(&one) < 6, "{}", mib(&one));
        assert!(decoded_bytes(many.as_bytes(), false) >> 20 > 40);
    }

    #[tokio::test(start_paused = true)]
    async fn heavy_writes_wait_for_memory_and_then_come_back_later() {
        let offload = Offload::default();
        let half = (MEMORY_KIB_MAX as usize) * 512;
        let (first, second) = (offload.memory(half).await.unwrap(), offload.memory(half).await.unwrap());
        let refused = offload.memory(1).await.unwrap_err();
        assert_eq!(refused.code, 429);
        drop(first);
        drop(offload.memory(half).await.unwrap());
        // More than all there is means alone, not never.
        drop(second);
        drop(offload.memory(usize::MAX).await.unwrap());
    }
}
