//! The text that Prometheus reads. Names, labels and help are upstream's.

use std::fmt::{Display, Write};
use std::sync::atomic::Ordering;

use machinery::status::GroupResource;

use super::{BUCKETS, Histogram, Metrics};
use crate::app::App;

const TICKS_PER_SECOND: f64 = 100.0;
const PAGE_BYTES: f64 = 4096.0;

impl Metrics {
    /// Everything as Prometheus reads it.
    pub fn render(&self, app: &App) -> String {
        let mut out = String::new();
        self.requests(&mut out);
        self.running_requests(&mut out);
        app.flow.render(&mut out);
        self.webhooks.render(&mut out);
        self.identity.render(&mut out);
        app.authenticator.dynamic().render(&mut out, &app.settings.identity_hash);
        app.authorizer.metrics().render(&mut out);
        app.authorizer.reloads.render(&mut out, "authorization", &app.settings.identity_hash);
        objects(&mut out, app);
        build(&mut out);
        process(&mut out);
        out
    }

    fn requests(&self, out: &mut String) {
        let all = self.requests.lock();
        let help = "Counter of apiserver requests broken out for each verb, dry run value, group, version, resource, \
                    scope, component, and HTTP response code.";
        head(out, "apiserver_request_total", "counter", help);
        for requests in all.iter() {
            let labels = requests.labels.render();
            for ((code, dry_run), count) in &requests.ended {
                let dry_run = if *dry_run { "All" } else { "" };
                let labels = format!("code=\"{code}\",dry_run=\"{dry_run}\",{labels}");
                line(out, "apiserver_request_total", &labels, count);
            }
        }
        let latency = "Response latency distribution in seconds for each verb, dry run value, group, version, \
                       resource, subresource, scope and component.";
        let level = "Response latency distribution (not counting webhook duration and priority & fairness queue wait \
                     times) in seconds for each verb, group, version, resource, subresource, scope and component.";
        for (name, help) in
            [("apiserver_request_duration_seconds", latency), ("apiserver_request_sli_duration_seconds", level)]
        {
            head(out, name, "histogram", help);
            for requests in all.iter().filter(|requests| requests.durations.count > 0) {
                histogram(out, name, &requests.labels.render(), &requests.durations);
            }
        }
    }

    fn running_requests(&self, out: &mut String) {
        let help = "Maximal number of currently used inflight request limit of this apiserver per request kind in \
                    last second.";
        head(out, "apiserver_current_inflight_requests", "gauge", help);
        for (kind, value) in ["readOnly", "mutating"].iter().zip(&self.inflight) {
            let labels = format!("request_kind=\"{kind}\"");
            line(out, "apiserver_current_inflight_requests", &labels, value.load(Ordering::Relaxed));
        }
        let help = "Gauge of all active long-running apiserver requests broken out by verb, group, version, resource, \
                    scope and component. Not all requests are tracked this way.";
        head(out, "apiserver_longrunning_requests", "gauge", help);
        for (resource, value) in self.watches.lock().iter() {
            let labels = format!("component=\"apiserver\",resource=\"{resource}\",verb=\"WATCH\"");
            line(out, "apiserver_longrunning_requests", &labels, value.load(Ordering::Relaxed));
        }
    }
}

fn histogram(out: &mut String, name: &str, labels: &str, histogram: &Histogram) {
    let bucket = format!("{name}_bucket");
    let mut sum = 0;
    for (bound, count) in BUCKETS.iter().zip(histogram.buckets) {
        sum += count;
        line(out, &bucket, &format!("{labels},le=\"{bound}\""), sum);
    }
    line(out, &bucket, &format!("{labels},le=\"+Inf\""), histogram.count);
    line(out, &format!("{name}_sum"), labels, histogram.sum);
    line(out, &format!("{name}_count"), labels, histogram.count);
}

fn objects(out: &mut String, app: &App) {
    let table = app.table.load();
    let stored = table.resources().iter().filter(|resource| resource.kind.convert.is_none());
    let stored: Vec<_> = stored.filter_map(|resource| Some((resource, resource.state.as_ref()?))).collect();
    head(
        out,
        "apiserver_resource_objects",
        "gauge",
        "Number of stored objects at the time of last check split by kind.",
    );
    for (resource, state) in &stored {
        let labels = format!("group=\"{}\",resource=\"{}\"", resource.kind.group, resource.kind.plural);
        line(out, "apiserver_resource_objects", &labels, state.snapshot().items.len());
    }
    let help = "[STABLE] Number of stored objects at the time of last check split by kind.";
    head(out, "apiserver_storage_objects", "gauge", help);
    for (resource, state) in &stored {
        let name = GroupResource { group: resource.kind.group, resource: resource.kind.plural };
        line(out, "apiserver_storage_objects", &format!("resource=\"{name}\""), state.snapshot().items.len());
    }
    let help = "Current resource version of watch cache broken by resource type.";
    head(out, "apiserver_watch_cache_resource_version", "gauge", help);
    for (resource, state) in &stored {
        let labels = format!("group=\"{}\",resource=\"{}\"", resource.kind.group, resource.kind.plural);
        line(out, "apiserver_watch_cache_resource_version", &labels, state.last_changed());
    }
}

