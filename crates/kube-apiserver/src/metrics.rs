//! `/metrics`, with upstream's names. Counting costs one short lock per request.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::app::App;
use crate::target::Target;

/// Upstream's buckets of request durations, in seconds.
const BUCKETS: &[f64] = &[
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0,
    45.0, 60.0,
];

#[derive(Default)]
pub struct Metrics {
    /// In the order of their labels, so that a request finds its own without making a key.
    requests: Mutex<Vec<Requests>>,
    watches: Mutex<BTreeMap<&'static str, Arc<AtomicI64>>>,
    inflight: [Arc<AtomicI64>; 2],
}

/// The requests of one sort.
struct Requests {
    labels: Labels<String>,
    durations: Histogram,
    /// How many ended with which code, and whether as a dry run.
    ended: Vec<((u16, bool), u64)>,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Labels<T> {
    verb: &'static str,
    group: T,
    version: T,
    resource: T,
    subresource: T,
    scope: &'static str,
}

#[derive(Default)]
struct Histogram {
    buckets: [u64; BUCKETS.len()],
    count: u64,
    sum: f64,
}

impl Histogram {
    fn add(&mut self, seconds: f64) {
        self.count += 1;
        self.sum += seconds;
        if let Some(bucket) = BUCKETS.iter().position(|bound| seconds <= *bound) {
            self.buckets[bucket] += 1;
        }
    }
}

/// Counted while it lives.
pub struct Gauge(Arc<AtomicI64>);

impl Gauge {
    fn new(value: &Arc<AtomicI64>) -> Gauge {
        value.fetch_add(1, Ordering::Relaxed);
        Gauge(value.clone())
    }
}

impl Drop for Gauge {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Metrics {
    pub fn watching(&self, resource: &'static str) -> Gauge {
        Gauge::new(self.watches.lock().entry(resource).or_default())
    }

    pub fn running(&self, mutating: bool) -> Gauge {
        Gauge::new(&self.inflight[usize::from(mutating)])
    }

    /// How many requests of that sort run now.
    pub fn inflight(&self, mutating: bool) -> i64 {
        self.inflight[usize::from(mutating)].load(Ordering::Relaxed)
    }

    pub fn observe(&self, target: &Target, dry_run: bool, code: u16, took: Duration) {
        let labels = Labels::of(target);
        let mut all = self.requests.lock();
        let index = match all.binary_search_by(|requests| requests.labels.borrowed().cmp(&labels)) {
            Ok(index) => index,
            Err(index) => {
                let labels = labels.owned();
                all.insert(index, Requests { labels, durations: Histogram::default(), ended: Vec::new() });
                index
            }
        };
        let requests = &mut all[index];
        if target.verb != "watch" {
            requests.durations.add(took.as_secs_f64());
        }
        match requests.ended.iter_mut().find(|(how, _)| *how == (code, dry_run)) {
            Some((_, count)) => *count += 1,
            None => requests.ended.push(((code, dry_run), 1)),
        }
    }

