//! `kubectl autoscale`: a HorizontalPodAutoscaler for a workload.

use machinery::quantity::Quantity;
use serde_json::{Value, json};

use super::change::{self, Change, DRY_RUN};
use crate::command::Command;
use crate::failure::{self, Failure, Result};
use crate::flags::{Flag, Parsed};
use crate::output;
use crate::resource::Info;
use crate::resource::select::{FILES, Query};
use crate::session::{Call, Session};
use crate::terminal;

pub(super) static COMMAND: Command = Command {
    name: "autoscale",
    group: super::DEPLOY,
    short: "Auto-scale a deployment, replica set, stateful set, or replication controller.",
    examples: "kubectl autoscale deployment web --min=2 --max=10 --cpu=80%",
    usage: "(-f FILENAME | TYPE NAME | TYPE/NAME) [--min=MINPODS] --max=MAXPODS [--cpu=CPU] [--memory=MEMORY] [options]",
    flags: &[FLAGS, FILES, DRY_RUN, output::FLAGS],
    run: Some(|session| Box::pin(run(session))),
    ..Command::EMPTY
};

const FLAGS: &[Flag] = &[
    Flag::text("cpu", "", "The load to aim at, as a share or a quantity."),
    // Deprecated, so that no help tells of it.
    Flag::integer("cpu-percent", "-1", ""),
    Flag::text("field-manager", "kubectl-autoscale", "Who owns the fields that are set."),
    Flag::text("memory", "", "The memory to aim at, as a share or a quantity."),
    Flag::integer("max", "-1", "How many pods at most."),
    Flag::integer("min", "-1", "How many pods at least."),
    Flag::text("name", "", "The name of the autoscaler."),
    Flag::switch("save-config", "Keep the object in an annotation, for a later apply."),
];

async fn run(session: &Session) -> Result<()> {
    let flags = &session.flags;
    if flags.given("cpu-percent") {
        terminal::errln(
            "Flag --cpu-percent has been deprecated, Use --cpu with percentage or resource quantity format (e.g., '70%' for utilization or '500m' for milliCPU).",
        );
    }
    if !flags.given("max") {
        return Err(Failure::message("required flag(s) \"max\" not set"));
    }
    let change = Change::from(session)?;
    check(flags)?;
    let metrics = metrics(flags)?;
    let (infos, failures) = session.infos(&Query { chunk: 500, ..Query::from(session) }).await?;
    failure::all(failures)?;
    if infos.is_empty() {
        return Err(Failure::message("no objects passed to autoscale"));
    }
    for info in infos {
        scalable(&info)?;
        let object = autoscaler(session, &info, &metrics)?;
        if change.local() {
            change.report_typed(&shown(&object), &object, "created")?;
            continue;
        }
        let created = match create(&change, "v2", object, &info).await {
            Ok(created) => created,
            // The older version has only a share of the CPU. Upstream tries it whatever the reason was.
            Err(_) => create(&change, "v1", older(session, &info)?, &info).await?,
        };
        change.report_typed(&shown(&created), &created, "autoscaled")?;
    }
    Ok(())
}

fn check(flags: &Parsed) -> Result<()> {
    let (least, most) = (flags.integer("min"), flags.integer("max"));
    if most < 1 {
        return Err(Failure::message(format!("--max=MAXPODS is required and must be at least 1, max: {most}")));
    }
    if most < least {
        return Err(Failure::message(format!(
            "--max=MAXPODS must be larger or equal to --min=MINPODS, max: {most}, min: {least}"
        )));
    }
    if flags.integer("cpu-percent") > 0 && !flags.text("cpu").is_empty() {
        return Err(Failure::message("--cpu-percent and --cpu are mutually exclusive"));
    }
    Ok(())
}

/// Only what has replicas that can be set.
fn scalable(info: &Info) -> Result<()> {
    let scalable = ["deployments", "replicasets", "replicationcontrollers", "statefulsets"];
    let built_in = api::KINDS.iter().any(|kind| kind.group == info.mapping.group && kind.plural == info.mapping.plural);
    if built_in && !scalable.contains(&info.mapping.plural.as_str()) {
        return Err(Failure::message(format!(
            "cannot autoscale a {}: could not find scale subresource for {}, Resource={} in discovery information",
            info.mapping.kind,
            info.mapping.api_version_with_slash(),
            info.mapping.plural
        )));
    }
    Ok(())
}

