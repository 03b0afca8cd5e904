//! A file's settings as arguments, unless something stronger says otherwise. Pure.

use anyhow::bail;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};

use super::CONFIG;
use super::file::{Setting, Settings};

/// What to put before the arguments. `elsewhere` says which other command has a flag that this one does not.
pub fn arguments<'a>(
    flags: &Command,
    given: &ArgMatches,
    settings: &Settings,
    elsewhere: &dyn Fn(&str) -> Option<&'a str>,
) -> anyhow::Result<Vec<String>> {
    let mut arguments = Vec::new();
    for (key, setting) in settings {
        let file = setting.file.display();
        let Some(flag) = find(flags, key) else {
            match elsewhere(key) {
                Some(other) => bail!("{file}: {key} is a setting of `knarr {other}`"),
                None => bail!("{file}: unknown setting {key:?}{}", nearest(key, &names(flags))),
            }
        };
        if flag.get_id() == CONFIG {
            bail!("{file}: a file cannot include another; put it into {file}.d");
        }
        let gives_way = |other: &Arg| is_given(given, other) && exclude_each_other(flags, flag, other);
        if is_given(given, flag) || flags.get_arguments().any(gives_way) {
            continue;
        }
        arguments.extend(written(flag, key, setting)?);
    }
    Ok(arguments)
}

/// Flags whose variables do not count, because one that cannot go together with them is on the command line.
pub fn overruled(flags: &Command, given: &ArgMatches) -> Vec<clap::Id> {
    let comes_from = |flag: &Arg, source: ValueSource| given.value_source(flag.get_id().as_str()) == Some(source);
    let of = |source: ValueSource| flags.get_arguments().filter(move |flag| comes_from(flag, source));
    let is_overruled = |flag: &&Arg| of(ValueSource::CommandLine).any(|other| exclude_each_other(flags, flag, other));
    of(ValueSource::EnvVariable).filter(is_overruled).map(|flag| flag.get_id().clone()).collect()
}

/// Either of the two may say that they cannot go together.
fn exclude_each_other(flags: &Command, one: &Arg, other: &Arg) -> bool {
    let excludes = |one: &Arg, other: &Arg| {
        flags.get_arg_conflicts_with(one).iter().any(|against| against.get_id() == other.get_id())
    };
    excludes(one, other) || excludes(other, one)
}

/// The flag that a key means, by its name or another that it has.
pub fn find<'a>(flags: &'a Command, key: &str) -> Option<&'a Arg> {
    let is_it = |flag: &&Arg| {
        flag.get_long() == Some(key) || flag.get_all_aliases().is_some_and(|aliases| aliases.contains(&key))
    };
    flags.get_arguments().filter(|flag| flag.get_long() != Some("help")).find(is_it)
}

fn names(flags: &Command) -> Vec<&str> {
    flags.get_arguments().filter_map(|flag| flag.get_long()).collect()
}

/// By a flag or a variable.
fn is_given(given: &ArgMatches, flag: &Arg) -> bool {
    matches!(given.value_source(flag.get_id().as_str()), Some(ValueSource::CommandLine | ValueSource::EnvVariable))
}

fn written(flag: &Arg, key: &str, setting: &Setting) -> anyhow::Result<Vec<String>> {
    let is_list = matches!(flag.get_action(), ArgAction::Append);
    if !is_list && setting.values.len() > 1 {
        bail!("{}: {key} takes one value, not {}", setting.file.display(), setting.values.len());
    }
    let long = flag.get_long().unwrap_or(key);
    Ok(setting.values.iter().map(|value| format!("--{long}={value}")).collect())
}

/// `; did you mean "token"?` where something is near.
pub fn nearest(name: &str, known: &[&str]) -> String {
    let distances = known.iter().map(|known| (distance(name, known), *known));
    // More than a third of its letters wrong is another word.
    let near = distances.filter(|(distance, known)| *distance * 3 <= known.len().max(name.len()));
    near.min().map(|(_, known)| format!("; did you mean {known:?}?")).unwrap_or_default()
}

/// How many letters must be put in, taken out or changed.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (line, letter) in one.chars().enumerate() {
        let mut before = row[0];
        row[0] = line + 1;
        for (column, with) in other.iter().enumerate() {
            let changed = before + usize::from(letter != *with);
            before = row[column + 1];
            row[column + 1] = changed.min(before + 1).min(row[column] + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_suggested() {
        let known = ["token", "token-file", "node-name", "tls-san"];
        for (name, expected) in [
            ("tokn", "; did you mean \"token\"?"),
            ("tls-sans", "; did you mean \"tls-san\"?"),
            ("node_name", "; did you mean \"node-name\"?"),
            ("completely-different", ""),
        ] {
            assert_eq!(nearest(name, &known), expected);
        }
        assert_eq!([distance("", "ab"), distance("kitten", "sitting"), distance("a", "a")], [2, 3, 0]);
    }
}
