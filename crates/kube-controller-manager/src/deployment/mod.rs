//! Deployments: one ReplicaSet per template, and the way from one to the next.

mod plan;
mod sets;
mod rolling;
mod scaling;
mod status;
#[cfg(test)]
mod tests;

use component_helpers::labels::{compiled, selects};
use futures::FutureExt;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use reconcile::{Key, On, Plan, Rule, Work};

use crate::common::owners::{concerned, managed_by};
use crate::{Context, Controller};

pub(crate) static CONTROLLER: Controller = Controller {
    name: "deployment-controller",
    account: "deployment-controller",
    source: "deployment-controller",
    rules: &[
        Rule { groups: &["apps"], resources: &["deployments"], verbs: &["get", "list", "update", "watch"] },
        Rule { groups: &["apps"], resources: &["deployments/status", "deployments/finalizers"], verbs: &["update"] },
        Rule {
            groups: &["apps"],
            resources: &["replicasets"],
            verbs: &["create", "delete", "get", "list", "patch", "update", "watch"],
        },
        Rule { groups: &[""], resources: &["pods"], verbs: &["get", "list", "update", "watch"] },
        Rule { groups: &["", "events.k8s.io"], resources: &["events"], verbs: &["create", "patch", "update"] },
    ],
    work: Work::Keys {
        wakes: &[
            &On::every(|_, deployment: &Deployment| vec![Key::of(&deployment.metadata)]),
            &On::every(|cx, set: &ReplicaSet| {
                let namespace = set.metadata.namespace.clone().unwrap_or_default();
                let deployments = || cx.cache::<Deployment>().in_namespace(&namespace);
                concerned(&set.metadata, deployments, |deployment, labels| {
                    let selector = compiled(deployment.spec.as_ref().map(|spec| &spec.selector));
                    selector.is_some_and(|selector| selects(&selector, labels))
                })
            }),
            // Recreate waits for the last old pod to end.
            &On::every(|cx, pod: &Pod| {
                let set = managed_by(&pod.metadata, "ReplicaSet").and_then(|key| cx.cache::<ReplicaSet>().get(&key));
                let deployment = set.and_then(|set| managed_by(&set.metadata, "Deployment"));
                let recreates = |key: &Key| {
                    let deployment = cx.cache::<Deployment>().get(key);
                    deployment.is_some_and(|deployment| plan::is_recreate(&deployment))
                };
                deployment.filter(recreates).into_iter().collect()
            }),
        ],
        workers_max: 5,
        reconcile: |cx, key| reconcile(cx, key).boxed(),
    },
};

async fn reconcile(cx: &Context, key: &Key) -> Result<Plan, reconcile::Error> {
    let Some(deployment) = cx.cache::<Deployment>().get(key) else { return Ok(Plan::nothing()) };
    let sets = cx.cache::<ReplicaSet>();
    let mut found = sets.owned_by(deployment.metadata.uid.as_deref().unwrap_or_default());
    found.extend(sets.uncontrolled(&key.namespace));
    let pods = cx.cache::<Pod>();
    let pods_of = |set: &ReplicaSet| pods.owned_by(set.metadata.uid.as_deref().unwrap_or_default());
    let view = plan::View {
        now: cx.now(),
        sets: &found,
        set_named: &|name| sets.get(&Key::new(key.namespace.clone(), name)),
        pods_of: &pods_of,
    };
    Ok(plan::plan(&deployment, &view))
}
