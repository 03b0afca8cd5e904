//! StatefulSets: pods with names and volumes of their own, made and ended in order.

mod plan;
mod identity;
mod claims;
mod status;
mod update;
#[cfg(test)]
mod tests;

use component_helpers::labels::{Labels, compiled, selects};
use futures::FutureExt;
use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use reconcile::{Key, On, Plan, Rule, Work};

use crate::common::owners::concerned;
use crate::{Context, Controller};

pub(crate) static CONTROLLER: Controller = Controller {
    name: "statefulset-controller",
    account: "statefulset-controller",
    source: "statefulset-controller",
    rules: &[
        Rule { groups: &["apps"], resources: &["statefulsets"], verbs: &["get", "list", "watch"] },
        Rule { groups: &["apps"], resources: &["statefulsets/status", "statefulsets/finalizers"], verbs: &["update"] },
        Rule {
            groups: &[""],
            resources: &["pods"],
            verbs: &["list", "watch", "create", "delete", "get", "patch", "update"],
        },
        Rule { groups: &[""], resources: &["pods/finalizers"], verbs: &["update"] },
        Rule {
            groups: &["apps"],
            resources: &["controllerrevisions"],
            verbs: &["create", "delete", "get", "list", "patch", "update", "watch"],
        },
        Rule {
            groups: &[""],
            resources: &["persistentvolumeclaims"],
            verbs: &["create", "get", "list", "watch", "delete", "update"],
        },
        Rule { groups: &["", "events.k8s.io"], resources: &["events"], verbs: &["create", "patch", "update"] },
    ],
    work: Work::Keys {
        wakes: &[
            &On::every(|_, set: &StatefulSet| vec![Key::of(&set.metadata)]),
            &On::every(|cx, pod: &Pod| {
                let namespace = pod.metadata.namespace.clone().unwrap_or_default();
                let sets = || cx.cache::<StatefulSet>().in_namespace(&namespace);
                concerned(&pod.metadata, sets, selects_labels)
            }),
            &On::every(|cx, revision: &ControllerRevision| {
                let namespace = revision.metadata.namespace.clone().unwrap_or_default();
                let sets = || cx.cache::<StatefulSet>().in_namespace(&namespace);
                concerned(&revision.metadata, sets, selects_labels)
            }),
            // A claim carries the labels of its set's selector; a set that waits for the end of one goes on.
            &On::every(|cx, claim: &PersistentVolumeClaim| {
                let namespace = claim.metadata.namespace.clone().unwrap_or_default();
                let sets = cx.cache::<StatefulSet>().in_namespace(&namespace);
                let with_claims = sets.iter().filter(|set| {
                    let templates = set.spec.as_ref().and_then(|spec| spec.volume_claim_templates.as_ref());
                    templates.is_some_and(|templates| !templates.is_empty())
                });
                let woken = with_claims.filter(|set| selects_labels(set, claim.metadata.labels.as_ref()));
                woken.map(|set| Key::of(&set.metadata)).collect()
            }),
        ],
        workers_max: 5,
        reconcile: |cx, key| reconcile(cx, key).boxed(),
    },
};

fn selects_labels(set: &StatefulSet, labels: Option<&Labels>) -> bool {
    let selector = compiled(set.spec.as_ref().map(|spec| &spec.selector));
    selector.is_some_and(|selector| selects(&selector, labels))
}

async fn reconcile(cx: &Context, key: &Key) -> Result<Plan, reconcile::Error> {
    let Some(set) = cx.cache::<StatefulSet>().get(key) else { return Ok(Plan::nothing()) };
    let uid = set.metadata.uid.as_deref().unwrap_or_default();
    let (pods, revisions) = (cx.cache::<Pod>(), cx.cache::<ControllerRevision>());
    let claims = cx.cache::<PersistentVolumeClaim>();
    let mut found_pods = pods.owned_by(uid);
    found_pods.extend(pods.uncontrolled(&key.namespace));
    let mut found_revisions = revisions.owned_by(uid);
    found_revisions.extend(revisions.uncontrolled(&key.namespace));
    let of_namespace = |name: &str| Key::new(key.namespace.clone(), name);
    let view = plan::View {
        now: cx.now(),
        pods: &found_pods,
        revisions: &found_revisions,
        revision_named: &|name| revisions.get(&of_namespace(name)),
        claim_named: &|name| claims.get(&of_namespace(name)),
        pod_named: &|name| pods.get(&of_namespace(name)),
    };
    Ok(plan::plan(&set, &view))
}
