//! When a Job that has ended is deleted.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, Preconditions};
use reconcile::{Plan, Write};

pub(super) fn plan(now: Timestamp, job: &Job) -> Plan {
    let ttl = job.spec.as_ref().and_then(|spec| spec.ttl_seconds_after_finished);
    let Some(ttl) = ttl.filter(|_| job.metadata.deletion_timestamp.is_none()) else { return Plan::nothing() };
    let conditions = job.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let mut ends = conditions.filter(|one| matches!(one.type_.as_str(), "Complete" | "Failed") && one.status == "True");
    let ended = ends.find_map(|condition| condition.last_transition_time.as_ref()).map(|time| time.0);
    let Some(until) = ended.and_then(|ended| ended.checked_add(SignedDuration::from_secs(ttl.into())).ok()) else {
        return Plan::nothing();
    };
    let left = until.duration_since(now);
    if left.is_positive() {
        return Plan::after(Duration::try_from(left).unwrap_or_default());
    }
    // Only as it was seen: the time to live may just have been made longer. Pods go first, since they belong to the Job.
    let seen = Preconditions { resource_version: job.metadata.resource_version.clone(), uid: None };
    let options = DeleteOptions {
        propagation_policy: Some("Foreground".into()),
        preconditions: Some(seen),
        ..DeleteOptions::default()
    };
    Plan::one(Write::delete(job, options))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_lives_on_for_its_time() {
        let check = |ttl: Option<i32>, condition: &str, seconds: i64, expected: &str| {
            let object = serde_json::json!({
                "metadata": {"name": "j", "namespace": "a", "uid": "1", "resourceVersion": "7"},
                "spec": {"ttlSecondsAfterFinished": ttl, "template": {}},
                "status": {"conditions": [{"type": condition, "status": "True", "lastTransitionTime": "1970-01-01T00:00:00Z"}]},
            });
            let job: Job = serde_json::from_value(object).expect("a job");
            let plan = plan(Timestamp::from_second(seconds).expect("a time"), &job);
            let writes: Vec<String> = plan.writes.iter().map(|write| format!("{write:?}")).collect();
            assert_eq!(format!("{} {:?}", writes.join(""), plan.again), expected, "{ttl:?} {condition} {seconds}");
        };
        check(None, "Complete", 100, " None");
        check(Some(10), "Suspended", 100, " None");
        check(Some(10), "Complete", 4, " Some(6s)");
        let deleted = r#"delete /apis/batch/v1/namespaces/a/jobs/j {"preconditions":{"resourceVersion":"7","uid":"1"},"propagationPolicy":"Foreground"} None"#;
        check(Some(10), "Failed", 10, deleted);
        check(Some(0), "Complete", 0, deleted);
    }
}
