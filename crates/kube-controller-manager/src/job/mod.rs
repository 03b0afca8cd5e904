//! Jobs: pods that run until so many have succeeded, each counted exactly once.

mod plan;
mod count;
mod status;
mod make;
mod pods;
mod policy;
mod backoff;
mod indexes;
mod orphans;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod simulation;

use component_helpers::labels::{compiled, selects};
use component_helpers::pods::controller_of;
use futures::FutureExt;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use reconcile::{Key, On, Plan, Rule, Work};

use crate::common::owners::concerned;
use crate::{Context, Controller};

pub(crate) static CONTROLLER: Controller = Controller {
    name: "job-controller",
    account: "job-controller",
    source: "job-controller",
    rules: &[
        Rule { groups: &["batch"], resources: &["jobs"], verbs: &["get", "list", "patch", "update", "watch"] },
        Rule { groups: &["batch"], resources: &["jobs/status", "jobs/finalizers"], verbs: &["update"] },
        Rule { groups: &[""], resources: &["pods"], verbs: &["create", "delete", "list", "patch", "watch"] },
        Rule { groups: &["", "events.k8s.io"], resources: &["events"], verbs: &["create", "patch", "update"] },
    ],
    work: Work::Keys {
        wakes: &[
            &On::every(|_, job: &Job| vec![Key::of(&job.metadata)]),
            &On::every(|cx, pod: &Pod| {
                let namespace = pod.metadata.namespace.clone().unwrap_or_default();
                let jobs = || cx.cache::<Job>().in_namespace(&namespace);
                let mut keys = concerned(&pod.metadata, jobs, |job, labels| {
                    let selector = compiled(job.spec.as_ref().and_then(|spec| spec.selector.as_ref()));
                    selector.is_some_and(|selector| selects(&selector, labels))
                });
                if controller_of(&pod.metadata).is_none() && pods::is_held(pod) {
                    keys.push(orphans::key(&namespace));
                }
                keys
            }),
        ],
        workers_max: 5,
        reconcile: |cx, key| reconcile(cx, key).boxed(),
    },
};

async fn reconcile(cx: &Context, key: &Key) -> Result<Plan, reconcile::Error> {
    let Some(job) = cx.cache::<Job>().get(key) else { return orphans::reconcile(cx, &key.namespace).await };
    let pods = cx.cache::<Pod>();
    let mut found = pods.owned_by(job.metadata.uid.as_deref().unwrap_or_default());
    found.extend(pods.uncontrolled(&key.namespace));
    Ok(plan::plan(cx.now(), &job, &found))
}
