//! `kubectl logs`.

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use serde_json::Value;

use super::pods;
use crate::command::Command;
use crate::failure::{Failure, Result};
use crate::flags::{Flag, Parsed};
use crate::resource::select::{Query, SELECTOR};
use crate::session::{Call, Session};
use crate::terminal;

pub(super) static COMMAND: Command = Command {
    name: "logs",
    group: super::TROUBLE,
    short: "Print the logs for a container in a pod.",
    examples: "kubectl logs web\nkubectl logs -f deployment/web --all-containers\nkubectl logs -l app=web --tail=20 --prefix",
    usage: "[-f] [-p] (POD | TYPE/NAME) [-c CONTAINER] [options]",
    flags: &[FLAGS, SELECTOR],
    run: Some(|session| Box::pin(run(session))),
    ..Command::EMPTY
};

const FLAGS: &[Flag] = &[
    Flag::switch("all-containers", "All containers of the pod."),
    Flag::switch("all-pods", "All pods of the object; implies --prefix."),
    Flag::text("container", "", "The container.").short('c'),
    Flag::switch("follow", "Go on with what is written.").short('f'),
    Flag::switch("ignore-errors", "Go on where the log of one container fails."),
    Flag::switch("insecure-skip-tls-verify-backend", "Do not check the kubelet's certificate."),
    Flag::integer("limit-bytes", "0", "How many bytes at most."),
    Flag::integer("max-log-requests", "5", "How many logs to follow at once."),
    Flag::duration("pod-running-timeout", "20s", "How long to wait for a pod to run."),
    Flag::switch("prefix", "Begin each line with pod and container."),
    Flag::switch("previous", "The log of the container before this one.").short('p'),
    Flag::duration("since", "0s", "Only what is newer than this."),
    Flag::text("since-time", "", "Only what is newer than this time."),
    Flag::integer("tail", "-1", "How many lines from the end; -1 for all."),
    Flag::switch("timestamps", "Begin each line with its time."),
];

/// One log to print.
struct Source {
    pod: String,
    container: String,
    namespace: String,
}

async fn run(session: &Session) -> Result<()> {
    let flags = &session.flags;
    check(flags)?;
    let container = match session.arguments() {
        [_, container] => container.as_str(),
        _ => flags.text("container"),
    };
    let (pods, many) = pods(session).await?;
    // Upstream looks for the pods before it looks at these.
    if !flags.text("since-time").is_empty() && flags.seconds("since") != 0.0 {
        return Err(Failure::message("at most one of `sinceTime` or `sinceSeconds` may be specified"));
    }
    if flags.on("all-containers") && !container.is_empty() {
        return Err(Failure::message(format!(
            "--all-containers=true should not be specified with container name {container}"
        )));
    }
    check_numbers(flags, session.arguments().len())?;
    let mut sources = Vec::new();
    for pod in &pods {
        sources.extend(of_pod(pod, container, flags.on("all-containers"))?);
    }
    let prefix = flags.on("prefix") || flags.on("all-pods");
    if flags.on("follow") && sources.len() > 1 {
        check_streams(sources.len(), flags.integer("max-log-requests"))?;
        let mut streams: FuturesUnordered<_> =
            sources.iter().map(|source| print(session, source, prefix, many)).collect();
        while let Some(done) = streams.next().await {
            done?;
        }
        return Ok(());
    }
    for source in &sources {
        match print(session, source, prefix, many).await {
            Err(failure) if flags.on("ignore-errors") => terminal::errln(&format!("error: {}", failure.text())),
            other => other?,
        }
    }
    Ok(())
}

fn check(flags: &Parsed) -> Result<()> {
    let (count, selects) = (flags.arguments.len(), !flags.text("selector").is_empty());
    if count > 2 || count == 0 && !selects {
        return Err(Failure::Usage("expected 'logs [-f] [-p] (POD | TYPE/NAME) [-c CONTAINER]'.\nPOD or TYPE/NAME is a required argument for the logs command".into()));
    }
    if count > 0 && selects {
        return Err(Failure::Usage("only a selector (-l) or a POD name is allowed".into()));
    }
    time(flags.text("since-time"))
}

/// Refuses what no log has.
fn check_numbers(flags: &Parsed, arguments: usize) -> Result<()> {
    let why = if flags.given("container") && arguments == 2 {
        "only one of -c or an inline [CONTAINER] arg is allowed"
    } else if flags.integer("limit-bytes") < 0 {
        "--limit-bytes must be greater than 0"
    } else if flags.seconds("since") < 0.0 {
        "--since must be greater than 0"
    } else if flags.integer("tail") < -1 {
        "--tail must be greater than or equal to -1"
    } else {
        return Ok(());
    };
    Err(Failure::message(why))
}

/// The containers of a pod whose logs are wanted.
fn of_pod(pod: &Value, container: &str, all: bool) -> Result<Vec<Source>> {
    let text = |key: &str| pod["metadata"][key].as_str().unwrap_or_default().to_string();
    let names =
        if all { pods::container_names(pod, pods::ALL_LISTS) } else { vec![pods::container(pod, container, false)?] };
    let source = |container: String| Source { pod: text("name"), container, namespace: text("namespace") };
    Ok(names.into_iter().map(source).collect())
}

fn check_streams(count: usize, most: i64) -> Result<()> {
    let most = most.max(0) as usize;
    if count > most {
        return Err(Failure::message(format!(
            "you are attempting to follow {count} log streams, but maximum allowed concurrency is {most}, use --max-log-requests to increase the limit"
        )));
    }
    Ok(())
}

