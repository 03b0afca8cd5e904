//! `kubectl scale`.

use serde_json::{Value, json};

use super::change::{Change, DRY_RUN, MERGE};
use crate::command::Command;
use crate::failure::{self, Failure, Result};
use crate::flags::Flag;
use crate::output;
use crate::resource::Info;
use crate::resource::select::{FILES, Query, SELECTOR, Wanted};
use crate::session::{Call, Session};

pub(super) static COMMAND: Command = Command {
    name: "scale",
    group: super::DEPLOY,
    short: "Set a new size for a deployment, replica set, or replication controller.",
    examples: "kubectl scale --replicas=3 deployment/web\nkubectl scale --current-replicas=2 --replicas=3 deployment/web",
    usage: "[--resource-version=version] [--current-replicas=count] --replicas=COUNT (-f FILENAME | TYPE NAME) [options]",
    flags: &[FLAGS, FILES, SELECTOR, DRY_RUN, output::FLAGS],
    run: Some(|session| Box::pin(scale(session))),
    ..Command::EMPTY
};
const FLAGS: &[Flag] = &[
    Flag::switch("all", "All objects of the type."),
    Flag::integer("current-replicas", "-1", "Only where it has this many now."),
    Flag::integer("replicas", "0", "How many it is to have."),
    Flag::text("resource-version", "", "Only where the object has this version."),
    Flag::duration("timeout", "0s", "How long to wait for the new size; 0 does not wait."),
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
    if flags.integer("current-replicas") < -1 {
        return Err(Failure::message("The --current-replicas must specify an integer of -1 or greater"));
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
    let mut found = Vec::new();
    for wanted in wanted {
        match session.fetch(&query, wanted).await {
            Ok(infos) => found.extend(infos),
            Err(failure) => failures.push(failure),
        }
    }
    if !flags.text("resource-version").is_empty() && found.len() > 1 {
        return Err(Failure::message("cannot use --resource-version with multiple resources"));
    }
    for info in &found {
        scale_one(&change, info).await?;
    }
    if found.is_empty() && failures.is_empty() {
        return Err(Failure::message("no objects passed to scale"));
    }
    failure::all(failures)
}

async fn scale_one(change: &Change<'_>, info: &Info) -> Result<()> {
    let session = change.session;
    let flags = &session.flags;
    let path = format!("{}/scale", info.path());
    let replicas = flags.integer("replicas");
    if change.local() {
        return change.report(&info.shown(), &with_replicas(info, replicas), "scaled");
    }
    let mut tries = 1;
    while let Err(failure) = set_replicas(change, &path, replicas).await {
        // Who else has written may have changed what was looked at.
        if failure.reason() != "Conflict" || tries == CONFLICTS_MAX {
            return Err(failure);
        }
        tries += 1;
        tokio::time::sleep(CONFLICT_PAUSE).await;
    }
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
    change.report(&info.shown(), &with_replicas(info, replicas), "scaled")
}

/// How often a write that met another one is tried, five minutes in all.
const CONFLICTS_MAX: usize = 300;
const CONFLICT_PAUSE: std::time::Duration = std::time::Duration::from_secs(1);

/// Writes the new size, if the object is as it was said to be.
async fn set_replicas(change: &Change<'_>, path: &str, replicas: i64) -> Result<()> {
    let flags = &change.session.flags;
    let mut patch = json!({"spec": {"replicas": replicas}});
    let (expected, version) = (flags.integer("current-replicas"), flags.text("resource-version"));
    if expected >= 0 || !version.is_empty() {
        let now = change.session.send(&Call::get(path)).await?;
        let current = now["spec"]["replicas"].as_i64().unwrap_or(0);
        if expected >= 0 && current != expected {
            return Err(Failure::message(format!("Expected replicas to be {expected}, was {current}")));
        }
        if !version.is_empty() && now["metadata"]["resourceVersion"] != version {
            let have = now["metadata"]["resourceVersion"].as_str().unwrap_or_default();
            return Err(Failure::message(format!("Expected resource version to be {version}, was {have}")));
        }
        patch["metadata"]["resourceVersion"] = now["metadata"]["resourceVersion"].clone();
    }
    change.send(Call::patch(path, MERGE, &patch), "kubectl").await.map(|_| ())
}

/// The object as it was, with the new size where it is known in which field that stands.
fn with_replicas(info: &Info, replicas: i64) -> Value {
    let mut object = info.object.clone();
    if ["", "apps"].contains(&info.mapping.group.as_str()) {
        object["spec"]["replicas"] = replicas.into();
    }
    object
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

    #[test]
    fn only_known_kinds_show_the_new_size() {
        let mut deployment = info("deployments", json!({"spec": {"replicas": 1}}));
        deployment.mapping.group = "apps".into();
        assert_eq!(with_replicas(&deployment, 3)["spec"]["replicas"], 3);
        deployment.mapping.group = "example.com".into();
        assert_eq!(with_replicas(&deployment, 3)["spec"]["replicas"], 1);
    }
}
