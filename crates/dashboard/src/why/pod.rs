//! Why a pod does not run, or not well.

use machinery::status::Status;
use serde_json::Value;

use super::{Asker, Finding, Report, Severity, name, scheduling, text};
use crate::table::row::{each, shortened};

const LOG_LINES: usize = 20;

pub(super) async fn explain(asker: &Asker<'_>, pod: &Value, events: &[Value]) -> Result<Report, Status> {
    if is_unscheduled(pod) {
        return scheduling::explain(asker, pod).await;
    }
    let mut report = judge(pod, events);
    for (container, previous) in crashed(pod) {
        let lines = last_lines(asker, pod, &container, previous).await;
        if !lines.is_empty() {
            let title = format!("Last lines of {container}");
            report.find(Finding { evidence: lines, ..Finding::new(title, "what it wrote before it ended") });
        }
    }
    Ok(report)
}

fn is_unscheduled(pod: &Value) -> bool {
    text(&pod["spec"], "nodeName").is_empty()
        && !matches!(text(&pod["status"], "phase"), "Succeeded" | "Failed")
        && pod["metadata"]["deletionTimestamp"].is_null()
}

/// Containers that ended badly, and whether their lines are those of the run before this one.
fn crashed(pod: &Value) -> Vec<(String, bool)> {
    let mut found = Vec::new();
    for status in statuses(pod) {
        let failed = |ended: &Value| ended["exitCode"].as_i64().is_some_and(|code| code != 0);
        let name = text(status, "name").to_string();
        if failed(&status["state"]["terminated"]) {
            found.push((name, false));
        } else if failed(&status["lastState"]["terminated"]) && status["ready"] != true {
            found.push((name, status["state"]["running"].is_object()));
        }
    }
    found
}

async fn last_lines(asker: &Asker<'_>, pod: &Value, container: &str, previous: bool) -> Vec<String> {
    let kind = crate::kinds::Kind::new("", "v1", "pods");
    let path = crate::ask::path(&kind, text(&pod["metadata"], "namespace"), name(pod));
    let query = form_urlencoded::Serializer::new(String::new())
        .append_pair("container", container)
        .append_pair("tailLines", &LOG_LINES.to_string())
        .append_pair("limitBytes", "16384")
        .append_pair("previous", if previous { "true" } else { "false" })
        .finish();
    // Who may not read logs is told everything else.
    let log = crate::ask::text(&asker.signed_in.client, &format!("{path}/log?{query}")).await.unwrap_or_default();
    log.lines().map(shortened).collect()
}

fn statuses(pod: &Value) -> impl Iterator<Item = &Value> {
    each(&pod["status"]["initContainerStatuses"]).chain(each(&pod["status"]["containerStatuses"]))
}

/// What the pod's own status and its events say. Pure.
fn judge(pod: &Value, events: &[Value]) -> Report {
    let mut report = Report::default();
    let status = &pod["status"];
    if let Some(since) = pod["metadata"]["deletionTimestamp"].as_str() {
        let finalizers: Vec<&str> = each(&pod["metadata"]["finalizers"]).filter_map(Value::as_str).collect();
        report.say(Severity::Info, format!("The pod is being deleted since {since}"));
        if !finalizers.is_empty() {
            report.find(
                Finding::new("Finalizers hold it", finalizers.join(", "))
                    .suggests("whoever set them removes them when their work is done"),
            );
        }
    }
    for container in statuses(pod) {
        judge_container(container, &mut report);
    }
    match text(status, "phase") {
        "Failed" => {
            let reason = if text(status, "reason").is_empty() { "Failed" } else { text(status, "reason") };
            report
                .say(Severity::Failing, format!("The pod has failed: {reason} {}", shortened(text(status, "message"))));
        }
        "Succeeded" => report.say(Severity::Ok, "The pod has completed"),
        "Pending" => report.say(
            Severity::Info,
            format!("The pod is on node {} and has not started yet", text(&pod["spec"], "nodeName")),
        ),
        _ => {}
    }
    judge_probes(events, &mut report);
    judge_volumes(events, &mut report);
    let ready = each(&status["conditions"]).find(|one| one["type"] == "Ready");
    match ready {
        Some(ready) if ready["status"] == "True" => report.say(Severity::Ok, "The pod runs and is ready"),
        Some(ready) if text(ready, "reason") != "PodCompleted" => {
            report.say(Severity::Warning, format!("The pod is not ready: {}", text(ready, "message")));
            for gate in each(&pod["spec"]["readinessGates"]) {
                let wanted = text(gate, "conditionType");
                let met = each(&status["conditions"]).any(|one| one["type"] == wanted && one["status"] == "True");
                if !met {
                    report.find(Finding::new(
                        "A readiness gate is closed",
                        format!("the condition {wanted} is not True: its controller sets it"),
                    ));
                }
            }
        }
        _ => report.say(Severity::Info, "Nothing is known to be wrong with this pod"),
    }
    report
}

