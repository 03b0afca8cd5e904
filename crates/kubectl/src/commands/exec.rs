//! `kubectl exec` and `kubectl attach`.

use std::time::Duration;

use serde_json::Value;

use super::pods;
use super::stream::{self, Streams};
use crate::command::Command;
use crate::failure::{Failure, Result};
use crate::flags::Flag;
use crate::resource::select::Query;
use crate::session::Session;
use crate::terminal;

pub(super) static EXEC: Command = Command {
    name: "exec",
    group: super::TROUBLE,
    short: "Execute a command in a container.",
    examples: "kubectl exec web -- date\nkubectl exec -it web -c app -- sh",
    usage: "(POD | TYPE/NAME) [-c CONTAINER] [flags] -- COMMAND [args...] [options]",
    flags: &[FLAGS, FILE],
    run: Some(|session| Box::pin(exec(session))),
    ..Command::EMPTY
};
pub(super) static ATTACH: Command = Command {
    name: "attach",
    group: super::TROUBLE,
    short: "Attach to a process that is already running inside an existing container.",
    examples: "kubectl attach web -c app -it",
    usage: "(POD | TYPE/NAME) -c CONTAINER [options]",
    flags: &[FLAGS, stream::DETACH],
    run: Some(|session| Box::pin(attach(session))),
    ..Command::EMPTY
};

const FILE: &[Flag] = &[Flag::list("filename", "A file that names the pod.").short('f')];
const FLAGS: &[Flag] = &[
    Flag::text("container", "", "The container.").short('c'),
    Flag::duration("pod-running-timeout", "1m0s", "How long to wait for a pod to run."),
    Flag::switch("quiet", "Only print what the process prints.").short('q'),
    Flag::switch("stdin", "Pass our input on.").short('i'),
    Flag::switch("tty", "Input is a terminal.").short('t'),
];

async fn exec(session: &Session) -> Result<()> {
    let flags = &session.flags;
    let arguments = session.arguments();
    let files = flags.list("filename");
    let before = flags.dash.unwrap_or(arguments.len());
    if files.is_empty() && before == 0 {
        return Err(Failure::message("pod, type/name or --filename must be specified"));
    }
    if files.is_empty() && flags.dash.is_none() && arguments.len() > 1 {
        return session.usage("exec [POD] [COMMAND] is not supported anymore. Use exec [POD] -- [COMMAND] instead");
    }
    let command = &arguments[if files.is_empty() && flags.dash.is_none() { 1 } else { before }..];
    if command.is_empty() {
        return Err(Failure::message("you must specify at least one command for the container"));
    }
    if !files.is_empty() && before > 0 {
        return Err(Failure::message("resource/name arguments cannot be provided when a path is specified"));
    }
    let limit = Duration::from_secs_f64(flags.seconds("pod-running-timeout").max(0.0));
    let pod = match arguments.first() {
        Some(named) if files.is_empty() => pods::one(session, named, limit).await?,
        _ => of_file(session, limit).await?,
    };
    ended(&pod)?;
    let container = pods::container(&pod, flags.text("container"), flags.on("quiet"))?;
    let streams = Streams { stdin: flags.on("stdin"), tty: flags.on("tty"), detach: None }.checked();
    let process = stream::exec(session, &pod, &container, &streams, command).await?;
    stream::run(process, &streams).await
}

/// A file may hold the pod itself, or something that has pods.
async fn of_file(session: &Session, limit: Duration) -> Result<Value> {
    let (infos, failures) = session.local(&Query::from(session)).await?;
    crate::failure::all(failures)?;
    let Some(info) = infos.into_iter().next() else { return Err(Failure::message("no objects passed to exec")) };
    if info.mapping.is("", "pods") {
        return Ok(info.object);
    }
    pods::one(session, &format!("{}/{}", info.mapping.resource(), info.name), limit).await
}

fn ended(pod: &Value) -> Result<()> {
    match pod["status"]["phase"].as_str().unwrap_or_default() {
        phase @ ("Succeeded" | "Failed") => {
            Err(Failure::message(format!("cannot exec into a container in a completed pod; current phase is {phase}")))
        }
        _ => Ok(()),
    }
}

