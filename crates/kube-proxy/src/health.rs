//! Health endpoints: of this proxy (`/healthz`, `/livez`), and of Services with a healthCheckNodePort.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use component_base::clock::Clock;
use component_base::status_page::{self, Answer, Answers};
use component_base::tasks;
use jiff::Timestamp;
use parking_lot::Mutex;
use reconcile::{Key, Shutdown};
use serde_json::json;
use tokio::time::Instant;

use crate::http;
use crate::metrics::Metrics;
use crate::rules::HealthCheck;

/// A change that has waited for so long means that we do not keep up.
const PENDING_MAX: Duration = Duration::from_secs(60);

/// Whether changes reach the kernel.
pub struct Health {
    state: Mutex<State>,
    /// Load balancers should send nothing to a node that is about to go.
    is_eligible: AtomicBool,
    clock: Clock,
}

struct State {
    pending_since: Option<Instant>,
    /// The kernel has been written at least once.
    has_begun: bool,
    updated: Timestamp,
}

impl Health {
    pub(crate) fn new(clock: Clock) -> Health {
        let state = State { pending_since: None, has_begun: false, updated: clock.now() };
        Health { state: Mutex::new(state), is_eligible: AtomicBool::new(true), clock }
    }

    pub fn queued(&self) {
        self.state.lock().pending_since.get_or_insert_with(Instant::now);
    }

    pub fn updated(&self) {
        *self.state.lock() = State { pending_since: None, has_begun: true, updated: self.clock.now() };
    }

    pub(crate) fn set_eligible(&self, is: bool) {
        self.is_eligible.store(is, Ordering::Relaxed);
    }

    pub(crate) fn is_healthy(&self) -> bool {
        let state = self.state.lock();
        state.has_begun && state.pending_since.is_none_or(|since| since.elapsed() < PENDING_MAX)
    }

    fn answer(&self, with_eligibility: bool) -> (bool, String) {
        let (is_eligible, now) = (self.is_eligible.load(Ordering::Relaxed), self.clock.now());
        let is_good = self.is_healthy() && (is_eligible || !with_eligibility);
        // A time that is long ago would look like a fault where nothing has changed since.
        let updated = if is_good { now } else { self.state.lock().updated };
        let eligible = if with_eligibility { format!(", \"nodeEligible\": {is_eligible}") } else { String::new() };
        (is_good, format!("{{\"lastUpdated\": \"{updated}\",\"currentTime\": \"{now}\"{eligible}}}"))
    }
}

/// What the health address answers.
pub fn answers(health: Arc<Health>, metrics: Arc<Metrics>) -> Answers {
    Arc::new(move |request| match request.path.as_str() {
        "/healthz" => {
            let (is_good, body) = health.answer(true);
            metrics.count_healthz(is_good);
            http::health(is_good, body)
        }
        "/livez" => {
            let (is_good, body) = health.answer(false);
            metrics.count_livez(is_good);
            http::health(is_good, body)
        }
        _ => Answer::not_found(),
    })
}

/// One listener for each Service that load balancers ask about.
pub struct ServiceChecks {
    checks: HashMap<Key, Check>,
    address: IpAddr,
    namespace: Option<PathBuf>,
    health: Arc<Health>,
}

struct Check {
    port: u16,
    local_endpoints: Arc<AtomicUsize>,
    stop: Shutdown,
}

impl Drop for Check {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl ServiceChecks {
    pub fn new(address: IpAddr, namespace: Option<PathBuf>, health: Arc<Health>) -> ServiceChecks {
        ServiceChecks { checks: HashMap::new(), address, namespace, health }
    }

    pub fn set(&mut self, service: &Key, wanted: Option<HealthCheck>) {
        let Some(wanted) = wanted else {
            self.checks.remove(service);
            return;
        };
        if let Some(check) = self.checks.get(service).filter(|check| check.port == wanted.port) {
            check.local_endpoints.store(wanted.local_endpoints, Ordering::Relaxed);
            return;
        }
        self.checks.remove(service);
        let listener = match http::listen(SocketAddr::new(self.address, wanted.port), self.namespace.as_deref()) {
            Ok(listener) => listener,
            Err(error) => {
                // The next change of the Service or its endpoints tries again.
                tracing::error!(%service, port = wanted.port, %error, "cannot listen for health checks of Service");
                return;
            }
        };
        let (local_endpoints, stop) = (Arc::new(AtomicUsize::new(wanted.local_endpoints)), Shutdown::new());
        let answers = self.answers(service.clone(), local_endpoints.clone());
        tasks::spawn(status_page::serve(listener, answers, stop.clone()));
        self.checks.insert(service.clone(), Check { port: wanted.port, local_endpoints, stop });
    }

    fn answers(&self, service: Key, local_endpoints: Arc<AtomicUsize>) -> Answers {
        let health = self.health.clone();
        Arc::new(move |_| {
            let (count, is_healthy) = (local_endpoints.load(Ordering::Relaxed), health.is_healthy());
            let body = json!({
                "service": {"namespace": service.namespace, "name": service.name},
                "localEndpoints": count,
                "serviceProxyHealthy": is_healthy,
            });
            http::health(count > 0 && is_healthy, format!("{body:#}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A change that waits is no fault at first; one that waits for a minute is.
    #[tokio::test(start_paused = true)]
    async fn a_proxy_that_does_not_keep_up_is_unhealthy() {
        let began = tokio::time::Instant::now();
        let start = Timestamp::from_second(1_800_000_000).unwrap();
        let health = Health::new(Clock::from_fn(move || start + began.elapsed()));
        let check = |path: bool, is_good: bool, body: &str| assert_eq!(health.answer(path), (is_good, body.to_owned()));
        let wait = |seconds| tokio::time::advance(Duration::from_secs(seconds));

        // Nothing was written to the kernel yet.
        wait(1).await;
        check(false, false, r#"{"lastUpdated": "2027-01-15T08:00:00Z","currentTime": "2027-01-15T08:00:01Z"}"#);
        health.updated();
        wait(9).await;
        check(
            true,
            true,
            r#"{"lastUpdated": "2027-01-15T08:00:10Z","currentTime": "2027-01-15T08:00:10Z", "nodeEligible": true}"#,
        );
        health.queued();
        wait(59).await;
        // Another change does not make the first one younger.
        health.queued();
        assert!(health.is_healthy());
        wait(1).await;
        check(false, false, r#"{"lastUpdated": "2027-01-15T08:00:01Z","currentTime": "2027-01-15T08:01:10Z"}"#);
        health.updated();
        assert!(health.is_healthy());
        // A node about to be removed is alive and not eligible.
        health.set_eligible(false);
        check(
            true,
            false,
            r#"{"lastUpdated": "2027-01-15T08:01:10Z","currentTime": "2027-01-15T08:01:10Z", "nodeEligible": false}"#,
        );
        assert!(health.answer(false).0);
    }
}
