//! Horizontal pod autoscalers: as many replicas as the metrics ask for.
//!
//! They are looked at every 15 seconds, not when something changes: metrics change all the time. What was recommended and
//! changed before is remembered only here, as upstream; after a restart the windows begin anew.

mod behavior;
mod evaluate;
mod metrics;
mod monitor;
mod replicas;
mod error;
mod rivals;
mod scale;
mod settings;
mod status;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use component_base::tasks;
use futures::FutureExt;
use futures::stream::{self, StreamExt};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use kube::Api;
use kube::api::ListParams;
use reconcile::{Error, Key, Rule, Shutdown, Work};
use tasks::Boxed;
use tokio::time::MissedTickBehavior;

use self::behavior::Memory;
use self::monitor::Monitor;
pub use self::settings::Autoscaling;
use crate::{Context, Controller};

/// No period is shorter: a timer without one would never rest.
const PERIOD_MIN: Duration = Duration::from_millis(10);
/// So many autoscalers are looked at at the same time: most of it is waiting for metrics.
const WORKERS_MAX: usize = 5;

pub(crate) static CONTROLLER: Controller = Controller {
    name: "horizontal-pod-autoscaler-controller",
    account: "horizontal-pod-autoscaler",
    source: "horizontal-pod-autoscaler",
    rules: &[
        Rule { groups: &["autoscaling"], resources: &["horizontalpodautoscalers"], verbs: &["get", "list", "watch"] },
        Rule { groups: &["autoscaling"], resources: &["horizontalpodautoscalers/status"], verbs: &["update"] },
        Rule { groups: &["*"], resources: &["*/scale"], verbs: &["get", "update"] },
        Rule { groups: &[""], resources: &["pods"], verbs: &["list", "watch"] },
        Rule { groups: &["metrics.k8s.io"], resources: &["pods"], verbs: &["list", "watch"] },
        Rule {
            groups: &["custom.metrics.k8s.io", "external.metrics.k8s.io"],
            resources: &["*"],
            verbs: &["get", "list", "watch"],
        },
        Rule { groups: &["", "events.k8s.io"], resources: &["events"], verbs: &["create", "patch", "update"] },
    ],
    work: Work::Own(|cx, shutdown| run(cx, shutdown).boxed()),
};

async fn run(cx: Arc<Context>, shutdown: Shutdown) -> Result<(), Error> {
    let autoscalers = Api::<HorizontalPodAutoscaler>::all(cx.client.clone());
    let everything = ListParams::default();
    let mut memories: HashMap<String, Memory> = HashMap::new();
    let monitor = cx.memory::<Monitor>();
    let shown = monitor.clone();
    cx.shows("horizontal-pod-autoscaler", move |page| shown.render(page));
    let mut ticks = tokio::time::interval(cx.settings.autoscaling.sync_period.max(PERIOD_MIN));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return Ok(()),
            _ = ticks.tick() => {}
        }
        let listed = tokio::select! {
            () = shutdown.cancelled() => return Ok(()),
            listed = autoscalers.list(&everything) => listed,
        };
        let all = match listed {
            Ok(list) => list.items,
            Err(error) => {
                tracing::warn!(%error, "cannot list HorizontalPodAutoscalers; retrying");
                continue;
            }
        };
        let uid = |one: &HorizontalPodAutoscaler| one.metadata.uid.clone().unwrap_or_default();
        memories.retain(|known, _| all.iter().any(|one| uid(one) == *known));
        let keys: Vec<Key> = all.iter().map(|one| Key::of(&one.metadata)).collect();
        cx.memory::<rivals::Rivals>().keep_only(&keys);
        monitor.keep_only(&keys);
        let looks = all.into_iter().map(|autoscaler| {
            let (cx, uid) = (cx.clone(), uid(&autoscaler));
            let mut memory = memories.remove(&uid).unwrap_or_default();
            tasks::boxed(async move {
                status::look(&cx, &autoscaler, &mut memory).await;
                (uid, memory)
            })
        });
        let looks: Vec<Boxed<(String, Memory)>> = looks.collect();
        tokio::select! {
            () = shutdown.cancelled() => return Ok(()),
            looked = stream::iter(looks).buffer_unordered(cx.workers(WORKERS_MAX)).collect() => memories = looked,
        }
    }
}