    /// Everything as Prometheus reads it.
    pub fn render(&self, app: &App) -> String {
        let mut out = String::new();
        head(
            &mut out,
            "apiserver_request_total",
            "counter",
            "Counter of apiserver requests broken out for each verb, dry run value, group, version, resource, scope, component, and HTTP response code.",
        );
        let all = self.requests.lock();
        for requests in all.iter() {
            let labels = requests.labels.render();
            for ((code, dry_run), count) in &requests.ended {
                let dry_run = if *dry_run { "All" } else { "" };
                let labels = format!("code=\"{code}\",dry_run=\"{dry_run}\",{labels}");
                line(&mut out, "apiserver_request_total", &labels, count);
            }
        }
        head(
            &mut out,
            "apiserver_request_duration_seconds",
            "histogram",
            "Response latency distribution in seconds for each verb, dry run value, group, version, resource, subresource, scope and component.",
        );
        for Requests { labels, durations: histogram, .. } in all.iter().filter(|requests| requests.durations.count > 0)
        {
            let labels = labels.render();
            let mut sum = 0;
            for (bound, count) in BUCKETS.iter().zip(histogram.buckets) {
                sum += count;
                line(&mut out, "apiserver_request_duration_seconds_bucket", &format!("{labels},le=\"{bound}\""), sum);
            }
            line(
                &mut out,
                "apiserver_request_duration_seconds_bucket",
                &format!("{labels},le=\"+Inf\""),
                histogram.count,
            );
            line(&mut out, "apiserver_request_duration_seconds_sum", &labels, histogram.sum);
            line(&mut out, "apiserver_request_duration_seconds_count", &labels, histogram.count);
        }
        drop(all);
        head(
            &mut out,
            "apiserver_current_inflight_requests",
            "gauge",
            "Maximal number of currently used inflight request limit of this apiserver per request kind in last second.",
        );
        for (kind, value) in ["readOnly", "mutating"].iter().zip(&self.inflight) {
            line(
                &mut out,
                "apiserver_current_inflight_requests",
                &format!("request_kind=\"{kind}\""),
                value.load(Ordering::Relaxed),
            );
        }
        head(
            &mut out,
            "apiserver_longrunning_requests",
            "gauge",
            "Gauge of all active long-running apiserver requests broken out by verb, group, version, resource, scope and component. Not all requests are tracked this way.",
        );
        for (resource, value) in self.watches.lock().iter() {
            let labels = format!("component=\"apiserver\",resource=\"{resource}\",verb=\"WATCH\"");
            line(&mut out, "apiserver_longrunning_requests", &labels, value.load(Ordering::Relaxed));
        }
        head(
            &mut out,
            "apiserver_resource_objects",
            "gauge",
            "Number of stored objects at the time of last check split by kind.",
        );
        head(
            &mut out,
            "apiserver_storage_objects",
            "gauge",
            "Number of stored objects at the time of last check split by kind.",
        );
        for resource in app.table.load().resources() {
            if let Some(state) = resource.state.as_ref().filter(|_| resource.kind.convert.is_none()) {
                let name =
                    machinery::status::GroupResource { group: resource.kind.group, resource: resource.kind.plural };
                line(
                    &mut out,
                    "apiserver_storage_objects",
                    &format!("resource=\"{name}\""),
                    state.snapshot().items.len(),
                );
            }
        }
        process(&mut out);
        out
    }
}

impl<'a> Labels<&'a str> {
    fn of(target: &'a Target) -> Labels<&'a str> {
        Labels {
            verb: upper(target.verb),
            group: &target.group,
            version: &target.version,
            resource: &target.resource,
            subresource: &target.subresource,
            scope: match (target.name.is_empty(), target.namespace.is_empty()) {
                (false, _) => "resource",
                (true, false) => "namespace",
                (true, true) => "cluster",
            },
        }
    }

    fn owned(&self) -> Labels<String> {
        let &Labels { verb, group, version, resource, subresource, scope } = self;
        let [group, version, resource, subresource] = [group, version, resource, subresource].map(str::to_string);
        Labels { verb, group, version, resource, subresource, scope }
    }
}

impl Labels<String> {
    fn borrowed(&self) -> Labels<&str> {
        let Labels { verb, group, version, resource, subresource, scope } = self;
        Labels { verb, group, version, resource, subresource, scope }
    }

    fn render(&self) -> String {
        let Labels { verb, group, version, resource, subresource, scope } = self;
        format!(
            "component=\"apiserver\",group=\"{group}\",resource=\"{resource}\",scope=\"{scope}\",subresource=\"{subresource}\",verb=\"{verb}\",version=\"{version}\""
        )
    }
}

fn upper(verb: &'static str) -> &'static str {
    match verb {
        "get" => "GET",
        "list" => "LIST",
        "watch" => "WATCH",
        "create" | "post" => "POST",
        "update" | "put" => "PUT",
        "patch" => "PATCH",
        "delete" => "DELETE",
        "deletecollection" => "DELETECOLLECTION",
        other => other,
    }
}

fn head(out: &mut String, name: &str, kind: &str, help: &str) {
    // Writing to a String cannot fail.
    let _ = write!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
}

fn line(out: &mut String, name: &str, labels: &str, value: impl std::fmt::Display) {
    let _ = writeln!(out, "{name}{{{labels}}} {value}");
}

/// What the operating system says of this process.
fn process(out: &mut String) {
    let Ok(stat) = std::fs::read_to_string("/proc/self/stat") else { return };
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    let number = |index: usize| fields.get(index).and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0);
    const TICKS_PER_SECOND: f64 = 100.0;
    const PAGE_BYTES: f64 = 4096.0;
    for (name, kind, help, value) in [
        (
            "process_cpu_seconds_total",
            "counter",
            "Total user and system CPU time spent in seconds.",
            (number(11) + number(12)) / TICKS_PER_SECOND,
        ),
        ("process_resident_memory_bytes", "gauge", "Resident memory size in bytes.", number(21) * PAGE_BYTES),
        ("process_virtual_memory_bytes", "gauge", "Virtual memory size in bytes.", number(20)),
    ] {
        head(out, name, kind, help);
        let _ = writeln!(out, "{name} {value}");
    }
}
