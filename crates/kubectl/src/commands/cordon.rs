//! `kubectl cordon` and `uncordon`.

use serde_json::{Value, json};

use super::change::{self, DRY_RUN, DryRun, STRATEGIC};
use crate::command::Command;
use crate::failure::{self, Result};
use crate::resource::Info;
use crate::resource::select::{Query, SELECTOR};
use crate::session::{Call, Session};
use crate::terminal;

pub(super) static CORDON: Command = Command {
    name: "cordon",
    group: super::CLUSTER,
    short: "Mark node as unschedulable.",
    examples: "kubectl cordon node-1",
    usage: "NODE [options]",
    flags: &[DRY_RUN, SELECTOR],
    run: Some(|session| Box::pin(run(session, true))),
    ..Command::EMPTY
};
pub(super) static UNCORDON: Command = Command {
    name: "uncordon",
    group: super::CLUSTER,
    short: "Mark node as schedulable.",
    examples: "kubectl uncordon node-1",
    usage: "NODE [options]",
    flags: &[DRY_RUN, SELECTOR],
    run: Some(|session| Box::pin(run(session, false))),
    ..Command::EMPTY
};

async fn run(session: &Session, wanted: bool) -> Result<()> {
    let dry = change::dry_run(session)?;
    for node in nodes(session).await? {
        set_unschedulable(session, &node, wanted, dry).await?;
    }
    Ok(())
}

/// The nodes that are named, or that a selector chooses.
pub(super) async fn nodes(session: &Session) -> Result<Vec<Info>> {
    let selector = session.flags.text("selector").to_string();
    if session.arguments().is_empty() && selector.is_empty() {
        return session.usage(format!("USAGE: {} NODE [flags]", session.path.trim_start_matches("kubectl ")));
    }
    if !session.arguments().is_empty() && !selector.is_empty() {
        return session.usage("cannot specify both a node name and a --selector option");
    }
    let mut arguments = session.arguments().to_vec();
    if !arguments.iter().any(|argument| argument.contains('/')) {
        arguments.insert(0, "nodes".into());
    }
    let query = Query { arguments, selector, chunk: 500, ..Query::default() };
    let (infos, failures) = session.infos(&query).await?;
    failure::all(failures)?;
    Ok(infos)
}

pub(super) fn dry_text(dry: DryRun) -> &'static str {
    match dry {
        DryRun::No => "",
        DryRun::Client => " (dry run)",
        DryRun::Server => " (server dry run)",
    }
}

pub(super) async fn set_unschedulable(session: &Session, node: &Info, wanted: bool, dry: DryRun) -> Result<()> {
    let now = node.object["spec"]["unschedulable"] == true;
    let word = if wanted { "cordoned" } else { "uncordoned" };
    if now == wanted {
        terminal::outln(&format!("{} already {word}{}", node.shown(), dry_text(dry)));
        return Ok(());
    }
    if dry != DryRun::Client {
        let value = if wanted { json!(true) } else { Value::Null };
        let mut call = Call::patch(node.path(), STRATEGIC, &json!({"spec": {"unschedulable": value}}))
            .with("fieldManager", "kubectl-cordon");
        if dry == DryRun::Server {
            call = call.with("dryRun", "All");
        }
        session.send(&call).await?;
    }
    terminal::outln(&format!("{} {word}{}", node.shown(), dry_text(dry)));
    Ok(())
}
