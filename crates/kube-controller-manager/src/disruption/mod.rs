//! PodDisruptionBudgets: how many pods may be evicted now, and pods that were to be evicted but were not.

mod plan;
mod scales;

use component_helpers::labels::{compiled, selects};
use futures::FutureExt;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{Pod, ReplicationController};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use reconcile::events::{EventType, reference};
use reconcile::{Key, Kind, On, Plan, Rule, Work};

use crate::common::pods::selected;
use crate::{Context, Controller};

pub(crate) static CONTROLLER: Controller = Controller {
    name: "disruption-controller",
    account: "disruption-controller",
    source: "controllermanager",
    rules: &[
        Rule {
            groups: &["apps", "extensions"],
            resources: &["deployments", "replicasets"],
            verbs: &["get", "list", "watch"],
        },
        Rule { groups: &[""], resources: &["replicationcontrollers"], verbs: &["get", "list", "watch"] },
        Rule { groups: &["policy"], resources: &["poddisruptionbudgets"], verbs: &["get", "list", "watch"] },
        Rule { groups: &["apps"], resources: &["statefulsets"], verbs: &["get", "list", "watch"] },
        Rule { groups: &["policy"], resources: &["poddisruptionbudgets/status"], verbs: &["update"] },
        Rule { groups: &[""], resources: &["pods/status"], verbs: &["patch", "update"] },
        Rule { groups: &["*"], resources: &["*/scale"], verbs: &["get"] },
        Rule { groups: &["", "events.k8s.io"], resources: &["events"], verbs: &["create", "patch", "update"] },
    ],
    work: Work::Keys {
        wakes: &[
            &On::every(|_, budget: &PodDisruptionBudget| vec![Key::of(&budget.metadata)]),
            &On::every(|cx, pod: &Pod| {
                let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
                let budgets = cx.cache::<PodDisruptionBudget>().in_namespace(namespace);
                let selecting = budgets.iter().filter(|budget| {
                    let selector = compiled(budget.spec.as_ref().and_then(|spec| spec.selector.as_ref()));
                    selector.is_some_and(|selector| selects(&selector, pod.metadata.labels.as_ref()))
                });
                let mut keys: Vec<Key> = selecting.map(|budget| Key::of(&budget.metadata)).collect();
                if let Some(message) = plan::too_many(pod, &keys) {
                    cx.events.event(&reference(pod), EventType::Warning, "MultiplePodDisruptionBudgets", message);
                }
                if plan::is_marked(pod) {
                    keys.push(Key::new(namespace, format!("{POD}{}", Key::of(&pod.metadata).name)));
                }
                keys
            }),
            // How many pods are expected is said by their owners.
            &On::every(|cx, set: &ReplicaSet| budgets_beside(cx, set)),
            &On::every(|cx, deployment: &Deployment| budgets_beside(cx, deployment)),
            &On::every(|cx, set: &StatefulSet| budgets_beside(cx, set)),
            &On::every(|cx, controller: &ReplicationController| budgets_beside(cx, controller)),
        ],
        workers_max: 5,
        reconcile: |cx, key| reconcile(cx, key).boxed(),
    },
};

/// Keys of pods begin with this, which no name of a budget does.
const POD: &str = "pod/";

/// All budgets of a namespace: there are few, and few changes of a workload come without changes of its pods.
fn budgets_beside<K: Kind>(cx: &Context, owner: &K) -> Vec<Key> {
    let namespace = owner.metadata().namespace.as_deref().unwrap_or_default();
    let budgets = cx.cache::<PodDisruptionBudget>().in_namespace(namespace);
    budgets.iter().map(|budget| Key::of(&budget.metadata)).collect()
}

async fn reconcile(cx: &Context, key: &Key) -> Result<Plan, reconcile::Error> {
    if let Some(name) = key.name.strip_prefix(POD) {
        let pod = cx.cache::<Pod>().get(&Key::new(&*key.namespace, name));
        return Ok(pod.map_or_else(Plan::nothing, |pod| plan::unmark(cx.now(), &pod)));
    }
    let Some(budget) = cx.cache::<PodDisruptionBudget>().get(key) else { return Ok(Plan::nothing()) };
    let selector = compiled(budget.spec.as_ref().and_then(|spec| spec.selector.as_ref()));
    let Some(selector) = selector else { return Ok(plan::plan(cx.now(), &budget, &[], &Ok(Vec::new()))) };
    let pods = selected(&cx.cache::<Pod>(), &key.namespace, &selector);
    let scales =
        if plan::needs_scales(&budget) { scales::of_owners(cx, &key.namespace, &pods).await } else { Ok(Vec::new()) };
    Ok(plan::plan(cx.now(), &budget, &pods, &scales))
}
