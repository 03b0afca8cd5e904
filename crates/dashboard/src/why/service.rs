//! Why a Service leads nowhere, or an Ingress.

use machinery::selector::LabelSelector;
use machinery::status::Status;
use serde_json::Value;

use super::report::Table;
use super::{Asker, Finding, Report, Severity, name, text};
use crate::kinds::Kind;
use crate::table::row::each;

const ROWS_MAX: usize = 50;

pub(super) async fn explain(asker: &Asker<'_>, service: &Value) -> Result<Report, Status> {
    let pods = asker.list(&Kind::new("", "v1", "pods"), &asker.namespace).await?;
    let slices = asker.list_if_allowed(&Kind::new("discovery.k8s.io", "v1", "endpointslices"), &asker.namespace).await;
    let policies =
        asker.list_if_allowed(&Kind::new("networking.k8s.io", "v1", "networkpolicies"), &asker.namespace).await;
    Ok(judge(service, &pods, &slices, &policies))
}

fn judge(service: &Value, pods: &[Value], slices: &[Value], policies: &[Value]) -> Report {
    let mut report = Report::default();
    if service["spec"]["type"] == "ExternalName" {
        report.say(Severity::Ok, format!("The Service is another name of {}", text(&service["spec"], "externalName")));
        return report;
    }
    let ready = ready_endpoints(name(service), slices);
    let Some(selector) = service["spec"]["selector"].as_object().filter(|selector| !selector.is_empty()) else {
        match ready {
            0 => {
                report
                    .say(Severity::Warning, "The Service has no selector, and nobody has made ready endpoints for it");
                report.find(
                    Finding::new("No selector", "somebody must make its EndpointSlices")
                        .suggests("set spec.selector to the labels of its pods"),
                );
            }
            ready => {
                report.say(Severity::Ok, format!("The Service has {ready} ready endpoints that somebody else made"))
            }
        }
        return report;
    };
    let words: Vec<String> =
        selector.iter().map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
    let selector = LabelSelector::from_labels(selector);
    let selected: Vec<&Value> = pods.iter().filter(|pod| selector.matches_object(pod)).collect();
    if selected.is_empty() {
        report.say(Severity::Failing, format!("No pod has the labels that the Service selects: {}", words.join(", ")));
        report.find(near_miss(service, pods));
        return report;
    }
    let is_ready =
        |pod: &&&Value| each(&pod["status"]["conditions"]).any(|one| one["type"] == "Ready" && one["status"] == "True");
    let pods_ready = selected.iter().filter(is_ready).count();
    match (pods_ready, ready) {
        (0, 0) => report.say(Severity::Failing, format!("None of the {} selected pods is ready", selected.len())),
        (_, 0) => {
            report.say(Severity::Failing, format!("{pods_ready} pods are ready, but no EndpointSlice holds them"))
        }
        (_, ready) => {
            report.say(Severity::Ok, format!("{ready} endpoints are ready, of {} selected pods", selected.len()))
        }
    }
    ports(service, &selected, &mut report);
    isolating(policies, &selected, &mut report);
    let rows = selected.iter().take(ROWS_MAX).map(|pod| {
        let unready = each(&pod["status"]["conditions"]).find(|one| one["type"] == "Ready" && one["status"] != "True");
        let state = unready.map_or("ready".to_string(), |one| format!("not ready: {}", text(one, "message")));
        vec![name(pod).to_string(), text(&pod["status"], "phase").to_string(), state]
    });
    report.tables.push(Table {
        title: "Selected pods".into(),
        columns: vec!["Pod", "Phase", "State"],
        rows: rows.collect(),
    });
    report
}

fn ready_endpoints(service: &str, slices: &[Value]) -> usize {
    let own = slices.iter().filter(|slice| slice["metadata"]["labels"]["kubernetes.io/service-name"] == service);
    own.flat_map(|slice| each(&slice["endpoints"])).filter(|one| one["conditions"]["ready"] != false).count()
}

