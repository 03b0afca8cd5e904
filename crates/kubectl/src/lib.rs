//! kubectl inside of knarr: the same commands, flags, texts and exit codes as upstream's, as a plain client of the API.

mod flags;
mod command;
mod help;
mod complete;
mod kuberc;
mod commands;
mod session;
mod connection;
mod trace;
mod dial;
mod config;
mod proxy;
mod resource;
mod output;
mod describe;
mod merge;
mod kustomize;
mod failure;
mod terminal;
#[cfg(test)]
mod fake;

use command::{Command, GLOBAL};
use failure::Failure;
use flags::{Flag, Kind, Parsed};
use session::Session;

/// The version of the API this client was made for.
pub(crate) const VERSION: &str = concat!("v1.36.4+knarr", env!("CARGO_PKG_VERSION"));

/// Runs a command line, without the program's own name, and answers with the exit code.
pub fn main(line: Vec<String>) -> i32 {
    if let Some((request, words)) = line.split_first().filter(|(word, _)| complete::is_request(word)) {
        return complete::main(request, words);
    }
    let line = match kuberc::apply(line) {
        Ok(line) => line,
        Err(error) => {
            terminal::errln(&format!("error occurred while applying preferences {error}"));
            return 1;
        }
    };
    run_line(&commands::ROOT, line)
}

fn run_line(root: &'static Command, line: Vec<String>) -> i32 {
    let (command, path, rest) = match find(root, &line) {
        Found::Command(command, path, rest) => (command, path, rest),
        Found::Unknown(name) => {
            return commands::plugin::run(&line, 1).unwrap_or_else(|| {
                terminal::err(&unknown_command(root, &name));
                1
            });
        }
    };
    // A plugin may add a kind of thing to create.
    if path == "kubectl create"
        && let Some(code) = commands::plugin::run(&line, 2)
    {
        return code;
    }
    let flags = match flags_of(command, &path, &rest) {
        Ok(flags) => flags,
        Err(code) => return code,
    };
    match command.run {
        Some(run) => run_command(run, path, flags),
        None => group(command, &path, &flags.arguments),
    }
}

/// The flags of a command, or the exit code where help or a refusal took the place of running it.
fn flags_of(command: &'static Command, path: &str, line: &[String]) -> Result<Parsed, i32> {
    let show_help = || {
        terminal::out(&help::of(command, path));
        Err(0)
    };
    let tables: Vec<&[Flag]> = command.flags.iter().copied().chain([GLOBAL]).collect();
    match Parsed::parse(&tables, line) {
        Ok(flags) if flags.on("help") => show_help(),
        Ok(flags) => Ok(flags),
        // Help is given even where the rest of the line makes no sense.
        Err(_) if line.iter().any(|word| word == "--help" || word == "-h") => show_help(),
        // The exit code 1 of `diff` says that something differs.
        Err(error) if path == "kubectl diff" => {
            terminal::errln(&format!("error: {error}\nSee '{path} -h' for help and examples"));
            Err(2)
        }
        Err(error) => {
            terminal::errln(&format!("error: {error}\nSee '{path} --help' for usage."));
            Err(1)
        }
    }
}

/// What a command says that only holds others.
fn group(command: &'static Command, path: &str, arguments: &[String]) -> i32 {
    if !arguments.is_empty() {
        let unknown = arguments.join(" ");
        terminal::errln(&format!("error: unknown command {unknown:?}\nSee '{path} -h' for help and examples"));
        return 1;
    }
    // As upstream: most groups of commands count it as a mistake that none of them was named.
    let text = help::of(command, path);
    if ["kubectl", "certificate", "rollout"].contains(&command.name) {
        terminal::out(&text);
    } else {
        terminal::err(&text);
    }
    i32::from(!["kubectl", "certificate"].contains(&command.name))
}

fn run_command(run: command::Run, path: String, flags: Parsed) -> i32 {
    // One thread is enough for one question, and starting more would take longer than asking it.
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            terminal::errln(&format!("error: {error}"));
            return 1;
        }
    };
    let session = Session::new(path, flags);
    let done = runtime.block_on(run(&session));
    // A thread that still reads from the terminal must not keep the program.
    runtime.shutdown_background();
    match done {
        Ok(()) if session.flags.on("warnings-as-errors") && session.warned() > 0 => {
            let count = session.warned();
            let plural = if count == 1 { "warning" } else { "warnings" };
            terminal::errln(&format!("error: {count} {plural} received"));
            1
        }
        Ok(()) => 0,
        Err(failure) => {
            trace::refused(session.flags.integer("v"), &failure);
            let (text, code) = failure.report(&session.path);
            terminal::err(&text);
            code
        }
    }
}

/// The help of the command that is called by that path, such as `kubectl config set`.
pub(crate) fn help_of(path: &str) -> String {
    let words: Vec<String> = path.split(' ').skip(1).map(str::to_string).collect();
    named_by(&words).map(|(command, path)| help::of(command, &path)).unwrap_or_default()
}

