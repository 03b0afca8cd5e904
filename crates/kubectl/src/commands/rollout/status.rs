//! `kubectl rollout status`: one sentence per step, until it is done.

use std::time::Duration;

use serde_json::Value;

use crate::failure::{self, Failure, Result};
use crate::resource::Info;
use crate::session::{Call, Session};
use crate::terminal;

pub(crate) async fn run(session: &Session) -> Result<()> {
    super::check_revision(session)?;
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

/// A sentence for the user, and whether the rollout is over.
type Progress = (String, bool);

/// What the rollout of an object has come to. `wanted` is the revision of `--revision`, 0 for any.
fn progress(plural: &str, object: &Value, wanted: i64) -> Result<Progress> {
    match plural {
        "deployments" => {
            check_revision(object, wanted)?;
            deployment(object)
        }
        "daemonsets" => {
            check_strategy(object)?;
            Ok(daemon_set(object))
        }
        _ => {
            check_strategy(object)?;
            Ok(stateful_set(object))
        }
    }
}

fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or(0)
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// Whether the controller has seen the newest spec.
fn observed(object: &Value) -> bool {
    number(&object["metadata"]["generation"]) <= number(&object["status"]["observedGeneration"])
}

fn waiting(text: impl Into<String>) -> Progress {
    (text.into() + "\n", false)
}

fn done(text: String) -> Progress {
    (text + "\n", true)
}

fn check_revision(object: &Value, wanted: i64) -> Result<()> {
    let annotation = object["metadata"]["annotations"]["deployment.kubernetes.io/revision"].as_str();
    let revision = annotation.and_then(|text| text.parse::<i64>().ok());
    if wanted > 0 && revision != Some(wanted) {
        return Err(Failure::message(format!(
            "desired revision ({wanted}) is different from the running revision ({})",
            revision.unwrap_or(0)
        )));
    }
    Ok(())
}

fn check_strategy(object: &Value) -> Result<()> {
    if object["spec"]["updateStrategy"]["type"] != "RollingUpdate" {
        return Err(Failure::message("rollout status is only available for RollingUpdate strategy type"));
    }
    Ok(())
}

fn deployment(object: &Value) -> Result<Progress> {
    let (name, status) = (name(object), &object["status"]);
    if !observed(object) {
        return Ok(waiting("Waiting for deployment spec update to be observed..."));
    }
    let late =
        |condition: &Value| condition["type"] == "Progressing" && condition["reason"] == "ProgressDeadlineExceeded";
    if status["conditions"].as_array().into_iter().flatten().any(late) {
        return Err(Failure::message(format!("deployment {name:?} exceeded its progress deadline")));
    }
    let wanted = object["spec"]["replicas"].as_i64().unwrap_or(1);
    let (replicas, updated) = (number(&status["replicas"]), number(&status["updatedReplicas"]));
    let available = number(&status["availableReplicas"]);
    let step = if updated < wanted {
        format!("{updated} out of {wanted} new replicas have been updated...")
    } else if replicas > updated {
        format!("{} old replicas are pending termination...", replicas - updated)
    } else if available < updated {
        format!("{available} of {updated} updated replicas are available...")
    } else {
        return Ok(done(format!("deployment {name:?} successfully rolled out")));
    };
    Ok(waiting(format!("Waiting for deployment {name:?} rollout to finish: {step}")))
}

fn daemon_set(object: &Value) -> Progress {
    let (name, status) = (name(object), &object["status"]);
    if !observed(object) {
        return waiting("Waiting for daemon set spec update to be observed...");
    }
    let (wanted, updated) = (number(&status["desiredNumberScheduled"]), number(&status["updatedNumberScheduled"]));
    let available = number(&status["numberAvailable"]);
    let step = if updated < wanted {
        format!("{updated} out of {wanted} new pods have been updated...")
    } else if available < wanted {
        format!("{available} of {wanted} updated pods are available...")
    } else {
        return done(format!("daemon set {name:?} successfully rolled out"));
    };
    waiting(format!("Waiting for daemon set {name:?} rollout to finish: {step}"))
}

fn stateful_set(object: &Value) -> Progress {
    let (spec, status) = (&object["spec"], &object["status"]);
    if number(&status["observedGeneration"]) == 0 || !observed(object) {
        return waiting("Waiting for statefulset spec update to be observed...");
    }
    let (wanted, ready) = (spec["replicas"].as_i64().unwrap_or(1), number(&status["readyReplicas"]));
    if ready < wanted {
        return waiting(format!("Waiting for {} pods to be ready...", wanted - ready));
    }
    let updated = number(&status["updatedReplicas"]);
    let rolling = &spec["updateStrategy"]["rollingUpdate"];
    // The API server fills this in, so that every rolling update is told as one with a partition.
    if rolling.is_object() {
        let wanted = wanted - number(&rolling["partition"]);
        return if updated < wanted && rolling["partition"].is_number() {
            waiting(format!(
                "Waiting for partitioned roll out to finish: {updated} out of {wanted} new pods have been updated..."
            ))
        } else {
            done(format!("partitioned roll out complete: {updated} new pods have been updated..."))
        };
    }
    let revision = |key: &str| status[key].as_str().unwrap_or_default();
    if status["updateRevision"] != status["currentRevision"] {
        return waiting(format!(
            "waiting for statefulset rolling update to complete {updated} pods at revision {}...",
            revision("updateRevision")
        ));
    }
    done(format!(
        "statefulset rolling update complete {} pods at revision {}...",
        number(&status["currentReplicas"]),
        revision("currentRevision")
    ))
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

    fn told(plural: &str, object: &Value) -> Progress {
        progress(plural, object, 0).unwrap_or_else(|failure| panic!("{}", failure.text()))
    }

    #[test]
    fn daemon_sets_count_nodes() {
        let check = |updated: i64, available: i64, text: &str, done: bool| {
            let object = json!({
                "metadata": {"name": "logs", "generation": 1},
                "spec": {"updateStrategy": {"type": "RollingUpdate"}},
                "status": {"observedGeneration": 1, "desiredNumberScheduled": 3, "updatedNumberScheduled": updated,
                    "numberAvailable": available},
            });
            assert_eq!(told("daemonsets", &object), (format!("{text}\n"), done));
        };
        let waiting = "Waiting for daemon set \"logs\" rollout to finish:";
        check(1, 3, &format!("{waiting} 1 out of 3 new pods have been updated..."), false);
        check(3, 2, &format!("{waiting} 2 of 3 updated pods are available..."), false);
        check(3, 3, "daemon set \"logs\" successfully rolled out", true);
    }

    #[test]
    fn stateful_sets_wait_for_pods_then_for_the_revision() {
        let check = |partition: Option<i64>, status: Value, text: &str, done: bool| {
            let mut rolling = json!({"type": "RollingUpdate"});
            if let Some(partition) = partition {
                rolling["rollingUpdate"] = json!({"partition": partition});
            }
            let object = json!({
                "metadata": {"name": "db", "generation": 1},
                "spec": {"replicas": 3, "updateStrategy": rolling},
                "status": status,
            });
            assert_eq!(told("statefulsets", &object), (format!("{text}\n"), done));
        };
        check(Some(0), json!({}), "Waiting for statefulset spec update to be observed...", false);
        check(
            Some(0),
            json!({"observedGeneration": 1, "readyReplicas": 1}),
            "Waiting for 2 pods to be ready...",
            false,
        );
        let ready = |updated: i64, old: &str| {
            json!({"observedGeneration": 1, "readyReplicas": 3, "currentReplicas": 3, "updatedReplicas": updated,
                "updateRevision": "b", "currentRevision": old})
        };
        let partitioned = "Waiting for partitioned roll out to finish: 0 out of 1 new pods have been updated...";
        check(Some(2), ready(0, "a"), partitioned, false);
        check(Some(2), ready(1, "a"), "partitioned roll out complete: 1 new pods have been updated...", true);
        let moving = "waiting for statefulset rolling update to complete 1 pods at revision b...";
        let usual = "Waiting for partitioned roll out to finish: 1 out of 3 new pods have been updated...";
        check(Some(0), ready(1, "a"), usual, false);
        check(Some(0), ready(3, "b"), "partitioned roll out complete: 3 new pods have been updated...", true);
        check(None, ready(1, "a"), moving, false);
        check(None, ready(3, "b"), "statefulset rolling update complete 3 pods at revision b...", true);
    }

    #[test]
    fn only_rolling_updates_have_a_status() {
        let object = json!({"metadata": {"name": "db"}, "spec": {"updateStrategy": {"type": "OnDelete"}}});
        for plural in ["daemonsets", "statefulsets"] {
            let failure = progress(plural, &object, 0).unwrap_err();
            assert_eq!(failure.text(), "rollout status is only available for RollingUpdate strategy type");
        }
    }

    #[test]
    fn a_wanted_revision_must_be_the_running_one() {
        let annotations = json!({"deployment.kubernetes.io/revision": "4"});
        let object = json!({"metadata": {"name": "web", "annotations": annotations}});
        assert!(progress("deployments", &object, 4).is_ok());
        let failure = progress("deployments", &object, 3).unwrap_err();
        assert_eq!(failure.text(), "desired revision (3) is different from the running revision (4)");
    }
}