/// The pod that has most of the labels, and which it lacks.
fn near_miss(service: &Value, pods: &[Value]) -> Finding {
    let wanted = service["spec"]["selector"].as_object();
    let missing = |pod: &Value| -> Vec<String> {
        let lacks = wanted
            .into_iter()
            .flatten()
            .filter(|(key, value)| pod["metadata"]["labels"].get(key.as_str()) != Some(value));
        lacks.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect()
    };
    let total = wanted.map_or(0, |wanted| wanted.len());
    let nearest = pods.iter().map(|pod| (missing(pod), pod)).min_by_key(|(missing, _)| missing.len());
    let finding = Finding::new("The selector fits no pod", format!("{} pods are in this namespace", pods.len()));
    match nearest {
        Some((missing, pod)) if missing.len() < total => finding
            .evidence(format!("pod {} lacks {}", name(pod), missing.join(", ")))
            .suggests("give the pods these labels, or select those they have"),
        _ => finding.suggests("see which labels the pods of the workload have"),
    }
}

/// A named port that no container has leads nowhere.
fn ports(service: &Value, pods: &[&Value], report: &mut Report) {
    for port in each(&service["spec"]["ports"]) {
        let Some(wanted) = port["targetPort"].as_str() else { continue };
        let has = |pod: &&&Value| {
            each(&pod["spec"]["containers"]).flat_map(|one| each(&one["ports"])).any(|one| one["name"] == wanted)
        };
        if pods.iter().filter(has).count() == 0 {
            report.say(Severity::Failing, format!("No selected pod has a port named {wanted}"));
            report.find(Finding::new(
                "The target port does not exist",
                format!("port {} leads to {wanted:?}, which no container names", port["port"]),
            ));
        }
    }
}

fn isolating(policies: &[Value], pods: &[&Value], report: &mut Report) {
    for policy in policies {
        let types: Vec<&str> = each(&policy["spec"]["policyTypes"]).filter_map(Value::as_str).collect();
        let selector = LabelSelector::from_object(&policy["spec"]["podSelector"]).unwrap_or_default();
        let concerns = pods.iter().any(|pod| selector.matches_object(pod));
        if concerns && (types.is_empty() || types.contains(&"Ingress")) {
            let rules = each(&policy["spec"]["ingress"]).count();
            let finding = Finding::new(
                "A NetworkPolicy speaks about these pods",
                format!("{} lets in what its {rules} rules allow, and nothing else", name(policy)),
            );
            let namespace = text(&policy["metadata"], "namespace");
            report.find(finding.about(("networking.k8s.io", "v1", "networkpolicies"), namespace, name(policy)));
        }
    }
}

pub(super) async fn explain_ingress(asker: &Asker<'_>, ingress: &Value) -> Result<Report, Status> {
    let services = asker.list(&Kind::new("", "v1", "services"), &asker.namespace).await?;
    let slices = asker.list_if_allowed(&Kind::new("discovery.k8s.io", "v1", "endpointslices"), &asker.namespace).await;
    let classes = asker.list(&Kind::new("networking.k8s.io", "v1", "ingressclasses"), "").await.ok();
    Ok(judge_ingress(ingress, &services, &slices, classes.as_deref()))
}

