//! ReplicaSets: so many pods of one template.

mod plan;

use std::sync::Arc;

use component_helpers::labels::{compiled, selects};
use component_helpers::pods::controller_of;
use futures::FutureExt;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::Pod;
use reconcile::{Key, On, Plan, Rule, Work};

use crate::common::owners::concerned;
use crate::{Context, Controller};

pub(crate) static CONTROLLER: Controller = Controller {
    name: "replicaset-controller",
    account: "replicaset-controller",
    source: "replicaset-controller",
    rules: &[
        Rule { groups: &["apps"], resources: &["replicasets"], verbs: &["get", "list", "watch", "update"] },
        Rule { groups: &["apps"], resources: &["replicasets/status", "replicasets/finalizers"], verbs: &["update"] },
        Rule { groups: &[""], resources: &["pods"], verbs: &["create", "delete", "list", "patch", "watch"] },
        Rule { groups: &["", "events.k8s.io"], resources: &["events"], verbs: &["create", "patch", "update"] },
    ],
    work: Work::Keys {
        wakes: &[
            &On::every(|_, set: &ReplicaSet| vec![Key::of(&set.metadata)]),
            &On::every(|cx, pod: &Pod| {
                let namespace = pod.metadata.namespace.clone().unwrap_or_default();
                let sets = || cx.cache::<ReplicaSet>().in_namespace(&namespace);
                concerned(&pod.metadata, sets, |set, labels| {
                    let selector = compiled(set.spec.as_ref().map(|spec| &spec.selector));
                    selector.is_some_and(|selector| selects(&selector, labels))
                })
            }),
        ],
        workers_max: 5,
        reconcile: |cx, key| reconcile(cx, key).boxed(),
    },
};

async fn reconcile(cx: &Context, key: &Key) -> Result<Plan, reconcile::Error> {
    let Some(set) = cx.cache::<ReplicaSet>().get(key) else { return Ok(Plan::nothing()) };
    let pods = cx.cache::<Pod>();
    let mut found = pods.owned_by(set.metadata.uid.as_deref().unwrap_or_default());
    found.extend(pods.uncontrolled(&key.namespace));
    Ok(plan::plan(cx.now(), &set, &found, || related(cx, &set)))
}

/// The pods of all sets that the same Deployment manages: they do the same work.
fn related(cx: &Context, set: &ReplicaSet) -> Vec<Arc<Pod>> {
    let pods = cx.cache::<Pod>();
    let uid = set.metadata.uid.as_deref().unwrap_or_default();
    let Some(owner) = controller_of(&set.metadata) else { return pods.owned_by(uid) };
    let siblings = cx.cache::<ReplicaSet>().owned_by(&owner.uid);
    siblings.iter().flat_map(|set| pods.owned_by(set.metadata.uid.as_deref().unwrap_or_default())).collect()
}
