//! Takes a key, lets the controller decide, does the writes, and comes back when told.

use std::future::Future;
use std::hash::Hash;
use std::num::NonZeroUsize;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll};
use std::time::Duration;

use component_base::tasks;
use futures::FutureExt;
use futures::future::join_all;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::cluster::Cluster;
use crate::controller::{Context, Controller, Memory, Work};
use crate::events::Recorder;
use crate::key::Key;
use crate::plan::{Plan, Write};
use crate::queue::{Backoff, Queue};
use crate::{Error, Shutdown};
use component_base::Clock;

/// What becomes of a key after the work on it.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    Done,
    After(Duration),
    /// Later and later; the text says why, for the log.
    Retry(String),
}

/// What becomes of a key, and for how long it is left alone before.
#[derive(Debug)]
pub struct Worked {
    next: Next,
    rest: Duration,
}

impl From<Next> for Worked {
    fn from(next: Next) -> Worked {
        Worked { next, rest: Duration::ZERO }
    }
}

/// A look at an object may be a look at all that belongs to it, which are many where it is a large one, and each of them wakes
/// it. So a key is left alone after the work on it, the longer the more the look has cost: all changes in the meantime are
/// looked at together, and one large object takes no more than its share of a processor.
fn rest_after(cost: Duration) -> Duration {
    if cost < REST_FROM { Duration::ZERO } else { cost.saturating_mul(REST_FACTOR).min(REST_MAX) }
}

/// Looks that cost less are not worth a wait.
const REST_FROM: Duration = Duration::from_millis(1);
/// One look takes a tenth of a processor at most.
const REST_FACTOR: u32 = 9;
/// Nobody waits longer for the next look, whatever it costs.
const REST_MAX: Duration = Duration::from_millis(500);

/// Adds up how long work was worked on, without the times at which it waited.
struct Timed<'a, F> {
    work: F,
    cost: &'a mut Duration,
}

impl<F: Future + Unpin> Future for Timed<'_, F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<F::Output> {
        let began = Instant::now();
        let outcome = Pin::new(&mut self.work).poll(cx);
        *self.cost += began.elapsed();
        outcome
    }
}

/// Runs one controller until it is told to stop.
pub async fn run<S: Send + Sync + 'static>(
    controller: &'static Controller<S>,
    settings: Arc<S>,
    cluster: Cluster,
    clock: Clock,
    shutdown: Shutdown,
) -> Result<(), Error> {
    run_with(controller, settings, cluster, clock, None, shutdown).await
}

/// Runs controllers until they are told to stop, each in a task of its own and with as many workers as the operator wants. One that
/// fails leaves the others alone.
pub async fn run_all<S: Send + Sync + 'static>(
    controllers: impl Iterator<Item = (&'static Controller<S>, Option<NonZeroUsize>)>,
    settings: Arc<S>,
    cluster: Cluster,
    clock: Clock,
    shutdown: Shutdown,
) {
    let running = controllers.map(|(controller, workers)| {
        let (settings, cluster) = (settings.clone(), cluster.clone());
        let run = run_with(controller, settings, cluster, clock.clone(), workers, shutdown.clone());
        let task = tasks::spawn(run);
        async move {
            match task.await {
                Ok(Ok(())) => tracing::debug!(controller = controller.name, "controller ended"),
                Ok(Err(error)) => tracing::error!(controller = controller.name, %error, "controller failed"),
                Err(error) => tracing::error!(controller = controller.name, %error, "controller panicked"),
            }
        }
    });
    join_all(running).await;
}

