//! Why a claim has no volume, a node takes nothing, and whatever else says something of itself in conditions.

use machinery::status::Status;
use serde_json::Value;

use super::{Asker, Finding, Report, Severity, name, text};
use crate::kinds::Kind;
use crate::table::health::{Health, judge};
use crate::table::row::each;

pub(super) async fn claim(asker: &Asker<'_>, claim: &Value) -> Result<Report, Status> {
    let classes = asker.list(&Kind::new("storage.k8s.io", "v1", "storageclasses"), "").await.ok();
    let pods = asker.list_if_allowed(&Kind::new("", "v1", "pods"), &asker.namespace).await;
    Ok(judge_claim(claim, classes.as_deref(), &pods))
}

fn judge_claim(claim: &Value, classes: Option<&[Value]>, pods: &[Value]) -> Report {
    let phase = text(&claim["status"], "phase");
    if phase == "Bound" {
        return Report::new(Severity::Ok, format!("The claim has the volume {}", text(&claim["spec"], "volumeName")));
    }
    if phase == "Lost" {
        return Report::new(
            Severity::Failing,
            format!("The volume {} of this claim is gone", text(&claim["spec"], "volumeName")),
        );
    }
    let uses = |pod: &&Value| {
        each(&pod["spec"]["volumes"]).any(|volume| volume["persistentVolumeClaim"]["claimName"] == name(claim))
    };
    let users = pods.iter().filter(uses).count();
    let Some(class) = claim["spec"]["storageClassName"].as_str().filter(|class| !class.is_empty()) else {
        let mut report =
            Report::new(Severity::Warning, "The claim waits: it names no StorageClass, and none is the default");
        report.find(Finding::new(
            "No StorageClass",
            "only a PersistentVolume that somebody makes by hand can be bound to it",
        ));
        return report;
    };
    let found = classes.map(|classes| classes.iter().find(|one| name(one) == class));
    match found {
        Some(None) => Report::new(Severity::Failing, format!("There is no StorageClass {class}")),
        Some(Some(class)) if class["volumeBindingMode"] == "WaitForFirstConsumer" && users == 0 => Report::new(
            Severity::Info,
            "The claim waits for the first pod that uses it: its class binds where that pod is scheduled",
        ),
        Some(Some(class)) => {
            let mut report = Report::new(
                Severity::Warning,
                format!("The claim waits for its provisioner {}", text(class, "provisioner")),
            );
            report.find(
                Finding::new("The provisioner has not made a volume", format!("{users} pods use the claim"))
                    .suggests("see the warnings below, and whether the provisioner runs"),
            );
            report
        }
        None => Report::new(Severity::Info, "The claim has no volume yet"),
    }
}

pub(super) fn node(node: &Value) -> Report {
    let mut report = any(&Kind::new("", "v1", "nodes"), node);
    for taint in each(&node["spec"]["taints"]) {
        report.find(Finding::new(
            format!("Taint {}", text(taint, "key")),
            format!("{}: only pods that tolerate it come here", text(taint, "effect")),
        ));
    }
    if node["spec"]["unschedulable"] == true {
        report.find(
            Finding::new("Cordoned", "no new pods come here")
                .suggests("uncordon the node when its maintenance is over"),
        );
    }
    report
}

pub(super) fn any(kind: &Kind, object: &Value) -> Report {
    let (health, problem) = judge(kind, object);
    let severity = match health {
        Health::Failing => Severity::Failing,
        Health::Warning => Severity::Warning,
        Health::Progressing | Health::Unknown => Severity::Info,
        Health::Ok => Severity::Ok,
    };
    let verdict = match problem {
        Some(problem) if problem.message.is_empty() => problem.reason,
        Some(problem) => format!("{}: {}", problem.reason, problem.message),
        None => "Nothing is known to be wrong with it".into(),
    };
    let mut report = Report::new(severity, verdict);
    for condition in each(&object["status"]["conditions"]) {
        let line = format!("{}: {}", text(condition, "status"), text(condition, "message"));
        let since = format!("since {}", text(condition, "lastTransitionTime"));
        report.find(Finding::new(format!("Condition {}", text(condition, "type")), line).evidence(since));
    }
    let finalizers: Vec<&str> = each(&object["metadata"]["finalizers"]).filter_map(Value::as_str).collect();
    if object["metadata"]["deletionTimestamp"].is_string() && !finalizers.is_empty() {
        report.find(Finding::new("Finalizers hold it", finalizers.join(", ")));
    }
    report
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn claims() {
        let claim = |class: Option<&str>| json!({"metadata": {"name": "c"}, "spec": {"storageClassName": class}, "status": {"phase": "Pending"}});
        let class =
            json!({"metadata": {"name": "local"}, "volumeBindingMode": "WaitForFirstConsumer", "provisioner": "p"});
        let pod = json!({"spec": {"volumes": [{"persistentVolumeClaim": {"claimName": "c"}}]}});
        let verdict =
            |claim: Value, pods: &[Value]| judge_claim(&claim, Some(std::slice::from_ref(&class)), pods).verdict;
        assert_eq!(verdict(claim(Some("gone")), &[]), "There is no StorageClass gone");
        assert!(verdict(claim(Some("local")), &[]).contains("first pod"));
        assert_eq!(verdict(claim(Some("local")), &[pod]), "The claim waits for its provisioner p");
        assert!(verdict(claim(None), &[]).contains("names no StorageClass"));
    }
}
