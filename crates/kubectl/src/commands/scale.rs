//! `kubectl scale` and `kubectl autoscale`.

use serde_json::json;

use super::change::{Change, DRY_RUN, MERGE};
use crate::command::Command;
use crate::failure::{self, Failure, Result};
use crate::flags::Flag;
use crate::output;
use crate::resource::select::{FILES, Query, SELECTOR, Wanted};
use crate::session::{Call, Session};
use crate::terminal;

pub static SCALE: Command = Command {
    name: "scale",
    group: super::DEPLOY,
    short: "Set a new size for a deployment, replica set, or replication controller.",
    examples: "kubectl scale --replicas=3 deployment/web\nkubectl scale --current-replicas=2 --replicas=3 deployment/web",
    usage: "[--resource-version=version] [--current-replicas=count] --replicas=COUNT (-f FILENAME | TYPE NAME) [options]",
    flags: &[SCALE_FLAGS, FILES, SELECTOR, DRY_RUN, output::FLAGS],
    run: Some(|session| Box::pin(scale(session))),
    ..Command::EMPTY
};
pub static AUTOSCALE: Command = Command {
    name: "autoscale",
    group: super::DEPLOY,
    short: "Auto-scale a deployment, replica set, stateful set, or replication controller.",
    examples: "kubectl autoscale deployment web --min=2 --max=10 --cpu=80%",
    usage: "(-f FILENAME | TYPE NAME | TYPE/NAME) [--min=MINPODS] --max=MAXPODS [--cpu=CPU] [options]",
    flags: &[AUTOSCALE_FLAGS, FILES, DRY_RUN, output::FLAGS],
    run: Some(|session| Box::pin(autoscale(session))),
    ..Command::EMPTY
};

const SCALE_FLAGS: &[Flag] = &[
    Flag::switch("all", "All objects of the type."),
    Flag::integer("current-replicas", "-1", "Only where it has this many now."),
    Flag::integer("replicas", "0", "How many it is to have."),
    Flag::text("resource-version", "", "Only where the object has this version."),
    Flag::duration("timeout", "0s", "How long to wait for the new size; 0 does not wait."),
];
const AUTOSCALE_FLAGS: &[Flag] = &[
    Flag::text("cpu", "", "The load to aim at, as a share or a quantity."),
    Flag::integer("cpu-percent", "-1", "The load to aim at, in percent. Use --cpu instead."),
    Flag::text("field-manager", "kubectl-autoscale", "Who owns the fields that are set."),
    Flag::text("memory", "", "The memory to aim at, as a share or a quantity."),
    Flag::integer("max", "-1", "How many pods at most."),
    Flag::integer("min", "-1", "How many pods at least."),
    Flag::text("name", "", "The name of the autoscaler."),
    Flag::switch("save-config", "Keep the object in an annotation, for a later apply."),
];

async fn scale(session: &Session) -> Result<()> {
    let flags = &session.flags;
    if !flags.given("replicas") {
        return Err(Failure::message("required flag(s) \"replicas\" not set"));
    }
    if flags.integer("replicas") < 0 {
        return Err(Failure::message(
            "The --replicas=COUNT flag is required, and COUNT must be greater than or equal to 0",
        ));
    }
    let change = Change::from(session)?;
    let query = Query { chunk: 500, ..Query::from(session) };
    if query.arguments.is_empty() && !query.has_files() {
        return Err(Failure::message(super::NO_RESOURCES));
    }
    let (wanted, mut failures) = session.wanted(&query).await?;
    if !flags.on("all") && query.selector.is_empty() && wanted.iter().any(|wanted| matches!(wanted, Wanted::List(_))) {
        return Err(Failure::message("resource(s) were provided, but no name was specified"));
    }
    let mut found = false;
    for wanted in wanted {
        let infos = match session.fetch(&query, wanted).await {
            Ok(infos) => infos,
            Err(failure) if failure.is_not_found() => {
                failures.push(failure);
                continue;
            }
            Err(failure) => {
                failures.push(failure);
                continue;
            }
        };
        for info in infos {
            found = true;
            if let Err(failure) = scale_one(&change, &info).await {
                failures.push(failure);
            }
        }
    }
    if !found {
        let text: Vec<String> = failures.iter().map(Failure::text).collect();
        return Err(Failure::message(format!("no objects passed to scale {}", text.join(", ")).trim_end().to_string()));
    }
    failure::all(failures)
}

