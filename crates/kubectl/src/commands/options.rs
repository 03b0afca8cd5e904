//! `kubectl options`.

use crate::command::{Command, GLOBAL};
use crate::failure::Result;
use crate::session::Session;
use crate::terminal;

pub(super) static COMMAND: Command = Command {
    name: "options",
    group: super::OTHER,
    short: "Print the list of flags inherited by all commands.",
    run: Some(|session| Box::pin(run(session))),
    ..Command::EMPTY
};

async fn run(_: &Session) -> Result<()> {
    terminal::out(&crate::help::of_global(GLOBAL));
    Ok(())
}
