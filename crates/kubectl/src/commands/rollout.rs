//! `kubectl rollout`: status, history, undo, pause, resume, restart.

use std::time::Duration;

use serde_json::{Value, json};

use super::change::{Change, DRY_RUN, JSON_PATCH, STRATEGIC};
use crate::command::Command;
use crate::failure::{self, Failure, Result};
use crate::flags::Flag;
use crate::output::{self, Format, columns::Columns};
use crate::resource::Info;
use crate::resource::select::{FILES, Query, SELECTOR, Wanted};
use crate::session::{Call, Session};
use crate::terminal;

pub static COMMAND: Command = Command {
    name: "rollout",
    group: super::DEPLOY,
    short: "Manage the rollout of one or many resources.",
    examples: "kubectl rollout status deployment/web\nkubectl rollout undo deployment/web\nkubectl rollout restart daemonset/agent",
    usage: "SUBCOMMAND [options]",
    subcommands: &[&HISTORY, &PAUSE, &RESTART, &RESUME, &STATUS, &UNDO],
    ..Command::EMPTY
};

const MANAGER: &[Flag] = &[Flag::text("field-manager", "kubectl-rollout", "Who owns the fields that are set.")];

static STATUS: Command = Command {
    name: "status",
    short: "Show the status of the rollout.",
    usage: "(TYPE NAME | TYPE/NAME) [flags] [options]",
    flags: &[STATUS_FLAGS, FILES, SELECTOR],
    run: Some(|session| Box::pin(status(session))),
    ..Command::EMPTY
};
static HISTORY: Command = Command {
    name: "history",
    short: "View rollout history.",
    usage: "(TYPE NAME | TYPE/NAME) [flags] [options]",
    flags: &[HISTORY_FLAGS, FILES, SELECTOR, output::FLAGS],
    run: Some(|session| Box::pin(history(session))),
    ..Command::EMPTY
};
static UNDO: Command = Command {
    name: "undo",
    short: "Undo a previous rollout.",
    usage: "(TYPE NAME | TYPE/NAME) [flags] [options]",
    flags: &[UNDO_FLAGS, FILES, SELECTOR, DRY_RUN, output::FLAGS],
    run: Some(|session| Box::pin(undo(session))),
    ..Command::EMPTY
};
static PAUSE: Command = Command {
    name: "pause",
    short: "Mark the provided resource as paused.",
    usage: "RESOURCE [options]",
    flags: &[MANAGER, FILES, SELECTOR, output::FLAGS],
    run: Some(|session| Box::pin(patched(session, Step::Pause))),
    ..Command::EMPTY
};
static RESUME: Command = Command {
    name: "resume",
    short: "Resume a paused resource.",
    usage: "RESOURCE [options]",
    flags: &[MANAGER, FILES, SELECTOR, output::FLAGS],
    run: Some(|session| Box::pin(patched(session, Step::Resume))),
    ..Command::EMPTY
};
static RESTART: Command = Command {
    name: "restart",
    short: "Restart a resource.",
    usage: "RESOURCE [options]",
    flags: &[MANAGER, FILES, SELECTOR, output::FLAGS],
    run: Some(|session| Box::pin(patched(session, Step::Restart))),
    ..Command::EMPTY
};

const STATUS_FLAGS: &[Flag] = &[
    Flag::integer("revision", "0", "Wait for this revision only."),
    Flag::duration("timeout", "0s", "How long to watch; 0 for as long as it takes."),
    Flag::on("watch", "Go on until it is done.").short('w'),
];
const HISTORY_FLAGS: &[Flag] = &[Flag::integer("revision", "0", "Show the details of this revision.")];
const UNDO_FLAGS: &[Flag] = &[Flag::integer("to-revision", "0", "The revision to go back to; 0 for the one before.")];

async fn chosen(session: &Session) -> Result<(Vec<Info>, Vec<Failure>)> {
    let query = Query { chunk: 500, ..Query::from(session) };
    if query.arguments.is_empty() && !query.has_files() {
        return Err(Failure::message("required resource not specified"));
    }
    let (wanted, failures) = session.wanted(&query).await?;
    if query.selector.is_empty()
        && wanted.iter().any(|wanted| matches!(wanted, Wanted::List(_)))
        && session.path != "kubectl rollout history"
        && session.path != "kubectl rollout status"
        && session.path != "kubectl rollout restart"
    {
        return Err(Failure::message("resource(s) were provided, but no name was specified"));
    }
    let mut failures = failures;
    let mut infos = Vec::new();
    for wanted in wanted {
        match session.fetch(&query, wanted).await {
            Ok(found) => infos.extend(found),
            Err(failure) => failures.push(failure),
        }
    }
    Ok((infos, failures))
}