async fn run_with<S: Send + Sync + 'static>(
    controller: &'static Controller<S>,
    settings: Arc<S>,
    cluster: Cluster,
    clock: Clock,
    workers: Option<NonZeroUsize>,
    shutdown: Shutdown,
) -> Result<(), Error> {
    let client = match controller.account {
        "" => cluster.client().clone(),
        account => cluster.client_of(account),
    };
    let events = Recorder::with_clock(client.clone(), controller.source, "", clock.clone());
    let began = (clock.now(), Instant::now());
    let cx = Arc::new(Context { settings, client, events, cluster, clock, workers, began, memory: Memory::default() });
    let (wakes, workers_max, reconcile) = match controller.work {
        Work::Keys { wakes, workers_max, reconcile } => (wakes, workers_max, reconcile),
        Work::Own(run) => return run(cx, shutdown).await,
    };
    let queue: Queue<Key> = Queue::watched(Backoff::default(), controller.name, cx.cluster.metrics());
    let ready = join_all(wakes.iter().map(|wake| wake.ready(&cx)));
    tokio::select! {
        () = shutdown.cancelled() => return Ok(()),
        _ = ready => {}
    }
    wakes.iter().for_each(|wake| wake.begin(&cx, &queue));
    work(controller.name, &queue, cx.workers(workers_max), &shutdown, move |key: Key| {
        let cx = cx.clone();
        async move {
            let mut cost = Duration::ZERO;
            let outcome = async {
                let plan = Timed { work: reconcile(&cx, &key), cost: &mut cost }.await?;
                perform(&cx, plan).await
            };
            let next = match outcome.await {
                Ok(None) => Next::Done,
                Ok(Some(delay)) => Next::After(delay),
                Err(error) => Next::Retry(error.to_string()),
            };
            Worked { next, rest: rest_after(cost) }
        }
    })
    .await;
    Ok(())
}

/// Works off a queue, so many keys at the same time, until it is told to stop; then lets those at work end.
pub async fn work<T, F, W>(
    name: &'static str,
    queue: &Queue<T>,
    workers_max: usize,
    shutdown: &Shutdown,
    act: impl Fn(T) -> F,
) where
    T: Clone + Eq + Hash + std::fmt::Display + Send + 'static,
    F: Future<Output = W> + Send + 'static,
    W: Into<Worked> + Send + 'static,
{
    let mut running: JoinSet<(T, Worked)> = JoinSet::new();
    loop {
        tokio::select! {
            () = shutdown.cancelled() => break,
            Some(ended) = running.join_next() => {
                let (key, worked) = ended.expect("the work catches its own panics and is not cancelled");
                settle(name, queue, key, worked);
            }
            key = queue.next(), if running.len() < workers_max => {
                let acting = AssertUnwindSafe(act(key.clone())).catch_unwind();
                running.spawn(tasks::boxed(async move {
                    let worked = acting.await.map(Into::into);
                    (key, worked.unwrap_or_else(|_| Next::Retry("a panic; see the log".into()).into()))
                }));
            }
        }
    }
    while running.join_next().await.is_some() {}
}

fn settle<T: Clone + Eq + Hash + std::fmt::Display>(name: &'static str, queue: &Queue<T>, key: T, worked: Worked) {
    match worked.next {
        Next::Done => queue.forget(&key),
        Next::After(delay) => {
            queue.forget(&key);
            queue.add_after(key.clone(), delay);
        }
        Next::Retry(why) => {
            // Most of these are conflicts, which the next try settles.
            tracing::debug!(controller = name, %key, error = why, "reconcile failed; retrying");
            queue.retry(key.clone());
        }
    }
    if worked.rest.is_zero() { queue.done(&key) } else { queue.done_after(key, worked.rest) }
}

/// Does the writes in order. More of the same kind go out together, but the first ones alone: where one is refused, the
/// others would be too.
pub async fn perform<S>(cx: &Context<S>, plan: Plan) -> Result<Option<Duration>, Error> {
    for event in plan.events {
        cx.events.event(&event.about, event.kind, event.reason, event.message);
    }
    let mut rest: &[Write] = &plan.writes;
    let mut together = 1;
    while let Some(first) = rest.first() {
        let alike = rest.iter().take(together).take_while(|write| write.is_like(first)).count();
        let (batch, later) = rest.split_at(alike);
        let outcomes =
            join_all(batch.iter().map(|write| write.perform(&cx.client, &cx.cluster.caches, &cx.events))).await;
        if let Err(error) = outcomes.into_iter().collect::<Result<(), Error>>() {
            if let Some(write) = plan.if_refused {
                // The first failure is the one that counts; this one only would have told of it.
                let _ = write.knowing(&error).perform(&cx.client, &cx.cluster.caches, &cx.events).await;
            }
            return Err(error);
        }
        let goes_on = later.first().is_some_and(|write| write.is_like(first));
        together = if goes_on { (together * 2).min(BATCH_MAX) } else { 1 };
        rest = later;
    }
    Ok(plan.again)
}

