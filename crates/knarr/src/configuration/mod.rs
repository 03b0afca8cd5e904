//! Sources of settings: flags, the environment, and files, in this order of strength; each under the same name.
//!
//! A file becomes arguments before they are parsed, so that flags are described once, and a file can say what a flag can.

mod environment;
mod file;
mod handed;
mod merge;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::error::{ContextKind, ContextValue};
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command};

use file::Settings;
pub use handed::names_of;

/// The commands that read a file.
const WITH_FILE: [&str; 2] = ["server", "agent"];
/// The command that takes their flags for a service.
const INSTALL: &str = "install";
/// Read where there is one and no other is named.
const DEFAULT_FILE: &str = "/etc/knarr/config.yaml";
const CONFIG: &str = "config";
const CONFIG_VARIABLE: &str = "KNARR_CONFIG_FILE";

/// The commands and flags of the program, each flag with its environment variables.
pub fn command(command: Command) -> Command {
    describe(command, |name| std::env::var_os(name).is_some())
}

fn describe(mut command: Command, is_set: impl Fn(&str) -> bool + Copy) -> Command {
    for name in WITH_FILE {
        let described = move |one: Command| {
            // As with k3s the last one counts; that of a file stands before all others.
            let one = one.arg(file_flag()).args(handed::flags(name)).args_override_self(true);
            environment::attach(environment::switches(one), is_set)
        };
        command = command.mut_subcommand(name, described);
        command = command.mut_subcommand(INSTALL, |install| install.mut_subcommand(name, described));
    }
    for name in environment::ALONE {
        command = command.mut_subcommand(name, |one| environment::attach(one, is_set));
    }
    command
}

fn file_flag() -> Arg {
    Arg::new(CONFIG)
        .long(CONFIG)
        .short('c')
        .value_name("FILE")
        .env(CONFIG_VARIABLE)
        .value_parser(clap::value_parser!(PathBuf))
        .help("Read flags from this file and from FILE.d/*.yaml")
        .long_help(format!("Read flags from this file and from FILE.d/*.yaml (default: {DEFAULT_FILE}, if it exists)"))
}

/// What the program was told, by whichever way. Ends the program with a sentence where that cannot be used.
pub fn matches(command: Command, arguments: Vec<OsString>) -> ArgMatches {
    match parse(&command, arguments) {
        Ok(matches) => matches,
        Err(Refusal::Arguments(error)) => error.exit(),
        Err(Refusal::File(error)) => {
            eprintln!("error: {error:#}");
            std::process::exit(USAGE);
        }
    }
}

/// As clap ends where arguments are wrong.
const USAGE: i32 = 2;

#[derive(Debug)]
enum Refusal {
    Arguments(clap::Error),
    File(anyhow::Error),
}

impl From<anyhow::Error> for Refusal {
    fn from(error: anyhow::Error) -> Refusal {
        Refusal::File(error)
    }
}

fn parse(command: &Command, mut arguments: Vec<OsString>) -> Result<ArgMatches, Refusal> {
    let strictly = |arguments: &[OsString]| command.clone().try_get_matches_from(arguments).map_err(Refusal::Arguments);
    let loosely = |arguments: &[OsString]| command.clone().ignore_errors(true).try_get_matches_from(arguments);
    // Where help is asked for, no file matters.
    let Ok(given) = loosely(&arguments) else { return strictly(&arguments) };
    let Some((name, given)) = given.subcommand().filter(|(name, _)| WITH_FILE.contains(name)) else {
        let file = std::env::var_os(CONFIG_VARIABLE).map(PathBuf::from);
        arguments.extend(data_dir(&given, file.as_deref()));
        return strictly(&arguments);
    };
    let mut described = command.clone();
    described.build();
    let Some(flags) = described.find_subcommand(name) else { return strictly(&arguments) };
    let settings = read(given.get_one::<PathBuf>(CONFIG).map(PathBuf::as_path))?;
    let from_file = merge::arguments(flags, given, &settings, &|key| {
        let other = WITH_FILE.iter().find(|other| **other != name)?;
        let knows = described.find_subcommand(other)?.get_arguments().any(|flag| flag.get_long() == Some(key));
        knows.then_some(*other)
    })?;
    let place = arguments.iter().position(|argument| argument == name).map_or(arguments.len(), |at| at + 1);
    arguments.splice(place..place, from_file.iter().map(OsString::from));
    if let Ok(given) = loosely(&arguments)
        && let Some((_, given)) = given.subcommand()
    {
        arguments.extend(handed::arguments(name, given)?.into_iter().map(OsString::from));
    }
    let mut command = command.clone();
    for flag in merge::overruled(flags, given) {
        command = command.mut_subcommand(name, |one| one.mut_arg(flag, |flag| flag.env(None::<&'static str>)));
    }
    command.try_get_matches_from(&arguments).map_err(|error| explain(error, flags, &settings))
}

/// Commands that look into the data folder find it where the file of the server puts it.
fn data_dir(given: &ArgMatches, file: Option<&Path>) -> Option<OsString> {
    let mut given = given;
    while let Some((_, below)) = given.subcommand() {
        given = below;
    }
    let is_open =
        given.ids().any(|id| id == "data_dir" && given.value_source("data_dir") == Some(ValueSource::DefaultValue));
    // A file that cannot be read is the server's trouble, which says so.
    let settings = is_open.then(|| read(file).ok())??;
    let folder = settings.get("data-dir")?.values.first()?;
    Some(format!("--data-dir={folder}").into())
}

/// The file's settings, and those of the folder beside it.
fn read(file: Option<&Path>) -> anyhow::Result<Settings> {
    let path = file.unwrap_or(Path::new(DEFAULT_FILE));
    let mut texts = Vec::new();
    // Only the one that nobody named may be missing.
    if file.is_some() || path.exists() {
        texts.push((path.to_owned(), std::fs::read(path).with_context(|| format!("read {}", path.display()))?));
    }
    let mut folder = path.as_os_str().to_owned();
    folder.push(".d");
    if let Ok(entries) = std::fs::read_dir(&folder) {
        let ends = |path: &PathBuf| path.extension().is_some_and(|end| end == "yaml" || end == "yml");
        let mut more: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).filter(ends).collect();
        more.sort();
        for path in more {
            let text = std::fs::read(&path).with_context(|| format!("read {}", path.display()))?;
            texts.push((path, text));
        }
    }
    file::settings(&texts)
}

/// An error about a flag that a file set names the file.
fn explain(error: clap::Error, flags: &Command, settings: &Settings) -> Refusal {
    let Some(ContextValue::String(flag)) = error.get(ContextKind::InvalidArg) else { return Refusal::Arguments(error) };
    let name = flag.trim_start_matches('-').split([' ', '=', '[', '.']).next().unwrap_or("");
    let is_it = |key: &str| merge::find(flags, key).is_some_and(|flag| flag.get_long() == Some(name));
    let Some((name, setting)) = settings.iter().find(|(key, _)| is_it(key)) else { return Refusal::Arguments(error) };
    let why = error.to_string();
    let why = why.trim_start_matches("error: ").lines().next().unwrap_or("").to_owned();
    Refusal::File(anyhow::anyhow!("{}: {name}: {why}", setting.file.display()))
}

#[cfg(test)]
mod documented;
#[cfg(test)]
mod tests;
