//! Why a pod has no node: the scheduler's own plugins, asked about every node.

use machinery::status::Status;
use serde_json::Value;

use super::report::Table;
use super::{Asker, Finding, Report, Severity, text};
use crate::insight::{SchedulingFacts, Verdict};
use crate::kinds::Kind;
use crate::table::row::{each, shortened};

/// What plugins look up besides nodes and pods.
const OTHERS: [(&str, &str, &str, &str); 9] = [
    ("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim"),
    ("", "v1", "persistentvolumes", "PersistentVolume"),
    ("storage.k8s.io", "v1", "storageclasses", "StorageClass"),
    ("storage.k8s.io", "v1", "csinodes", "CSINode"),
    ("storage.k8s.io", "v1", "csidrivers", "CSIDriver"),
    ("", "v1", "services", "Service"),
    ("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim"),
    ("resource.k8s.io", "v1", "resourceslices", "ResourceSlice"),
    ("resource.k8s.io", "v1", "deviceclasses", "DeviceClass"),
];

/// Pods that count for a node: those on one, and those that one is kept for. All others, of which there can be very many, are
/// not even read.
const PLACED: [&str; 2] =
    ["spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed", "spec.nodeName=,status.nominatedNodeName!="];

pub(super) async fn explain(asker: &Asker<'_>, pod: &Value) -> Result<Report, Status> {
    let gates: Vec<&str> = each(&pod["spec"]["schedulingGates"]).map(|gate| text(gate, "name")).collect();
    if !gates.is_empty() {
        let mut report =
            Report::new(Severity::Info, format!("The pod waits for its scheduling gates: {}", gates.join(", ")));
        report.find(Finding::new(
            "Scheduling gates are closed",
            "the scheduler does not look at the pod until somebody removes them",
        ));
        return Ok(report);
    }
    let said = each(&pod["status"]["conditions"]).find(|one| one["type"] == "PodScheduled" && one["status"] == "False");
    let said = said.map(|one| shortened(text(one, "message"))).unwrap_or_default();
    let Some(scheduling) = &asker.dashboard.config.scheduling else {
        return Ok(only_said(&said, "this dashboard does not have the scheduler's rules"));
    };
    let facts = match gather(asker, pod).await {
        Ok(facts) => facts,
        Err(status) if status.code == 403 => return Ok(only_said(&said, "you may not list nodes and all pods")),
        Err(status) => return Err(status),
    };
    match scheduling.verdicts(&facts) {
        Ok(verdicts) => Ok(judge(&verdicts, &said)),
        // Another scheduler's pod.
        Err(status) if status.code == 501 => Ok(only_said(&said, &status.message)),
        Err(status) => Err(status),
    }
}

fn only_said(said: &str, why: &str) -> Report {
    let mut report = Report::new(
        Severity::Warning,
        match said {
            "" => "The pod has no node yet".to_string(),
            said => format!("The pod has no node: {said}"),
        },
    );
    report.find(Finding::new(
        "No verdict per node",
        format!("{why}, so only what the scheduler wrote into the pod is known"),
    ));
    report
}

async fn gather(asker: &Asker<'_>, pod: &Value) -> Result<SchedulingFacts, Status> {
    let kind = |resource: &str| Kind::new("", "v1", resource);
    let nodes = asker.list(&kind("nodes"), "").await?;
    let mut pods = Vec::new();
    for fields in PLACED {
        pods.extend(asker.list_with(&kind("pods"), fields).await?);
    }
    let namespaces = asker.list_if_allowed(&kind("namespaces"), "").await;
    let mut others = Vec::new();
    for (group, version, resource, name) in OTHERS {
        for mut object in asker.list_if_allowed(&Kind::new(group, version, resource), "").await {
            // Items of a list do not say what they are.
            object["kind"] = name.into();
            others.push(object);
        }
    }
    Ok(SchedulingFacts { pod: pod.clone(), nodes, pods, namespaces, others })
}

fn judge(verdicts: &[Verdict], said: &str) -> Report {
    let mut report = Report::default();
    let fits: Vec<&str> = verdicts.iter().filter(|one| one.refused.is_none()).map(|one| one.node.as_str()).collect();
    let of_all = verdicts.iter().find(|one| one.node.is_empty()).and_then(|one| one.refused.as_ref());
    match (of_all, fits.as_slice(), verdicts) {
        (_, _, []) => report.say(Severity::Failing, "There is no node: nothing can be scheduled"),
        (Some(refused), ..) => {
            report.say(
                Severity::Failing,
                format!("No node can take the pod: {} ({})", refused.reasons.join(", "), refused.plugin),
            );
        }
        (None, [], _) => report.say(Severity::Failing, format!("None of {} nodes can take the pod", verdicts.len())),
        (None, some, _) => {
            report.say(
                Severity::Info,
                format!("{} of {} nodes can take the pod now: {}", some.len(), verdicts.len(), some.join(", ")),
            );
            report.find(Finding::new("It should be scheduled soon", "the scheduler has not tried it again yet, does not run, or another scheduler is named in schedulerName"));
        }
    }
    if !said.is_empty() {
        report.find(Finding::new("What the scheduler wrote", said));
    }
    if verdicts.iter().filter_map(|one| one.refused.as_ref()).any(|refused| refused.resolvable) {
        report.find(Finding::new(
            "Ending other pods could help",
            "a pod with a higher priority would preempt less important ones on some of these nodes",
        ));
    }
    let rows = verdicts.iter().filter(|one| !one.node.is_empty()).map(|one| match &one.refused {
        Some(refused) => vec![one.node.clone(), refused.plugin.clone(), refused.reasons.join(", ")],
        None => vec![one.node.clone(), String::new(), "can take the pod".into()],
    });
    report.tables.push(Table {
        title: "The scheduler's verdict per node".into(),
        columns: vec!["Node", "Plugin", "Reason"],
        rows: rows.collect(),
    });
    report
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::insight::Refused;

    #[test]
    fn verdicts_in_words() {
        let refused = |node: &str, plugin: &str, reason: &str| Verdict {
            node: node.into(),
            refused: Some(Refused { plugin: plugin.into(), reasons: vec![reason.into()], resolvable: false }),
        };
        let report = judge(
            &[refused("n1", "NodeResourcesFit", "Insufficient cpu"), refused("n2", "TaintToleration", "t")],
            "0/2 nodes",
        );
        assert_eq!(report.verdict, "None of 2 nodes can take the pod");
        assert_eq!(report.tables[0].rows[0], ["n1", "NodeResourcesFit", "Insufficient cpu"]);
        let report = judge(&[refused("", "VolumeBinding", "pod has unbound claims")], "");
        assert_eq!(report.verdict, "No node can take the pod: pod has unbound claims (VolumeBinding)");
        assert!(report.tables[0].rows.is_empty());
        let report = judge(&[Verdict { node: "n1".into(), refused: None }], "");
        assert_eq!(
            (report.severity, report.verdict.as_str()),
            (Severity::Info, "1 of 1 nodes can take the pod now: n1")
        );
        assert_eq!(judge(&[], "").verdict, "There is no node: nothing can be scheduled");
    }
}
