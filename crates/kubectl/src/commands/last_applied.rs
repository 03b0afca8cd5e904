//! The annotation that `apply` keeps: looking at it, setting it, editing it.

use serde_json::{Value, json};

use super::change::{Change, DRY_RUN, LAST_APPLIED, MERGE, last_applied_text};
use crate::command::Command;
use crate::failure::{Failure, Result};
use crate::flags::Flag;
use crate::output::{self, json as go_json};
use crate::resource::select::{FILES, Query, SELECTOR};
use crate::session::{Call, Session};
use crate::terminal;

pub(super) static VIEW: Command = Command {
    name: "view-last-applied",
    short: "View the configuration that was applied last.",
    usage: "(TYPE [NAME | -l label] | TYPE/NAME | -f FILENAME) [options]",
    flags: &[VIEW_FLAGS, FILES, SELECTOR],
    run: Some(|session| Box::pin(view(session))),
    ..Command::EMPTY
};
pub(super) static SET: Command = Command {
    name: "set-last-applied",
    short: "Set the annotation of what was applied last to the content of a file.",
    usage: "-f FILENAME [options]",
    flags: &[SET_FLAGS, FILE, DRY_RUN, output::FLAGS],
    run: Some(|session| Box::pin(set(session))),
    ..Command::EMPTY
};
pub(super) static EDIT: Command = Command {
    name: "edit-last-applied",
    short: "Edit the configuration that was applied last.",
    usage: "(RESOURCE/NAME | -f FILENAME) [options]",
    flags: &[EDIT_FLAGS, FILES, super::change::VALIDATE, output::FLAGS],
    run: Some(|session| Box::pin(edit(session))),
    ..Command::EMPTY
};

const VIEW_FLAGS: &[Flag] =
    &[Flag::text("output", "yaml", "yaml or json.").short('o'), Flag::switch("all", "All objects of the type.")];
const FILE: &[Flag] = &[Flag::list("filename", "Files that were applied.").short('f')];
const SET_FLAGS: &[Flag] = &[Flag::switch("create-annotation", "Also where there is none yet.")];
const EDIT_FLAGS: &[Flag] = &[
    Flag::switch("windows-line-endings", "Lines end as on Windows."),
    Flag::text("field-manager", "kubectl-client-side-apply", "Who owns the fields that are set."),
];

/// What the line names, which must be something.
fn named(session: &Session) -> Result<Query> {
    let query = Query::from(session);
    if query.arguments.is_empty() && !query.has_files() {
        return Err(Failure::message(super::NO_RESOURCES));
    }
    Ok(query)
}

async fn view(session: &Session) -> Result<()> {
    let format = session.flags.text("output");
    if !["yaml", "json"].contains(&format) {
        return session
            .usage(format!("Unexpected -o output mode: {format}, the flag 'output' must be one of yaml|json"));
    }
    let query = named(session)?;
    let (infos, failures) = session.infos(&query).await?;
    crate::failure::all(failures)?;
    for info in infos {
        // Upstream says nothing of what was never applied.
        let Some(text) = info.object["metadata"]["annotations"][LAST_APPLIED].as_str() else { continue };
        let value: Value = serde_json::from_str(text).map_err(Failure::of)?;
        if format == "json" {
            terminal::outln(&go_json::pretty_with(&value, b"  "));
        } else {
            terminal::out(&crate::output::yaml::text(&value));
        }
    }
    Ok(())
}

async fn set(session: &Session) -> Result<()> {
    let change = Change::from(session)?;
    let (infos, failures) = session.local(&named(session)?).await?;
    crate::failure::all(failures)?;
    for info in infos {
        let live = session.latest(info.clone()).await?;
        let old = live.object["metadata"]["annotations"][LAST_APPLIED].as_str();
        if old.is_none() && !session.flags.on("create-annotation") {
            return Err(Failure::message(format!(
                "no last-applied-configuration annotation found on resource: {}, to create the annotation, run the command with --create-annotation",
                info.name
            )));
        }
        let text = last_applied_text(&info.object);
        if old == Some(text.as_str()) {
            terminal::outln(&format!("set-last-applied {}: no changes required.", info.name));
            continue;
        }
        let patch = json!({"metadata": {"annotations": {LAST_APPLIED: text}}});
        let object = if change.local() {
            live.object
        } else {
            change.send(Call::patch(info.path(), MERGE, &patch), "kubectl-client-side-apply").await?
        };
        change.report(&info.shown(), &object, "configured")?;
    }
    Ok(())
}

async fn edit(session: &Session) -> Result<()> {
    let (infos, failures) = session.infos(&named(session)?).await?;
    crate::failure::all(failures)?;
    for info in infos {
        let Some(text) = info.object["metadata"]["annotations"][LAST_APPLIED].as_str() else {
            return Err(Failure::message(format!(
                "no last-applied-configuration annotation found on resource: {}",
                info.name
            )));
        };
        let value: Value = serde_json::from_str(text).map_err(Failure::of)?;
        let edited = super::edit::edit_text(&value)?;
        if edited == value {
            terminal::errln("Edit cancelled, no changes made.");
            continue;
        }
        let patch = json!({"metadata": {"annotations": {LAST_APPLIED: last_applied_text(&edited)}}});
        let call = Call::patch(info.path(), MERGE, &patch).with("fieldManager", session.flags.text("field-manager"));
        session.send(&call).await?;
        terminal::outln(&format!("{} edited", info.shown()));
    }
    Ok(())
}
