//! API Priority and Fairness: every request belongs to a FlowSchema and through it to a priority level, which gives it a
//! seat at once, after a fair wait, or not at all.
//!
//! `classify.rs` finds the schema, `width.rs` guesses how many seats a request takes, `queues.rs` and `shard.rs` say who
//! is next, `shares.rs` divides the seats of the server; all of these are pure. `level.rs` waits, `follow.rs` keeps up
//! with the objects. Without it (`--enable-priority-and-fairness=false`) two plain limits hold.

mod classify;
mod shard;
mod queues;
#[cfg(test)]
mod queues_tests;
mod width;
mod shares;
mod level;
mod configuration;
mod follow;
mod maintain;
mod metrics;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::app::App;
use crate::authn::User;
use crate::metrics::Gauge;
use crate::query::Query;
use crate::respond::{self, Reply};
use crate::target::Target;

pub use classify::Asked;
pub use follow::start;
pub(crate) use maintain::maintained;
pub use width::{Interest, Watches};

use configuration::{Configuration, Entry};
use tokio::time::Instant;

static SCHEMA_HEADER: HeaderName = HeaderName::from_static("x-kubernetes-pf-flowschema-uid");
static LEVEL_HEADER: HeaderName = HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid");
const RETRY_AFTER_SECONDS: u16 = 1;

/// What the operator decides.
#[derive(Clone, Debug)]
pub struct Config {
    pub enabled: bool,
    /// How many reading requests run at once; 0 is no limit. With priority and fairness the two together are the seats.
    pub reading_max: u32,
    pub writing_max: u32,
    /// How long a request may wait for its seat.
    pub wait_max: Duration,
}

impl Default for Config {
    /// Upstream's: a quarter of a request's time is spent waiting at most.
    fn default() -> Config {
        Config { enabled: true, reading_max: 400, writing_max: 200, wait_max: Duration::from_secs(15) }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "--max-requests-inflight and --max-mutating-requests-inflight cannot both be 0: priority levels would have \
     nothing to divide"
)]
pub struct NoSeats;

impl Config {
    pub fn check(&self) -> Result<(), NoSeats> {
        if self.enabled && self.reading_max == 0 && self.writing_max == 0 { Err(NoSeats) } else { Ok(()) }
    }

    fn seats(&self) -> u32 {
        self.reading_max.saturating_add(self.writing_max)
    }
}

pub struct FlowControl {
    config: Config,
    configuration: ArcSwap<Configuration>,
    pub watches: Watches,
}

/// Where a request was put; said in the headers of its answer.
#[derive(Clone)]
pub struct Class(Arc<Entry>);

impl Class {
    pub(crate) fn add_headers(&self, headers: &mut HeaderMap) {
        headers.insert(LEVEL_HEADER.clone(), self.0.level_uid.clone());
        headers.insert(SCHEMA_HEADER.clone(), self.0.schema_uid.clone());
    }
}

/// A request that may run. It gives its seats back when it is dropped.
pub struct Admitted {
    _running: Gauge,
    seat: Option<(level::Seat, Class, Instant)>,
}

impl Drop for Admitted {
    fn drop(&mut self) {
        if let Some((seat, class, began)) = self.seat.take() {
            drop(seat);
            class.0.counts.ended(began.elapsed());
        }
    }
}

impl FlowControl {
    pub fn new(config: Config) -> FlowControl {
        let configuration = Configuration::mandatory_alone(config.seats());
        FlowControl { config, configuration: ArcSwap::from_pointee(configuration), watches: Watches::default() }
    }

    /// The schema of a request; none where there is no priority and fairness.
    pub(crate) fn classify(&self, asked: &Asked) -> Option<Class> {
        if !self.config.enabled {
            return None;
        }
        Some(Class(self.configuration.load().find(asked).clone()))
    }

    /// Lets a request run, now or in its turn. None where it is refused: its client shall come again.
    pub async fn admit(
        &self,
        app: &App,
        asked: &Asked<'_>,
        query: &Query,
        class: Option<&Class>,
        mutating: bool,
    ) -> Option<Admitted> {
        let Some(class) = class else { return self.admit_plain(app, asked.user, mutating) };
        let entry = &class.0;
        let width = width::estimate(asked.target, query, app, || entry.level.width_max());
        let began = Instant::now();
        let flow = entry.schema.flow(asked);
        // Counted while it waits, however that ends.
        let mut waiting = None;
        let waits = || waiting = Some(entry.counts.waits());
        let outcome = entry.level.admit(flow, width, self.config.wait_max, waits).await;
        drop(waiting);
        match outcome {
            Ok(seat) => {
                entry.counts.begins(began.elapsed(), width.running);
                let _running = app.metrics.running(mutating);
                Some(Admitted { _running, seat: Some((seat, class.clone(), Instant::now())) })
            }
            Err(refusal) => {
                entry.counts.refused(refusal, began.elapsed());
                None
            }
        }
    }

    /// Administrators are never asked to come again; others are when the server is full.
    fn admit_plain(&self, app: &App, user: &User, mutating: bool) -> Option<Admitted> {
        let limit = i64::from(if mutating { self.config.writing_max } else { self.config.reading_max });
        let full = limit > 0 && app.metrics.inflight(mutating) >= limit;
        if full && !user.groups.iter().any(|group| group == crate::authz::MASTERS) {
            return None;
        }
        Some(Admitted { _running: app.metrics.running(mutating), seat: None })
    }
}

/// What a client is told that must come again: plain words, as upstream; clients know the code.
pub fn too_many_requests() -> Reply {
    let mut reply = respond::text(429, "Too many requests, please try again later.\n");
    let headers = reply.headers_mut();
    headers.insert(http::header::RETRY_AFTER, RETRY_AFTER_SECONDS.into());
    headers.insert(http::header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    reply
}

impl width::Counts for App {
    fn objects(&self, target: &Target) -> u64 {
        let table = self.table.load();
        let resource = table.get(&target.group, &target.version, &target.resource);
        resource.and_then(|resource| resource.state.as_ref()).map_or(0, |state| state.snapshot().items.len() as u64)
    }

    fn watches(&self, target: &Target) -> u32 {
        self.flow.watches.count(&target.resource, &target.namespace)
    }
}
