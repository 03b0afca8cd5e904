//! Why a workload has not the pods it should have: its own conditions, and what is wrong with its pods.

use std::collections::BTreeMap;

use machinery::selector::LabelSelector;
use machinery::status::Status;
use serde_json::Value;

use super::report::Table;
use super::{Asker, Finding, Report, Severity, name, text};
use crate::kinds::Kind;
use crate::table::health::{Health, judge as judge_health};
use crate::table::row::each;

const ROWS_MAX: usize = 50;

pub(super) async fn explain(asker: &Asker<'_>, kind: &Kind, object: &Value) -> Result<Report, Status> {
    let pods = asker.list(&Kind::new("", "v1", "pods"), &asker.namespace).await?;
    Ok(judge(kind, object, &pods))
}

fn judge(kind: &Kind, object: &Value, pods: &[Value]) -> Report {
    let mut report = Report::default();
    let selector = LabelSelector::from_object(&object["spec"]["selector"]).unwrap_or_default();
    let own: Vec<&Value> =
        pods.iter().filter(|pod| !selector.matches_everything() && selector.matches_object(pod)).collect();
    let (health, problem) = judge_health(kind, object);
    for condition in each(&object["status"]["conditions"]) {
        let bad = match text(condition, "type") {
            "ReplicaFailure" | "Failed" => condition["status"] == "True",
            "Progressing" | "Available" => condition["status"] == "False",
            _ => false,
        };
        if bad {
            report.find(Finding::new(
                format!("{}: {}", text(condition, "type"), text(condition, "reason")),
                text(condition, "message"),
            ));
        }
    }
    // Pods that suffer from the same are told together.
    let mut reasons: BTreeMap<String, Vec<&Value>> = BTreeMap::new();
    let pod_kind = Kind::new("", "v1", "pods");
    let mut rows = Vec::new();
    for pod in &own {
        let (health, problem) = judge_health(&pod_kind, pod);
        let reason = problem.map(|problem| (problem.reason, problem.message)).unwrap_or_default();
        if health >= Health::Warning {
            reasons.entry(reason.0.clone()).or_default().push(pod);
        }
        if rows.len() < ROWS_MAX {
            let state = if reason.0.is_empty() { "fine".to_string() } else { format!("{}: {}", reason.0, reason.1) };
            rows.push(vec![name(pod).to_string(), text(&pod["status"], "phase").to_string(), state]);
        }
    }
    for (reason, pods) in &reasons {
        let first = pods[0];
        let finding = Finding::new(
            format!("{} of {} pods: {reason}", pods.len(), own.len()),
            format!("ask why of {}", name(first)),
        );
        report.find(finding.about(("", "v1", "pods"), text(&first["metadata"], "namespace"), name(first)));
    }
    let severity = match health {
        Health::Failing => Severity::Failing,
        Health::Warning => Severity::Warning,
        Health::Progressing | Health::Unknown => Severity::Info,
        Health::Ok => Severity::Ok,
    };
    let verdict = match (&problem, reasons.iter().next()) {
        (Some(problem), Some((reason, pods))) => format!("{}: {} pods have {reason}", problem.message, pods.len()),
        (Some(problem), None) if own.is_empty() && health >= Health::Warning => {
            format!("{}: it has no pods", problem.message)
        }
        (Some(problem), None) => problem.message.clone(),
        (None, _) => "All pods that should be there are ready".to_string(),
    };
    report.say(severity, verdict);
    report.tables.push(Table { title: "Pods".into(), columns: vec!["Pod", "Phase", "State"], rows });
    report
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_pods_suffer_from_is_said_of_their_workload() {
        let kind = Kind::new("apps", "v1", "deployments");
        let deployment = json!({"spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}}, "status": {"readyReplicas": 0}});
        let pod = |name: &str| {
            json!({"metadata": {"name": name, "labels": {"app": "web"}},
            "status": {"phase": "Pending", "containerStatuses": [{"state": {"waiting": {"reason": "ImagePullBackOff"}}}]}})
        };
        let report = judge(
            &kind,
            &deployment,
            &[pod("a"), pod("b"), json!({"metadata": {"name": "c", "labels": {"app": "x"}}})],
        );
        assert_eq!(report.verdict, "0 of 2 are ready: 2 pods have ImagePullBackOff");
        assert_eq!(report.tables[0].rows.len(), 2);
        let report = judge(&kind, &deployment, &[]);
        assert_eq!(report.verdict, "0 of 2 are ready: it has no pods");
    }
}
