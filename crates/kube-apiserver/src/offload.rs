//! Long pure work leaves the runtime's workers: a request that computes for seconds may not keep others, health checks
//! and TLS handshakes waiting. Whatever is known to be heavy (large bodies and objects, expressions, lists that are
//! encoded anew, schemas) is polled here: the worker hands its queue to another thread first, and only as many such polls
//! run at once as there are cores, so that the workers keep their share of them.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Semaphore;

use crate::call::Call;

/// Bodies, stored objects and lists of this size and more are heavy: some milliseconds of work, beside which the change
/// of threads costs nothing.
pub const HEAVY_BYTES: usize = 64 * 1024;

pub struct Offload {
    turns: Semaphore,
}

impl Default for Offload {
    fn default() -> Offload {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Offload { turns: Semaphore::new(cores) }
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

    pub async fn run_if<T>(&self, heavy: bool, work: impl Future<Output = T>) -> T {
        match heavy {
            true => self.run(work).await,
            false => work.await,
        }
    }
}

/// Whether a request is known to be heavy before it is looked at closely.
pub fn is_heavy(call: &Call, body: &[u8]) -> bool {
    if body.len() >= HEAVY_BYTES {
        return true;
    }
    let resource = &call.resource;
    let writes = !matches!(call.target.verb, "get" | "list" | "watch");
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

/// Until somebody wakes the task: what was polled last has left its waker where it waits.
async fn woken() {
    let mut waited = false;
    poll_fn(|_| match std::mem::replace(&mut waited, true) {
        true => Poll::Ready(()),
        false => Poll::Pending,
    })
    .await;
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, Instant};

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
        let offload = Arc::new(Offload { turns: Semaphore::new(1) });
        let inner = offload.clone();
        let nested = offload.run(async move {
            let other = tokio::spawn(async move { inner.run(async { 1 }).await });
            other.await.expect("it ends") + 1
        });
        assert_eq!(nested.await, 2);
    }
}
