//! `kubectl diff`: what an apply would change, by dry runs.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::change::{self, APPLY};
use crate::command::Command;
use crate::failure::{Failure, Result};
use crate::flags::Flag;
use crate::output;
use crate::resource::Info;
use crate::resource::select::{FILES, Query, SELECTOR};
use crate::session::{Call, Session};
use crate::terminal;

pub(super) static COMMAND: Command = Command {
    name: "diff",
    group: super::ADVANCED,
    short: "Diff the live version against a would-be applied version.",
    examples: "kubectl diff -f web.yaml",
    usage: "-f FILENAME [options]",
    flags: &[FLAGS, FILES, SELECTOR],
    run: Some(|session| Box::pin(run(session))),
    ..Command::EMPTY
};

const FLAGS: &[Flag] = &[
    Flag::integer("concurrency", "1", "How many objects at a time."),
    Flag::text("field-manager", "kubectl-client-side-apply", "Who would own the fields."),
    Flag::switch("force-conflicts", "Take fields over from other managers."),
    Flag::switch("prune", "Also show what would be pruned."),
    Flag::array("prune-allowlist", "Kinds to prune, as group/version/kind."),
    Flag::switch("server-side", "Let the server merge."),
    Flag::switch("show-managed-fields", "Compare managedFields too."),
    Flag::switch("show-secrets", "Show what Secrets hold."),
];

/// How often a comparison is made anew when the object changed meanwhile.
const TRIES: usize = 4;

async fn run(session: &Session) -> Result<()> {
    let query = Query::from(session);
    if !query.arguments.is_empty() {
        return Err(exit_two(Failure::Usage(format!("Unexpected args: [{}]", query.arguments.join(" ")))));
    }
    if !query.has_files() {
        return Err(exit_two(Failure::message("must specify one of -f and -k")));
    }
    let (infos, failures) = session.local(&query).await.map_err(exit_two)?;
    crate::failure::all(failures).map_err(exit_two)?;
    let (live, merged) = (Removed::new("LIVE")?, Removed::new("MERGED")?);
    let show_secrets = session.flags.on("show-secrets");
    for info in infos {
        let (before, after) = both_of_one_revision(session, &info).await.map_err(exit_two)?;
        let name = file_name(&info);
        // A secret that is not there is masked like one that is, and is then a null.
        let absent = if info.mapping.is("", "secrets") && !show_secrets { "null\n" } else { "" };
        let text = |object: &Value| if object.is_null() { absent.to_string() } else { output::yaml::text(object) };
        std::fs::write(live.0.join(&name), text(&before))?;
        std::fs::write(merged.0.join(&name), text(&after))?;
    }
    compare(&live.0, &merged.0)
}

/// The object as it is and as it would be. When it changes meanwhile, both are asked for anew.
async fn both_of_one_revision(session: &Session, info: &Info) -> Result<(Value, Value)> {
    for _ in 1..TRIES {
        match both(session, info).await {
            Err(failure) if failure.reason() == "Conflict" => {}
            other => return other,
        }
    }
    terminal::log(
        'W',
        "diff.go:723",
        &format!(
            "Object ({}, Kind={}: {}) keeps changing, diffing without lock",
            info.mapping.api_version_with_slash(),
            info.mapping.kind,
            info.name
        ),
    );
    both(session, info).await
}

fn file_name(info: &Info) -> String {
    let mapping = &info.mapping;
    let group = if mapping.group.is_empty() { String::new() } else { format!("{}.", mapping.group) };
    format!("{group}{}.{}.{}.{}", mapping.version, mapping.kind, info.namespace, info.name).replace('/', "-")
}

/// Runs the program that shows the difference; its exit code is ours.
fn compare(live: &Path, merged: &Path) -> Result<()> {
    let external = std::env::var("KUBECTL_EXTERNAL_DIFF").ok().filter(|program| !program.trim().is_empty());
    let program = external.unwrap_or_else(|| "diff -u -N".into());
    let mut words = program.split_whitespace();
    let status = std::process::Command::new(words.next().unwrap_or("diff")).args(words).args([live, merged]).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => crate::exit(status.code().unwrap_or(2)),
        Err(error) => {
            let why = match error.kind() {
                std::io::ErrorKind::NotFound => "executable file not found in $PATH".to_string(),
                _ => crate::failure::go_io_error(&error),
            };
            Err(exit_two(Failure::message(format!("failed to run {program:?}: {why}"))))
        }
    }
}

