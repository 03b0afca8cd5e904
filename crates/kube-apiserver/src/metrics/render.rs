//! The text that Prometheus reads. Names, labels and help are upstream's.

use std::sync::atomic::Ordering;

use component_base::metrics::{Histogram, Metric, Page, process};
use machinery::status::GroupResource;

use super::{Metrics, Requests};
use crate::app::App;

impl Metrics {
    /// Everything as Prometheus reads it.
    pub fn render(&self, app: &App) -> String {
        let mut page = Page::default();
        self.requests(&mut page);
        self.running_requests(&mut page);
        app.flow.render(&mut page);
        self.webhooks.render(&mut page);
        self.identity.render(&mut page);
        self.operations.render(&mut page);
        app.admission.render(&mut page);
        app.measured.render(&mut page);
        app.aggregator.render(&mut page);
        app.settings.gates.write(&mut page);
        if let Some(tracer) = &app.tracer {
            tracer.render(&mut page);
        }
        if let Some(signer) = app.authenticator.service_accounts().signer() {
            signer.render(&mut page);
        }
        app.authenticator.dynamic().render(&mut page, &app.settings.identity_hash);
        app.authorizer.metrics().render(&mut page);
        app.authorizer.reloads.render(&mut page, "authorization", &app.settings.identity_hash);
        app.encrypted.encryption().render(&mut page, &app.settings.identity_hash);
        objects(&mut page, app);
        let version = ("git_version", crate::discovery::VERSION);
        page.family(&BUILD_INFO).sample(&[version, ("major", "1"), ("minor", "36")], 1);
        process::write(&mut page);
        page.text()
    }

    fn requests(&self, page: &mut Page) {
        let all = self.requests.lock();
        let mut counted = page.family(&REQUESTS);
        for requests in all.iter() {
            for ((code, dry_run), count) in &requests.ended {
                let how = [("code", &*code.to_string()), ("dry_run", if *dry_run { "All" } else { "" })];
                counted.sample(&[&how[..], &requests.labels.written()].concat(), count);
            }
        }
        let mut durations = page.family(&REQUEST_DURATIONS);
        for requests in all.iter() {
            for (dry_run, times) in ["", "All"].iter().zip(&requests.durations) {
                if times.count() > 0 {
                    let labels = [&[("dry_run", *dry_run)][..], &requests.labels.written()].concat();
                    durations.histogram(&labels, times);
                }
            }
        }
        type Chosen = fn(&Requests) -> &Histogram;
        let chosen: [(&Metric, Chosen); 2] = [
            (&REQUEST_SLI_DURATIONS, |requests| &requests.sli_durations),
            (&RESPONSE_SIZES, |requests| &requests.sizes),
        ];
        for (metric, of) in chosen {
            let mut family = page.family(metric);
            for requests in all.iter().filter(|requests| of(requests).count() > 0) {
                family.histogram(&requests.labels.written(), of(requests));
            }
        }
    }

    fn running_requests(&self, page: &mut Page) {
        for (kind, value) in ["readOnly", "mutating"].iter().zip(&self.inflight) {
            page.family(&INFLIGHT).sample(&[("request_kind", kind)], value.load(Ordering::Relaxed));
        }
        let mut watches = page.family(&LONG_RUNNING);
        for (resource, value) in self.watches.lock().iter() {
            let labels = [("component", "apiserver"), ("resource", resource), ("verb", "WATCH")];
            watches.sample(&labels, value.load(Ordering::Relaxed));
        }
    }
}

fn objects(page: &mut Page, app: &App) {
    let table = app.table.load();
    let stored = table.resources().iter().filter(|resource| resource.kind.convert.is_none());
    let stored: Vec<_> = stored.filter_map(|resource| Some((&resource.kind, resource.state.as_ref()?))).collect();
    let mut family = page.family(&RESOURCE_OBJECTS);
    for (kind, state) in &stored {
        family.sample(&[("group", kind.group), ("resource", kind.plural)], state.snapshot().items.len());
    }
    let mut family = page.family(&STORAGE_OBJECTS);
    for (kind, state) in &stored {
        let name = GroupResource { group: kind.group, resource: kind.plural }.to_string();
        family.sample(&[("resource", &name)], state.snapshot().items.len());
    }
    let mut family = page.family(&CACHE_REVISION);
    for (kind, state) in &stored {
        family.sample(&[("group", kind.group), ("resource", kind.plural)], state.last_changed());
    }
}

