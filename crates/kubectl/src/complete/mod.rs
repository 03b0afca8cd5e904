//! What may come next on a command line. The scripts of `kubectl completion` ask for it with `__complete`, the words so
//! far and the one that is being written; the answer is one candidate per line and, last, what the shell shall do with
//! them. It is the protocol of upstream's command library, so that scripts made by either program work with both.

mod table;
mod sources;
mod plugins;

use crate::command::{Command, GLOBAL};
use crate::commands::{HIDDEN, ROOT};
use crate::flags::{Flag, FlagError, Kind, Parsed};
use crate::session::Session;
use crate::{Found, help, terminal};

/// What the shell shall do with the candidates; a sum of these.
pub(crate) mod directive {
    pub(crate) const DEFAULT: u8 = 0;
    pub(crate) const NO_SPACE: u8 = 2;
    pub(crate) const NO_FILES: u8 = 4;
    /// The candidates are the endings that files may have.
    pub(crate) const FILE_ENDINGS: u8 = 8;
}

/// Candidates, each with a tab and its meaning where it has one, and the directive.
type Answer = (Vec<String>, u8);

/// The words of the scripts that call this program: with meanings, and without.
pub(crate) fn is_request(word: &str) -> bool {
    ["__complete", "__completeNoDesc"].contains(&word)
}

pub(crate) fn main(request: &str, words: &[String]) -> i32 {
    let Some((last, before)) = words.split_last() else {
        terminal::errln("error: requires at least 1 arg(s), only received 0");
        return 1;
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            terminal::errln(&format!("error: {error}"));
            return 1;
        }
    };
    let (candidates, directive) = runtime.block_on(answer(before, last));
    runtime.shutdown_background();
    for candidate in candidates {
        // A script reads lines: of a meaning only the first can be shown.
        let line = candidate.split('\n').next().unwrap_or_default();
        let line = if request == "__complete" { line } else { line.split('\t').next().unwrap_or_default() };
        terminal::outln(line.trim());
    }
    terminal::outln(&format!(":{directive}"));
    let ended = format!("Completion ended with directive: {}", name_of(directive));
    match before.first().map(String::as_str) {
        // Of upstream's commands, that one says everything on standard output.
        Some("options") => terminal::outln(&ended),
        _ => terminal::errln(&ended),
    }
    0
}

fn name_of(directive: u8) -> String {
    let names: Vec<&str> = [
        (directive::NO_SPACE, "ShellCompDirectiveNoSpace"),
        (directive::NO_FILES, "ShellCompDirectiveNoFileComp"),
        (directive::FILE_ENDINGS, "ShellCompDirectiveFilterFileExt"),
    ]
    .into_iter()
    .filter_map(|(bit, name)| (directive & bit != 0).then_some(name))
    .collect();
    if names.is_empty() { "ShellCompDirectiveDefault".into() } else { names.join(", ") }
}

fn debug(text: &str) {
    terminal::errln(&format!("[Debug] {text}"));
}

fn failed(text: &str) -> Answer {
    debug(&format!("[Error] {text}"));
    (Vec::new(), directive::DEFAULT)
}