async fn scale_one(change: &Change<'_>, info: &crate::resource::Info) -> Result<()> {
    let session = change.session;
    let flags = &session.flags;
    let path = format!("{}/scale", info.path());
    let replicas = flags.integer("replicas");
    if change.local() {
        return change.report(&info.shown(), &info.object, "scaled");
    }
    let mut patch = json!({"spec": {"replicas": replicas}});
    if flags.integer("current-replicas") >= 0 || !flags.text("resource-version").is_empty() {
        let now = session.send(&Call::get(&path)).await?;
        let current = now["spec"]["replicas"].as_i64().unwrap_or(0);
        let (expected, version) = (flags.integer("current-replicas"), flags.text("resource-version"));
        if expected >= 0 && current != expected {
            return Err(Failure::message(format!("Expected replicas to be {expected}, was {current}")));
        }
        if !version.is_empty() && now["metadata"]["resourceVersion"] != version {
            let have = now["metadata"]["resourceVersion"].as_str().unwrap_or_default();
            return Err(Failure::message(format!("Expected resource version to be {version}, was {have}")));
        }
        patch["metadata"]["resourceVersion"] = now["metadata"]["resourceVersion"].clone();
    }
    change.send(Call::patch(&path, MERGE, &patch), "kubectl").await?;
    let seconds = flags.seconds("timeout");
    if seconds > 0.0 && change.dry == super::change::DryRun::No {
        let reached = async {
            loop {
                let now = session.send(&Call::get(&path)).await?;
                if now["status"]["replicas"].as_i64().unwrap_or(0) == replicas {
                    return Ok(());
                }
                tokio::time::sleep(std::time::Duration::from_millis(500)).await;
            }
        };
        let limit = std::time::Duration::from_secs_f64(seconds);
        tokio::time::timeout(limit, reached)
            .await
            .unwrap_or_else(|_| Err(Failure::message("timed out waiting for the condition")))?;
    }
    let object =
        if change.format.is_human() { info.object.clone() } else { session.send(&Call::get(info.path())).await? };
    change.report(&info.shown(), &object, "scaled")
}

async fn autoscale(session: &Session) -> Result<()> {
    let flags = &session.flags;
    if !flags.given("max") {
        return Err(Failure::message("required flag(s) \"max\" not set"));
    }
    if flags.integer("max") < 1 {
        return Err(Failure::message(
            "--max=MAXPODS is required and must be at least 1, max: -1".replace("-1", flags.text("max")),
        ));
    }
    if flags.integer("max") < flags.integer("min") {
        return Err(Failure::message(format!(
            "--max=MAXPODS must be larger or equal to --min=MINPODS, max: {}, min: {}",
            flags.integer("max"),
            flags.integer("min")
        )));
    }
    if flags.given("cpu-percent") {
        terminal::errln(
            "Flag --cpu-percent has been deprecated, Use --cpu with percentage or resource quantity format (e.g., '70%' for utilization or '500m' for milliCPU).",
        );
    }
    let change = Change::from(session)?;
    let (infos, failures) = session.infos(&Query { chunk: 500, ..Query::from(session) }).await?;
    failure::all(failures)?;
    for info in infos {
        let scalable = ["deployments", "replicasets", "replicationcontrollers", "statefulsets"];
        let built_in =
            api::KINDS.iter().any(|kind| kind.group == info.mapping.group && kind.plural == info.mapping.plural);
        if built_in && !scalable.contains(&info.mapping.plural.as_str()) {
            return Err(Failure::message(format!(
                "cannot autoscale a {}: could not find scale subresource for {}, Resource={} in discovery information",
                info.mapping.kind,
                info.mapping.api_version_with_slash(),
                info.mapping.plural
            )));
        }
        let mut metrics = Vec::new();
        let cpu = if flags.given("cpu-percent") && flags.integer("cpu-percent") >= 0 {
            format!("{}%", flags.integer("cpu-percent"))
        } else {
            flags.text("cpu").to_string()
        };
        for (resource, target) in [("cpu", cpu.as_str()), ("memory", flags.text("memory"))] {
            if target.is_empty() {
                continue;
            }
            let target = match target.strip_suffix('%') {
                Some(share) => {
                    json!({"type": "Utilization", "averageUtilization": share.parse::<i64>().map_err(|_| Failure::message(format!("invalid utilization value {target:?}")))?})
                }
                None => json!({"type": "AverageValue", "averageValue": target}),
            };
            metrics.push(json!({"type": "Resource", "resource": {"name": resource, "target": target}}));
        }
        let name = if flags.text("name").is_empty() { info.name.clone() } else { flags.text("name").to_string() };
        let mut object = json!({
            "apiVersion": "autoscaling/v2",
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
        if !metrics.is_empty() {
            object["spec"]["metrics"] = metrics.into();
        }
        let created = if change.local() {
            super::change::as_go_writes(object)
        } else {
            let path = format!("/apis/autoscaling/v2/namespaces/{}/horizontalpodautoscalers", info.namespace);
            change.send(Call::post(path, &object), "kubectl-autoscale").await?
        };
        change.report(&format!("horizontalpodautoscaler.autoscaling/{name}"), &created, "autoscaled")?;
    }
    Ok(())
}
