//! How often device plugins register and how long they take, under upstream's names.

use std::collections::BTreeMap;
use std::time::Duration;

use component_base::metrics::{DEFAULT_SECONDS, Histogram, Metric, Page};
use parking_lot::Mutex;

const REGISTRATIONS: Metric = Metric::counter(
    "kubelet_device_plugin_registration_total",
    "[ALPHA] Cumulative number of device plugin registrations. Broken down by resource name.",
);
const ALLOCATIONS: Metric = Metric::histogram(
    "kubelet_device_plugin_alloc_duration_seconds",
    "[ALPHA] Duration in seconds to serve a device plugin Allocation request. Broken down by resource name.",
);

/// By resource, of which there are few.
#[derive(Default)]
pub(super) struct Metrics {
    registrations: Mutex<BTreeMap<String, u64>>,
    allocations: Mutex<BTreeMap<String, Histogram>>,
}

impl Metrics {
    pub fn registered(&self, resource: &str) {
        *self.registrations.lock().entry(resource.to_owned()).or_default() += 1;
    }

    pub fn allocated(&self, resource: &str, took: Duration) {
        let mut all = self.allocations.lock();
        all.entry(resource.to_owned()).or_insert_with(|| Histogram::new(DEFAULT_SECONDS)).observe_time(took);
    }
}

impl super::DevicePlugins {
    pub(crate) fn write_metrics(&self, page: &mut Page) {
        let mut family = page.family(&ALLOCATIONS);
        for (resource, times) in self.metrics.allocations.lock().iter() {
            family.histogram(&[("resource_name", resource)], times);
        }
        let mut family = page.family(&REGISTRATIONS);
        for (resource, count) in self.metrics.registrations.lock().iter() {
            family.sample(&[("resource_name", resource)], count);
        }
    }
}
