//! `kubectl rollout undo`: back to a past state.

use serde_json::{Map, Value, json};

use super::history::{self, REVISION, Revision};
use crate::commands::change::{Change, JSON_PATCH, STRATEGIC};
use crate::failure::{self, Failure, Result};
use crate::resource::Info;
use crate::session::{Call, Session};

pub(crate) async fn run(session: &Session) -> Result<()> {
    let change = Change::from(session)?;
    let (infos, failures) = super::chosen(session, false).await?;
    failure::all(failures)?;
    let to = session.flags.integer("to-revision");
    for info in infos {
        let applied = crate::commands::change::LAST_APPLIED;
        if info.object["metadata"]["annotations"][applied].is_string() {
            crate::terminal::warn(&format!(
                "resource {}/{} was previously managed with 'kubectl apply'. Rolling back will not update the {applied} annotation, which may cause unexpected behavior on future 'kubectl apply' operations. Consider using 'kubectl apply' with your previous configuration file instead.",
                info.mapping.plural, info.name
            ));
        }
        let revisions = history::revisions(session, &info).await?;
        let target = target(&info, &revisions, to)?;
        if change.local() {
            change.report(&info.shown(), &info.object, &preview(&info, target))?;
            continue;
        }
        if info.object["spec"]["paused"] == true {
            return Err(Failure::message(
                "you cannot rollback a paused deployment; resume it first with 'kubectl rollout resume' and try again",
            ));
        }
        if template(target) == info.object["spec"]["template"] {
            let text = format!("skipped rollback (current template already matches revision {to})");
            change.report(&info.shown(), &info.object, &text)?;
            continue;
        }
        let call = match info.mapping.plural.as_str() {
            "deployments" => Call::patch(info.path(), JSON_PATCH, &of_deployment(&info, target)),
            _ => Call::patch(info.path(), STRATEGIC, &target.object["data"]),
        };
        let object = change.send(call, "kubectl-rollout").await?;
        change.report_typed(&info.shown(), &object, "rolled back")?;
    }
    Ok(())
}

/// The revision to go back to: the one before the last, unless one is named.
fn target<'a>(info: &Info, revisions: &'a [Revision], to: i64) -> Result<&'a Revision> {
    if to != 0 {
        let found = revisions.iter().find(|revision| revision.number == to);
        return found.ok_or_else(|| Failure::message(format!("unable to find specified revision {to} in history")));
    }
    match revisions {
        [.., before, _] => Ok(before),
        _ if info.mapping.plural == "deployments" => {
            Err(Failure::message(format!("no rollout history found for deployment {:?}", info.name)))
        }
        _ => Err(Failure::message("no last revision to roll back to")),
    }
}

/// What a dry run says instead: a Deployment's old template with the hash its ReplicaSet has, a set's as it would be.
fn preview(info: &Info, target: &Revision) -> String {
    match info.mapping.plural.as_str() {
        "deployments" => history::described(&target.template, &[]),
        _ => format!("will roll back to {}", history::described(&target.template, &[])),
    }
}

/// The old template without what the controller wrote into it.
fn template(target: &Revision) -> Value {
    let mut template = target.template.clone();
    if let Some(labels) = template["metadata"]["labels"].as_object_mut() {
        labels.remove("pod-template-hash");
    }
    template
}

/// Annotations of the old revision come back too, except those the controller writes itself.
fn of_deployment(info: &Info, target: &Revision) -> Value {
    let own = [
        "kubectl.kubernetes.io/last-applied-configuration",
        REVISION,
        "deployment.kubernetes.io/revision-history",
        "deployment.kubernetes.io/desired-replicas",
        "deployment.kubernetes.io/max-replicas",
        "deprecated.deployment.rollback.to",
    ];
    let of = |object: &Value| object["metadata"]["annotations"].as_object().cloned().unwrap_or_default();
    let (kept, back) = (of(&info.object), of(&target.object));
    let kept = kept.into_iter().filter(|(key, _)| own.contains(&key.as_str()));
    let back = back.into_iter().filter(|(key, _)| !own.contains(&key.as_str()));
    let annotations: Map<String, Value> = kept.chain(back).collect();
    json!([
        {"op": "replace", "path": "/spec/template", "value": template(target)},
        {"op": "add", "path": "/metadata/annotations", "value": annotations},
    ])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::resource::mapping::Mapping;

    fn info(plural: &str, object: Value) -> Info {
        let mapping = Mapping { plural: plural.into(), ..Default::default() };
        Info { mapping, namespace: String::new(), name: "web".into(), object, source: String::new() }
    }

    fn revision(number: i64) -> Revision {
        Revision {
            number,
            template: json!({"metadata": {"labels": {"app": "web", "pod-template-hash": "x"}}}),
            object: json!({"metadata": {"annotations": {"note": "old", REVISION: "1"}}}),
            ..Default::default()
        }
    }

    #[test]
    fn the_one_before_the_last_comes_back() {
        let revisions = [revision(1), revision(2), revision(3)];
        let found = |revisions: &[Revision], to: i64| {
            target(&info("deployments", json!({})), revisions, to).map(|revision| revision.number)
        };
        assert_eq!(found(&revisions, 0).unwrap(), 2);
        assert_eq!(found(&revisions, 1).unwrap(), 1);
        assert_eq!(found(&revisions, 7).unwrap_err().text(), "unable to find specified revision 7 in history");
        let none = "no rollout history found for deployment \"web\"";
        assert_eq!(found(&revisions[..1], 0).unwrap_err().text(), none);
    }

    #[test]
    fn annotations_come_back_and_the_hash_does_not() {
        let object = json!({"metadata": {"annotations": {REVISION: "3", "new": "x"}}});
        let patch = of_deployment(&info("deployments", object), &revision(1));
        assert_eq!(patch[0]["value"]["metadata"]["labels"], json!({"app": "web"}));
        assert_eq!(patch[1]["value"], json!({REVISION: "3", "note": "old"}));
    }
}