async fn answer(before: &[String], last: &str) -> Answer {
    let plugins = plugins::all();
    if before.first().is_some_and(|word| word == "help") {
        return help_topics(&before[1..], last);
    }
    let (command, path, words) = match crate::find(&ROOT, before) {
        Found::Command(command, path, words) => (command, path, words),
        Found::Unknown(_) => {
            debug("Cleared global flags for plugin completion");
            return plugins::answer(&plugins, before, last)
                .unwrap_or_else(|| failed(&format!("unable to find a command for arguments: [{}]", before.join(" "))));
        }
    };
    let tables: Vec<&[Flag]> = command.flags.iter().copied().chain([GLOBAL]).collect();
    let (words, value) = match value_of(command, &words, last) {
        Ok(found) => found,
        Err(UnknownFlag(name)) => {
            // A line that cannot be read is told before a flag that is not known.
            if let Err(error) = Parsed::parse(&tables, &words) {
                return unreadable(&words, &error);
            }
            return failed(&format!("Subcommand '{}' does not support flag '{name}'", command.name));
        }
    };
    let flags = match Parsed::parse(&tables, &words) {
        Ok(flags) => flags,
        Err(error) => return unreadable(&words, &error),
    };
    if flags.on("help") {
        return (Vec::new(), directive::NO_FILES);
    }
    // Behind `--` there are no flags.
    let flags_may_come = flags.dash.is_none();
    let session = Session::new(path.clone(), flags);
    if let (Some((flag, begun)), true) = (value, flags_may_come) {
        return sources::of(&session, table::flag(&path, flag.name), begun).await;
    }
    if last.starts_with('-') && !last.contains('=') && flags_may_come {
        return (flag_names(command, &path, &session.flags, last), directive::NO_FILES);
    }
    let mut found = Vec::new();
    let mut directive = directive::DEFAULT;
    let own_flag_given = command.flags.iter().flat_map(|table| table.iter()).any(|flag| session.flags.given(flag.name));
    if session.arguments().is_empty() && !own_flag_given && !command.subcommands.is_empty() {
        found = subcommands(command, &path, last, &plugins);
        directive = directive::NO_FILES;
    }
    found.extend(required(command, &path, &session.flags, last));
    match table::arguments(&path) {
        table::Source::Nothing => (found, directive),
        // Fixed words stand for the first argument only.
        table::Source::Words(_) if !session.arguments().is_empty() => (found, directive),
        source => {
            let (more, directive) = sources::of(&session, source, last).await;
            (found.into_iter().chain(more).collect(), directive)
        }
    }
}

fn unreadable(words: &[String], error: &FlagError) -> Answer {
    failed(&format!("Error while parsing flags from args [{}]: {error}", words.join(" ")))
}

/// A flag on the line that the command does not have.
struct UnknownFlag(String);

/// The flag whose value is being written, with what of it is there, and the words without that flag.
/// Where the line names a flag the command does not have, that name.
type Value<'a> = Option<(&'static Flag, &'a str)>;
fn value_of<'a>(
    command: &'static Command,
    words: &[String],
    last: &'a str,
) -> Result<(Vec<String>, Value<'a>), UnknownFlag> {
    let known = |name: &str| {
        let mut all = command.flags.iter().flat_map(|table| table.iter()).chain(GLOBAL);
        let mut letters = name.chars();
        match (letters.next(), letters.next()) {
            (Some(letter), None) => all.find(|flag| flag.short == Some(letter)).ok_or_else(|| UnknownFlag(name.into())),
            _ => all.find(|flag| flag.name == name).ok_or_else(|| UnknownFlag(name.into())),
        }
    };
    if last.starts_with('-') {
        let Some((name, begun)) = last.split_once('=') else { return Ok((words.to_vec(), None)) };
        return Ok((words.to_vec(), Some((known(flag_name(name))?, begun))));
    }
    let Some((previous, before)) = words.split_last() else { return Ok((words.to_vec(), None)) };
    let is_flag = previous.len() > 1 && previous.starts_with('-') && previous != "--" && !previous.contains('=');
    if !is_flag {
        return Ok((words.to_vec(), None));
    }
    let flag = known(flag_name(previous))?;
    match flag.kind {
        Kind::Switch | Kind::Optional(_) => Ok((words.to_vec(), None)),
        _ => Ok((before.to_vec(), Some((flag, last)))),
    }
}

/// Of several letters the last is the one that has a value.
fn flag_name(word: &str) -> &str {
    match word.strip_prefix("--") {
        Some(name) => name,
        None => word.char_indices().next_back().map_or("", |(at, _)| &word[at..]),
    }
}

fn flag_names(command: &Command, path: &str, given: &Parsed, last: &str) -> Vec<String> {
    let needed = required(command, path, given, last);
    if !needed.is_empty() {
        return needed;
    }
    let again = |flag: &Flag| !given.given(flag.name) || matches!(flag.kind, Kind::List | Kind::Pairs | Kind::Array);
    let sorted = |mut flags: Vec<&'static Flag>| {
        flags.sort_by_key(|flag| flag.name);
        flags.into_iter().filter(|flag| !flag.help.is_empty() && again(flag)).collect::<Vec<_>>()
    };
    let own: Vec<&'static Flag> = command.flags.iter().flat_map(|table| table.iter()).collect();
    let own_names: Vec<&str> = own.iter().map(|flag| flag.name).collect();
    let is_help = |flag: &&Flag| flag.name == "help";
    let (mut local, general) = (own, GLOBAL.iter().filter(|flag| !own_names.contains(&flag.name)));
    local.extend(general.clone().filter(is_help));
    let general = general.filter(|flag| !is_help(flag)).collect();
    sorted(general).into_iter().chain(sorted(local)).flat_map(|flag| names_of(command, path, flag, last)).collect()
}

