//! `kubectl certificate approve` and `deny`.

use serde_json::{Value, json};

use crate::command::Command;
use crate::failure::{self, Failure, Result};
use crate::flags::Flag;
use crate::output::{self, Format};
use crate::resource::Info;
use crate::resource::select::{FILES, Query};
use crate::session::{Call, Session};
use crate::terminal;

pub(crate) static COMMAND: Command = Command {
    name: "certificate",
    group: super::CLUSTER,
    short: "Modify certificate resources.",
    usage: "SUBCOMMAND [options]",
    subcommands: &[&APPROVE, &DENY],
    ..Command::EMPTY
};
static APPROVE: Command = Command {
    name: "approve",
    short: "Approve a certificate signing request.",
    usage: "(-f FILENAME | NAME) [options]",
    flags: &[FORCE, FILES, crate::output::FLAGS],
    run: Some(|session| Box::pin(run(session, Decision::Approved))),
    ..Command::EMPTY
};
static DENY: Command = Command {
    name: "deny",
    short: "Deny a certificate signing request.",
    usage: "(-f FILENAME | NAME) [options]",
    flags: &[FORCE, FILES, crate::output::FLAGS],
    run: Some(|session| Box::pin(run(session, Decision::Denied))),
    ..Command::EMPTY
};

const FORCE: &[Flag] = &[Flag::switch("force", "Even where it was decided before.")];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Decision {
    Approved,
    Denied,
}

impl Decision {
    /// The type of the condition.
    fn condition(self) -> &'static str {
        match self {
            Decision::Approved => "Approved",
            Decision::Denied => "Denied",
        }
    }

    fn word(self) -> &'static str {
        match self {
            Decision::Approved => "approved",
            Decision::Denied => "denied",
        }
    }

    fn opposite(self) -> Decision {
        match self {
            Decision::Approved => Decision::Denied,
            Decision::Denied => Decision::Approved,
        }
    }

    fn reason_and_message(self) -> (&'static str, &'static str) {
        match self {
            Decision::Approved => ("KubectlApprove", "This CSR was approved by kubectl certificate approve."),
            Decision::Denied => ("KubectlDeny", "This CSR was denied by kubectl certificate deny."),
        }
    }
}

async fn run(session: &Session, decision: Decision) -> Result<()> {
    let mut arguments = session.arguments().to_vec();
    if arguments.is_empty() && session.flags.list("filename").is_empty() {
        return Err(Failure::message("one or more CSRs must be specified as <name> or -f <filename>"));
    }
    if !arguments.is_empty() && !arguments.iter().any(|argument| argument.contains('/')) {
        arguments.insert(0, "certificatesigningrequests".into());
    }
    let (infos, failures) = session.infos(&Query { arguments, chunk: 500, ..Query::from(session) }).await?;
    failure::all(failures)?;
    for info in infos {
        let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let mut object = info.object.clone();
        if let Some(conditions) = decided(&info, decision, session.flags.on("force"), &now)? {
            object["status"]["conditions"] = conditions.into();
            object = session.send(&Call::put(format!("{}/approval", info.path()), &object)).await?;
        }
        print(session, &info, object, decision)?;
    }
    Ok(())
}

/// The conditions with the decision among them; none where it was made before.
fn decided(info: &Info, decision: Decision, force: bool, now: &str) -> Result<Option<Vec<Value>>> {
    let mut conditions = info.object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let has = |decision: Decision| conditions.iter().any(|condition| condition["type"] == decision.condition());
    let other = decision.opposite();
    if has(other) {
        return Err(Failure::message(format!(
            "certificate signing request {:?} is already {}",
            info.name,
            other.condition()
        )));
    }
    if has(decision) && !force {
        return Ok(None);
    }
    let (reason, message) = decision.reason_and_message();
    conditions.retain(|condition| condition["type"] != decision.condition());
    conditions.push(json!({"type": decision.condition(), "status": "True", "reason": reason, "message": message,
        "lastUpdateTime": now}));
    Ok(Some(conditions))
}

fn print(session: &Session, info: &Info, mut object: Value, decision: Decision) -> Result<()> {
    match Format::from(&session.flags, false)? {
        Format::Human { .. } => terminal::outln(&format!("{} {}", info.shown(), decision.word())),
        format => {
            if format.leaves_out_managed_fields() && !session.flags.on("show-managed-fields") {
                output::without_managed_fields(&mut object);
            }
            terminal::out(&format.text(&object)?);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(conditions: Value) -> Info {
        Info {
            mapping: Default::default(),
            namespace: String::new(),
            name: "csr".into(),
            object: json!({"status": {"conditions": conditions}}),
            source: String::new(),
        }
    }

    #[test]
    fn a_decision_is_added_once() {
        let added = decided(&request(json!([])), Decision::Approved, false, "now").unwrap().unwrap();
        assert_eq!(added.len(), 1);
        assert_eq!((&added[0]["type"], &added[0]["reason"]), (&json!("Approved"), &json!("KubectlApprove")));
        let again = request(json!([{"type": "Approved", "lastUpdateTime": "then"}]));
        assert_eq!(decided(&again, Decision::Approved, false, "now").unwrap(), None);
        let forced = decided(&again, Decision::Approved, true, "now").unwrap().unwrap();
        assert_eq!((forced.len(), &forced[0]["lastUpdateTime"]), (1, &json!("now")));
    }

    #[test]
    fn a_decision_is_not_turned_around() {
        let denied = request(json!([{"type": "Denied"}]));
        let failure = decided(&denied, Decision::Approved, true, "now").unwrap_err();
        assert_eq!(failure.text(), "certificate signing request \"csr\" is already Denied");
    }
}