/// The pods whose logs are wanted, and whether they were chosen by a selector.
async fn pods(session: &Session) -> Result<(Vec<Value>, bool)> {
    let flags = &session.flags;
    let namespace = session.namespace()?;
    if !flags.text("selector").is_empty() {
        let mapping = session.mapping("pods").await?;
        let query = Query { selector: flags.text("selector").into(), chunk: 500, ..Query::default() };
        let pods = session.list(&mapping, namespace, &query).await?;
        if pods.is_empty() {
            terminal::errln(&format!("No resources found in {namespace} namespace."));
        }
        return Ok((pods, true));
    }
    let text = &session.arguments()[0];
    if let Some((kind, name)) = text.split_once('/') {
        let mapping = session.mapping(kind).await?;
        if !mapping.is("", "pods") {
            let object = session.send(&Call::get(mapping.object(namespace, name))).await;
            let object = object.map_err(|failure| not_found(failure, namespace))?;
            let mut found = pods::of(session, &object).await?;
            if flags.on("all-pods") {
                return Ok((found, true));
            }
            if found.len() > 1 {
                let first = pods::one(session, text, std::time::Duration::ZERO).await?;
                terminal::err(&format!(
                    "Found {} pods, using pod/{}\n",
                    found.len(),
                    first["metadata"]["name"].as_str().unwrap_or_default()
                ));
                return Ok((vec![first], false));
            }
            if found.is_empty() {
                let limit = std::time::Duration::from_secs_f64(flags.seconds("pod-running-timeout").max(0.0));
                found = vec![pods::one(session, text, limit).await?];
            }
            return Ok((found, false));
        }
    }
    let name = text.rsplit('/').next().unwrap_or(text);
    let pod = session.send(&Call::get(format!("/api/v1/namespaces/{namespace}/pods/{name}"))).await;
    pod.map(|pod| (vec![pod], false)).map_err(|failure| not_found(failure, namespace))
}

fn not_found(failure: Failure, namespace: &str) -> Failure {
    if failure.is_not_found() {
        Failure::message(format!("error from server (NotFound): {} in namespace {namespace:?}", failure.text()))
    } else {
        failure
    }
}

/// Is it a time as Go reads it, and if not, from where on?
fn time(text: &str) -> Result<()> {
    const LAYOUT: &str = "2006-01-02T15:04:05Z07:00";
    if text.is_empty() || text.parse::<jiff::Timestamp>().is_ok() {
        return Ok(());
    }
    let mut rest = text;
    for part in ["2006", "-", "01", "-", "02", "T", "15", ":", "04", ":", "05"] {
        let fits = match part.parse::<u32>() {
            Ok(_) => rest.len() >= part.len() && rest.bytes().take(part.len()).all(|byte| byte.is_ascii_digit()),
            Err(_) => rest.starts_with(part),
        };
        if !fits {
            return Err(Failure::message(format!(
                "parsing time {text:?} as {LAYOUT:?}: cannot parse {rest:?} as {part:?}"
            )));
        }
        rest = &rest[part.len()..];
    }
    if !rest.starts_with(['Z', '+', '-']) {
        return Err(Failure::message(format!(
            "parsing time {text:?} as {LAYOUT:?}: cannot parse {rest:?} as \"Z07:00\""
        )));
    }
    Err(Failure::message(format!("parsing time {text:?}: day out of range")))
}

async fn print(session: &Session, source: &Source, prefix: bool, many: bool) -> Result<()> {
    let flags = &session.flags;
    let mut call = Call::get(format!("/api/v1/namespaces/{}/pods/{}/log", source.namespace, source.pod))
        .with("container", source.container.as_str());
    call.accept = "*/*";
    for (flag, key) in [
        ("follow", "follow"),
        ("previous", "previous"),
        ("timestamps", "timestamps"),
        ("insecure-skip-tls-verify-backend", "insecureSkipTLSVerifyBackend"),
    ] {
        if flags.on(flag) {
            call = call.with(key, "true");
        }
    }
    // With a selector only the end is shown, unless something else is asked for.
    let tail =
        if many && !flags.given("tail") && !flags.text("selector").is_empty() { 10 } else { flags.integer("tail") };
    if tail >= 0 {
        call = call.with("tailLines", tail.to_string());
    }
    if flags.integer("limit-bytes") > 0 {
        call = call.with("limitBytes", flags.integer("limit-bytes").to_string());
    }
    let since = flags.seconds("since");
    if since > 0.0 {
        call = call.with("sinceSeconds", (since.ceil() as i64).to_string());
    }
    call = call.with("sinceTime", flags.text("since-time"));
    let mut chunks = session.chunks(&call).await?;
    if !prefix {
        while let Some(bytes) = chunks.next().await? {
            terminal::out_bytes(&bytes);
        }
        return Ok(());
    }
    let before = format!("[pod/{}/{}] ", source.pod, source.container);
    while let Some(line) = chunks.line().await? {
        terminal::out_bytes(&[before.as_bytes(), &line, b"\n"].concat());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_go_does() {
        assert!(time("2020-01-01T00:00:00Z").is_ok());
        let check = |text: &str, why: &str| {
            let before = format!("parsing time {text:?} as \"2006-01-02T15:04:05Z07:00\": cannot parse ");
            assert_eq!(time(text).unwrap_err().text(), before + why);
        };
        check("yesterday", "\"yesterday\" as \"2006\"");
        check("2020-01", "\"\" as \"-\"");
        check("2020-01-01T00:00:00", "\"\" as \"Z07:00\"");
    }
}
