//! What is counted of encryption, under upstream's names. Labels come from configurations and plugins, so their number is bounded.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use component_base::metrics::{Histogram, Metric, Page, exponential};
use jiff::Timestamp;
use parking_lot::Mutex;

use super::envelope::hash;

/// How many ids of keys are shown, as upstream.
const KEY_IDS_MAX: usize = 100;
/// How many combinations of resource, provider and outcome; custom kinds could be without number.
const TRANSFORMATIONS_MAX: usize = 2_000;

static TRANSFORMATION_SECONDS: [f64; 25] = exponential(5e-6, 2.0);
static GENERATION_SECONDS: [f64; 14] = exponential(5e-6, 2.0);
static CALL_SECONDS: [f64; 20] = exponential(1e-4, 2.0);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    FromStorage,
    ToStorage,
}

impl Direction {
    fn label(self) -> &'static str {
        match self {
            Direction::FromStorage => "from_storage",
            Direction::ToStorage => "to_storage",
        }
    }
}

/// One value, in or out.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Transformation {
    resource: String,
    direction: Direction,
    prefix: String,
    status: String,
}

type KeyUse = (Direction, String, String);

#[derive(Default)]
pub struct Metrics {
    transformations: Mutex<BTreeMap<Transformation, u64>>,
    durations: Mutex<BTreeMap<(Direction, String), Histogram>>,
    cache_misses: AtomicU64,
    generations: Mutex<Option<Histogram>>,
    generation_failures: AtomicU64,
    calls: Mutex<BTreeMap<(String, &'static str, String), Histogram>>,
    /// How often and when last.
    keys_used: Mutex<BTreeMap<KeyUse, (u64, Timestamp)>>,
    keys_told: Mutex<BTreeMap<(String, String), Timestamp>>,
    invalid_key_ids: Mutex<BTreeMap<(String, &'static str), u64>>,
    sources: Mutex<BTreeMap<String, usize>>,
}

impl Metrics {
    /// `code` is gRPC's name of an error, where a plugin had a part in it.
    pub fn transformed(
        &self,
        resource: &str,
        direction: Direction,
        prefix: &str,
        took: Duration,
        outcome: Result<(), Option<String>>,
    ) {
        let status = match &outcome {
            Ok(()) => "OK".to_owned(),
            Err(code) => code.clone().unwrap_or_else(|| "unknown-non-grpc".to_owned()),
        };
        let transformation =
            Transformation { resource: resource.to_owned(), direction, prefix: prefix.to_owned(), status };
        let mut all = self.transformations.lock();
        if all.len() < TRANSFORMATIONS_MAX || all.contains_key(&transformation) {
            *all.entry(transformation).or_default() += 1;
        }
        drop(all);
        if outcome.is_ok() {
            let mut durations = self.durations.lock();
            let made = || Histogram::new(&TRANSFORMATION_SECONDS);
            durations.entry((direction, prefix.to_owned())).or_insert_with(made).observe_time(took);
        }
    }

    pub fn cache_missed(&self) {
        self.cache_misses.fetch_add(1, Ordering::Relaxed);
    }

    pub fn key_made(&self, took: Duration, is_made: bool) {
        if is_made {
            self.generations.lock().get_or_insert_with(|| Histogram::new(&GENERATION_SECONDS)).observe_time(took);
        } else {
            self.generation_failures.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub fn called(&self, provider: &str, method: &'static str, took: Duration, error: Option<&kms::Error>) {
        let code = error.map_or_else(|| "OK".to_owned(), kms::Error::code_name);
        let mut calls = self.calls.lock();
        let made = || Histogram::new(&CALL_SECONDS);
        calls.entry((provider.to_owned(), method, code)).or_insert_with(made).observe_time(took);
    }

    pub fn key_used(&self, direction: Direction, provider: &str, key_id: &str, now: Timestamp) {
        let mut used = self.keys_used.lock();
        let entry = used.entry((direction, provider.to_owned(), hash(key_id))).or_insert((0, now));
        *entry = (entry.0 + 1, now);
        forget_oldest(&mut used, |(_, at)| *at);
    }

    pub fn key_told(&self, provider: &str, key_id: &str, now: Timestamp) {
        let mut told = self.keys_told.lock();
        told.insert((provider.to_owned(), hash(key_id)), now);
        forget_oldest(&mut told, |at| *at);
    }

    pub fn invalid_key_id(&self, provider: &str, code: &'static str) {
        *self.invalid_key_ids.lock().entry((provider.to_owned(), code)).or_default() += 1;
    }

    pub fn sources(&self, provider: &str, count: usize) {
        self.sources.lock().insert(provider.to_owned(), count);
    }

    /// `server` is the hash of this server's identity.
    pub fn render(&self, page: &mut Page, server: &str) {
        self.render_storage(page);
        self.render_envelope(page, server);
    }

    fn render_storage(&self, page: &mut Page) {
        let mut family = page.family(&OPERATIONS);
        for (one, count) in self.transformations.lock().iter() {
            let labels = [
                ("resource", &*one.resource),
                ("status", &one.status),
                ("transformation_type", one.direction.label()),
                ("transformer_prefix", &one.prefix),
            ];
            family.sample(&labels, count);
        }
        let mut family = page.family(&DURATIONS);
        for ((direction, prefix), histogram) in self.durations.lock().iter() {
            let labels = [("transformation_type", direction.label()), ("transformer_prefix", prefix)];
            family.histogram(&labels, histogram);
        }
        page.value(&CACHE_MISSES, self.cache_misses.load(Ordering::Relaxed));
        if let Some(histogram) = &*self.generations.lock() {
            page.family(&GENERATIONS).histogram(&[], histogram);
        }
        page.value(&GENERATION_FAILURES, self.generation_failures.load(Ordering::Relaxed));
    }

    fn render_envelope(&self, page: &mut Page, server: &str) {
        let mut family = page.family(&CALLS);
        for ((provider, method, code), histogram) in self.calls.lock().iter() {
            let method = format!("/v2.KeyManagementService/{method}");
            let labels = [("grpc_status_code", &**code), ("method_name", &method), ("provider_name", provider)];
            family.histogram(&labels, histogram);
        }
        let used = self.keys_used.lock();
        let server = ("apiserver_id_hash", server);
        for (metric, is_count) in [(&KEY_USES, true), (&KEY_USED_AT, false)] {
            let mut family = page.family(metric);
            for ((direction, provider, key), (count, at)) in used.iter() {
                let direction = ("transformation_type", direction.label());
                let labels = [server, ("key_id_hash", key), ("provider_name", provider), direction];
                let at = at.as_millisecond() as f64 / 1000.0;
                if is_count { family.sample(&labels, count) } else { family.sample(&labels, at) }
            }
        }
        let mut family = page.family(&KEY_TOLD_AT);
        for ((provider, key), at) in self.keys_told.lock().iter() {
            let labels = [server, ("key_id_hash", key), ("provider_name", provider)];
            family.sample(&labels, at.as_millisecond() as f64 / 1000.0);
        }
        let mut family = page.family(&INVALID_KEY_IDS);
        for ((provider, code), count) in self.invalid_key_ids.lock().iter() {
            family.sample(&[("error", code), ("provider_name", provider)], count);
        }
        let mut family = page.family(&SOURCES);
        for (provider, count) in self.sources.lock().iter() {
            family.sample(&[("provider_name", provider)], count);
        }
    }
}

fn forget_oldest<K: Ord + Clone, V>(all: &mut BTreeMap<K, V>, at: impl Fn(&V) -> Timestamp) {
    if all.len() > KEY_IDS_MAX {
        let oldest = all.iter().min_by_key(|(_, value)| at(value)).map(|(key, _)| key.clone());
        oldest.map(|key| all.remove(&key));
    }
}

const OPERATIONS: Metric = Metric::counter(
    "apiserver_storage_transformation_operations_total",
    "[ALPHA] Total number of transformations. Successful transformation will have a status 'OK' and a varied status string \
     when the transformation fails. The status, resource, and transformation_type fields can be used for alerting purposes. \
     For example, you can monitor for encryption/decryption failures using the transformation_type (e.g., from_storage for \
     decryption and to_storage for encryption). Additionally, these fields can be used to ensure that the correct \
     transformers are applied to each resource.",
);
const DURATIONS: Metric = Metric::histogram(
    "apiserver_storage_transformation_duration_seconds",
    "[ALPHA] Latencies in seconds of value transformation operations.",
);
const CACHE_MISSES: Metric = Metric::counter(
    "apiserver_storage_envelope_transformation_cache_misses_total",
    "[ALPHA] Total number of cache misses while accessing key decryption key(KEK).",
);
const GENERATIONS: Metric = Metric::histogram(
    "apiserver_storage_data_key_generation_duration_seconds",
    "[ALPHA] Latencies in seconds of data encryption key(DEK) generation operations.",
);
const GENERATION_FAILURES: Metric = Metric::counter(
    "apiserver_storage_data_key_generation_failures_total",
    "[ALPHA] Total number of failed data encryption key(DEK) generation operations.",
);
const CALLS: Metric = Metric::histogram(
    "apiserver_envelope_encryption_kms_operations_latency_seconds",
    "[ALPHA] KMS operation duration with gRPC error code status total.",
);
const KEY_USES: Metric = Metric::counter(
    "apiserver_envelope_encryption_key_id_hash_total",
    "[ALPHA] Number of times a keyID is used split by transformation type, provider, and apiserver identity.",
);
const KEY_USED_AT: Metric = Metric::gauge(
    "apiserver_envelope_encryption_key_id_hash_last_timestamp_seconds",
    "[ALPHA] The last time in seconds when a keyID was used.",
);
const KEY_TOLD_AT: Metric = Metric::gauge(
    "apiserver_envelope_encryption_key_id_hash_status_last_timestamp_seconds",
    "[ALPHA] The last time in seconds when a keyID was returned by the Status RPC call.",
);
const INVALID_KEY_IDS: Metric = Metric::counter(
    "apiserver_envelope_encryption_invalid_key_id_from_status_total",
    "[ALPHA] Number of times an invalid keyID is returned by the Status RPC call split by error.",
);
const SOURCES: Metric = Metric::gauge(
    "apiserver_envelope_encryption_dek_source_cache_size",
    "[ALPHA] Number of records in data encryption key (DEK) source cache. On a restart, this value is an approximation of \
     the number of decrypt RPC calls the server will make to the KMS plugin.",
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_has_upstreams_names_and_no_key_id() {
        let metrics = Metrics::default();
        let took = Duration::from_micros(4);
        metrics.transformed("secrets", Direction::ToStorage, "k8s:enc:kms:v2:p:", took, Ok(()));
        metrics.transformed("secrets", Direction::FromStorage, "unknown", took, Err(None));
        metrics.transformed("secrets", Direction::FromStorage, "k8s:enc:kms:v2:p:", took, Err(Some("Internal".into())));
        metrics.key_used(Direction::ToStorage, "p", "key-of-mine", Timestamp::UNIX_EPOCH);
        metrics.key_told("p", "key-of-mine", Timestamp::UNIX_EPOCH);
        metrics.called("p", "Status", Duration::from_millis(1), None);
        let mut page = Page::default();
        metrics.render(&mut page, "sha256:me");
        let text = page.text();
        for line in [
            "apiserver_storage_transformation_operations_total{resource=\"secrets\",status=\"OK\",transformation_type=\"to_storage\",transformer_prefix=\"k8s:enc:kms:v2:p:\"} 1",
            "apiserver_storage_transformation_operations_total{resource=\"secrets\",status=\"unknown-non-grpc\",transformation_type=\"from_storage\",transformer_prefix=\"unknown\"} 1",
            "apiserver_storage_transformation_operations_total{resource=\"secrets\",status=\"Internal\",transformation_type=\"from_storage\",transformer_prefix=\"k8s:enc:kms:v2:p:\"} 1",
            "apiserver_storage_transformation_duration_seconds_bucket{transformation_type=\"to_storage\",transformer_prefix=\"k8s:enc:kms:v2:p:\",le=\"0.000005\"} 1",
            "apiserver_envelope_encryption_kms_operations_latency_seconds_count{grpc_status_code=\"OK\",method_name=\"/v2.KeyManagementService/Status\",provider_name=\"p\"} 1",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        assert!(text.contains(
            "apiserver_envelope_encryption_key_id_hash_total{apiserver_id_hash=\"sha256:me\",key_id_hash=\"sha256:"
        ));
        assert!(!text.contains("key-of-mine"));
    }

    #[test]
    fn only_so_many_ids_of_keys_are_kept() {
        let metrics = Metrics::default();
        for number in 0..250 {
            let at = Timestamp::from_second(number).unwrap();
            metrics.key_used(Direction::ToStorage, "p", &number.to_string(), at);
        }
        let used = metrics.keys_used.lock();
        assert_eq!(used.len(), KEY_IDS_MAX);
        assert!(used.contains_key(&(Direction::ToStorage, "p".into(), hash("249"))));
    }
}