/// A folder that goes with this value.
struct Removed(PathBuf);

impl Removed {
    fn new(name: &str) -> std::io::Result<Removed> {
        let number = std::process::id() as u64 * 1000
            + u64::from(jiff::Timestamp::now().subsec_nanosecond().unsigned_abs()) % 1000;
        let path = std::env::temp_dir().join(format!("{name}-{number}"));
        std::fs::create_dir(&path).map(|()| Removed(path))
    }
}

impl Drop for Removed {
    fn drop(&mut self) {
        // A folder that is left behind does no harm.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// One means that there is a difference; failures are more than one.
fn exit_two(failure: Failure) -> Failure {
    crate::terminal::err(&failure.report("kubectl diff").0);
    Failure::Exit(2)
}

async fn both(session: &Session, info: &Info) -> Result<(Value, Value)> {
    let flags = &session.flags;
    let mut before = match session.send(&Call::get(info.path())).await {
        Ok(object) => object,
        Err(failure) if failure.is_not_found() => Value::Null,
        Err(failure) => return Err(failure),
    };
    let manager = if flags.on("server-side") && !flags.given("field-manager") {
        super::apply::SERVER_SIDE_MANAGER
    } else {
        flags.text("field-manager")
    };
    let dry = |call: Call| call.with("dryRun", "All").with("fieldManager", manager);
    let mut after = if flags.on("server-side") {
        let mut call = dry(Call::patch(info.path(), APPLY, &info.object));
        if flags.on("force-conflicts") {
            call = call.with("force", "true");
        }
        session.send(&call).await?
    } else {
        // The annotation of an apply is not compared; that there are annotations is.
        let mut wanted = info.object.clone();
        if !wanted["metadata"]["annotations"].is_object() {
            wanted["metadata"]["annotations"] = serde_json::json!({});
        }
        if before.is_null() {
            session.send(&dry(Call::post(info.collection(), &info.object))).await?
        } else {
            let annotation = before["metadata"]["annotations"][change::LAST_APPLIED].as_str();
            let original: Value = annotation.and_then(|text| serde_json::from_str(text).ok()).unwrap_or(Value::Null);
            let (patch, kind) = super::apply::patch(info, &original, &wanted, &before);
            session.send(&dry(Call::patch(info.path(), kind, &patch))).await?
        }
    };
    for object in [&mut before, &mut after].into_iter().filter(|object| !object.is_null()) {
        if !flags.on("show-managed-fields") {
            output::without_managed_fields(object);
        }
    }
    if info.mapping.is("", "secrets") && !flags.on("show-secrets") {
        mask(&mut before, &mut after);
    }
    Ok((before, after))
}

/// `***` where nothing changes, and `*** (before)` and `*** (after)` where something does.
fn mask(before: &mut Value, after: &mut Value) {
    let keys: std::collections::BTreeSet<String> = [&*before, &*after]
        .iter()
        .flat_map(|object| object["data"].as_object().into_iter().flat_map(|data| data.keys().cloned()))
        .collect();
    for key in keys {
        let (old, new) = (before["data"].get(&key).cloned(), after["data"].get(&key).cloned());
        let differ = old.is_some() && new.is_some() && old != new;
        if old.is_some() {
            before["data"][key.as_str()] = if differ { "*** (before)" } else { "***" }.into();
        }
        if new.is_some() {
            after["data"][key.as_str()] = if differ { "*** (after)" } else { "***" }.into();
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn secrets_are_masked() {
        let mut before = json!({"data": {"same": "x", "changed": "a", "gone": "y"}});
        let mut after = json!({"data": {"same": "x", "changed": "b", "new": "z"}});
        mask(&mut before, &mut after);
        assert_eq!(before["data"], json!({"same": "***", "changed": "*** (before)", "gone": "***"}));
        assert_eq!(after["data"], json!({"same": "***", "changed": "*** (after)", "new": "***"}));
    }

    #[test]
    fn files_are_named_by_kind_and_name() {
        let mapping = crate::resource::mapping::Mapping {
            group: "apps".into(),
            version: "v1".into(),
            kind: "Deployment".into(),
            ..Default::default()
        };
        let info =
            Info { mapping, namespace: "team".into(), name: "a/b".into(), object: Value::Null, source: String::new() };
        assert_eq!(file_name(&info), "apps.v1.Deployment.team.a-b");
    }
}
