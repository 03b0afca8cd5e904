//! How long claims take to be prepared and taken back, and how many are in use, under upstream's names.

use std::collections::BTreeMap;
use std::time::Duration;

use component_base::metrics::{Histogram, Metric, Page};
use parking_lot::Mutex;

use super::Claims;

const OPERATIONS: Metric = Metric::histogram(
    "dra_operations_duration_seconds",
    "[ALPHA] Latency histogram in seconds for the duration of handling all ResourceClaims referenced by a pod when the pod starts or stops. Identified by the name of the operation (PrepareResources or UnprepareResources) and separated by the success of the operation. The number of failed operations is provided through the histogram's overall count.",
);
const CALLS: Metric =
    Metric::histogram("dra_grpc_operations_duration_seconds", "[ALPHA] Duration in seconds of the DRA gRPC operations");
const IN_USE: Metric = Metric::gauge(
    "dra_resource_claims_in_use",
    "[ALPHA] The number of ResourceClaims that are currently in use on the node, by driver name (driver_name label value) and across all drivers (special value <any> for driver_name). Note that the sum of all by-driver counts is not the total number of in-use ResourceClaims because the same ResourceClaim might use devices from different drivers. Instead, use the count for the <any> driver_name.",
);
/// Fifteen from a tenth of a second to 40 seconds, each so many times the one before.
static BOUNDS: [f64; 15] = [
    0.1,
    0.1534127404634391,
    0.23535468936502524,
    0.36106407876409946,
    0.5539182980610752,
    0.8497812409839363,
    1.303672689737678,
    1.9999999999999993,
    3.068254809268781,
    4.707093787300503,
    7.221281575281985,
    11.0783659612215,
    16.995624819678717,
    26.07345379475355,
    39.99999999999997,
];
/// Drivers, methods and codes are few.
const SERIES_MAX: usize = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Operation {
    PrepareResources,
    UnprepareResources,
}

#[derive(Default)]
pub(super) struct Metrics {
    operations: Mutex<BTreeMap<(Operation, bool), Histogram>>,
    /// By driver, method and code.
    calls: Mutex<BTreeMap<(String, String, String), Histogram>>,
}

impl Metrics {
    pub fn operation(&self, operation: Operation, is_error: bool, took: Duration) {
        let mut all = self.operations.lock();
        all.entry((operation, is_error)).or_insert_with(|| Histogram::new(&BOUNDS)).observe_time(took);
    }

    pub fn call(&self, driver: &str, method: String, code: String, took: Duration) {
        let mut all = self.calls.lock();
        let key = (driver.to_owned(), method, code);
        if all.len() < SERIES_MAX || all.contains_key(&key) {
            all.entry(key).or_insert_with(|| Histogram::new(&BOUNDS)).observe_time(took);
        }
    }

    fn write(&self, page: &mut Page) {
        let mut family = page.family(&CALLS);
        for ((driver, method, code), times) in self.calls.lock().iter() {
            let labels = [
                ("driver_name", driver.as_str()),
                ("grpc_status_code", code.as_str()),
                ("method_name", method.as_str()),
            ];
            family.histogram(&labels, times);
        }
        let mut family = page.family(&OPERATIONS);
        for ((operation, is_error), times) in self.operations.lock().iter() {
            let (is_error, operation) = (is_error.to_string(), format!("{operation:?}"));
            family.histogram(&[("is_error", &is_error), ("operation_name", &operation)], times);
        }
    }
}

impl Claims {
    pub(crate) fn write_metrics(&self, page: &mut Page) {
        self.metrics.write(page);
        let mut in_use: BTreeMap<String, usize> = BTreeMap::from([("<any>".to_owned(), 0)]);
        for claim in self.known.lock().values().filter(|claim| claim.prepared) {
            let drivers = claim.drivers.keys().map(String::as_str);
            for driver in drivers.chain(["<any>"]) {
                *in_use.entry(driver.to_owned()).or_default() += 1;
            }
        }
        let mut family = page.family(&IN_USE);
        for (driver, count) in in_use {
            family.sample(&[("driver_name", &driver)], count);
        }
    }
}