fn judge_ingress(ingress: &Value, services: &[Value], slices: &[Value], classes: Option<&[Value]>) -> Report {
    let mut report = Report::default();
    let default = &ingress["spec"]["defaultBackend"];
    let paths = each(&ingress["spec"]["rules"]).flat_map(|rule| {
        each(&rule["http"]["paths"])
            .map(move |path| (format!("{}{}", text(rule, "host"), text(path, "path")), &path["backend"]))
    });
    let mut rows = Vec::new();
    for (path, backend) in paths.chain((!default.is_null()).then(|| ("everything else".to_string(), default))) {
        let wanted = text(&backend["service"], "name");
        let state = match services.iter().find(|service| name(service) == wanted) {
            None => "there is no such Service".to_string(),
            Some(service) if !has_port(service, &backend["service"]["port"]) => {
                "the Service has no such port".to_string()
            }
            Some(_) => match ready_endpoints(wanted, slices) {
                0 => "no ready endpoints".to_string(),
                ready => format!("{ready} ready endpoints"),
            },
        };
        if !state.ends_with("ready endpoints") || state.starts_with("no ") {
            report.say(Severity::Failing, format!("{path} leads nowhere: Service {wanted}: {state}"));
            report.find(Finding::new(format!("{path} leads nowhere"), state.clone()).about(
                ("", "v1", "services"),
                text(&ingress["metadata"], "namespace"),
                wanted,
            ));
        }
        rows.push(vec![path, wanted.to_string(), state]);
    }
    let class = text(&ingress["spec"], "ingressClassName");
    if let Some(classes) = classes
        && !class.is_empty()
        && !classes.iter().any(|one| name(one) == class)
    {
        report.say(Severity::Failing, format!("There is no IngressClass {class}: no controller serves this Ingress"));
    }
    if each(&ingress["status"]["loadBalancer"]["ingress"]).next().is_none() {
        report.say(Severity::Warning, "No controller has taken this Ingress up yet: it has no address");
    }
    report.say(Severity::Ok, "Every path leads to a Service with ready endpoints");
    report.tables.push(Table { title: "Paths".into(), columns: vec!["Path", "Service", "State"], rows });
    report
}

fn has_port(service: &Value, wanted: &Value) -> bool {
    each(&service["spec"]["ports"]).any(|port| match wanted["name"].as_str() {
        Some(name) => port["name"] == name,
        None => port["port"] == wanted["number"],
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &str, app: &str, ready: &str) -> Value {
        json!({"metadata": {"name": name, "labels": {"app": app}}, "status": {"phase": "Running",
            "conditions": [{"type": "Ready", "status": ready, "message": "probe"}]}})
    }

    #[test]
    fn services() {
        let service = json!({"metadata": {"name": "web"}, "spec": {"selector": {"app": "web", "tier": "front"}}});
        let report = judge(&service, &[pod("a", "web", "True")], &[], &[]);
        assert_eq!(report.verdict, "No pod has the labels that the Service selects: app=web, tier=front");
        assert_eq!(report.findings[0].evidence, ["pod a lacks tier=front"]);
        let service = json!({"metadata": {"name": "web"}, "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": "http"}]}});
        let report = judge(&service, &[pod("a", "web", "False")], &[], &[]);
        assert_eq!(report.verdict, "None of the 1 selected pods is ready");
        let slice = json!({"metadata": {"labels": {"kubernetes.io/service-name": "web"}}, "endpoints": [{"conditions": {"ready": true}}]});
        let report = judge(
            &service,
            &[pod("a", "web", "True")],
            &[slice],
            &[json!({"metadata": {"name": "shut"}, "spec": {"podSelector": {}}})],
        );
        assert_eq!(report.verdict, "No selected pod has a port named http");
        assert_eq!(report.findings[1].title, "A NetworkPolicy speaks about these pods");
    }

    #[test]
    fn ingresses() {
        let ingress = json!({"spec": {"rules": [{"host": "h", "http": {"paths": [{"path": "/", "backend": {"service": {"name": "web", "port": {"number": 80}}}}]}}]},
            "status": {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}}});
        let service = |port: u16| json!({"metadata": {"name": "web"}, "spec": {"ports": [{"port": port}]}});
        let slice = json!({"metadata": {"labels": {"kubernetes.io/service-name": "web"}}, "endpoints": [{}]});
        let verdict = |services: &[Value], slices: &[Value]| judge_ingress(&ingress, services, slices, None).verdict;
        assert_eq!(verdict(&[], &[]), "h/ leads nowhere: Service web: there is no such Service");
        assert_eq!(verdict(&[service(81)], &[]), "h/ leads nowhere: Service web: the Service has no such port");
        assert_eq!(verdict(&[service(80)], &[]), "h/ leads nowhere: Service web: no ready endpoints");
        assert_eq!(verdict(&[service(80)], &[slice]), "Every path leads to a Service with ready endpoints");
    }
}
