//! CPU, memory, network and restarts of nodes and pods of the last day, without any other program.
//!
//! `sample.rs` asks each kubelet once a minute, `ring.rs` keeps what it said in a bounded ring of files.

mod ring;
mod sample;

use std::collections::BTreeMap;
use std::sync::Arc;

use component_base::clock::Clock;
use component_base::tasks;
use machinery::status::Status;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::rights::Check;
use crate::serve::Query;
use crate::session::SignedIn;
use crate::{Dashboard, HistoryConfig};
use ring::{Ring, Sample};

pub(crate) const STEP_SECONDS: i64 = 60;
const HOURS_MAX: i64 = 24;

pub(crate) struct History {
    ring: Arc<Mutex<Ring>>,
}

/// Measures from now on, until told to stop.
pub(crate) fn start(config: &HistoryConfig, clock: Clock, shutdown: CancellationToken) -> Arc<History> {
    let ring = Arc::new(Mutex::new(Ring::new(config.folder.clone())));
    let (client, kept, restarts) = (config.client.clone(), ring.clone(), config.restarts.clone());
    tasks::spawn(async move {
        tokio::select! {
            () = sample::run(&client, &kept, &restarts, &clock) => {}
            () = shutdown.cancelled() => {}
        }
    });
    Arc::new(History { ring })
}

pub(crate) async fn answer(dashboard: &Dashboard, signed_in: &SignedIn, query: &Query) -> Result<Value, Status> {
    let Some(history) = &dashboard.history else {
        let message = "measurements are kept by the dashboard of a knarr server, not by this one";
        return Err(Status::new(501, "NotImplemented", message));
    };
    let (namespace, name) = (query.get("namespace"), query.get("name"));
    let (key, resource) = match query.get("kind") {
        "node" => (format!("node/{name}"), "nodes"),
        "pod" => (format!("pod/{namespace}/{name}"), "pods"),
        other => {
            return Err(Status::bad_request(format!("no measurements for {other:?}: set kind=node or kind=pod")));
        }
    };
    // Who may see the object may see what it used.
    let check = Check {
        verb: "get".into(),
        resource: resource.into(),
        namespace: if resource == "nodes" { String::new() } else { namespace.into() },
        name: name.into(),
        ..Check::default()
    };
    if !dashboard.rights.may(signed_in, &check).await? {
        let message =
            format!("{resource} \"{name}\" is forbidden: you may not get it, so you may not see what it used");
        return Err(Status::new(403, "Forbidden", message));
    }
    let hours = query.get("hours").parse().unwrap_or(HOURS_MAX).clamp(1, HOURS_MAX);
    let end = dashboard.config.clock.now().as_second() / STEP_SECONDS;
    let start = end - hours * 60;
    let files = history.ring.lock().files();
    let read = tokio::task::spawn_blocking(move || ring::read(&files, &key, start)).await;
    let samples = read.map_err(|error| Status::internal(error.to_string()))?;
    Ok(shown(&samples, start, end))
}

fn shown(samples: &BTreeMap<i64, Sample>, start: i64, end: i64) -> Value {
    let series = |pick: fn(&Sample) -> Option<f64>| -> Vec<Option<f64>> {
        (start..=end).map(|minute| samples.get(&minute).and_then(pick)).collect()
    };
    json!({
        "step_seconds": STEP_SECONDS, "start": start * STEP_SECONDS,
        "series": {
            "cpu": series(|sample| Some(sample.cpu)), "memory": series(|sample| Some(sample.memory)),
            "rx": series(|sample| sample.rx), "tx": series(|sample| sample.tx),
            "restarts": series(|sample| sample.restarts.map(f64::from)),
        },
    })
}
