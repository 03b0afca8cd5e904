//! What is known about a Job's pods at one moment: what ran, what ended and is not in the status yet, which indexes are done.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use component_helpers::pods::{is_active, is_ready};
use k8s_openapi::api::batch::v1::{Job, JobSpec};
use k8s_openapi::api::core::v1::Pod;

use super::indexes::Indexes;
use super::pods::{failure_order, has_failed, has_succeeded, index, is_held, is_indexed, is_terminating, uid};
use super::policy::{Verdict, verdict};

pub(super) struct Count<'a> {
    pub pods: &'a [Arc<Pod>],
    pub active: Vec<Arc<Pod>>,
    pub ready: i32,
    pub terminating: i32,
    /// With those that are not in the status yet.
    pub succeeded: i32,
    pub failed: i32,
    /// Uids that the status lists as ended but has not counted.
    pub uncounted_succeeded: BTreeSet<&'a str>,
    pub uncounted_failed: BTreeSet<&'a str>,
    pub completions: i32,
    pub indexes: Option<Done>,
}

/// How far an indexed Job is.
pub(super) struct Done {
    /// What the status says.
    pub succeeded_before: Indexes,
    pub succeeded: Indexes,
    /// Only where every index has a limit of its own.
    pub failed: Option<Indexes>,
    /// The last failed pod of an index that waits for its successor: it is kept, since it knows how often the index failed.
    pub kept: BTreeMap<i32, Arc<Pod>>,
}

impl<'a> Count<'a> {
    pub fn of(job: &'a Job, spec: &JobSpec, pods: &'a [Arc<Pod>]) -> Count<'a> {
        let status = job.status.as_ref();
        let listed = status.and_then(|status| status.uncounted_terminated_pods.as_ref());
        let set = |list: Option<&'a Vec<String>>| list.into_iter().flatten().map(String::as_str).collect();
        let uncounted_succeeded: BTreeSet<&str> = set(listed.and_then(|listed| listed.succeeded.as_ref()));
        let uncounted_failed: BTreeSet<&str> = set(listed.and_then(|listed| listed.failed.as_ref()));
        let active: Vec<Arc<Pod>> = pods.iter().filter(|pod| is_active(pod)).cloned().collect();
        let mut count = Count {
            pods,
            ready: number(active.iter().filter(|pod| is_ready(pod)).count()),
            active,
            terminating: number(pods.iter().filter(|pod| is_terminating(pod)).count()),
            succeeded: 0,
            failed: 0,
            uncounted_succeeded,
            uncounted_failed,
            completions: spec.completions.unwrap_or(0),
            indexes: None,
        };
        let is_new = |pod: &&Arc<Pod>| is_held(pod) && (!is_indexed(spec) || index(pod, count.completions).is_some());
        let counts = |pod: &&Arc<Pod>| has_failed(pod, spec) && verdict(spec, pod) != Verdict::Ignore;
        let new = |counted: &BTreeSet<&str>, ended: &dyn Fn(&&Arc<Pod>) -> bool| {
            let fresh = pods.iter().filter(|pod| !counted.contains(uid(pod)));
            number(fresh.filter(is_new).filter(ended).count() + counted.len())
        };
        let succeeded = new(&count.uncounted_succeeded, &|pod| has_succeeded(pod));
        let failed = new(&count.uncounted_failed, &counts);
        count.failed = status.and_then(|status| status.failed).unwrap_or(0).saturating_add(failed);
        count.succeeded = status.and_then(|status| status.succeeded).unwrap_or(0).saturating_add(succeeded);
        if is_indexed(spec) {
            let done = Done::of(job, spec, pods, &count.active, count.completions);
            count.succeeded = done.succeeded.total();
            count.indexes = Some(done);
        }
        count
    }
}

impl Done {
    fn of(job: &Job, spec: &JobSpec, pods: &[Arc<Pod>], active: &[Arc<Pod>], completions: i32) -> Done {
        let status = job.status.as_ref();
        let parse = |text: Option<&String>| Indexes::parse(text.map_or("", String::as_str), completions);
        let succeeded_before = parse(status.and_then(|status| status.completed_indexes.as_ref()));
        let indexed = || pods.iter().filter_map(|pod| Some((index(pod, completions)?, pod)));
        let mut succeeded = succeeded_before.clone();
        let new = indexed().filter(|(_, pod)| has_succeeded(pod) && is_held(pod));
        new.for_each(|(index, _)| succeeded.insert(index));
        let mut done = Done { succeeded_before, succeeded, failed: None, kept: BTreeMap::new() };
        let Some(limit) = spec.backoff_limit_per_index else { return done };
        let mut failed = parse(status.and_then(|status| status.failed_indexes.as_ref()));
        for (index, pod) in indexed().filter(|(_, pod)| has_failed(pod, spec)) {
            let fails = match verdict(spec, pod) {
                Verdict::FailIndex => true,
                Verdict::Ignore => false,
                Verdict::Count | Verdict::FailJob(_) => super::pods::index_failures(pod) >= limit,
            };
            if fails {
                failed.insert(index);
            }
        }
        // An active pod of the index knows the number itself.
        let running: Indexes = active.iter().filter_map(|pod| index(pod, completions)).collect();
        for (index, pod) in indexed().filter(|(_, pod)| has_failed(pod, spec)) {
            if done.succeeded.contains(index) || failed.contains(index) || running.contains(index) {
                continue;
            }
            let last = done.kept.entry(index).or_insert_with(|| pod.clone());
            if failure_order(last) < failure_order(pod) {
                *last = pod.clone();
            }
        }
        done.failed = Some(failed);
        done
    }
}

pub(super) fn number(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}
