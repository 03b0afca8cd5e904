//! The pods a Job makes, and those it ends first.

use std::collections::HashSet;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{Job, JobSpec};
use k8s_openapi::api::core::v1::{Container, EnvVar, EnvVarSource, ObjectFieldSelector, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::DeleteOptions;
use reconcile::Write;

use super::pods::{FINALIZER, INDEX, INDEX_FAILURES, INDEX_IGNORED_FAILURES};
use super::pods::{index, index_failures, index_ignored_failures};
use super::policy::{Verdict, verdict};
use crate::common::rank::first_to_go;
use crate::common::template::pod_of;

const INDEX_VARIABLE: &str = "JOB_COMPLETION_INDEX";
/// The server adds five letters to what it completes.
const NAME_PREFIX_MAX: usize = 58;

/// A pod for any work there is.
pub(super) fn create(job: &Job, spec: &JobSpec) -> Write {
    told(Write::create(&held(job, spec)), job)
}

/// The pod of an index; `last` is the failed one that it replaces.
pub(super) fn create_indexed(job: &Job, spec: &JobSpec, index: i32, last: Option<&Pod>) -> Write {
    let mut pod = held(job, spec);
    let name = job.metadata.name.as_deref().unwrap_or_default();
    pod.metadata.generate_name = Some(prefix(name, index));
    pod.metadata.labels.get_or_insert_default().insert(INDEX.into(), index.to_string());
    let annotations = pod.metadata.annotations.get_or_insert_default();
    annotations.insert(INDEX.into(), index.to_string());
    if spec.backoff_limit_per_index.is_some() {
        let (failures, ignored) = last.map_or((0, 0), |last| failures_with(spec, last));
        annotations.insert(INDEX_FAILURES.into(), failures.to_string());
        if ignored > 0 {
            annotations.insert(INDEX_IGNORED_FAILURES.into(), ignored.to_string());
        }
    }
    if let Some(spec) = &mut pod.spec {
        spec.hostname = Some(format!("{name}-{index}"));
        let containers = spec.init_containers.iter_mut().flatten().chain(&mut spec.containers);
        containers.for_each(tell_index);
    }
    told(Write::create(&pod), job)
}

pub(super) fn delete(job: &Job, pod: &Pod) -> Write {
    Write::delete(pod, DeleteOptions::default())
        .tells(job, "SuccessfulDelete", "Deleted pod: {name}")
        .tells_failure("FailedDelete", "Error deleting: {error}")
}

/// At least so many of the active pods, and all that stand for no index or for one that another pod stands for.
pub(super) fn to_remove(
    active: &[Arc<Pod>],
    completions: Option<i32>,
    at_least: usize,
    now: Timestamp,
) -> Vec<Arc<Pod>> {
    let Some(completions) = completions else { return first_to_go(active, || active.to_vec(), at_least, now) };
    let mut order: Vec<Arc<Pod>> = first_to_go(active, || active.to_vec(), active.len(), now);
    order.reverse();
    let mut kept: HashSet<i32> = HashSet::new();
    let keeps = |pod: &Arc<Pod>| index(pod, completions).is_some_and(|index| kept.insert(index));
    let (left, mut removed): (Vec<Arc<Pod>>, Vec<Arc<Pod>>) = order.into_iter().partition(keeps);
    let more = at_least.saturating_sub(removed.len());
    removed.extend(first_to_go(&left, || left.clone(), more, now));
    removed
}

/// The pod is held until it is counted.
fn held(job: &Job, spec: &JobSpec) -> Pod {
    let mut pod = pod_of(job, &spec.template);
    let finalizers = pod.metadata.finalizers.get_or_insert_default();
    if !finalizers.iter().any(|name| name == FINALIZER) {
        finalizers.push(FINALIZER.into());
    }
    pod
}

fn told(write: Write, job: &Job) -> Write {
    write
        .accept(&["NamespaceTerminating"])
        .tells(job, "SuccessfulCreate", "Created pod: {name}")
        .tells_failure("FailedCreate", "Error creating: {error}")
}

/// How often the index has failed, with the last pod: counted, and ignored.
fn failures_with(spec: &JobSpec, last: &Pod) -> (i32, i32) {
    let (counted, ignored) = (index_failures(last), index_ignored_failures(last));
    match verdict(spec, last) {
        Verdict::Ignore => (counted, ignored.saturating_add(1)),
        Verdict::Count | Verdict::FailIndex | Verdict::FailJob(_) => (counted.saturating_add(1), ignored),
    }
}

fn prefix(name: &str, index: i32) -> String {
    let ending = format!("-{index}-");
    let kept = NAME_PREFIX_MAX.saturating_sub(ending.len()).min(name.len());
    format!("{}{ending}", &name[..kept])
}

fn tell_index(container: &mut Container) {
    let variables = container.env.get_or_insert_default();
    if variables.iter().any(|variable| variable.name == INDEX_VARIABLE) {
        return;
    }
    let field = ObjectFieldSelector { field_path: format!("metadata.labels['{INDEX}']"), ..Default::default() };
    let source = EnvVarSource { field_ref: Some(field), ..EnvVarSource::default() };
    variables.push(EnvVar { name: INDEX_VARIABLE.into(), value_from: Some(source), ..EnvVar::default() });
}