/// How many writes of one plan are under way at the same time.
const BATCH_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    /// How many keys of many are ever worked on at the same time.
    async fn at_once(workers_max: usize) -> usize {
        let queue: Queue<String> = Queue::new(Backoff::default());
        (0..20).for_each(|number| queue.add(number.to_string()));
        let (shutdown, now_and_most) = (Shutdown::new(), Arc::new(Mutex::new((0, 0, 0))));
        let act = |_| {
            let (counts, shutdown) = (now_and_most.clone(), shutdown.clone());
            async move {
                {
                    let mut counts = counts.lock();
                    counts.0 += 1;
                    counts.1 = counts.1.max(counts.0);
                }
                tokio::time::sleep(Duration::from_secs(1)).await;
                let mut counts = counts.lock();
                counts.0 -= 1;
                counts.2 += 1;
                if counts.2 == 20 {
                    shutdown.cancel();
                }
                Next::Done
            }
        };
        work("test", &queue, workers_max, &shutdown, act).await;
        now_and_most.lock().1
    }

    #[tokio::test(start_paused = true)]
    async fn as_many_keys_are_worked_on_as_there_are_workers() {
        for workers in [1, 3, 20] {
            assert_eq!(at_once(workers).await, workers);
        }
    }

    /// How often a large object is looked at while one change after the other wakes it, and each look costs so much.
    async fn looks(changes: u32, cost: Duration) -> u32 {
        let queue: Queue<&'static str> = Queue::new(Backoff::default());
        let (shutdown, count) = (Shutdown::new(), Arc::new(Mutex::new(0)));
        let (adding, stopping) = (queue.clone(), shutdown.clone());
        tasks::spawn(async move {
            for _ in 0..changes {
                adding.add("large");
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
            stopping.cancel();
        });
        let act = |_| {
            let count = count.clone();
            async move {
                *count.lock() += 1;
                Worked { next: Next::Done, rest: rest_after(cost) }
            }
        };
        work("test", &queue, 5, &shutdown, act).await;
        *count.lock()
    }

    #[tokio::test(start_paused = true)]
    async fn looks_at_a_large_object_gather_its_changes() {
        // A small object is looked at whenever it changes.
        assert_eq!(looks(1_000, Duration::from_micros(900)).await, 1_000);
        // With ten times the pods a look costs ten times as much, and there is a tenth of the looks.
        let (large, larger) =
            (looks(1_000, Duration::from_millis(2)).await, looks(1_000, Duration::from_millis(20)).await);
        assert!((50..=60).contains(&large), "{large}");
        assert!((5..=7).contains(&larger), "{larger}");
        // Whatever it costs, it does not wait for long, and the last change is not forgotten.
        assert!((2..=4).contains(&looks(1_000, Duration::from_secs(60)).await));
        assert_eq!(looks(1, Duration::from_secs(60)).await, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn failed_and_panicking_work_is_tried_again() {
        let queue: Queue<&'static str> = Queue::new(Backoff::default());
        ["good", "fails", "panics"].into_iter().for_each(|key| queue.add(key));
        let shutdown = Shutdown::new();
        let seen: Arc<Mutex<Vec<&'static str>>> = Arc::default();
        let act = |key: &'static str| {
            let (seen, shutdown) = (seen.clone(), shutdown.clone());
            async move {
                seen.lock().push(key);
                let tries = seen.lock().iter().filter(|one| **one == key).count();
                if seen.lock().len() == 6 {
                    shutdown.cancel();
                }
                match key {
                    "good" if tries == 1 => Next::After(Duration::from_millis(1)),
                    "fails" if tries == 1 => Next::Retry("once".into()),
                    "panics" if tries == 1 => panic!("once"),
                    _ => Next::Done,
                }
            }
        };
        work("test", &queue, 2, &shutdown, act).await;
        let mut seen = seen.lock().clone();
        seen.sort();
        assert_eq!(seen, ["fails", "fails", "good", "good", "panics", "panics"]);
    }
}
