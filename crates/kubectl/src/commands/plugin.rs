//! Plugins: programs named `kubectl-...` on the PATH, which become commands.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;

use crate::command::Command;
use crate::failure::{Failure, Result};
use crate::flags::Flag;
use crate::session::Session;
use crate::terminal;

pub(super) static COMMAND: Command = Command {
    name: "plugin",
    group: super::OTHER,
    short: "Provides utilities for interacting with plugins.",
    usage: "[flags] [options]",
    subcommands: &[&LIST],
    ..Command::EMPTY
};
static LIST: Command = Command {
    name: "list",
    short: "List all visible plugin executables on a user's PATH.",
    usage: "[options]",
    flags: &[FLAGS],
    run: Some(|session| Box::pin(list(session))),
    ..Command::EMPTY
};

const FLAGS: &[Flag] = &[Flag::switch("name-only", "Only the names, without their folders.")];

/// Becomes the plugin for these words, if there is one; otherwise answers with nothing. As many words as told must be in
/// its name.
pub(crate) fn run(line: &[String], words_min: usize) -> Option<i32> {
    let words: Vec<String> =
        line.iter().take_while(|word| !word.starts_with('-')).map(|word| word.replace('-', "_")).collect();
    // The longest name wins: `kubectl a b` is kubectl-a-b before it is kubectl-a with an argument.
    for count in (words_min..=words.len()).rev() {
        let name = format!("kubectl-{}", words[..count].join("-"));
        if let Some(program) = on_path(&name) {
            let error = std::process::Command::new(program).args(&line[count..]).exec();
            terminal::errln(&format!("error: {}", crate::failure::go_io_error(&error)));
            return Some(1);
        }
    }
    None
}

pub(crate) fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| executable(file))
}

fn executable(file: &std::path::Path) -> bool {
    std::fs::metadata(file).is_ok_and(|about| about.is_file() && about.permissions().mode() & 0o111 != 0)
}

/// The file names of all plugins, wherever on the PATH.
pub(crate) fn names() -> Vec<String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let files =
        std::env::split_paths(&path).flat_map(|folder| std::fs::read_dir(folder).into_iter().flatten().flatten());
    let names =
        files.filter(|entry| executable(&entry.path())).filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| name.starts_with("kubectl-")).collect()
}

async fn list(session: &Session) -> Result<()> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut found: Vec<PathBuf> = Vec::new();
    for folder in std::env::split_paths(&path) {
        let mut files: Vec<PathBuf> =
            std::fs::read_dir(folder).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path())).collect();
        files.sort();
        let is_plugin = |file: &PathBuf| {
            file.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("kubectl-"))
        };
        found.extend(files.into_iter().filter(is_plugin));
    }
    if found.is_empty() {
        return Err(Failure::message("unable to find any kubectl plugins in your PATH"));
    }
    terminal::outln("The following compatible plugins are available:\n");
    let mut seen: BTreeMap<String, String> = BTreeMap::new();
    let mut warnings = 0;
    for file in found {
        let name = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        terminal::outln(&if session.flags.on("name-only") { name.clone() } else { file.display().to_string() });
        let shown = file.display().to_string();
        let mut found = Vec::new();
        if !executable(&file) {
            found.push(format!("{shown} identified as a kubectl plugin, but it is not executable"));
        }
        match seen.get(&name) {
            Some(first) => found.push(format!("{shown} is overshadowed by a similarly named plugin: {first}")),
            None => _ = seen.insert(name.clone(), shown),
        }
        let words: Vec<String> = name.split('-').skip(1).map(str::to_string).collect();
        if let Some((_, path)) = crate::named_by(&words) {
            found.push(format!("{name} overwrites existing command: {path:?}"));
        }
        found.iter().for_each(|warning| terminal::errln(&format!("  - warning: {warning}")));
        warnings += found.len();
    }
    match warnings {
        0 => Ok(()),
        1 => Err(Failure::message("one plugin warning was found")),
        count => Err(Failure::message(format!("{count} plugin warnings were found"))),
    }
}