#[derive(Clone, Copy, PartialEq)]
enum Step {
    Pause,
    Resume,
    Restart,
}

async fn patched(session: &Session, step: Step) -> Result<()> {
    let change = Change::from(session)?;
    let (infos, mut failures) = chosen(session).await?;
    if infos.is_empty() && failures.is_empty() {
        terminal::errln(&format!("No resources found in {} namespace.", session.namespace()?));
    }
    for info in infos {
        let kind = info.mapping.resource();
        let workload = ["deployments", "daemonsets", "statefulsets"].contains(&info.mapping.plural.as_str());
        let deployment = info.mapping.plural == "deployments";
        let paused = info.object["spec"]["paused"] == true;
        let (patch, outcome) = match step {
            Step::Pause if !deployment => Err(format!("{kind} {:?} pausing is not supported", info.name)),
            Step::Pause if paused => Err(format!("{kind} {:?} is already paused", info.name)),
            Step::Pause => Ok((json!({"spec": {"paused": true}}), "paused")),
            Step::Resume if !deployment => Err(format!("{kind} {:?} resuming is not supported", info.name)),
            Step::Resume if !paused => Err(format!("{kind} {:?} is not paused", info.name)),
            Step::Resume => Ok((json!({"spec": {"paused": null}}), "resumed")),
            Step::Restart if !workload => Err(format!("{kind} {:?} restarting is not supported", info.name)),
            Step::Restart if paused => Err("can't restart paused deployment (run rollout resume first)".to_string()),
            Step::Restart => {
                let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
                let place = "/spec/template/metadata/annotations/kubectl.kubernetes.io~1restartedAt";
                if info.object.pointer(place).and_then(Value::as_str) == Some(now.as_str()) {
                    return Err(Failure::message(format!(
                        "failed to create patch for {}: if restart has already been triggered within the past second, please wait before attempting to trigger another",
                        info.name
                    )));
                }
                let annotations = json!({"kubectl.kubernetes.io/restartedAt": now});
                Ok((json!({"spec": {"template": {"metadata": {"annotations": annotations}}}}), "restarted"))
            }
        }
        .map_err(|text| {
            Failure::message(match step {
                Step::Restart if paused => format!("{kind} {:?} {text}", info.name),
                _ => text,
            })
        })?;
        match change.send(Call::patch(info.path(), STRATEGIC, &patch), "kubectl-rollout").await {
            Ok(object) => change.report(&info.shown(), &object, outcome)?,
            Err(failure) => failures.push(failure),
        }
    }
    failure::all(failures)
}

async fn status(session: &Session) -> Result<()> {
    let (infos, failures) = chosen(session).await?;
    failure::all(failures)?;
    let seconds = session.flags.seconds("timeout");
    for info in infos {
        if !["deployments", "daemonsets", "statefulsets"].contains(&info.mapping.plural.as_str()) {
            return Err(Failure::message(format!("no status viewer has been implemented for {}", info.mapping.kind)));
        }
        let watching = watch_status(session, &info);
        match seconds > 0.0 {
            true => tokio::time::timeout(Duration::from_secs_f64(seconds), watching)
                .await
                .unwrap_or_else(|_| Err(Failure::message("timed out waiting for the condition")))?,
            false => watching.await?,
        }
    }
    Ok(())
}

