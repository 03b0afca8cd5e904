//! What a command says of itself. The words are upstream's, from `help.txt`; the options are those of our own tables, so
//! that no option is promised which is not there.

use crate::command::Command;
use crate::flags::{Flag, Kind};

const TEXTS: &str = include_str!("help.txt");

/// What one section of the texts has.
#[derive(Debug, Default)]
struct Section<'a> {
    /// Before the options.
    head: String,
    meanings: Vec<(&'a str, &'a str)>,
    /// Behind the options.
    tail: String,
}

impl<'a> Section<'a> {
    fn find(texts: &'a str, path: &str) -> Option<Section<'a>> {
        let title = format!("=== {path}");
        let mut lines = texts.lines().skip_while(|line| *line != title);
        lines.next()?;
        let mut section = Section::default();
        let mut behind = false;
        for line in lines.take_while(|line| !line.starts_with("=== ")) {
            if line == "@@" {
                behind = true;
            } else if behind {
                section.tail += &format!("{line}\n");
            } else if let Some((name, meaning)) = line.strip_prefix('@').and_then(|line| line.split_once(' ')) {
                section.meanings.push((name, meaning));
            } else {
                section.head += &format!("{line}\n");
            }
        }
        Some(section)
    }

    fn meaning(&self, name: &str) -> Option<&'a str> {
        self.meanings.iter().find(|(known, _)| *known == name).map(|(_, meaning)| *meaning)
    }
}

/// The help of a command. `path` is `kubectl create secret`.
pub(crate) fn of(command: &Command, path: &str) -> String {
    let section = Section::find(TEXTS, path).unwrap_or_else(|| own(command, path));
    let mut text = section.head.clone();
    let flags: Vec<&Flag> = command.flags.iter().flat_map(|table| table.iter()).collect();
    if !flags.is_empty() {
        text += &format!("\nOptions:\n{}", options(flags, &section));
    } else {
        text += "\n";
    }
    text + &section.tail
}

/// The flags that every command takes.
pub(crate) fn of_global(flags: &[Flag]) -> String {
    let section = Section::find(TEXTS, "kubectl options").unwrap_or_default();
    format!("{}\n{}", section.head, options(flags.iter().filter(|flag| flag.name != "help").collect(), &section))
}

fn options(mut flags: Vec<&Flag>, section: &Section) -> String {
    let common = Section::find(TEXTS, "*").unwrap_or_default();
    // What has no words is not shown.
    flags.retain(|flag| !flag.help.is_empty());
    flags.sort_by_key(|flag| flag.name);
    let mut text = String::new();
    for flag in flags {
        let meaning = section.meaning(flag.name).or_else(|| common.meaning(flag.name)).unwrap_or(flag.help);
        let short = flag.short.map(|letter| format!("-{letter}, ")).unwrap_or_default();
        text +=
            &format!("    {short}--{}={}:\n\t{}\n\n", flag.name, shown_default(flag), meaning.replace("\\n", "\n\t"));
    }
    text
}

fn shown_default(flag: &Flag) -> String {
    match flag.kind {
        Kind::Text | Kind::Optional(_) => {
            format!("'{}'", flag.default.replace("$HOME", &crate::config::home().display().to_string()))
        }
        Kind::List | Kind::Pairs | Kind::Array => format!("[{}]", flag.default),
        Kind::Plain | Kind::Switch | Kind::Integer | Kind::Duration => flag.default.to_string(),
    }
}

/// For commands that upstream's older texts do not know.
fn own(command: &Command, path: &str) -> Section<'static> {
    let mut head = format!("{}\n", command.short);
    if !command.aliases.is_empty() {
        head += &format!("\nAliases:\n{}\n", [&[command.name], command.aliases].concat().join(", "));
    }
    if !command.examples.is_empty() {
        head += "\nExamples:\n";
        command.examples.lines().for_each(|line| head += &format!("  {line}\n"));
    }
    if !command.subcommands.is_empty() {
        head += "\nAvailable Commands:\n";
        for subcommand in command.subcommands.iter().filter(|subcommand| subcommand.group != "hidden") {
            head += &format!("  {:13} {}\n", subcommand.name, subcommand.short);
        }
    }
    let usage =
        if command.subcommands.is_empty() || command.run.is_some() { command.usage } else { "[command] [options]" };
    let mut tail = format!("Usage:\n  {path} {usage}\n\n");
    if !command.subcommands.is_empty() {
        tail += &format!("Use \"{path} <command> --help\" for more information about a given command.\n");
    }
    tail += "Use \"kubectl options\" for a list of global command-line options (applies to all commands).\n";
    Section { head, meanings: Vec::new(), tail }
}

/// What a flag of a command is for.
pub(crate) fn meaning(path: &str, flag: &Flag) -> String {
    let known = [path, "kubectl options", "*"].map(|title| Section::find(TEXTS, title)?.meaning(flag.name));
    known.into_iter().flatten().next().unwrap_or(flag.help).replace("\\n", "\n")
}

/// The one sentence a command is listed with.
pub(crate) fn short(command: &Command, path: &str) -> String {
    // Where the parent's own text lists it, that is how it is called.
    let parent = path.rsplit_once(' ').map_or("kubectl", |(parent, _)| parent);
    let listed = Section::find(TEXTS, parent).and_then(|section| {
        let mut lines = section.head.lines().map(str::to_owned);
        lines.find_map(|line| {
            let (name, rest) = line.strip_prefix("  ")?.split_once(' ')?;
            (name == command.name).then(|| rest.trim().to_string())
        })
    });
    listed.unwrap_or_else(|| command.short.trim_end_matches('.').to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_upstreams_words() {
        fn check(command: &Command, path: &str) {
            let text = of(command, path);
            // That one lists what all others take.
            assert!(path == "kubectl options" || text.contains("\nUsage:\n  kubectl"), "{path}: {text}");
            for flag in command.flags.iter().flat_map(|table| table.iter()).filter(|flag| !flag.help.is_empty()) {
                assert!(text.contains(&format!("--{}=", flag.name)), "{path} --{}", flag.name);
            }
            for inner in command.subcommands.iter().filter(|inner| inner.group != "hidden") {
                check(inner, &format!("{path} {}", inner.name));
            }
        }
        check(&crate::commands::ROOT, "kubectl");
        let get = crate::commands::ROOT.find("get").unwrap();
        assert!(of(get, "kubectl get").starts_with("Display one or many resources.\n\n Prints a table"));
        assert_eq!(short(get, "kubectl get"), "Display one or many resources");
    }
}
