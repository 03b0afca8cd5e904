//! How claimed devices are: each driver streams it, and the status of the pods that have the devices shows it, as upstream's gate
//! `ResourceHealthStatus`. Nothing of it is kept on disk: a kubelet that starts knows nothing until drivers are back, which is soon.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use component_base::tasks;
use devices::Driver;
use devices::dra::health::{DeviceHealth, HealthStatus};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tokio_util::task::AbortOnDropHandle;

use super::state::{Claim, Key};
use crate::pods::Pods;

/// What a driver said counts for so long, unless it said for how long.
const TIMEOUT: Duration = Duration::from_secs(30);
const TIMEOUT_SECONDS_MAX: i64 = 10 * 365 * 24 * 60 * 60;
const RETRY: Duration = Duration::from_secs(5);
/// A longer message is cut, as upstream.
const MESSAGE_BYTES_MAX: usize = 1024;
/// No driver has more devices on a node.
const DEVICES_MAX: usize = 16 * 1024;
/// So many reports within this time are a flood; the driver waits then.
const REPORTS_MAX: u32 = 64;
const PACE: Duration = Duration::from_secs(1);

/// A device of a driver: its pool and its name.
type Id = (String, String);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Health {
    Healthy,
    Unhealthy,
    Unknown,
}

impl Health {
    pub fn as_str(self) -> &'static str {
        match self {
            Health::Healthy => "Healthy",
            Health::Unhealthy => "Unhealthy",
            Health::Unknown => "Unknown",
        }
    }
}

#[derive(Clone, Debug)]
struct Reported {
    health: Health,
    message: String,
    /// It counts until then.
    until: Instant,
    stream: u64,
}

/// What drivers say of their devices. Pure.
#[derive(Default)]
struct Reports {
    by_driver: BTreeMap<String, BTreeMap<Id, Reported>>,
    /// Streams of plugins that are registered. What others said meanwhile is not taken.
    live: BTreeSet<u64>,
    streams: u64,
}

impl Reports {
    fn open(&mut self) -> u64 {
        self.streams += 1;
        self.live.insert(self.streams);
        self.streams
    }

    /// Which devices are shown in another way now.
    fn take(&mut self, driver: &str, stream: u64, reports: Vec<DeviceHealth>, now: Instant) -> BTreeSet<Id> {
        if !self.live.contains(&stream) {
            return BTreeSet::new();
        }
        let known = self.by_driver.entry(driver.to_owned()).or_default();
        let mut changed = BTreeSet::new();
        for report in reports {
            let (health, timeout) = (report.health(), report.health_check_timeout_seconds);
            let device = report.device.unwrap_or_default();
            let id = (device.pool_name, device.device_name);
            let next = Reported {
                health: match health {
                    HealthStatus::Healthy => Health::Healthy,
                    HealthStatus::Unhealthy => Health::Unhealthy,
                    HealthStatus::Unknown => Health::Unknown,
                },
                message: cut(report.message),
                until: now + counts_for(timeout),
                stream,
            };
            if known.len() >= DEVICES_MAX && !known.contains_key(&id) {
                tracing::warn!(driver, "driver reports the health of more than {DEVICES_MAX} devices");
                break;
            }
            let before = known.insert(id.clone(), next.clone());
            if before.is_none_or(|before| (before.health, &before.message) != (next.health, &next.message)) {
                changed.insert(id);
            }
        }
        changed
    }

    /// Forgets what counts no more. Which devices it was about.
    fn expire(&mut self, driver: &str, now: Instant) -> BTreeSet<Id> {
        self.forget(driver, |reported| reported.until <= now)
    }

    fn close(&mut self, driver: &str, stream: u64) -> BTreeSet<Id> {
        self.live.remove(&stream);
        self.ended(driver, stream)
    }

    /// The stream broke; its plugin may open it again.
    fn ended(&mut self, driver: &str, stream: u64) -> BTreeSet<Id> {
        self.forget(driver, |reported| reported.stream == stream)
    }