fn names_of(command: &Command, path: &str, flag: &Flag, last: &str) -> Vec<String> {
    let meaning = match flag.name {
        "help" => format!("help for {}", command.name),
        "kubeconfig" if path.starts_with("kubectl config") => "use a particular kubeconfig file".into(),
        _ => help::meaning(path, flag),
    };
    let names = [Some(format!("--{}", flag.name)), flag.short.map(|letter| format!("-{letter}"))];
    names.into_iter().flatten().filter(|name| name.starts_with(last)).map(|name| format!("{name}\t{meaning}")).collect()
}

/// Flags without which the command does nothing are offered before all else.
fn required(command: &Command, path: &str, given: &Parsed, last: &str) -> Vec<String> {
    let own = || command.flags.iter().flat_map(|table| table.iter());
    let wanted = table::required(path).iter().filter(|name| !given.given(name));
    wanted
        .flat_map(|name| own().filter(move |flag| flag.name == *name))
        .flat_map(|flag| names_of(command, path, flag, last))
        .collect()
}

fn subcommands(command: &Command, path: &str, last: &str, plugins: &[plugins::Plugin]) -> Vec<String> {
    let shown = command.subcommands.iter().filter(|inner| inner.group != HIDDEN);
    let mut found: Vec<String> = shown
        .map(|inner| format!("{}\t{}", inner.name, help::short(inner, &format!("{path} {}", inner.name))))
        .collect();
    if command.name == ROOT.name {
        found.retain(|line| !line.starts_with("help\t"));
        found.push("help\tHelp about any command".into());
        found.extend(plugins::under(plugins, &[]));
    }
    found.sort();
    found.retain(|line| line.starts_with(last));
    found
}

fn help_topics(words: &[String], last: &str) -> Answer {
    let found = match crate::find(&ROOT, words) {
        Found::Command(command, path, rest) if rest.is_empty() => subcommands(command, &path, last, &[]),
        _ => Vec::new(),
    };
    (found, directive::NO_FILES)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_string).collect()
    }

    #[test]
    fn the_flag_whose_value_comes_is_found() {
        let get = ROOT.find("get").unwrap();
        let check = |line: &str, last: &'static str, flag: Option<(&str, &str)>, rest: &str| {
            let (left, value) = value_of(get, &words(line), last).unwrap_or_else(|UnknownFlag(name)| panic!("{name}"));
            assert_eq!(value.map(|(flag, begun)| (flag.name, begun)), flag, "{line} {last}");
            assert_eq!(left, words(rest), "{line} {last}");
        };
        check("pods -o", "", Some(("output", "")), "pods");
        check("pods -wo", "j", Some(("output", "j")), "pods");
        check("pods", "--output=j", Some(("output", "j")), "pods");
        check("pods -w", "", None, "pods -w");
        check("pods --", "", None, "pods --");
        check("pods", "--out", None, "pods");
        assert!(matches!(value_of(get, &words("--bogus"), ""), Err(UnknownFlag(name)) if name == "bogus"));
    }

    #[test]
    fn every_path_in_the_tables_is_a_command() {
        for path in table::paths() {
            let line: Vec<String> = path.split(' ').skip(1).map(str::to_string).collect();
            let Found::Command(command, found, rest) = crate::find(&ROOT, &line) else { panic!("{path}") };
            assert_eq!((found.as_str(), rest.len()), (path, 0));
            for name in table::required(path) {
                assert!(
                    command.flags.iter().flat_map(|table| table.iter()).any(|flag| flag.name == *name),
                    "{path} --{name}"
                );
            }
        }
    }

    #[test]
    fn directives_have_names() {
        assert_eq!(name_of(0), "ShellCompDirectiveDefault");
        assert_eq!(name_of(6), "ShellCompDirectiveNoSpace, ShellCompDirectiveNoFileComp");
        assert_eq!(name_of(8), "ShellCompDirectiveFilterFileExt");
    }
}
