//! What probes answered and how long they took: `/metrics/probes`. The counts of a pod go with the pod: its worker and its probes
//! own them, and the page only looks at them.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};
use std::time::Duration;

use component_base::metrics::{DEFAULT_SECONDS, Histogram, Metric, Page};
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;

use super::{Answer, Kind};
use crate::pod::spec;

#[derive(Default)]
pub struct Probes {
    by_uid: Mutex<HashMap<String, Weak<PodProbes>>>,
}

/// Counts of one pod.
pub struct PodProbes {
    namespace: String,
    name: String,
    uid: String,
    /// By container and word of the kind.
    counts: Mutex<BTreeMap<(String, &'static str), Counts>>,
}

struct Counts {
    successful: u64,
    failed: u64,
    seconds: Histogram,
}

impl Probes {
    /// The counts of a pod, for as long as somebody has them.
    pub(crate) fn of_pod(&self, pod: &Pod) -> Arc<PodProbes> {
        let mut all = self.by_uid.lock();
        all.retain(|_, counts| counts.strong_count() > 0);
        let uid = spec::uid(pod).to_owned();
        if let Some(counts) = all.get(&uid).and_then(Weak::upgrade) {
            return counts;
        }
        let (namespace, name) = (spec::namespace(pod).to_owned(), spec::name(pod).to_owned());
        let counts = Arc::new(PodProbes { namespace, name, uid: uid.clone(), counts: Mutex::default() });
        all.insert(uid, Arc::downgrade(&counts));
        counts
    }

    pub fn text(&self) -> String {
        let mut pods: Vec<Arc<PodProbes>> = self.by_uid.lock().values().filter_map(Weak::upgrade).collect();
        pods.sort_by(|one, other| {
            (&one.namespace, &one.name, &one.uid).cmp(&(&other.namespace, &other.name, &other.uid))
        });
        let mut page = Page::default();
        for pod in &pods {
            for ((container, kind), counts) in pod.counts.lock().iter() {
                let labels = [("container", &**container), ("namespace", &pod.namespace), ("pod", &pod.name)];
                let labels = [&labels[..], &[("probe_type", *kind)]].concat();
                if counts.seconds.count() > 0 {
                    page.family(&SECONDS).histogram(&labels, &counts.seconds);
                }
            }
        }
        for pod in &pods {
            for ((container, kind), counts) in pod.counts.lock().iter() {
                let results = [("failed", counts.failed), ("successful", counts.successful)];
                for (result, count) in results.into_iter().filter(|(_, count)| *count > 0) {
                    let labels = [
                        ("container", &**container),
                        ("namespace", &pod.namespace),
                        ("pod", &pod.name),
                        ("pod_uid", &pod.uid),
                        ("probe_type", kind),
                        ("result", result),
                    ];
                    page.family(&PROBES).sample(&labels, count);
                }
            }
        }
        page.text()
    }
}

impl PodProbes {
    pub(super) fn answered(&self, container: &str, kind: Kind, answer: &Answer, took: Duration) {
        let mut all = self.counts.lock();
        let counts = all.entry((container.to_owned(), kind.word())).or_insert_with(|| Counts {
            successful: 0,
            failed: 0,
            seconds: Histogram::new(DEFAULT_SECONDS),
        });
        // How long a failure took is not counted, as upstream.
        match answer {
            Answer::Success | Answer::Warning(_) => {
                counts.successful += 1;
                counts.seconds.observe_time(took);
            }
            Answer::Failure(_) => counts.failed += 1,
            // What could not be asked says nothing of the container, and is thrown away, as upstream.
            Answer::Error(_) => {}
        }
    }

    /// Of a pod that ends only readiness is still asked.
    pub(crate) fn keep_readiness(&self) {
        self.counts.lock().retain(|(_, kind), _| *kind == Kind::Readiness.word());
    }
}

const PROBES: Metric = Metric::counter(
    "prober_probe_total",
    "[BETA] Tries of liveness, readiness and startup probes of a container, by result.",
);
const SECONDS: Metric =
    Metric::histogram("prober_probe_duration_seconds", "[ALPHA] How long a probe takes to be answered, in seconds.");

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str) -> Pod {
        let metadata = serde_json::json!({"name": name, "namespace": "n", "uid": format!("u-{name}")});
        serde_json::from_value(serde_json::json!({"metadata": metadata})).expect("a pod")
    }

    #[test]
    fn tries_count_by_result_and_go_with_the_pod() {
        let probes = Probes::default();
        let (web, other) = (probes.of_pod(&pod("web")), probes.of_pod(&pod("other")));
        let took = Duration::from_millis(250);
        web.answered("c", Kind::Liveness, &Answer::Success, took);
        web.answered("c", Kind::Liveness, &Answer::Warning("old".into()), took);
        web.answered("c", Kind::Liveness, &Answer::Failure("no".into()), took);
        web.answered("c", Kind::Readiness, &Answer::Error("no port".into()), took);
        other.answered("d", Kind::Startup, &Answer::Failure("no".into()), took);
        // A worker that begins anew while a probe still runs goes on counting.
        assert!(Arc::ptr_eq(&web, &probes.of_pod(&pod("web"))));
        let text = probes.text();
        let lines: Vec<&str> = text.lines().filter(|line| !line.contains("_bucket{")).collect();
        assert_eq!(lines, include_str!("testdata/probes.txt").lines().collect::<Vec<_>>(), "{text}");
        let bucket = "prober_probe_duration_seconds_bucket{container=\"c\",namespace=\"n\",pod=\"web\",probe_type=\"Liveness\",le=\"0.25\"} 2";
        assert!(text.lines().any(|line| line == bucket), "{text}");

        web.keep_readiness();
        assert!(!probes.text().contains("Liveness"), "{}", probes.text());
        drop((web, other));
        assert_eq!(probes.text(), "");
    }
}
