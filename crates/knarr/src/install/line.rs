//! The command of the service, from the flags that were given to `knarr install`.
//!
//! Flags of the command line stay flags. What came from the environment, and every secret, goes to the file of the
//! service's environment, which only root can read.

use std::path::PathBuf;

use anyhow::Context;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command, CommandFactory, ValueHint};

/// What nobody but root may read.
const SECRETS: &[&str] = &["token", "agent-token"];
const DATA_DIR: &str = "/var/lib/knarr";

#[derive(Debug, PartialEq, Eq)]
pub struct Line {
    pub role: &'static str,
    pub flags: Vec<String>,
    /// Names and values, in the order of the flags.
    pub environment: Vec<(String, String)>,
}

/// What `knarr server` or `knarr agent` takes.
pub fn command_of(role: &str) -> Command {
    let all = crate::configuration::command(crate::Arguments::command());
    all.find_subcommand(role).expect("the role is a command").clone()
}

impl Line {
    /// `matches` are those of the role, where one was named.
    pub fn read(
        role: &'static str,
        command: &Command,
        matches: Option<&ArgMatches>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> anyhow::Result<Line> {
        let mut line = Line { role, flags: Vec::new(), environment: Vec::new() };
        for argument in command.get_arguments() {
            let name = argument.get_env().and_then(|name| name.to_str()).unwrap_or_default();
            match matches.and_then(|matches| matches.value_source(argument.get_id().as_str())) {
                Some(ValueSource::CommandLine) => line.take(argument, name, matches)?,
                // Set for this call only; the service must be told.
                _ => line.environment.extend(variable(name).map(|value| (name.to_owned(), value))),
            }
        }
        Ok(line)
    }

    fn take(&mut self, argument: &Arg, variable: &str, matches: Option<&ArgMatches>) -> anyhow::Result<()> {
        let Some(long) = argument.get_long() else { return Ok(()) };
        if !argument.get_action().takes_values() {
            self.flags.push(format!("--{long}"));
            return Ok(());
        }
        let raw = matches.and_then(|matches| matches.get_raw(argument.get_id().as_str())).into_iter().flatten();
        for value in raw {
            let value = value.to_str().with_context(|| format!("--{long}: {value:?} is not UTF-8"))?;
            if SECRETS.contains(&long) {
                self.environment.push((variable.to_owned(), value.to_owned()));
                continue;
            }
            // The service runs in another folder.
            let value = match argument.get_value_hint() {
                ValueHint::AnyPath => std::path::absolute(value)?.to_string_lossy().into_owned(),
                _ => value.to_owned(),
            };
            // A switch that may have a value needs none for yes.
            let is_switch = argument.get_num_args().is_some_and(|range| range.min_values() == 0);
            self.flags.push(if is_switch && value == "true" {
                format!("--{long}")
            } else {
                format!("--{long}={value}")
            });
        }
        Ok(())
    }

    pub fn words(&self) -> Vec<String> {
        [self.role.to_owned()].into_iter().chain(self.flags.iter().cloned()).collect()
    }

    /// Whether this was given, by flag or by variable.
    pub fn is_told(&self, variable: &str, flag: &str) -> bool {
        let flag = format!("{flag}=");
        self.environment.iter().any(|(name, _)| name == variable) || self.flags.iter().any(|one| one.starts_with(&flag))
    }

    pub fn data_dir(&self) -> PathBuf {
        let given = self.flags.iter().find_map(|flag| flag.strip_prefix("--data-dir="));
        let variable = || self.environment.iter().find(|(name, _)| name == "KNARR_DATA_DIR");
        given.or_else(|| variable().map(|(_, value)| value.as_str())).unwrap_or(DATA_DIR).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str], variables: &[(&str, &str)]) -> Line {
        let mut all = vec!["knarr", "install"];
        all.extend(words);
        let command = crate::configuration::command(crate::Arguments::command());
        let matches = command.try_get_matches_from(all).unwrap();
        let matches = matches.subcommand_matches("install").unwrap();
        let role = if words.first() == Some(&"agent") { "agent" } else { "server" };
        let variable = |name: &str| variables.iter().find(|(one, _)| *one == name).map(|(_, value)| value.to_string());
        Line::read(role, &command_of(role), matches.subcommand_matches(role), variable).unwrap()
    }

    #[test]
    fn flags_stay_flags_and_secrets_do_not() {
        let line =
            read(&["server", "--cluster-init", "--token", "secret", "--node-label", "a=b,c=d", "--no-start"], &[]);
        assert_eq!(line.words(), ["server", "--cluster-init", "--node-label=a=b", "--node-label=c=d"]);
        assert_eq!(line.environment, [("KNARR_TOKEN".to_owned(), "secret".to_owned())]);
    }

    #[test]
    fn what_the_environment_says_is_kept_for_the_service() {
        let variables = [("KNARR_URL", "https://10.0.0.1:6443"), ("KNARR_TOKEN", "t"), ("HOME", "/root")];
        let line = read(&["agent"], &variables);
        let names: Vec<&str> = line.environment.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!((line.words(), names), (vec!["agent".to_owned()], vec!["KNARR_URL", "KNARR_TOKEN"]));
        assert!(line.is_told("KNARR_URL", "--server"));
        assert!(read(&["agent", "-s", "https://a"], &[]).is_told("KNARR_URL", "--server"));
        assert!(!read(&[], &[]).is_told("KNARR_URL", "--server"));
    }

    #[test]
    fn paths_are_good_in_every_folder() {
        let line = read(&["server", "--data-dir", "here"], &[]);
        assert_eq!(line.data_dir(), std::env::current_dir().unwrap().join("here"));
        assert_eq!(read(&[], &[]).data_dir(), PathBuf::from("/var/lib/knarr"));
        assert_eq!(read(&[], &[("KNARR_DATA_DIR", "/srv/k")]).data_dir(), PathBuf::from("/srv/k"));
    }
}
