//! Asks each kubelet once a minute what is used. One request for a node answers for all of its pods.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use component_base::clock::Clock;
use futures::StreamExt;
use http::{HeaderValue, Method};
use parking_lot::Mutex;
use serde_json::Value;

use super::STEP_SECONDS;
use super::ring::{Ring, Sample};
use crate::Restarts;
use crate::kinds::Kind;
use crate::table::row::each;

const PARALLEL: usize = 8;
const TIMEOUT: Duration = Duration::from_secs(10);

pub(super) async fn run(client: &kube::Client, ring: &Arc<Mutex<Ring>>, restarts: &Restarts, clock: &Clock) {
    let mut counters = Counters::default();
    loop {
        let now = clock.now().as_second();
        tokio::time::sleep(Duration::from_secs((STEP_SECONDS - now.rem_euclid(STEP_SECONDS)) as u64)).await;
        let minute = clock.now().as_second() / STEP_SECONDS;
        let samples = measure(client, restarts, &mut counters, minute).await;
        if samples.is_empty() {
            continue;
        }
        let ring = ring.clone();
        let put = tokio::task::spawn_blocking(move || ring.lock().put(minute, &samples)).await;
        if let Ok(Err(error)) = put {
            tracing::warn!(%error, "cannot write dashboard metrics history");
        }
    }
}

async fn measure(
    client: &kube::Client,
    restarts: &Restarts,
    counters: &mut Counters,
    minute: i64,
) -> BTreeMap<String, Sample> {
    let nodes = match names(client, "nodes").await {
        Ok(nodes) => nodes,
        Err(status) => {
            tracing::debug!(error = status.message, "cannot list nodes for dashboard metrics");
            return BTreeMap::new();
        }
    };
    let asked = futures::stream::iter(nodes).map(|node| async move {
        let path = format!("/api/v1/nodes/{}/proxy/stats/summary", crate::ask::segment(&node));
        match tokio::time::timeout(TIMEOUT, crate::ask::get(client, &path)).await {
            Ok(Ok(summary)) => Some((node, summary)),
            // A node that does not answer has a gap in its history.
            Ok(Err(_)) | Err(_) => None,
        }
    });
    let answers: Vec<(String, Value)> = asked.buffer_unordered(PARALLEL).filter_map(std::future::ready).collect().await;
    let restarts = restarts();
    let mut samples = BTreeMap::new();
    for (node, summary) in &answers {
        read(node, summary, &restarts, counters, minute, &mut samples);
    }
    counters.forget_before(minute);
    samples
}

async fn names(client: &kube::Client, resource: &str) -> Result<Vec<String>, machinery::status::Status> {
    let accept = HeaderValue::from_static("application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io");
    let path = crate::ask::path(&Kind::new("", "v1", resource), "", "");
    let list = crate::ask::ask(client, Method::GET, &path, accept, None).await?;
    Ok(each(&list["items"]).filter_map(|item| item["metadata"]["name"].as_str()).map(str::to_owned).collect())
}

/// The last counts of bytes, which only grow.
#[derive(Default)]
struct Counters {
    last: HashMap<String, (i64, u64, u64)>,
}

impl Counters {
    /// Bytes a second since the last minute that was measured; none where the count began anew.
    fn rates(&mut self, key: &str, minute: i64, network: &Value) -> (Option<f64>, Option<f64>) {
        let (Some(rx), Some(tx)) = (network["rxBytes"].as_u64(), network["txBytes"].as_u64()) else {
            return (None, None);
        };
        let last = self.last.insert(key.to_string(), (minute, rx, tx));
        match last {
            Some((before, old_rx, old_tx)) if before < minute && old_rx <= rx && old_tx <= tx => {
                let seconds = ((minute - before) * STEP_SECONDS) as f64;
                (Some((rx - old_rx) as f64 / seconds), Some((tx - old_tx) as f64 / seconds))
            }
            _ => (None, None),
        }
    }

    fn forget_before(&mut self, minute: i64) {
        self.last.retain(|_, (seen, ..)| *seen + 5 > minute);
    }
}

fn read(
    node: &str,
    summary: &Value,
    restarts: &HashMap<String, u8>,
    counters: &mut Counters,
    minute: i64,
    samples: &mut BTreeMap<String, Sample>,
) {
    let mut put = |key: String, stats: &Value, restarts: Option<u8>| {
        let (Some(cpu), Some(memory)) =
            (stats["cpu"]["usageNanoCores"].as_f64(), stats["memory"]["workingSetBytes"].as_f64())
        else {
            return;
        };
        let (rx, tx) = counters.rates(&key, minute, &stats["network"]);
        samples.insert(key, Sample { cpu: cpu / 1e9, memory, rx, tx, restarts });
    };
    put(format!("node/{node}"), &summary["node"], None);
    for pod in each(&summary["pods"]) {
        let text = |field: &str| pod["podRef"][field].as_str().unwrap_or_default();
        let key = format!("pod/{}/{}", text("namespace"), text("name"));
        let restarts = restarts.get(&key["pod/".len()..]).copied();
        put(key, pod, restarts);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_summary_becomes_samples() {
        let summary = |rx: u64| {
            let stats = json!({"cpu": {"usageNanoCores": 500_000_000}, "memory": {"workingSetBytes": 2048}, "network": {"rxBytes": rx, "txBytes": rx}});
            let mut pod = stats.clone();
            pod["podRef"] = json!({"namespace": "a", "name": "p"});
            json!({"node": stats, "pods": [pod, {"podRef": {"namespace": "a", "name": "unknown"}}]})
        };
        let (mut counters, restarts) = (Counters::default(), [("a/p".to_string(), 4)].into());
        let mut at = |minute, rx| {
            let mut samples = BTreeMap::new();
            read("n", &summary(rx), &restarts, &mut counters, minute, &mut samples);
            samples
        };
        let first = at(1, 600);
        assert_eq!(first.keys().collect::<Vec<_>>(), ["node/n", "pod/a/p"]);
        assert_eq!(first["pod/a/p"], Sample { cpu: 0.5, memory: 2048.0, rx: None, tx: None, restarts: Some(4) });
        assert_eq!(at(2, 1200)["node/n"].rx, Some(10.0));
        assert_eq!(at(3, 5)["node/n"].rx, None, "the counter began anew");
    }
}