async fn watch_status(session: &Session, info: &Info) -> Result<()> {
    let field = format!("metadata.name={}", info.name);
    let mut object = info.object.clone();
    let mut revision = object["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_string();
    let mut last = String::new();
    loop {
        let (text, done) = progress(&info.mapping.plural, &object, session.flags.integer("revision"))?;
        if text != last {
            terminal::out(&text);
            last = text;
        }
        if done || !session.flags.on("watch") {
            return Ok(());
        }
        let call = Call::get(info.collection())
            .with("fieldSelector", field.as_str())
            .with("watch", "true")
            .with("resourceVersion", revision.as_str());
        let mut events = session.chunks(&call).await?;
        while let Some(line) = events.line().await? {
            let event: Value = serde_json::from_slice(&line).unwrap_or_default();
            match event["type"].as_str().unwrap_or_default() {
                "DELETED" => return Err(Failure::message("object has been deleted")),
                "ADDED" | "MODIFIED" => {}
                _ => continue,
            }
            let (text, done) = progress(&info.mapping.plural, &event["object"], session.flags.integer("revision"))?;
            if text != last {
                terminal::out(&text);
                last = text;
            }
            if done {
                return Ok(());
            }
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        object = session.send(&Call::get(info.path())).await?;
        revision = object["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_string();
    }
}

/// The sentence about a rollout, and whether it is over.
fn progress(plural: &str, object: &Value, wanted: i64) -> Result<(String, bool)> {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let (spec, status) = (&object["spec"], &object["status"]);
    let number = |value: &Value| value.as_i64().unwrap_or(0);
    if wanted > 0 && plural == "deployments" {
        let revision = object["metadata"]["annotations"]["deployment.kubernetes.io/revision"]
            .as_str()
            .and_then(|text| text.parse::<i64>().ok());
        if revision != Some(wanted) {
            return Err(Failure::message(format!(
                "desired revision ({wanted}) is different from the running revision ({})",
                revision.unwrap_or(0)
            )));
        }
    }
    let seen = number(&object["metadata"]["generation"]) <= number(&status["observedGeneration"]);
    let updated =
        number(if plural == "daemonsets" { &status["updatedNumberScheduled"] } else { &status["updatedReplicas"] });
    match plural {
        "deployments" if seen => {
            let conditions = status["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
            if conditions.iter().any(|condition| {
                condition["type"] == "Progressing" && condition["reason"] == "ProgressDeadlineExceeded"
            }) {
                return Err(Failure::message(format!("deployment {name:?} exceeded its progress deadline")));
            }
            let wanted = spec["replicas"].as_i64().unwrap_or(1);
            let (replicas, available) = (number(&status["replicas"]), number(&status["availableReplicas"]));
            if updated < wanted {
                return Ok((
                    format!(
                        "Waiting for deployment {name:?} rollout to finish: {updated} out of {wanted} new replicas have been updated...\n"
                    ),
                    false,
                ));
            }
            if replicas > updated {
                return Ok((
                    format!(
                        "Waiting for deployment {name:?} rollout to finish: {} old replicas are pending termination...\n",
                        replicas - updated
                    ),
                    false,
                ));
            }
            if available < updated {
                return Ok((
                    format!(
                        "Waiting for deployment {name:?} rollout to finish: {available} of {updated} updated replicas are available...\n"
                    ),
                    false,
                ));
            }
            Ok((format!("deployment {name:?} successfully rolled out\n"), true))
        }
        "deployments" => Ok(("Waiting for deployment spec update to be observed...\n".into(), false)),
        "daemonsets" => {
            if spec["updateStrategy"]["type"] != "RollingUpdate" {
                return Err(Failure::message(
                    "rollout status is only available for RollingUpdate strategy type".to_string(),
                ));
            }
            if !seen {
                return Ok(("Waiting for daemon set spec update to be observed...\n".into(), false));
            }
            let (wanted, available) = (number(&status["desiredNumberScheduled"]), number(&status["numberAvailable"]));
            if updated < wanted {
                return Ok((
                    format!(
                        "Waiting for daemon set {name:?} rollout to finish: {updated} out of {wanted} new pods have been updated...\n"
                    ),
                    false,
                ));
            }
            if available < wanted {
                return Ok((
                    format!(
                        "Waiting for daemon set {name:?} rollout to finish: {available} of {wanted} updated pods are available...\n"
                    ),
                    false,
                ));
            }
            Ok((format!("daemon set {name:?} successfully rolled out\n"), true))
        }
        _ => {
            if spec["updateStrategy"]["type"] != "RollingUpdate" {
                return Err(Failure::message("rollout status is only available for RollingUpdate strategy type"));
            }
            if number(&status["observedGeneration"]) == 0 || !seen {
                return Ok(("Waiting for statefulset spec update to be observed...\n".into(), false));
            }
            let wanted = spec["replicas"].as_i64().unwrap_or(1);
            let ready = number(&status["readyReplicas"]);
            if ready < wanted {
                return Ok((format!("Waiting for {} pods to be ready...\n", wanted - ready), false));
            }
            let partition = number(&spec["updateStrategy"]["rollingUpdate"]["partition"]);
            if partition > 0 {
                if updated < wanted - partition {
                    return Ok((
                        format!(
                            "Waiting for partitioned roll out to finish: {updated} out of {} new pods have been updated...\n",
                            wanted - partition
                        ),
                        false,
                    ));
                }
                return Ok((format!("partitioned roll out complete: {updated} new pods have been updated...\n"), true));
            }
            if status["updateRevision"] != status["currentRevision"] {
                return Ok((
                    format!(
                        "waiting for statefulset rolling update to complete {updated} pods at revision {}...\n",
                        status["updateRevision"].as_str().unwrap_or_default()
                    ),
                    false,
                ));
            }
            Ok((
                format!(
                    "statefulset rolling update complete {} pods at revision {}...\n",
                    number(&status["currentReplicas"]),
                    status["currentRevision"].as_str().unwrap_or_default()
                ),
                true,
            ))
        }
    }
}

/// A past state of a workload.
struct Revision {
    number: i64,
    cause: String,
    template: Value,
    /// What brings it back: for sets, the stored patch.
    object: Value,
}

const CAUSE: &str = "kubernetes.io/change-cause";
const REVISION: &str = "deployment.kubernetes.io/revision";

async fn revisions(session: &Session, info: &Info) -> Result<Vec<Revision>> {
    let selector = super::selector_text(&info.object["spec"]["selector"]);
    let uid = &info.object["metadata"]["uid"];
    let owned = |object: &Value| {
        object["metadata"]["ownerReferences"].as_array().into_iter().flatten().any(|owner| owner["uid"] == *uid)
    };
    let cause = |object: &Value| object["metadata"]["annotations"][CAUSE].as_str().unwrap_or("<none>").to_string();
    let kind = match info.mapping.plural.as_str() {
        "deployments" => "replicasets",
        "daemonsets" | "statefulsets" => "controllerrevisions",
        _ => {
            return Err(Failure::message(format!(
                "no history viewer has been implemented for {:?}",
                info.mapping.kind
            )));
        }
    };
    let path = format!("/apis/apps/v1/namespaces/{}/{kind}", info.namespace);
    let list = session.send(&Call::get(path).with("labelSelector", selector)).await?;
    let mut found: Vec<Revision> = Vec::new();
    for object in list["items"].as_array().into_iter().flatten().filter(|object| owned(object)) {
        let (number, template) = if kind == "replicasets" {
            let number = object["metadata"]["annotations"][REVISION].as_str().and_then(|text| text.parse().ok());
            (number, object["spec"]["template"].clone())
        } else {
            (object["revision"].as_i64(), object["data"]["spec"]["template"].clone())
        };
        if let Some(number) = number {
            found.push(Revision { number, cause: cause(object), template, object: object.clone() });
        }
    }
    found.sort_by_key(|revision| revision.number);
    Ok(found)
}

async fn history(session: &Session) -> Result<()> {
    let (infos, failures) = chosen(session).await?;
    failure::all(failures)?;
    let format = Format::from(&session.flags, false)?;
    let wanted = session.flags.integer("revision");
    for info in infos {
        let revisions = revisions(session, &info).await?;
        let shown = format!("{} ", info.shown());
        if wanted > 0 {
            let Some(revision) = revisions.iter().find(|revision| revision.number == wanted) else {
                return Err(Failure::message("unable to find the specified revision"));
            };
            if !format.is_human() {
                terminal::out(&format.text(&revision.object)?);
                continue;
            }
            let mut text = String::from("Pod Template:\n");
            text += &crate::describe::template::pod_template(&revision.template, &[(CAUSE, revision.cause.as_str())]);
            // Upstream prints this text as it is, tabs and all.
            terminal::out(&format!("{shown}with revision #{wanted}\n{text}\n"));
            continue;
        }
        if !format.is_human() {
            for revision in &revisions {
                terminal::out(&format.text(&revision.object)?);
            }
            continue;
        }
        let mut text = String::from("REVISION\tCHANGE-CAUSE\n");
        revisions.iter().for_each(|revision| text += &format!("{}\t{}\n", revision.number, revision.cause));
        let text =
            if revisions.is_empty() { "No rollout history found.".into() } else { Columns::described().align(&text) };
        terminal::out(&format!("{shown}\n{text}\n"));
    }
    Ok(())
}

async fn undo(session: &Session) -> Result<()> {
    let change = Change::from(session)?;
    let (infos, failures) = chosen(session).await?;
    failure::all(failures)?;
    let to = session.flags.integer("to-revision");
    for info in infos {
        if info.object["spec"]["paused"] == true {
            return Err(Failure::message(format!(
                "you cannot rollback a paused deployment; resume it first with 'kubectl rollout resume deployment/{}' and try again",
                info.name
            )));
        }
        let revisions = revisions(session, &info).await?;
        let target = if to > 0 {
            let found = revisions.iter().find(|revision| revision.number == to);
            found.ok_or_else(|| Failure::message(format!("unable to find specified revision {to} in history")))?
        } else {
            if revisions.len() < 2 {
                return Err(Failure::message(format!(
                    "no rollout history found for {} {:?}",
                    kind_words(&info),
                    info.name
                )));
            }
            &revisions[revisions.len() - 2]
        };
        let mut template = target.template.clone();
        if let Some(labels) = template["metadata"]["labels"].as_object_mut() {
            labels.remove("pod-template-hash");
        }
        if template == info.object["spec"]["template"] {
            change.report(
                &info.shown(),
                &info.object,
                &format!("skipped rollback (current template already matches revision {})", target.number),
            )?;
            continue;
        }
        let (patch, kind) = match info.mapping.plural.as_str() {
            "deployments" => {
                // Annotations of the old revision come back too, except those the controller writes itself.
                let mut annotations = info.object["metadata"]["annotations"].as_object().cloned().unwrap_or_default();
                let own = [
                    "kubectl.kubernetes.io/last-applied-configuration",
                    REVISION,
                    "deployment.kubernetes.io/revision-history",
                    "deployment.kubernetes.io/desired-replicas",
                    "deployment.kubernetes.io/max-replicas",
                    "deprecated.deployment.rollback.to",
                ];
                annotations.retain(|key, _| own.contains(&key.as_str()));
                for (key, value) in target.object["metadata"]["annotations"].as_object().into_iter().flatten() {
                    if !own.contains(&key.as_str()) {
                        annotations.insert(key.clone(), value.clone());
                    }
                }
                let operations = json!([
                    {"op": "replace", "path": "/spec/template", "value": template},
                    {"op": "add", "path": "/metadata/annotations", "value": annotations},
                ]);
                (operations, JSON_PATCH)
            }
            _ => (target.object["data"].clone(), STRATEGIC),
        };
        let object = if change.local() {
            info.object.clone()
        } else {
            change.send(Call::patch(info.path(), kind, &patch), "kubectl-rollout").await?
        };
        change.report(&info.shown(), &object, "rolled back")?;
    }
    Ok(())
}

fn kind_words(info: &Info) -> &'static str {
    match info.mapping.plural.as_str() {
        "daemonsets" => "daemon set",
        "statefulsets" => "statefulset",
        _ => "deployment",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rollouts_are_told_step_by_step() {
        let deployment = |status: Value| json!({"metadata": {"name": "web", "generation": 2}, "spec": {"replicas": 3}, "status": status});
        let check = |status: Value, text: &str, done: bool| {
            let told =
                progress("deployments", &deployment(status), 0).unwrap_or_else(|failure| panic!("{}", failure.text()));
            assert_eq!(told, (format!("{text}\n"), done));
        };
        check(json!({}), "Waiting for deployment spec update to be observed...", false);
        check(
            json!({"observedGeneration": 2, "updatedReplicas": 1}),
            "Waiting for deployment \"web\" rollout to finish: 1 out of 3 new replicas have been updated...",
            false,
        );
        check(
            json!({"observedGeneration": 2, "updatedReplicas": 3, "replicas": 4}),
            "Waiting for deployment \"web\" rollout to finish: 1 old replicas are pending termination...",
            false,
        );
        check(
            json!({"observedGeneration": 2, "updatedReplicas": 3, "replicas": 3, "availableReplicas": 2}),
            "Waiting for deployment \"web\" rollout to finish: 2 of 3 updated replicas are available...",
            false,
        );
        check(
            json!({"observedGeneration": 2, "updatedReplicas": 3, "replicas": 3, "availableReplicas": 3}),
            "deployment \"web\" successfully rolled out",
            true,
        );
        let late = json!({"observedGeneration": 2, "conditions": [{"type": "Progressing", "reason": "ProgressDeadlineExceeded"}]});
        assert!(progress("deployments", &deployment(late), 0).is_err());
    }
}
