//! `kubectl help`, and the commands that upstream still tries out, of which there are none.

use crate::command::Command;
use crate::failure::Result;
use crate::session::Session;
use crate::terminal;

pub(super) static COMMAND: Command = Command {
    name: "help",
    group: super::HIDDEN,
    short: "Help about any command",
    usage: "[command] [flags] [options]",
    run: Some(|session| Box::pin(run(session))),
    ..Command::EMPTY
};
pub(super) static ALPHA: Command = Command {
    name: "alpha",
    group: super::HIDDEN,
    short: "Commands for features in alpha",
    run: Some(|_| Box::pin(alpha())),
    ..Command::EMPTY
};

async fn run(session: &Session) -> Result<()> {
    let words = session.arguments();
    if let Some((command, path)) = crate::named_by(words) {
        terminal::out(&crate::help::of(command, &path));
        return Ok(());
    }
    let topics: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    let all = crate::help_of("kubectl");
    // How it is used is what stands below what it is for.
    let usage = all.find(super::BEGINNER).map_or(all.as_str(), |at| &all[at..]);
    terminal::err(&format!("Unknown help topic [{}]\n\n\n{usage}", topics.join(" ")));
    Ok(())
}

async fn alpha() -> Result<()> {
    terminal::errln("No alpha commands are available in this version of kubectl");
    Ok(())
}
