//! `kubectl completion`: scripts for shells, which ask the program itself what may come next.

use crate::command::{Command, GLOBAL};
use crate::failure::{Failure, Result};
use crate::flags::{Flag, Kind};
use crate::session::{Call, Session};
use crate::terminal;

pub static COMMAND: Command = Command {
    name: "completion",
    group: super::SETTINGS,
    short: "Output shell completion code for the specified shell (bash, zsh, fish, or powershell).",
    examples: "source <(kubectl completion bash)",
    usage: "SHELL [options]",
    run: Some(|session| Box::pin(run(session))),
    ..Command::EMPTY
};
/// What the scripts call: the words so far, the last one unfinished.
pub static COMPLETE: Command = Command {
    name: "__complete",
    group: super::HIDDEN,
    short: "What may come next on a command line.",
    flags: &[],
    run: Some(|session| Box::pin(complete(session))),
    ..Command::EMPTY
};

const BASH: &str = r#"_kubectl_complete() {
    local IFS=$'\n'
    COMPREPLY=($("${COMP_WORDS[0]}" __complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null | cut -f1))
    [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *[=/] ]] && compopt -o nospace
}
complete -o default -F _kubectl_complete kubectl
"#;

const ZSH: &str = r#"#compdef kubectl
_kubectl() {
    local -a found
    found=("${(@f)$(kubectl __complete -- "${words[@]:1:$((CURRENT-1))}" 2>/dev/null | cut -f1)}")
    compadd -a found
}
compdef _kubectl kubectl
"#;

const FISH: &str = r#"function __kubectl_complete
    set -l words (commandline -opc) (commandline -ct)
    kubectl __complete -- $words[2..-1] 2>/dev/null
end
complete -c kubectl -f -a '(__kubectl_complete)'
"#;

async fn run(session: &Session) -> Result<()> {
    match session.arguments() {
        [shell] => match shell.as_str() {
            "bash" => terminal::out(BASH),
            "zsh" => terminal::out(ZSH),
            "fish" => terminal::out(FISH),
            other => return session.usage(format!("Unsupported shell type {other:?}.")),
        },
        [] => return session.usage("Shell not specified."),
        _ => return session.usage("Too many arguments. Expected only the shell type."),
    }
    Ok(())
}

async fn complete(session: &Session) -> Result<()> {
    let words = session.arguments();
    let Some((last, before)) = words.split_last() else { return Ok(()) };
    let mut command: &Command = &super::ROOT;
    let mut arguments = Vec::new();
    for word in before {
        match command.find(word) {
            Some(found) => command = found,
            None if word.starts_with('-') => {}
            None => arguments.push(word.as_str()),
        }
    }
    for line in candidates(session, command, &arguments, before.last().map(String::as_str), last).await? {
        if line.starts_with(last.as_str()) {
            terminal::outln(&line);
        }
    }
    Ok(())
}

async fn candidates(
    session: &Session,
    command: &Command,
    arguments: &[&str],
    previous: Option<&str>,
    last: &str,
) -> Result<Vec<String>> {
    let flags = || command.flags.iter().flat_map(|table| table.iter()).chain(GLOBAL);
    if last.starts_with('-') {
        let shown = |flag: &Flag| match flag.kind {
            Kind::Switch => format!("--{}", flag.name),
            _ => format!("--{}=", flag.name),
        };
        return Ok(flags().map(shown).collect());
    }
    if matches!(previous, Some("-n" | "--namespace")) {
        return names(session, "namespaces", "").await;
    }
    if !command.subcommands.is_empty() && arguments.is_empty() {
        let mut found: Vec<String> = command
            .subcommands
            .iter()
            .filter(|sub| sub.group != super::HIDDEN)
            .map(|sub| format!("{}\t{}", sub.name, sub.short))
            .collect();
        if command.name == "kubectl" || command.run.is_none() {
            return Ok(found);
        }
        found.sort();
        return Ok(found);
    }
    let pods = ["logs", "exec", "attach", "port-forward", "cp", "debug"].contains(&command.name);
    let nodes = ["cordon", "uncordon", "drain"].contains(&command.name);
    match (arguments, last.split_once('/')) {
        (_, Some((kind, _))) => {
            let found = names(session, kind, session.namespace()?).await?;
            Ok(found.into_iter().map(|name| format!("{kind}/{name}")).collect())
        }
        ([], None) if pods => names(session, "pods", session.namespace()?).await,
        ([], None) if nodes => names(session, "nodes", "").await,
        ([], None) if !["version", "config", "completion", "options"].contains(&command.name) => {
            Ok(api::KINDS.iter().map(|kind| kind.plural.to_string()).collect())
        }
        ([kind, ..], None) if !pods => names(session, kind, session.namespace()?).await,
        _ => Ok(Vec::new()),
    }
}

async fn names(session: &Session, kind: &str, namespace: &str) -> Result<Vec<String>> {
    let mapping = session.mapping(kind).await?;
    let list = session
        .send(&Call::get(mapping.collection(namespace)).with("limit", "500"))
        .await
        .map_err(|_| Failure::Exit(1))?;
    let items = list["items"].as_array().into_iter().flatten();
    Ok(items.filter_map(|item| item["metadata"]["name"].as_str()).map(str::to_string).collect())
}