/// The command that these words begin with, and its path.
pub(crate) fn named_by(words: &[String]) -> Option<(&'static Command, String)> {
    match find(&commands::ROOT, words) {
        Found::Command(command, path, _) => Some((command, path)),
        Found::Unknown(_) => None,
    }
}

enum Found {
    Command(&'static Command, String, Vec<String>),
    Unknown(String),
}

/// Takes the words that name the command out of the line. Global flags may stand before them.
fn find(root: &'static Command, line: &[String]) -> Found {
    let mut command = root;
    let mut path = "kubectl".to_string();
    let mut rest = line.to_vec();
    while !command.subcommands.is_empty() {
        let Some(at) = first_word(command, &rest) else { break };
        match command.find(&rest[at]) {
            Some(found) => {
                path = format!("{path} {}", found.name);
                rest.remove(at);
                command = found;
            }
            None if std::ptr::eq(command, root) => return Found::Unknown(rest[at].clone()),
            None => break,
        }
    }
    Found::Command(command, path, rest)
}

/// Where the first argument stands that is no flag and no flag's value.
fn first_word(command: &Command, line: &[String]) -> Option<usize> {
    let known = || command.flags.iter().flat_map(|table| table.iter()).chain(GLOBAL);
    let mut at = 0;
    while at < line.len() {
        let word = &line[at];
        if word == "--" {
            return None;
        }
        let takes_next =
            |flag: Option<&Flag>| flag.is_none_or(|flag| !matches!(flag.kind, Kind::Switch | Kind::Optional(_)));
        if let Some(name) = word.strip_prefix("--") {
            let flag = known().find(|flag| flag.name == name);
            at += if !name.contains('=') && flag.is_some() && takes_next(flag) { 2 } else { 1 };
        } else if word.len() > 1 && word.starts_with('-') {
            let mut letters = word[1..].chars();
            let flag = letters.next().and_then(|letter| known().find(|flag| flag.short == Some(letter)));
            at += if word.len() == 2 && flag.is_some() && takes_next(flag) { 2 } else { 1 };
        } else {
            return Some(at);
        }
    }
    None
}

fn unknown_command(root: &Command, name: &str) -> String {
    let close = |known: &&&Command| distance(known.name, name) <= 2 || known.name.starts_with(name);
    let similar: Vec<&str> = root.subcommands.iter().filter(close).map(|command| command.name).collect();
    let mut text = format!("error: unknown command {name:?} for \"kubectl\"\n");
    if !similar.is_empty() {
        text += "\nDid you mean this?\n";
        similar.iter().for_each(|name| text += &format!("\t{name}\n"));
    }
    text
}

/// How many letters must change for one word to become the other.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, letter) in one.chars().enumerate() {
        let mut before = row[0];
        row[0] = i + 1;
        for (j, with) in other.iter().enumerate() {
            let change = before + usize::from(letter != *with);
            before = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(before + 1);
        }
    }
    row[other.len()]
}

/// Shorthand for commands that end with what they have said already.
pub(crate) fn exit<T>(code: i32) -> failure::Result<T> {
    Err(Failure::Exit(code))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_string).collect()
    }

    #[test]
    fn the_command_is_found_among_flags() {
        let check = |line: &str, path: &str, rest: &str| match find(&commands::ROOT, &words(line)) {
            Found::Command(_, found, line) => assert_eq!((found.as_str(), line), (path, words(rest))),
            Found::Unknown(name) => panic!("{line}: {name}"),
        };
        check("get pods", "kubectl get", "pods");
        check("-n x get pods", "kubectl get", "-n x pods");
        check("--server=y --token z auth whoami", "kubectl auth whoami", "--server=y --token z");
        check("create secret generic a", "kubectl create secret generic", "a");
        check("create -f x", "kubectl create", "-f x");
        check("rollout status deployment/x", "kubectl rollout status", "deployment/x");
        assert!(matches!(find(&commands::ROOT, &words("gte pods")), Found::Unknown(_)));
        assert!(unknown_command(&commands::ROOT, "gte").contains("Did you mean this?\n\tget\n"));
    }

    #[test]
    fn no_command_has_a_flag_twice() {
        fn check(command: &Command) {
            let mut names: Vec<&str> = Vec::new();
            let mut letters: Vec<char> = Vec::new();
            for flag in command.flags.iter().flat_map(|table| table.iter()).chain(GLOBAL) {
                // What all commands take may mean something else to one.
                let shadows = GLOBAL.iter().any(|global| global.name == flag.name);
                assert!(!names.contains(&flag.name) || shadows, "{} --{}", command.name, flag.name);
                let known = names.contains(&flag.name);
                names.push(flag.name);
                if let Some(letter) = flag.short.filter(|_| !known) {
                    assert!(!letters.contains(&letter), "{} -{letter}", command.name);
                    letters.push(letter);
                }
            }
            assert!(command.run.is_some() || !command.subcommands.is_empty(), "{} does nothing", command.name);
            command.subcommands.iter().for_each(|command| check(command));
        }
        check(&commands::ROOT);
    }
}