    fn forget(&mut self, driver: &str, is_over: impl Fn(&Reported) -> bool) -> BTreeSet<Id> {
        let Some(known) = self.by_driver.get_mut(driver) else { return BTreeSet::new() };
        let over: BTreeSet<Id> =
            known.iter().filter(|(_, reported)| is_over(reported)).map(|(id, _)| id.clone()).collect();
        known.retain(|id, _| !over.contains(id));
        if known.is_empty() {
            self.by_driver.remove(driver);
        }
        over
    }

    fn next_end(&self, driver: &str) -> Option<Instant> {
        self.by_driver.get(driver)?.values().map(|reported| reported.until).min()
    }
}

fn counts_for(seconds: i64) -> Duration {
    match u64::try_from(seconds.min(TIMEOUT_SECONDS_MAX)) {
        Ok(0) | Err(_) => TIMEOUT,
        Ok(seconds) => Duration::from_secs(seconds),
    }
}

fn cut(mut message: String) -> String {
    if message.len() > MESSAGE_BYTES_MAX {
        message.truncate(message.floor_char_boundary(MESSAGE_BYTES_MAX - 3));
        message.push_str("...");
    }
    message
}

pub(super) struct Healths {
    reports: Mutex<Reports>,
    claims: Arc<Mutex<BTreeMap<Key, Claim>>>,
    pods: Arc<Pods>,
}

/// While it is held, a plugin's reports are followed; then they are forgotten.
pub(super) struct Following {
    healths: Arc<Healths>,
    driver: String,
    stream: u64,
    _task: AbortOnDropHandle<()>,
}

impl Drop for Following {
    fn drop(&mut self) {
        let changed = self.healths.reports.lock().close(&self.driver, self.stream);
        self.healths.tell(&self.driver, &changed);
    }
}

impl Healths {
    pub fn new(claims: Arc<Mutex<BTreeMap<Key, Claim>>>, pods: Arc<Pods>) -> Healths {
        Healths { reports: Mutex::default(), claims, pods }
    }

    pub fn get(&self, driver: &str, pool: &str, device: &str) -> (Health, Option<String>) {
        let reports = self.reports.lock();
        let known = reports.by_driver.get(driver).and_then(|known| known.get(&(pool.to_owned(), device.to_owned())));
        match known {
            Some(known) => (known.health, Some(known.message.clone()).filter(|message| !message.is_empty())),
            None => (Health::Unknown, None),
        }
    }

    pub fn follow(self: &Arc<Healths>, name: &str, driver: Driver) -> Following {
        let stream = self.reports.lock().open();
        let (healths, driver_name) = (self.clone(), name.to_owned());
        let task = tasks::spawn(async move { healths.keep_hearing(&driver_name, &driver, stream).await });
        Following { healths: self.clone(), driver: name.to_owned(), stream, _task: AbortOnDropHandle::new(task) }
    }

    /// Until the plugin goes, or says that it has nothing to say.
    async fn keep_hearing(&self, name: &str, driver: &Driver, stream: u64) {
        loop {
            let ended = self.hear(name, driver, stream).await;
            let changed = self.reports.lock().ended(name, stream);
            self.tell(name, &changed);
            match ended {
                Err(error) if error.code == tonic::Code::Unimplemented => return,
                Err(error) => tracing::debug!(driver = name, %error, "health stream of DRA driver ended"),
                Ok(()) => tracing::debug!(driver = name, "health stream of DRA driver ended"),
            }
            sleep(RETRY).await;
        }
    }

    async fn hear(&self, name: &str, driver: &Driver, stream: u64) -> devices::Result<()> {
        let mut reports = driver.watch_health().await?;
        let (mut count, mut since) = (0, Instant::now());
        loop {
            let end = self.reports.lock().next_end(name);
            let heard = match end {
                Some(end) => timeout_at(end, reports.next()).await,
                None => Ok(reports.next().await),
            };
            let now = Instant::now();
            let changed = match heard {
                Ok(Ok(Some(devices))) => self.reports.lock().take(name, stream, devices, now),
                Ok(Ok(None)) => return Ok(()),
                Ok(Err(error)) => return Err(error),
                Err(_) => self.reports.lock().expire(name, now),
            };
            self.tell(name, &changed);
            if now > since + PACE {
                (count, since) = (0, now);
            }
            count += 1;
            if count >= REPORTS_MAX {
                sleep_until(since + PACE).await;
            }
        }
    }

