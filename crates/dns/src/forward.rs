//! Questions about the rest of the world: asked of the machine's resolvers, one question at a time however many want to know.
//!
//! That one question is only asked once is also what ends loops: a resolver that asks us what we have asked it waits for its
//! own answer, and its question goes nowhere.

mod exchange;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::cache::{Cache, Kept, Question};
use crate::metrics::Metrics;
use crate::wire::{Code, Relayed};

/// One resolver gets so long to answer, all together so long. Askers wait for five seconds by default: they shall hear that
/// there is no answer before they give us up.
pub const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(2);
const TOTAL_TIMEOUT: Duration = Duration::from_secs(4);
/// Whoever asks waits a little longer: when it hears that there is no answer, that is known of the resolvers, too.
const PATIENCE: Duration = TOTAL_TIMEOUT.saturating_add(Duration::from_millis(100));
/// Where all resolvers were silent before, whoever asks waits no longer than this. The question goes on meanwhile, and an
/// answer that comes late is kept for the next.
const SILENT_TIMEOUT: Duration = Duration::from_millis(300);
/// A resolver that failed so often in a row is asked last for a while.
const FAILURES_MAX: u32 = 2;
const AVOIDED_FOR: Duration = Duration::from_secs(10);
/// Different questions on their way at once, and how many may wait for one.
const ASKED_MAX: usize = 500;
const WAITING_MAX: usize = 100;

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Nobody answered, or there is nobody to ask.
    Unanswered,
    /// Too many questions are on their way already.
    Busy,
}

type Outcome = Result<Arc<Kept>, Failure>;

pub struct Forwarder {
    cache: Cache,
    asked: Mutex<HashMap<Question, Vec<oneshot::Sender<Outcome>>>>,
    health: Mutex<HashMap<SocketAddr, Arc<Health>>>,
    /// Our own addresses, which nobody may lead us to.
    own: Mutex<Vec<IpAddr>>,
    metrics: Arc<Metrics>,
    timeout: Duration,
}

#[derive(Default)]
struct Health {
    failures: AtomicU32,
    avoided_until: Mutex<Option<Instant>>,
}

impl Health {
    fn succeeded(&self) {
        self.failures.store(0, Ordering::Relaxed);
        *self.avoided_until.lock() = None;
    }

    fn failed(&self, address: SocketAddr) {
        if self.failures.fetch_add(1, Ordering::Relaxed) + 1 >= FAILURES_MAX {
            let before = self.avoided_until.lock().replace(Instant::now() + AVOIDED_FOR);
            if before.is_none() {
                tracing::warn!(resolver = %address, "upstream resolver does not answer; asking it last");
            }
        }
    }

    fn is_silent(&self) -> bool {
        self.failures.load(Ordering::Relaxed) >= FAILURES_MAX
    }

    fn is_avoided(&self, now: Instant) -> bool {
        self.avoided_until.lock().is_some_and(|until| until > now)
    }
}

impl Forwarder {
    pub fn new(metrics: Arc<Metrics>) -> Arc<Forwarder> {
        Forwarder::with_timeout(metrics, ATTEMPT_TIMEOUT)
    }

    fn with_timeout(metrics: Arc<Metrics>, timeout: Duration) -> Arc<Forwarder> {
        let (cache, asked, health, own) = Default::default();
        Arc::new(Forwarder { cache, asked, health, own, metrics, timeout })
    }

    /// What is known already.
    pub fn cached(&self, question: &Question, now: Instant) -> Option<Arc<Kept>> {
        let found = self.cache.get(question, now);
        self.metrics.cache(found.as_ref().map(|kept| kept.is_denial()));
        found
    }

    pub(crate) fn cached_counts(&self) -> (usize, usize) {
        self.cache.counts()
    }

    /// Other resolvers may say other things.
    pub fn forget(&self) {
        self.cache.clear();
        self.health.lock().clear();
    }

    /// Where we answer ourselves.
    pub(crate) fn set_own(&self, addresses: Vec<IpAddr>) {
        *self.own.lock() = addresses;
    }