fn build(out: &mut String) {
    let help = "A metric with a constant '1' value labeled by major, minor, git version, git commit, git tree state, \
                build date, Go version, and compiler from which Kubernetes was built, and platform on which it is running.";
    head(out, "kubernetes_build_info", "gauge", help);
    let labels = format!("git_version=\"{}\",major=\"1\",minor=\"36\"", crate::discovery::VERSION);
    line(out, "kubernetes_build_info", &labels, 1);
}

/// `/metrics/slis`: how health checks went, and since when.
pub fn slis(app: &App) -> String {
    let mut out = app.health.slis.text();
    started(&mut out);
    out
}

fn started(out: &mut String) {
    let Ok(stat) = std::fs::read_to_string("/proc/self/stat") else { return };
    let ticks = stat.rsplit(')').next().unwrap_or("").split_whitespace().nth(19);
    let ticks = ticks.and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0);
    let name = "process_start_time_seconds";
    head(out, name, "gauge", "Start time of the process since unix epoch in seconds.");
    // Writing to a String cannot fail.
    let _ = writeln!(out, "{name} {}", booted().unwrap_or(0.0) + ticks / TICKS_PER_SECOND);
}

/// What the operating system says of this process.
fn process(out: &mut String) {
    let Ok(stat) = std::fs::read_to_string("/proc/self/stat") else { return };
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    let number = |index: usize| fields.get(index).and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0);
    let files = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    for (name, kind, help, value) in [
        ("process_cpu_seconds_total", "counter", "Total user and system CPU time spent in seconds.", {
            (number(11) + number(12)) / TICKS_PER_SECOND
        }),
        ("process_open_fds", "gauge", "Number of open file descriptors.", files as f64),
        ("process_resident_memory_bytes", "gauge", "Resident memory size in bytes.", number(21) * PAGE_BYTES),
        ("process_virtual_memory_bytes", "gauge", "Virtual memory size in bytes.", number(20)),
    ] {
        head(out, name, kind, help);
        // Writing to a String cannot fail.
        let _ = writeln!(out, "{name} {value}");
    }
    started(out);
}

/// When the machine started, in seconds since the epoch.
fn booted() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    stat.lines().find_map(|line| line.strip_prefix("btime ")?.parse().ok())
}

pub(crate) fn head(out: &mut String, name: &str, kind: &str, help: &str) {
    let _ = write!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
}

pub(crate) fn line(out: &mut String, name: &str, labels: &str, value: impl Display) {
    let _ = writeln!(out, "{name}{{{labels}}} {value}");
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::authn::User;
    use crate::authz::Decision;
    use crate::target::Target;

    /// Every family, with its help and type. The text is compared as a whole, since dashboards and alerts read it.
    #[test]
    fn the_whole_text_is_known() {
        let metrics = Metrics::default();
        let target = Target {
            verb: "list",
            group: "apps".into(),
            version: "v1".into(),
            resource: "deployments".into(),
            is_resource: true,
            ..Target::default()
        };
        metrics.observe(&target, false, 200, Duration::from_millis(250));
        metrics.observe(&target, true, 504, Duration::from_secs(64));
        metrics.observe(&Target { verb: "watch", name: "a".into(), ..target }, false, 200, Duration::from_secs(1));
        let _running = [metrics.running(true), metrics.running(true), metrics.running(false), metrics.watching("pods")];
        let user = User { name: "system:kube-scheduler".into(), ..User::default() };
        metrics.identity.authenticated(Some(&user), Duration::from_millis(500));
        metrics.identity.authenticated(None, Duration::from_secs(32));
        metrics.identity.authorized(&Decision::Allow(String::new()), Duration::from_millis(250));
        let mut text = String::new();
        metrics.requests(&mut text);
        metrics.running_requests(&mut text);
        metrics.identity.render(&mut text);
        assert_eq!(text, include_str!("testdata/requests.txt"));
    }
}
