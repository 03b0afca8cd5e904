//! DaemonSets: one pod on every node that fits.

mod plan;
mod nodes;
mod rolling;
mod status;
mod backoff;
#[cfg(test)]
mod tests;

use component_helpers::labels::{compiled, selects};
use futures::FutureExt;
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet};
use k8s_openapi::api::core::v1::{Node, Pod};
use reconcile::{Key, On, Plan, Rule, Work};

use crate::common::owners::concerned;
use crate::{Context, Controller};

pub(crate) static CONTROLLER: Controller = Controller {
    name: "daemonset-controller",
    account: "daemon-set-controller",
    source: "daemonset-controller",
    rules: &[
        Rule { groups: &["apps", "extensions"], resources: &["daemonsets"], verbs: &["get", "list", "watch"] },
        Rule {
            groups: &["apps", "extensions"],
            resources: &["daemonsets/status", "daemonsets/finalizers"],
            verbs: &["update"],
        },
        Rule { groups: &[""], resources: &["nodes"], verbs: &["list", "watch"] },
        Rule { groups: &[""], resources: &["pods"], verbs: &["create", "delete", "list", "patch", "watch"] },
        Rule { groups: &[""], resources: &["pods/binding"], verbs: &["create"] },
        Rule {
            groups: &["apps"],
            resources: &["controllerrevisions"],
            verbs: &["create", "delete", "get", "list", "patch", "update", "watch"],
        },
        Rule { groups: &["", "events.k8s.io"], resources: &["events"], verbs: &["create", "patch", "update"] },
    ],
    work: Work::Keys {
        wakes: &[
            &On::every(|_, set: &DaemonSet| vec![Key::of(&set.metadata)]),
            &On::every(|cx, pod: &Pod| {
                let namespace = pod.metadata.namespace.clone().unwrap_or_default();
                let sets = || cx.cache::<DaemonSet>().in_namespace(&namespace);
                concerned(&pod.metadata, sets, selects_labels)
            }),
            &On::every(|cx, revision: &ControllerRevision| {
                let namespace = revision.metadata.namespace.clone().unwrap_or_default();
                let sets = || cx.cache::<DaemonSet>().in_namespace(&namespace);
                concerned(&revision.metadata, sets, selects_labels)
            }),
            // Heartbeats change nodes often; the plan then finds nothing to do. The object before and after is asked about, so
            // a set whose pods no longer fit is woken too.
            &On::every(|cx, node: &Node| {
                let sets = cx.cache::<DaemonSet>().list();
                let has_pods = |set: &DaemonSet| {
                    let status = set.status.as_ref();
                    status.is_none_or(|status| status.number_misscheduled + status.current_number_scheduled > 0)
                };
                let fits = |set: &DaemonSet| nodes::fit(set, node).should_run;
                let woken = sets.iter().filter(|set| fits(set) || has_pods(set));
                woken.map(|set| Key::of(&set.metadata)).collect()
            }),
        ],
        workers_max: 2,
        reconcile: |cx, key| reconcile(cx, key).boxed(),
    },
};

fn selects_labels(set: &DaemonSet, labels: Option<&component_helpers::labels::Labels>) -> bool {
    let selector = compiled(set.spec.as_ref().map(|spec| &spec.selector));
    selector.is_some_and(|selector| selects(&selector, labels))
}

async fn reconcile(cx: &Context, key: &Key) -> Result<Plan, reconcile::Error> {
    let Some(set) = cx.cache::<DaemonSet>().get(key) else { return Ok(Plan::nothing()) };
    let uid = set.metadata.uid.as_deref().unwrap_or_default();
    let (pods, revisions) = (cx.cache::<Pod>(), cx.cache::<ControllerRevision>());
    let mut found_pods = pods.owned_by(uid);
    found_pods.extend(pods.uncontrolled(&key.namespace));
    let mut found_revisions = revisions.owned_by(uid);
    found_revisions.extend(revisions.uncontrolled(&key.namespace));
    let (now, failed) = (cx.now(), cx.memory::<backoff::Memory>());
    let view = plan::View {
        now,
        nodes: &cx.cache::<Node>().list(),
        pods: &found_pods,
        revisions: &found_revisions,
        revision_named: &|name| revisions.get(&Key::new(key.namespace.clone(), name)),
        replace_failed: &|node| failed.try_again(&format!("{uid}/{node}"), now),
    };
    Ok(plan::plan(&set, &view))
}