    /// Asks, or waits for the answer to the same question. The first of the resolvers that answers is believed.
    pub async fn ask(self: &Arc<Forwarder>, question: Question, upstreams: &[SocketAddr]) -> Outcome {
        let (sender, receiver) = oneshot::channel();
        let patience = if self.are_silent(upstreams) { SILENT_TIMEOUT } else { PATIENCE };
        {
            let mut asked = self.asked.lock();
            let count = asked.len();
            if let Some(waiting) = asked.get_mut(&question) {
                waiting.retain(|sender| !sender.is_closed());
            }
            match asked.get_mut(&question) {
                Some(waiting) if waiting.len() >= WAITING_MAX => return self.busy(),
                Some(waiting) => waiting.push(sender),
                None if count >= ASKED_MAX => return self.busy(),
                None => {
                    asked.insert(question.clone(), vec![sender]);
                    let (own, upstreams) = (self.clone(), upstreams.to_vec());
                    tokio::spawn(async move { own.ask_for_all(question, upstreams).await });
                }
            }
        }
        match tokio::time::timeout(patience, receiver).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) | Err(_) => Err(Failure::Unanswered),
        }
    }

    /// Whether none of them has answered lately.
    fn are_silent(&self, upstreams: &[SocketAddr]) -> bool {
        let health = self.health.lock();
        upstreams.iter().all(|upstream| health.get(upstream).is_some_and(|health| health.is_silent()))
    }

    fn busy(&self) -> Outcome {
        self.metrics.forward_rejected();
        Err(Failure::Busy)
    }

    async fn ask_for_all(self: Arc<Forwarder>, question: Question, upstreams: Vec<SocketAddr>) {
        // Taken away in every case: whoever waits then hears that there is no answer.
        let waiting = Waiting { forwarder: &self, question: &question };
        let answer = tokio::time::timeout(TOTAL_TIMEOUT, self.try_all(&question, upstreams)).await.ok().flatten();
        let outcome = match answer {
            Some(relayed) => Ok(self.cache.put(question.clone(), relayed, Instant::now())),
            None => Err(Failure::Unanswered),
        };
        for sender in waiting.take() {
            // Whoever asked may have gone.
            let _ = sender.send(outcome.clone());
        }
    }

    /// One after the other: those that answer before those that do not, otherwise in the order of the file. A single one is
    /// asked twice, since datagrams get lost.
    async fn try_all(&self, question: &Question, mut upstreams: Vec<SocketAddr>) -> Option<Relayed> {
        let own = self.own.lock().clone();
        upstreams.retain(|upstream| !own.contains(&upstream.ip()));
        if upstreams.is_empty() {
            tracing::debug!(name = %question.name, "no upstream resolver other than this server");
        }
        let now = Instant::now();
        let health: Vec<Arc<Health>> = upstreams.iter().map(|upstream| self.health_of(*upstream)).collect();
        let mut order: Vec<usize> = (0..upstreams.len()).collect();
        order.sort_by_key(|index| health[*index].is_avoided(now));
        if order.len() == 1 {
            order.push(0);
        }
        let mut last = None;
        for index in order {
            let (upstream, began) = (upstreams[index], Instant::now());
            let attempt = Attempt { health: &health[index], upstream, answered: false };
            match exchange::exchange(upstream, question, self.timeout).await {
                Ok(relayed) => {
                    attempt.succeeded();
                    self.metrics.forwarded(upstream, relayed.code, began.elapsed());
                    // It answers, but not this; another may.
                    if ![Code::ServFail, Code::Refused].map(|code| code as u8).contains(&relayed.code) {
                        return Some(relayed);
                    }
                    last = Some(relayed);
                }
                Err(error) => {
                    self.metrics.forward_failed(upstream);
                    tracing::debug!(resolver = %upstream, name = %question.name, %error, "upstream resolver did not answer DNS query");
                }
            }
        }
        last
    }

    fn health_of(&self, upstream: SocketAddr) -> Arc<Health> {
        self.health.lock().entry(upstream).or_default().clone()
    }
}

/// A question to one resolver. It has failed unless it has succeeded, also where the time for all resolvers ends it.
struct Attempt<'a> {
    health: &'a Health,
    upstream: SocketAddr,
    answered: bool,
}

impl Attempt<'_> {
    fn succeeded(mut self) {
        self.answered = true;
        self.health.succeeded();
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if !self.answered {
            self.health.failed(self.upstream);
        }
    }
}

/// Those who wait for the answer to a question.
struct Waiting<'a> {
    forwarder: &'a Forwarder,
    question: &'a Question,
}

impl Waiting<'_> {
    fn take(&self) -> Vec<oneshot::Sender<Outcome>> {
        self.forwarder.asked.lock().remove(self.question).unwrap_or_default()
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.take();
    }
}
