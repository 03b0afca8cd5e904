//! `kubectl describe`.

use crate::command::Command;
use crate::failure::{self, Failure, Result};
use crate::flags::Flag;
use crate::resource::select::{FILES, Query, SELECTOR, Wanted};
use crate::session::Session;
use crate::terminal;

pub(super) static COMMAND: Command = Command {
    name: "describe",
    group: super::TROUBLE,
    short: "Show details of a specific resource or group of resources.",
    examples: "kubectl describe pod web\nkubectl describe nodes\nkubectl describe pods -l app=web",
    usage: "(-f FILENAME | TYPE [NAME_PREFIX | -l label] | TYPE/NAME) [options]",
    flags: &[FLAGS, FILES, SELECTOR],
    run: Some(|session| Box::pin(run(session))),
    ..Command::EMPTY
};

const FLAGS: &[Flag] = &[
    Flag::switch("all-namespaces", "Look into all namespaces.").short('A'),
    Flag::integer("chunk-size", "500", "How many objects are asked for at once."),
    Flag::on("show-events", "Show events about the object."),
];

async fn run(session: &Session) -> Result<()> {
    let query = Query { chunk: session.flags.integer("chunk-size"), ..Query::from(session) };
    if query.arguments.is_empty() && !query.has_files() {
        return Err(Failure::message(
            "You must specify the type of resource to describe. Use \"kubectl api-resources\" for a complete list of supported resources.",
        ));
    }
    let (wanted, mut failures) = session.wanted(&query).await?;
    let mut infos = Vec::new();
    for wanted in wanted {
        match session.fetch(&query, wanted).await {
            Ok(found) => infos.extend(found),
            Err(failure) => failures.push(failure),
        }
    }
    // Events are told of a single object, unless they are asked for.
    let several = !failures.is_empty() || infos.len() > 1;
    let events = if session.flags.given("show-events") { session.flags.on("show-events") } else { !several };
    if let ([failure], [kind, prefix]) = (&failures[..], session.arguments())
        && failure.is_not_found()
    {
        return matching(session, &query, (kind, prefix), events, failures).await;
    }
    let mut first = true;
    for info in &infos {
        match crate::describe::describe(session, info, events).await {
            // Two empty lines stand between objects.
            Ok(text) if first => terminal::out(&text),
            Ok(text) => terminal::out(&format!("\n\n{text}")),
            Err(failure) => {
                failures.push(failure);
                continue;
            }
        }
        first = false;
    }
    if infos.is_empty() && failures.is_empty() {
        terminal::errln(&if query.all_namespaces {
            "No resources found".to_string()
        } else {
            format!("No resources found in {} namespace.", session.namespace()?)
        });
    }
    failure::all(failures)
}

/// A part of a name stands for all that begin so.
async fn matching(
    session: &Session,
    query: &Query,
    (kind, prefix): (&str, &str),
    events: bool,
    failures: Vec<Failure>,
) -> Result<()> {
    let all = Query { chunk: query.chunk, ..Query::default() };
    let mut infos = session.fetch(&all, Wanted::List(session.mapping(kind).await?)).await?;
    infos.retain(|info| info.name.starts_with(prefix));
    if infos.is_empty() {
        return failure::all(failures);
    }
    for info in &infos {
        let text = crate::describe::describe(session, info, events).await?;
        terminal::outln(&text);
    }
    Ok(())
}