    /// The status of pods that have these devices is another one now.
    fn tell(&self, driver: &str, changed: &BTreeSet<Id>) {
        if changed.is_empty() {
            return;
        }
        let claims = self.claims.lock();
        let uses = |claim: &&Claim| {
            let mut devices = claim.drivers.get(driver).into_iter().flat_map(|of_driver| of_driver.devices());
            devices.any(|device| changed.contains(&(device.pool.clone(), device.name.clone())))
        };
        self.pods.devices_changed(claims.values().filter(uses).flat_map(Claim::pods).cloned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use devices::dra::health::DeviceIdentifier;

    fn report(device: &str, health: HealthStatus, seconds: i64, message: &str) -> DeviceHealth {
        let device = DeviceIdentifier { pool_name: "p".to_owned(), device_name: device.to_owned() };
        DeviceHealth {
            device: Some(device),
            health: health.into(),
            last_updated_time: 0,
            health_check_timeout_seconds: seconds,
            message: message.to_owned(),
        }
    }

    fn names(ids: BTreeSet<Id>) -> Vec<String> {
        ids.into_iter().map(|(_, device)| device).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn reports_count_for_their_time() {
        let mut reports = Reports::default();
        let (stream, now) = (reports.open(), Instant::now());
        let both = || vec![report("a", HealthStatus::Healthy, 0, ""), report("b", HealthStatus::Unhealthy, 60, "hot")];
        assert_eq!(names(reports.take("d", stream, both(), now)), ["a", "b"]);
        assert!(reports.take("d", stream, both(), now).is_empty(), "nothing new");
        let hotter = vec![report("b", HealthStatus::Unhealthy, -1, "hotter")];
        assert_eq!(names(reports.take("d", stream, hotter, now)), ["b"], "another message is a change");
        let later = now + Duration::from_secs(10);
        assert!(reports.take("d", stream, vec![report("b", HealthStatus::Unhealthy, 60, "hotter")], later).is_empty());
        assert_eq!(reports.next_end("d"), Some(now + TIMEOUT));
        assert_eq!(names(reports.expire("d", now + TIMEOUT)), ["a"], "b was reported again");
        assert_eq!(names(reports.expire("d", later + Duration::from_secs(60))), ["b"]);
        assert_eq!(reports.next_end("d"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn only_registered_plugins_are_believed() {
        let mut reports = Reports::default();
        let (old, new, now) = (reports.open(), reports.open(), Instant::now());
        reports.take(
            "d",
            old,
            vec![report("a", HealthStatus::Healthy, 0, ""), report("b", HealthStatus::Healthy, 0, "")],
            now,
        );
        reports.take("d", new, vec![report("b", HealthStatus::Healthy, 0, "")], now);
        assert_eq!(names(reports.close("d", old)), ["a"], "the plugin that takes its place has spoken of b");
        assert!(reports.take("d", old, vec![report("a", HealthStatus::Healthy, 0, "")], now).is_empty());
        let flood = (0..=DEVICES_MAX).map(|number| report(&number.to_string(), HealthStatus::Healthy, 0, "")).collect();
        assert_eq!(reports.take("d", new, flood, now).len(), DEVICES_MAX - 1);
    }

    #[test]
    fn messages_and_times_have_an_end() {
        assert_eq!(cut("x".repeat(1024)), "x".repeat(1024));
        assert_eq!(cut("x".repeat(1025)), format!("{}...", "x".repeat(1021)));
        assert!(cut("ä".repeat(600)).len() <= MESSAGE_BYTES_MAX);
        assert_eq!((counts_for(0), counts_for(-7), counts_for(5)), (TIMEOUT, TIMEOUT, Duration::from_secs(5)));
        assert!(Instant::now().checked_add(counts_for(i64::MAX)).is_some());
    }
}
