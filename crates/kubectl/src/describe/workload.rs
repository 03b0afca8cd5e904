//! Deployments, ReplicaSets, StatefulSets, DaemonSets, autoscalers.

use serde_json::Value;

use super::template::pod_template;
use super::{Context, controller, head, items, number, or, plain, tags, text, time};
use crate::commands::selector_text;
use crate::failure::Result;
use crate::resource::select::Query;

fn created(object: &Value) -> String {
    format!("CreationTimestamp:\t{}\n", time(text(object, "/metadata/creationTimestamp")))
}

async fn owned(cx: &Context<'_>, kind: &str, object: &Value) -> Result<Vec<Value>> {
    let mapping = cx.session.mapping(kind).await?;
    let query = Query { selector: selector_text(&object["spec"]["selector"]), chunk: 500, ..Query::default() };
    let mut found = cx.session.list(&mapping, text(object, "/metadata/namespace"), &query).await?;
    found.retain(|child| {
        items(child, "/metadata/ownerReferences")
            .iter()
            .any(|owner| owner["uid"] == object["metadata"]["uid"] && owner["controller"] == true)
    });
    Ok(found)
}

/// How many pods run, wait, have succeeded and have failed.
async fn pods_status(cx: &Context<'_>, object: &Value) -> Result<String> {
    let mut counts = [0; 4];
    for pod in owned(cx, "pods", object).await? {
        match text(&pod, "/status/phase") {
            "Running" => counts[0] += 1,
            "Pending" => counts[1] += 1,
            "Succeeded" => counts[2] += 1,
            "Failed" => counts[3] += 1,
            _ => {}
        }
    }
    Ok(format!(
        "Pods Status:\t{} Running / {} Waiting / {} Succeeded / {} Failed\n",
        counts[0], counts[1], counts[2], counts[3]
    ))
}

fn conditions(object: &Value) -> String {
    let list = items(object, "/status/conditions");
    if list.is_empty() {
        return String::new();
    }
    let mut out = String::from("Conditions:\n  Type\tStatus\tReason\n  ----\t------\t------\n");
    for condition in list {
        out += &format!(
            "  {} \t{}\t{}\n",
            text(condition, "/type"),
            text(condition, "/status"),
            text(condition, "/reason")
        );
    }
    out
}

pub(crate) async fn deployment(cx: &Context<'_>, object: &Value) -> Result<String> {
    let mut out = head(object) + &created(object) + &tags(object);
    out += &format!("Selector:\t{}\n", super::selector(&object["spec"]["selector"]));
    out += &format!(
        "Replicas:\t{} desired | {} updated | {} total | {} available | {} unavailable\n",
        number(object, "/spec/replicas"),
        number(object, "/status/updatedReplicas"),
        number(object, "/status/replicas"),
        number(object, "/status/availableReplicas"),
        number(object, "/status/unavailableReplicas")
    );
    out += &format!("StrategyType:\t{}\n", text(object, "/spec/strategy/type"));
    out += &format!("MinReadySeconds:\t{}\n", number(object, "/spec/minReadySeconds"));
    let rolling = &object["spec"]["strategy"]["rollingUpdate"];
    if rolling.is_object() {
        out += &format!(
            "RollingUpdateStrategy:\t{} max unavailable, {} max surge\n",
            plain(&rolling["maxUnavailable"]),
            plain(&rolling["maxSurge"])
        );
    }
    out += "Pod Template:\n";
    out += &pod_template(&object["spec"]["template"], &[]);
    out += &conditions(object);
    // The new one has the revision that the deployment has; those with replicas beside it are old.
    let sets = owned(cx, "replicasets", object).await.unwrap_or_default();
    let revision = |object: &Value| object["metadata"]["annotations"]["deployment.kubernetes.io/revision"].clone();
    let shown = |set: &Value| {
        let (have, want) = (number(set, "/status/replicas"), number(set, "/spec/replicas"));
        format!("{} ({have}/{want} replicas created)", text(set, "/metadata/name"))
    };
    let (new, old): (Vec<&Value>, Vec<&Value>) = sets.iter().partition(|set| revision(set) == revision(object));
    let listed = |sets: Vec<&Value>| {
        let texts: Vec<String> = sets.into_iter().map(shown).collect();
        if texts.is_empty() { "<none>".to_string() } else { texts.join(", ") }
    };
    if !sets.is_empty() {
        out += &format!("OldReplicaSets:\t{}\nNewReplicaSet:\t{}\n", listed(old), listed(new));
    }
    Ok(out)
}