async fn attach(session: &Session) -> Result<()> {
    let flags = &session.flags;
    let named = match session.arguments() {
        [] => return Err(Failure::message("at least 1 argument is required for attach")),
        [named] => named.clone(),
        [kind, name] => format!("{kind}/{name}"),
        many => {
            return Err(Failure::message(format!(
                "expected POD, TYPE/NAME, or TYPE NAME, (at most 2 arguments) saw {}: [{}]",
                many.len(),
                many.join(" ")
            )));
        }
    };
    let limit = Duration::from_secs_f64(flags.seconds("pod-running-timeout").max(0.0));
    let pod = pods::one(session, &named, limit).await?;
    if matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed")) {
        let phase = pod["status"]["phase"].as_str().unwrap_or_default();
        return Err(Failure::message(format!(
            "cannot attach a container in a completed pod; current phase is {phase}"
        )));
    }
    let container = pods::container(&pod, flags.text("container"), flags.on("quiet"))
        .map_err(|failure| Failure::message(format!("cannot attach to the container: {}", failure.text())))?;
    to(session, &pod, &container, flags.on("stdin"), flags.on("tty"), flags.on("quiet")).await
}

/// Attaches to a container that runs already.
pub(crate) async fn to(
    session: &Session,
    pod: &Value,
    container: &str,
    stdin: bool,
    tty: bool,
    quiet: bool,
) -> Result<()> {
    let lists = ["containers", "initContainers", "ephemeralContainers"];
    let spec = lists
        .iter()
        .flat_map(|list| pod["spec"][*list].as_array().into_iter().flatten())
        .find(|spec| spec["name"] == container);
    let has_tty = spec.is_some_and(|spec| spec["tty"] == true);
    let mut streams = Streams { stdin, tty, detach: None }.checked();
    if streams.tty && !has_tty {
        streams.tty = false;
        if !quiet {
            terminal::errln(&format!("error: Unable to use a TTY - container {container} did not allocate one"));
        }
    } else if !streams.tty && has_tty {
        // The container's terminal mixes both outputs, whether ours is one or not.
        streams.tty = true;
    }
    if streams.stdin && streams.tty {
        streams.detach = Some(stream::detach_keys(&session.flags)?);
    }
    if !quiet {
        terminal::errln(
            "All commands and output from this session will be recorded in container logs, including credentials and sensitive information passed through the command prompt.",
        );
        terminal::errln("If you don't see a command prompt, try pressing enter.");
    }
    let process = stream::attach(session, pod, container, &streams).await?;
    stream::run(process, &streams).await?;
    if !quiet && streams.stdin && streams.tty {
        terminal::outln(&reattach(pod, container));
    }
    Ok(())
}

/// How a session that has ended is taken up again.
fn reattach(pod: &Value, container: &str) -> String {
    let text = |key: &str| pod["metadata"][key].as_str().unwrap_or_default();
    let command = format!("kubectl attach {} -c {container} -n {} -i -t", text("name"), text("namespace"));
    if pods::container_names(pod, &["ephemeralContainers"]).iter().any(|name| name == container) {
        format!(
            "Session ended, the ephemeral container will not be restarted but may be reattached using '{command}' if it is still running"
        )
    } else {
        format!("Session ended, resume using '{command}' command")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nothing_is_run_in_a_pod_that_has_ended() {
        assert!(ended(&json!({"status": {"phase": "Running"}})).is_ok());
        let refused = ended(&json!({"status": {"phase": "Failed"}})).unwrap_err().text();
        assert_eq!(refused, "cannot exec into a container in a completed pod; current phase is Failed");
    }

    #[test]
    fn a_session_can_be_taken_up_again() {
        let pod = json!({"metadata": {"name": "web", "namespace": "team"},
            "spec": {"containers": [{"name": "app"}], "ephemeralContainers": [{"name": "debug"}]}});
        let again = "kubectl attach web -c app -n team -i -t";
        assert_eq!(reattach(&pod, "app"), format!("Session ended, resume using '{again}' command"));
        assert!(reattach(&pod, "debug").starts_with("Session ended, the ephemeral container will not be restarted"));
    }
}
