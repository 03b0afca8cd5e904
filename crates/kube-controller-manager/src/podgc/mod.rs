//! Pods that nobody will ever end: of nodes that are gone or out of service, deleted before they were scheduled, or ended
//! and too many.

mod plan;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use reconcile::{Cache, Error, Rule, Shutdown, Work, perform};
use tokio::time::{MissedTickBehavior, interval};

use crate::{Context, Controller};

pub(crate) static CONTROLLER: Controller = Controller {
    name: "pod-garbage-collector-controller",
    account: "pod-garbage-collector",
    source: "pod-garbage-collector-controller",
    rules: &[
        Rule { groups: &[""], resources: &["pods"], verbs: &["list", "watch", "delete"] },
        Rule { groups: &[""], resources: &["nodes"], verbs: &["get", "list", "watch"] },
        Rule { groups: &[""], resources: &["pods/status"], verbs: &["patch"] },
    ],
    work: Work::Own(|cx, shutdown| run(cx, shutdown).boxed()),
};

const EVERY: Duration = Duration::from_secs(20);
/// A node must be away for so long before its pods go: it may only not have been seen yet.
const QUARANTINE: SignedDuration = SignedDuration::from_secs(40);

async fn run(cx: Arc<Context>, shutdown: Shutdown) -> Result<(), Error> {
    let (pods, nodes): (Arc<Cache<Pod>>, Arc<Cache<Node>>) = (cx.follow(""), cx.follow(""));
    let synced = async {
        pods.synced().await;
        nodes.synced().await;
    };
    tokio::select! {
        () = shutdown.cancelled() => return Ok(()),
        () = synced => {}
    }
    let mut away: BTreeMap<String, Timestamp> = BTreeMap::new();
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return Ok(()),
            _ = ticks.tick() => {}
        }
        let (pods, nodes, now) = (pods.list(), nodes.list(), cx.now());
        let absent = plan::missing_nodes(&pods, &nodes);
        away.retain(|name, _| absent.contains(name));
        for name in absent {
            away.entry(name).or_insert(now);
        }
        let missing = missing(&cx, &away, now).await;
        for plan in plan::plans(&pods, &nodes, &missing, cx.settings.terminated_pods_max, now) {
            // The next round looks at everything anew.
            if let Err(error) = perform(&cx, plan).await {
                tracing::debug!(%error, "cannot delete pod; retrying");
            }
        }
    }
}

/// Those that have been away for long and that the server does not know either.
async fn missing(cx: &Context, away: &BTreeMap<String, Timestamp>, now: Timestamp) -> BTreeSet<String> {
    let nodes: Api<Node> = Api::all(cx.client.clone());
    let mut missing = BTreeSet::new();
    for (name, since) in away {
        if now.duration_since(*since) < QUARANTINE {
            continue;
        }
        match nodes.get_metadata_opt(name).await {
            Ok(None) => _ = missing.insert(name.clone()),
            Ok(Some(_)) => {}
            Err(error) => tracing::warn!(node = name, %error, "cannot get node"),
        }
    }
    missing
}
