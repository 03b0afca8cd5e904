//! `kubectl exec` and `kubectl attach`.

use std::time::Duration;

use super::pods;
use super::stream::{self, Streams};
use crate::command::Command;
use crate::failure::{Failure, Result};
use crate::flags::Flag;
use crate::session::Session;
use crate::terminal;

pub static EXEC: Command = Command {
    name: "exec",
    group: super::TROUBLE,
    short: "Execute a command in a container.",
    examples: "kubectl exec web -- date\nkubectl exec -it web -c app -- sh",
    usage: "(POD | TYPE/NAME) [-c CONTAINER] [flags] -- COMMAND [args...] [options]",
    flags: &[FLAGS, FILE],
    run: Some(|session| Box::pin(exec(session))),
    ..Command::EMPTY
};
pub static ATTACH: Command = Command {
    name: "attach",
    group: super::TROUBLE,
    short: "Attach to a process that is already running inside an existing container.",
    examples: "kubectl attach web -c app -it",
    usage: "(POD | TYPE/NAME) -c CONTAINER [options]",
    flags: &[FLAGS],
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
    let (pod, command) = match flags.dash {
        Some(0) | None if arguments.is_empty() => {
            return Err(Failure::message("pod, type/name or --filename must be specified"));
        }
        Some(dash) if dash >= 1 => (&arguments[0], arguments[dash..].to_vec()),
        Some(_) => return Err(Failure::message("pod, type/name or --filename must be specified")),
        None if arguments.len() > 1 => {
            return Err(Failure::message(format!(
                "exec [POD] [COMMAND] is not supported anymore. Use exec [POD] -- [COMMAND] instead\nSee '{} -h' for help and examples",
                session.path
            )));
        }
        None => (&arguments[0], Vec::new()),
    };
    if command.is_empty() {
        return Err(Failure::message("you must specify at least one command for the container"));
    }
    let limit = Duration::from_secs_f64(flags.seconds("pod-running-timeout").max(0.0));
    let pod = pods::one(session, pod, limit).await?;
    ended(&pod)?;
    let container = pods::container(&pod, flags.text("container"), flags.on("quiet"))?;
    let streams = Streams { stdin: flags.on("stdin"), tty: flags.on("tty") }.checked();
    let process = stream::exec(session, &pod, &container, &streams, &command).await?;
    stream::run(process, &streams).await
}

fn ended(pod: &serde_json::Value) -> Result<()> {
    match pod["status"]["phase"].as_str().unwrap_or_default() {
        phase @ ("Succeeded" | "Failed") => {
            Err(Failure::message(format!("cannot exec into a container in a completed pod; current phase is {phase}")))
        }
        _ => Ok(()),
    }
}

async fn attach(session: &Session) -> Result<()> {
    let flags = &session.flags;
    let [pod] = session.arguments() else {
        return Err(Failure::message(match session.arguments().len() {
            0 => "at least 1 argument is required for attach".to_string(),
            count => format!("expected POD, TYPE/NAME, or TYPE NAME, (at most 2 arguments) saw {count}"),
        }));
    };
    let limit = Duration::from_secs_f64(flags.seconds("pod-running-timeout").max(0.0));
    let pod = pods::one(session, pod, limit).await?;
    if matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed")) {
        let phase = pod["status"]["phase"].as_str().unwrap_or_default();
        return Err(Failure::message(format!(
            "cannot attach a container in a completed pod; current phase is {phase}"
        )));
    }
    let container = pods::container(&pod, flags.text("container"), flags.on("quiet"))?;
    to(session, &pod, &container, flags.on("stdin"), flags.on("tty"), flags.on("quiet")).await
}

/// Attaches to a container that runs already.
pub async fn to(
    session: &Session,
    pod: &serde_json::Value,
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
    let mut streams = Streams { stdin, tty }.checked();
    if streams.tty && !has_tty {
        streams.tty = false;
        if !quiet {
            terminal::errln(&format!("error: Unable to use a TTY - container {container} did not allocate one"));
        }
    } else if !streams.tty && has_tty {
        // The container's terminal mixes both outputs, whether ours is one or not.
        streams.tty = true;
    }
    if streams.stdin && !quiet {
        terminal::errln("If you don't see a command prompt, try pressing enter.");
    }
    let process = stream::attach(session, pod, container, &streams).await?;
    stream::run(process, &streams).await
}