fn judge_container(container: &Value, report: &mut Report) {
    let name = text(container, "name");
    let waiting = &container["state"]["waiting"];
    let (reason, message) = (text(waiting, "reason"), shortened(text(waiting, "message")));
    let last = &container["lastState"]["terminated"];
    let ended = if container["state"]["terminated"].is_object() { &container["state"]["terminated"] } else { last };
    match reason {
        "" | "ContainerCreating" | "PodInitializing" => {}
        "ErrImagePull" | "ImagePullBackOff" | "InvalidImageName" | "ErrImageNeverPull" | "ImageInspectError" => {
            report.say(
                Severity::Failing,
                format!("The image {} of container {name} cannot be pulled", text(container, "image")),
            );
            report.find(
                Finding::new("The image cannot be pulled", message)
                    .evidence(format!("image: {}", text(container, "image")))
                    .suggests("check the name and tag of the image, the registry, and imagePullSecrets"),
            );
        }
        "CreateContainerConfigError" | "CreateContainerError" | "RunContainerError" => {
            report.say(Severity::Failing, format!("Container {name} cannot be created: {message}"));
            report.find(
                Finding::new("The container cannot be created", message)
                    .suggests("a ConfigMap, Secret or key that it names may be missing"),
            );
        }
        "CrashLoopBackOff" => {
            report.say(Severity::Failing, format!("Container {name} ends again and again{}", how(last)))
        }
        other => report.say(Severity::Warning, format!("Container {name} waits: {other} {message}")),
    }
    if ended["exitCode"].as_i64().is_some_and(|code| code != 0) {
        let restarts = container["restartCount"].as_i64().unwrap_or(0);
        let mut finding =
            Finding::new(format!("Container {name} ended{}", how(ended)), shortened(text(ended, "message")))
                .evidence(format!("exit code {}", ended["exitCode"]))
                .evidence(format!("restarts: {restarts}"));
        if !text(ended, "finishedAt").is_empty() {
            finding = finding.evidence(format!("from {} to {}", text(ended, "startedAt"), text(ended, "finishedAt")));
        }
        if text(ended, "reason") == "OOMKilled" {
            finding =
                finding.suggests("it used more memory than its limit: raise resources.limits.memory, or find the leak");
        }
        report.find(finding);
        if container["state"]["terminated"].is_object() {
            report.say(Severity::Failing, format!("Container {name} ended{}", how(ended)));
        }
    }
}

/// `: out of memory`, `: exit code 1`, ...
fn how(ended: &Value) -> String {
    let code = ended["exitCode"].as_i64();
    match (text(ended, "reason"), code) {
        ("OOMKilled", _) => ": it was killed because it used more memory than its limit".into(),
        (_, Some(137)) => ": it was killed (SIGKILL)".into(),
        (_, Some(143)) => ": it was told to stop (SIGTERM)".into(),
        (_, Some(139)) => ": it crashed (SIGSEGV)".into(),
        (_, Some(126)) => ": its command cannot be executed (exit code 126)".into(),
        (_, Some(127)) => ": its command was not found (exit code 127)".into(),
        (_, Some(code)) => format!(": exit code {code}"),
        (_, None) => String::new(),
    }
}

fn judge_probes(events: &[Value], report: &mut Report) {
    let failed: Vec<&Value> = events.iter().filter(|event| event["reason"] == "Unhealthy").collect();
    let Some(last) = failed.last() else { return };
    let mut finding = Finding::new("A probe fails", shortened(text(last, "message")));
    for event in failed.iter().rev().take(5) {
        finding = finding.evidence(format!("{}: {}", super::time(event), shortened(text(event, "message"))));
    }
    report.find(finding.suggests("see whether the container answers where the probe asks, and within its timeout"));
}

fn judge_volumes(events: &[Value], report: &mut Report) {
    let failed =
        |event: &&Value| matches!(text(event, "reason"), "FailedMount" | "FailedAttachVolume" | "FailedMapVolume");
    if let Some(last) = events.iter().rev().find(failed) {
        report.say(Severity::Failing, format!("A volume cannot be mounted: {}", shortened(text(last, "message"))));
        report.find(Finding::new("A volume cannot be mounted", shortened(text(last, "message"))));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(status: Value, events: Value, severity: Severity, verdict: &str) -> Report {
        let pod = json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n1"}, "status": status});
        let report = judge(&pod, events.as_array().unwrap());
        assert_eq!((report.severity, report.verdict.as_str()), (severity, verdict));
        report
    }

    #[test]
    fn pods() {
        let ready = json!([{"type": "Ready", "status": "True"}]);
        check(json!({"phase": "Running", "conditions": ready}), json!([]), Severity::Ok, "The pod runs and is ready");
        let unready = json!([{"type": "Ready", "status": "False", "message": "containers with unready status: [c]"}]);
        let crash = |last: Value| {
            json!({"phase": "Running", "conditions": unready, "containerStatuses": [
            {"name": "c", "restartCount": 3, "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": last}}]})
        };
        let report = check(
            crash(json!({"exitCode": 137, "reason": "OOMKilled"})),
            json!([]),
            Severity::Failing,
            "Container c ends again and again: it was killed because it used more memory than its limit",
        );
        assert!(report.findings[0].suggestion.as_ref().unwrap().contains("memory"));
        check(
            crash(json!({"exitCode": 127})),
            json!([]),
            Severity::Failing,
            "Container c ends again and again: its command was not found (exit code 127)",
        );
        let pull = json!({"phase": "Pending", "containerStatuses": [{"name": "c", "image": "i:1", "state": {"waiting": {"reason": "ImagePullBackOff"}}}]});
        check(pull, json!([]), Severity::Failing, "The image i:1 of container c cannot be pulled");
        let mount = json!([{"reason": "FailedMount", "message": "no such ConfigMap"}]);
        check(json!({"phase": "Pending"}), mount, Severity::Failing, "A volume cannot be mounted: no such ConfigMap");
        let probe = json!([{"reason": "Unhealthy", "message": "Readiness probe failed: 503"}]);
        let report = check(
            json!({"phase": "Running", "conditions": unready}),
            probe,
            Severity::Warning,
            "The pod is not ready: containers with unready status: [c]",
        );
        assert_eq!(report.findings[0].title, "A probe fails");
    }
}