fn metrics(flags: &Parsed) -> Result<Vec<Value>> {
    let mut metrics = Vec::new();
    let mut add = |resource: &str, target: Value| {
        metrics.push(json!({"type": "Resource", "resource": {"name": resource, "target": target}}));
    };
    if flags.integer("cpu-percent") > 0 {
        add("cpu", json!({"type": "Utilization", "averageUtilization": flags.integer("cpu-percent")}));
    }
    for resource in ["cpu", "memory"] {
        if !flags.text(resource).is_empty() {
            add(resource, target(resource, flags.text(resource))?);
        }
    }
    Ok(metrics)
}

/// `70%` is a share of what is asked for, anything else an amount; one without a unit has the smallest usual one.
fn target(resource: &str, given: &str) -> Result<Value> {
    let given = given.trim();
    if given.is_empty() {
        return Err(Failure::message("empty input"));
    }
    if let Some(share) = given.strip_suffix('%') {
        return match share.parse::<i32>() {
            Ok(share) if share >= 0 => Ok(json!({"type": "Utilization", "averageUtilization": share})),
            _ => Err(Failure::message(format!("invalid percentage value: {share}"))),
        };
    }
    let unit = if resource == "cpu" { "m" } else { "Mi" };
    let amount = match given.parse::<f64>() {
        Ok(number) => Quantity::parse(&format!("{number}{unit}")),
        Err(_) => Quantity::parse(given),
    };
    match amount {
        Ok(amount) => Ok(json!({"type": "AverageValue", "averageValue": amount.canonical()})),
        Err(_) => Err(Failure::message(format!("invalid resource {resource} value: {given}"))),
    }
}

fn autoscaler(session: &Session, info: &Info, metrics: &[Value]) -> Result<Value> {
    let mut object = begun(session, info, "autoscaling/v2")?;
    if !metrics.is_empty() {
        object["spec"]["metrics"] = metrics.into();
    }
    Ok(change::as_go_writes(object))
}

fn older(session: &Session, info: &Info) -> Result<Value> {
    let flags = &session.flags;
    let incompatible = |failure: Failure| {
        let why = "failed to create autoscaling/v2 HPA and the configuration is incompatible with autoscaling/v1: ";
        // Upstream says so of an amount, too, but names no reason.
        Failure::message(format!("{why}{}", failure.text()))
    };
    let share = target("cpu", flags.text("cpu")).map_err(incompatible)?;
    let by_share = flags.integer("cpu-percent") >= 0 || share["type"] == "Utilization";
    if !by_share || !flags.text("memory").is_empty() {
        return Err(incompatible(Failure::message("%!w(<nil>)")));
    }
    let mut object = begun(session, info, "autoscaling/v1")?;
    if flags.integer("cpu-percent") >= 0 {
        object["spec"]["targetCPUUtilizationPercentage"] = flags.integer("cpu-percent").into();
    }
    Ok(change::as_go_writes(object))
}

/// What both versions have.
fn begun(session: &Session, info: &Info, version: &str) -> Result<Value> {
    let flags = &session.flags;
    let name = if flags.text("name").is_empty() { &info.name } else { flags.text("name") };
    let mut object = json!({
        "apiVersion": version,
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name},
        "spec": {
            "maxReplicas": flags.integer("max"),
            "scaleTargetRef": {"apiVersion": info.mapping.api_version(), "kind": info.mapping.kind, "name": info.name},
        },
    });
    if flags.integer("min") > 0 {
        object["spec"]["minReplicas"] = flags.integer("min").into();
    }
    let settings = session.settings()?;
    if settings.namespace_given {
        object["metadata"]["namespace"] = settings.namespace.clone().into();
    }
    Ok(object)
}

async fn create(change: &Change<'_>, version: &str, object: Value, info: &Info) -> Result<Value> {
    let object = if change.session.flags.on("save-config") { change::with_last_applied_typed(&object) } else { object };
    let path = format!("/apis/autoscaling/{version}/namespaces/{}/horizontalpodautoscalers", info.namespace);
    change.send(Call::post(path, &object), "kubectl-autoscale").await
}

fn shown(object: &Value) -> String {
    format!("horizontalpodautoscaler.autoscaling/{}", object["metadata"]["name"].as_str().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_shares_or_amounts() {
        let amount = |text: &str| json!({"type": "AverageValue", "averageValue": text});
        assert_eq!(target("cpu", "70%").unwrap(), json!({"type": "Utilization", "averageUtilization": 70}));
        assert_eq!(target("cpu", "500").unwrap(), amount("500m"));
        assert_eq!(target("memory", "200").unwrap(), amount("200Mi"));
        assert_eq!(target("memory", "1Gi").unwrap(), amount("1Gi"));
        assert_eq!(target("cpu", "x").unwrap_err().text(), "invalid resource cpu value: x");
        assert_eq!(target("cpu", "x%").unwrap_err().text(), "invalid percentage value: x");
    }
}