/// `/metrics/slis`: how health checks went, and since when.
pub fn slis(app: &App) -> String {
    let mut page = Page::default();
    app.health.slis.write(&mut page);
    process::started(&mut page);
    page.text()
}

const REQUESTS: Metric = Metric::counter(
    "apiserver_request_total",
    "Counter of apiserver requests broken out for each verb, dry run value, group, version, resource, scope, component, \
     and HTTP response code.",
);
const REQUEST_DURATIONS: Metric = Metric::histogram(
    "apiserver_request_duration_seconds",
    "Response latency distribution in seconds for each verb, dry run value, group, version, resource, subresource, scope \
     and component.",
);
const REQUEST_SLI_DURATIONS: Metric = Metric::histogram(
    "apiserver_request_sli_duration_seconds",
    "Response latency distribution (not counting webhook duration and priority & fairness queue wait times) in seconds \
     for each verb, group, version, resource, subresource, scope and component.",
);
const RESPONSE_SIZES: Metric = Metric::histogram(
    "apiserver_response_sizes",
    "Response size distribution in bytes for each group, version, verb, resource, subresource, scope and component.",
);
const INFLIGHT: Metric = Metric::gauge(
    "apiserver_current_inflight_requests",
    "Maximal number of currently used inflight request limit of this apiserver per request kind in last second.",
);
const LONG_RUNNING: Metric = Metric::gauge(
    "apiserver_longrunning_requests",
    "Gauge of all active long-running apiserver requests broken out by verb, group, version, resource, scope and \
     component. Not all requests are tracked this way.",
);
const RESOURCE_OBJECTS: Metric =
    Metric::gauge("apiserver_resource_objects", "Number of stored objects at the time of last check split by kind.");
const STORAGE_OBJECTS: Metric = Metric::gauge(
    "apiserver_storage_objects",
    "[STABLE] Number of stored objects at the time of last check split by kind.",
);
const CACHE_REVISION: Metric = Metric::gauge(
    "apiserver_watch_cache_resource_version",
    "Current resource version of watch cache broken by resource type.",
);
const BUILD_INFO: Metric = Metric::gauge(
    "kubernetes_build_info",
    "A metric with a constant '1' value labeled by major, minor, git version, git commit, git tree state, build date, Go \
     version, and compiler from which Kubernetes was built, and platform on which it is running.",
);

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::authn::User;
    use crate::authz::Decision;
    use crate::metrics::Ended;
    use crate::target::{Target, Verb};

    /// Every family, with its help and type. The text is compared as a whole, since dashboards and alerts read it.
    #[test]
    fn the_whole_text_is_known() {
        let metrics = Metrics::default();
        let target = Target {
            verb: Verb::List,
            group: "apps".into(),
            version: "v1".into(),
            resource: "deployments".into(),
            is_resource: true,
            ..Target::default()
        };
        let ended = |dry_run, code, milliseconds, waited| Ended {
            dry_run,
            code,
            took: Duration::from_millis(milliseconds),
            waited: Duration::from_millis(waited),
        };
        metrics.observe(&target, &ended(false, 200, 250, 187));
        metrics.answered(&target, 2_000);
        metrics.observe(&target, &ended(true, 504, 64_000, 0));
        let watch = Target { verb: Verb::Watch, name: "a".into(), ..target };
        metrics.observe(&watch, &ended(false, 200, 1_000, 0));
        let _running = [metrics.running(true), metrics.running(true), metrics.running(false), metrics.watching("pods")];
        let user = User { name: "system:kube-scheduler".into(), ..User::default() };
        metrics.identity.authenticated(Some(&user), Duration::from_millis(500));
        metrics.identity.authenticated(None, Duration::from_secs(32));
        metrics.identity.authorized(&Decision::Allow(String::new()), Duration::from_millis(250));
        let mut page = Page::default();
        metrics.requests(&mut page);
        metrics.running_requests(&mut page);
        metrics.identity.render(&mut page);
        let text = page.text();
        assert_eq!(text, include_str!("testdata/requests.txt"));
    }
}
