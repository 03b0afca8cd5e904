//! Pods whose Job is gone are let go: nobody is left to count them.

use std::collections::HashMap;

use component_helpers::labels::{compiled, selects};
use component_helpers::pods::controller_of;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use reconcile::{Error, Key, Plan};

use super::plan::is_finished;
use super::pods::{is_held, release};
use crate::Context;

/// Stands for all orphans of a namespace; no Job has this name.
pub(super) fn key(namespace: &str) -> Key {
    Key::new(namespace, "")
}

pub(super) async fn reconcile(cx: &Context, namespace: &str) -> Result<Plan, Error> {
    let jobs = cx.cache::<Job>();
    let live: Api<Job> = Api::namespaced(cx.client.clone(), namespace);
    // What the server says now: the cache of pods may be ahead of the cache of Jobs.
    let mut asked: HashMap<String, Option<String>> = HashMap::new();
    let mut plan = Plan::nothing();
    for pod in cx.cache::<Pod>().in_namespace(namespace).into_iter().filter(|pod| is_held(pod)) {
        let orphaned = match controller_of(&pod.metadata) {
            None => !jobs.in_namespace(namespace).iter().any(|job| takes_in(job, &pod)),
            Some(owner) if owner.kind != "Job" => false,
            Some(owner) => {
                let known = jobs.get(&Key::new(namespace, &owner.name));
                if known.is_some_and(|job| job.metadata.uid.as_ref() == Some(&owner.uid)) {
                    continue;
                }
                if !asked.contains_key(&owner.name) {
                    let job = live.get_opt(&owner.name).await.map_err(|error| Error::api("get a Job", error))?;
                    asked.insert(owner.name.clone(), job.and_then(|job| job.metadata.uid));
                }
                asked[&owner.name].as_ref() != Some(&owner.uid)
            }
        };
        if orphaned {
            plan.writes.push(release(&pod));
        }
    }
    Ok(plan)
}

fn takes_in(job: &Job, pod: &Pod) -> bool {
    let selector = compiled(job.spec.as_ref().and_then(|spec| spec.selector.as_ref()));
    let matching = selector.is_some_and(|selector| selects(&selector, pod.metadata.labels.as_ref()));
    matching && !is_finished(job) && job.metadata.deletion_timestamp.is_none()
}