pub(super) async fn replica_set(cx: &Context<'_>, object: &Value) -> Result<String> {
    let mut out = head(object);
    out += &format!("Selector:\t{}\n", super::selector(&object["spec"]["selector"]));
    out += &tags(object);
    if let Some(owner) = controller(object) {
        out += &format!("Controlled By:\t{owner}\n");
    }
    out += &format!(
        "Replicas:\t{} current / {} desired\n",
        number(object, "/status/replicas"),
        number(object, "/spec/replicas")
    );
    out += &pods_status(cx, object).await?;
    out += "Pod Template:\n";
    out += &pod_template(&object["spec"]["template"], &[]);
    Ok(out + &conditions(object))
}

pub(super) async fn stateful_set(cx: &Context<'_>, object: &Value) -> Result<String> {
    let mut out = head(object) + &created(object);
    out += &format!("Selector:\t{}\n", super::selector(&object["spec"]["selector"]));
    out += &tags(object);
    out += &format!(
        "Replicas:\t{} desired | {} total\n",
        number(object, "/spec/replicas"),
        number(object, "/status/replicas")
    );
    out += &format!("Update Strategy:\t{}\n", text(object, "/spec/updateStrategy/type"));
    let rolling = &object["spec"]["updateStrategy"]["rollingUpdate"];
    if rolling.is_object() {
        out += &format!("  Partition:\t{}\n", number(rolling, "/partition"));
        if !rolling["maxUnavailable"].is_null() {
            out += &format!("  MaxUnavailable:\t{}\n", plain(&rolling["maxUnavailable"]));
        }
    }
    out += &pods_status(cx, object).await?;
    out += "Pod Template:\n";
    out += &pod_template(&object["spec"]["template"], &[]);
    let claims = items(object, "/spec/volumeClaimTemplates");
    if claims.is_empty() {
        return Ok(out + "Volume Claims:\t<none>\n");
    }
    out += "Volume Claims:\n";
    for claim in claims {
        out += &format!("  Name:\t{}\n", text(claim, "/metadata/name"));
        out += &format!("  StorageClass:\t{}\n", text(claim, "/spec/storageClassName"));
        out += &super::pairs("Labels", "  ", &super::map(claim, "/metadata/labels"));
        out += &super::pairs("Annotations", "  ", &super::map(claim, "/metadata/annotations"));
        out +=
            &format!("  Capacity:\t{}\n", or(&plain(&claim["spec"]["resources"]["requests"]["storage"]), "<default>"));
        let modes: Vec<String> = items(claim, "/spec/accessModes").iter().map(plain).collect();
        out += &format!("  Access Modes:\t[{}]\n", modes.join(" "));
    }
    Ok(out)
}

pub(super) async fn daemon_set(cx: &Context<'_>, object: &Value) -> Result<String> {
    let mut out = head(object);
    out += &format!("Selector:\t{}\n", super::selector(&object["spec"]["selector"]));
    let nodes = super::in_line(&super::map(object, "/spec/template/spec/nodeSelector"));
    out += &format!("Node-Selector:\t{nodes}\n");
    out += &tags(object);
    for (title, key) in [
        ("Desired Number of Nodes Scheduled", "/status/desiredNumberScheduled"),
        ("Current Number of Nodes Scheduled", "/status/currentNumberScheduled"),
        ("Number of Nodes Scheduled with Up-to-date Pods", "/status/updatedNumberScheduled"),
        ("Number of Nodes Scheduled with Available Pods", "/status/numberAvailable"),
        ("Number of Nodes Misscheduled", "/status/numberMisscheduled"),
    ] {
        out += &format!("{title}: {}\n", number(object, key));
    }
    out += &pods_status(cx, object).await?;
    out += "Pod Template:\n";
    Ok(out + &pod_template(&object["spec"]["template"], &[]))
}

