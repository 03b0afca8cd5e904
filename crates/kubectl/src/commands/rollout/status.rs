//! `kubectl rollout status`: one sentence per step, until it is done.

use std::time::Duration;

use serde_json::Value;

use crate::failure::{self, Failure, Result};
use crate::resource::Info;
use crate::session::{Call, Session};
use crate::terminal;

pub(crate) async fn run(session: &Session) -> Result<()> {
    let (infos, failures) = super::chosen(session, true).await?;
    failure::all(failures)?;
    let seconds = session.flags.seconds("timeout");
    for info in infos {
        if !["deployments", "daemonsets", "statefulsets"].contains(&info.mapping.plural.as_str()) {
            return Err(Failure::message(format!("no status viewer has been implemented for {}", info.mapping.kind)));
        }
        let watching = watch_status(session, &info);
        if seconds > 0.0 {
            tokio::time::timeout(Duration::from_secs_f64(seconds), watching)
                .await
                .unwrap_or_else(|_| Err(Failure::message("timed out waiting for the condition")))?
        } else {
            watching.await?
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
        while let Some(event) = events.event().await? {
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

#[cfg(test)]
mod tests {
    use serde_json::json;

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
