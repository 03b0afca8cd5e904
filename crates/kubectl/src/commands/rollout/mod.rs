//! `kubectl rollout`: status, history, undo, pause, resume, restart.

mod status;
mod history;
mod undo;

use serde_json::{Value, json};

use super::change::{Change, DRY_RUN, STRATEGIC};
use crate::command::Command;
use crate::failure::{self, Failure, Result};
use crate::flags::Flag;
use crate::output;
use crate::resource::Info;
use crate::resource::select::{FILES, Query, SELECTOR};
use crate::session::{Call, Session};
use crate::terminal;

pub(super) static COMMAND: Command = Command {
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
    run: Some(|session| Box::pin(status::run(session))),
    ..Command::EMPTY
};
static HISTORY: Command = Command {
    name: "history",
    short: "View rollout history.",
    usage: "(TYPE NAME | TYPE/NAME) [flags] [options]",
    flags: &[HISTORY_FLAGS, FILES, SELECTOR, output::FLAGS],
    run: Some(|session| Box::pin(history::run(session))),
    ..Command::EMPTY
};
static UNDO: Command = Command {
    name: "undo",
    short: "Undo a previous rollout.",
    usage: "(TYPE NAME | TYPE/NAME) [flags] [options]",
    flags: &[UNDO_FLAGS, FILES, SELECTOR, DRY_RUN, output::FLAGS],
    run: Some(|session| Box::pin(undo::run(session))),
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

/// Revisions begin with 1; 0 stands for the newest.
fn check_revision(session: &Session) -> Result<()> {
    let revision = session.flags.integer("revision");
    if revision < 0 {
        return Err(Failure::message(format!("revision must be a positive integer: {revision}")));
    }
    Ok(())
}

/// What the command line names. These commands may mean all of a kind without saying so.
async fn chosen(session: &Session, lists: bool) -> Result<(Vec<Info>, Vec<Failure>)> {
    let query = Query { chunk: 500, ..Query::from(session) };
    if query.arguments.is_empty() && !query.has_files() {
        return Err(Failure::message("required resource not specified"));
    }
    session.chosen(&query, lists).await
}

#[derive(Clone, Copy, PartialEq)]
enum Step {
    Pause,
    Resume,
    Restart,
}

async fn patched(session: &Session, step: Step) -> Result<()> {
    let change = Change::from(session)?;
    let (infos, mut failures) = chosen(session, step == Step::Restart).await?;
    if infos.is_empty() && failures.is_empty() {
        terminal::errln(&format!("No resources found in {} namespace.", session.namespace()?));
    }
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    for info in infos {
        let (patch, outcome) = match patch(&info, step, &now) {
            Ok(found) => found,
            Err(failure) => {
                failures.push(failure);
                continue;
            }
        };
        match change.send(Call::patch(info.path(), STRATEGIC, &patch), "kubectl-rollout").await {
            Ok(object) => change.report_typed(&info.shown(), &object, outcome)?,
            Err(failure) => failures.push(failure),
        }
    }
    failure::all(failures)
}

/// What is sent for a step and what is said of it, or why it cannot be.
fn patch(info: &Info, step: Step, now: &str) -> Result<(Value, &'static str)> {
    let of = |what: &str| Err(Failure::message(format!("error: {} {:?} {what}", info.mapping.resource(), info.name)));
    let workload = ["deployments", "daemonsets", "statefulsets"].contains(&info.mapping.plural.as_str());
    let deployment = info.mapping.plural == "deployments";
    let paused = info.object["spec"]["paused"] == true;
    match step {
        Step::Pause if !deployment => of("pausing is not supported"),
        Step::Pause if paused => of("is already paused"),
        Step::Pause => Ok((json!({"spec": {"paused": true}}), "paused")),
        Step::Resume if !deployment => of("resuming is not supported"),
        Step::Resume if !paused => of("is not paused"),
        Step::Resume => Ok((json!({"spec": {"paused": null}}), "resumed")),
        Step::Restart if !workload => of("restarting is not supported"),
        Step::Restart if paused => of("can't restart paused deployment (run rollout resume first)"),
        Step::Restart => {
            let place = "/spec/template/metadata/annotations/kubectl.kubernetes.io~1restartedAt";
            if info.object.pointer(place).and_then(Value::as_str) == Some(now) {
                return Err(Failure::message(format!(
                    "failed to create patch for {}: if restart has already been triggered within the past second, please wait before attempting to trigger another",
                    info.name
                )));
            }
            let annotations = json!({"kubectl.kubernetes.io/restartedAt": now});
            Ok((json!({"spec": {"template": {"metadata": {"annotations": annotations}}}}), "restarted"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restart_counts_once_a_second() {
        let template = json!({"metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": "now"}}});
        let info = Info {
            mapping: crate::resource::mapping::Mapping { plural: "deployments".into(), ..Default::default() },
            namespace: String::new(),
            name: "web".into(),
            object: json!({"spec": {"template": template}}),
            source: String::new(),
        };
        assert_eq!(patch(&info, Step::Restart, "later").unwrap().1, "restarted");
        let refused = patch(&info, Step::Restart, "now").unwrap_err().text();
        assert!(
            refused.starts_with("failed to create patch for web: if restart has already been triggered"),
            "{refused}"
        );
        assert!(patch(&info, Step::Resume, "now").is_err_and(|why| why.text().ends_with("is not paused")));
    }
}
