//! `kubectl describe`.

use crate::command::Command;
use crate::failure::{self, Failure, Result};
use crate::flags::Flag;
use crate::resource::select::{FILES, Query, SELECTOR, Wanted};
use crate::session::Session;
use crate::terminal;

pub static COMMAND: Command = Command {
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
    let mut first = true;
    for wanted in wanted {
        let mut by_prefix = false;
        let named = match &wanted {
            Wanted::Named { mapping, name } => Some((mapping.clone(), name.clone())),
            _ => None,
        };
        let mut infos = match session.fetch(&query, wanted).await {
            Ok(infos) => infos,
            Err(failure) => match named.filter(|_| failure.is_not_found()) {
                // A part of a name stands for all that begin so.
                Some((mapping, prefix)) => {
                    let all = Query { chunk: query.chunk, all_namespaces: query.all_namespaces, ..Query::default() };
                    let mut found = session.fetch(&all, Wanted::List(mapping)).await?;
                    found.retain(|info| info.name.starts_with(&prefix));
                    by_prefix = true;
                    if found.is_empty() {
                        failures.push(failure);
                    }
                    found
                }
                None => {
                    failures.push(failure);
                    continue;
                }
            },
        };
        for info in &mut infos {
            let text = crate::describe::describe(session, info, session.flags.on("show-events")).await?;
            // Two empty lines stand between objects; one behind each that is only called something like that.
            terminal::out(&match by_prefix {
                true => format!("{text}\n"),
                false if first => text,
                false => format!("\n\n{text}"),
            });
            first = false;
        }
    }
    if first && failures.is_empty() {
        terminal::errln(&match query.all_namespaces {
            true => "No resources found".to_string(),
            false => format!("No resources found in {} namespace.", session.namespace()?),
        });
    }
    failure::all(failures)
}