/// How fast an autoscaler may be.
fn behavior(behavior: &Value) -> String {
    if !behavior.is_object() {
        return String::new();
    }
    let mut out = String::from("Behavior:\n");
    for (title, key) in [("Scale Up", "scaleUp"), ("Scale Down", "scaleDown")] {
        let rules = &behavior[key];
        if !rules.is_object() {
            continue;
        }
        out += &format!("  {title}:\n");
        if rules["stabilizationWindowSeconds"].is_number() {
            out += &format!("    Stabilization Window: {} seconds\n", number(rules, "/stabilizationWindowSeconds"));
        }
        let policies = items(rules, "/policies");
        if policies.is_empty() {
            continue;
        }
        out += &format!("    Select Policy: {}\n    Policies:\n", or(text(rules, "/selectPolicy"), "Max"));
        for policy in policies {
            out += &format!(
                "      - Type: {}\tValue: {}\tPeriod: {} seconds\n",
                text(policy, "/type"),
                number(policy, "/value"),
                number(policy, "/periodSeconds")
            );
        }
    }
    out
}

/// What one metric is and what it should be. `current` is what the status says of it.
fn metric_line(metric: &Value, current: &Value) -> String {
    let field = match text(metric, "/type") {
        "External" => "external",
        "Pods" => "pods",
        "Object" => "object",
        "Resource" => "resource",
        "ContainerResource" => "containerResource",
        other => return format!("  <unknown metric type {other:?}>\n"),
    };
    let (source, now) = (&metric[field], &current[field]["current"]);
    let target = &source["target"];
    let name = or(text(source, "/metric/name"), text(source, "/name"));
    let amount = |key: &str| (or(&plain(&now[key]), "<unknown>").to_string(), plain(&target[key]));
    let by_average = !target["averageValue"].is_null();
    let (kind, value) = if by_average {
        ("(target average value)", amount("averageValue"))
    } else {
        ("(target value)", amount("value"))
    };
    let (title, (now, target)) = match field {
        "external" => (format!("{name:?} {kind}"), value),
        "pods" => (format!("{name:?} on pods"), amount("averageValue")),
        "object" => {
            let of = &source["describedObject"];
            (format!("{name:?} on {}/{} {kind}", text(of, "/kind"), text(of, "/name")), value)
        }
        _ => {
            let of = match text(source, "/container") {
                "" => format!("resource {name} on pods"),
                container => format!("resource {name} of container {container:?} on pods"),
            };
            if by_average {
                (of, value)
            } else {
                (format!("{of}  (as a percentage of request)"), utilization(now, target))
            }
        }
    };
    format!("  {title}:\t{now} / {target}\n")
}

/// The share of what was asked for that is used, and the one that is wanted.
fn utilization(now: &Value, target: &Value) -> (String, String) {
    let current = match now["averageUtilization"].as_i64() {
        Some(share) => format!("{share}% ({})", plain(&now["averageValue"])),
        None => "<unknown>".into(),
    };
    let wanted = match target["averageUtilization"].as_i64() {
        Some(share) => format!("{share}%"),
        None => "<auto>".into(),
    };
    (current, wanted)
}

pub(crate) fn autoscaler(object: &Value) -> String {
    let mut out = head(object) + &tags(object) + &created(object);
    let target = &object["spec"]["scaleTargetRef"];
    out += &format!("Reference:\t{}/{}\n", text(target, "/kind"), text(target, "/name"));
    out += "Metrics:\t( current / target )\n";
    for (at, metric) in items(object, "/spec/metrics").iter().enumerate() {
        out += &metric_line(metric, items(object, "/status/currentMetrics").get(at).unwrap_or(&Value::Null));
    }
    let least = if object["spec"]["minReplicas"].is_null() {
        "<unset>".to_string()
    } else {
        plain(&object["spec"]["minReplicas"])
    };
    out += &format!("Min replicas:\t{least}\nMax replicas:\t{}\n", number(object, "/spec/maxReplicas"));
    out += &behavior(&object["spec"]["behavior"]);
    out += &format!(
        "{} pods:\t{} current / {} desired\n",
        text(target, "/kind"),
        number(object, "/status/currentReplicas"),
        number(object, "/status/desiredReplicas")
    );
    let list = items(object, "/status/conditions");
    if !list.is_empty() {
        out += "Conditions:\n  Type\tStatus\tReason\tMessage\n  ----\t------\t------\t-------\n";
        for condition in list {
            out += &format!(
                "  {}\t{}\t{}\t{}\n",
                text(condition, "/type"),
                text(condition, "/status"),
                text(condition, "/reason"),
                text(condition, "/message")
            );
        }
    }
    out
}
