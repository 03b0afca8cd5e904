//! `kubectl completion`: scripts for shells, which ask the program itself what may come next. They are those of
//! upstream's command library.

use crate::command::Command;
use crate::failure::Result;
use crate::session::Session;
use crate::terminal;

pub(super) static COMMAND: Command = Command {
    name: "completion",
    group: super::SETTINGS,
    short: "Output shell completion code for the specified shell (bash, zsh, fish, or powershell).",
    examples: "source <(kubectl completion bash)",
    usage: "SHELL [options]",
    run: Some(|session| Box::pin(run(session))),
    ..Command::EMPTY
};

async fn run(session: &Session) -> Result<()> {
    let script = match session.arguments() {
        [shell] => match shell.as_str() {
            "bash" => include_str!("../complete/scripts/bash.txt"),
            "zsh" => include_str!("../complete/scripts/zsh.txt"),
            "fish" => include_str!("../complete/scripts/fish.txt"),
            "powershell" => include_str!("../complete/scripts/powershell.txt"),
            other => return session.usage(format!("Unsupported shell type {other:?}.")),
        },
        [] => return session.usage("Shell not specified."),
        _ => return session.usage("Too many arguments. Expected only the shell type."),
    };
    terminal::out(script);
    Ok(())
}
