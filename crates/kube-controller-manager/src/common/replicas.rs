//! So many pods of one template: what ReplicaSets and ReplicationControllers decide alike.

use std::sync::Arc;
use std::time::Duration;

use component_helpers::labels::selects;
use component_helpers::pods;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::DeleteOptions;
use machinery::selector::LabelSelector;
use reconcile::{Kind, Write};

use super::rank::first_to_go;
use super::template::pod_of;

/// So many pods are made or ended in one go; the rest follows when these are seen.
pub(crate) const BURST_MAX: usize = 500;

/// What is wished.
pub(crate) struct Wish<'a, O> {
    pub owner: &'a O,
    pub template: &'a PodTemplateSpec,
    pub replicas: i32,
}

/// Makes what is missing, ends what is too much. `related` finds the pods that do the same work for others of the same owner.
pub(crate) fn balance<O: Kind>(
    wish: &Wish<O>,
    pods: &[Arc<Pod>],
    related: impl FnOnce() -> Vec<Arc<Pod>>,
    now: Timestamp,
) -> Vec<Write> {
    let active: Vec<Arc<Pod>> = pods.iter().filter(|pod| pods::is_active(pod)).cloned().collect();
    let wanted = usize::try_from(wish.replicas).unwrap_or(0);
    if active.len() < wanted {
        let pod = pod_of(wish.owner, wish.template);
        let missing = (wanted - active.len()).min(BURST_MAX);
        let create = |_| {
            Write::create(&pod)
                .accept(&["NamespaceTerminating"])
                .tells(wish.owner, "SuccessfulCreate", "Created pod: {name}")
                .tells_failure("FailedCreate", "Error creating: {error}")
        };
        return (0..missing).map(create).collect();
    }
    let too_many = (active.len() - wanted).min(BURST_MAX);
    let gone = first_to_go(&active, related, too_many, now);
    let delete = |pod: &Arc<Pod>| {
        Write::delete(&**pod, DeleteOptions::default())
            .tells(wish.owner, "SuccessfulDelete", "Deleted pod: {name}")
            .tells_failure("FailedDelete", "Error deleting: {error}")
    };
    gone.iter().map(delete).collect()
}

/// How the pods are, as the status counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub replicas: i32,
    pub fully_labeled: i32,
    pub ready: i32,
    pub available: i32,
    pub terminating: i32,
}

pub(crate) fn count(
    pods: &[Arc<Pod>],
    template: Option<&LabelSelector>,
    min_ready_seconds: i32,
    now: Timestamp,
) -> Counts {
    let mut counts = Counts::default();
    for pod in pods {
        if pods::is_active(pod) {
            counts.replicas += 1;
            let labeled = template.is_some_and(|template| selects(template, pod.metadata.labels.as_ref()));
            counts.fully_labeled += i32::from(labeled);
            counts.ready += i32::from(pods::is_ready(pod));
            counts.available += i32::from(pods::is_available(pod, min_ready_seconds, now));
        } else if !pods::has_ended(pod) {
            counts.terminating += 1;
        }
    }
    counts
}

/// When the next pod will have been ready for long enough.
pub(crate) fn next_available(pods: &[Arc<Pod>], min_ready_seconds: i32, now: Timestamp) -> Option<Duration> {
    if min_ready_seconds == 0 {
        return None;
    }
    let active = pods.iter().filter(|pod| pods::is_active(pod));
    let coming = active.filter_map(|pod| pods::available_at(pod, min_ready_seconds)).filter(|at| *at > now);
    let wait = coming.min()?.duration_since(now);
    Duration::try_from(wait).ok()
}
