//! Preferences of a person: `~/.kube/kuberc` names aliases for commands and other defaults for flags, apart from the
//! clusters and credentials of the kubeconfig. They are worked into the command line before anything else reads it.

use std::path::PathBuf;
use std::sync::OnceLock;

use serde_json::Value;

use crate::command::{Command, GLOBAL};
use crate::commands::ROOT;
use crate::failure::{Failure, Result};
use crate::flags::{Flag, FlagError, Parsed};
use crate::{Found, terminal};

/// Which programs may be run for credentials.
#[derive(Debug, Default, PartialEq)]
struct Policy {
    kind: String,
    allowed: Vec<String>,
}

static POLICY: OnceLock<Policy> = OnceLock::new();

#[derive(Debug, Default, PartialEq)]
struct Preference {
    aliases: Vec<Alias>,
    defaults: Vec<(String, Vec<(String, String)>)>,
    policy: Policy,
}

#[derive(Debug, Default, PartialEq)]
struct Alias {
    name: String,
    command: String,
    prepended: Vec<String>,
    appended: Vec<String>,
    options: Vec<(String, String)>,
}

/// The line with what the preferences add to it.
pub(crate) fn apply(line: Vec<String>) -> Result<Vec<String>> {
    if line.is_empty() || std::env::var("KUBECTL_KUBERC").is_ok_and(|value| value == "false") {
        return Ok(line);
    }
    let Some(preference) = load(explicit(&line)?)? else { return Ok(line) };
    check(&preference)?;
    let line = worked_in(&preference, line)?;
    let _ = POLICY.set(preference.policy);
    Ok(line)
}

/// May this program be run for credentials?
pub(crate) fn may_run(program: &str) -> Result<()> {
    let Some(policy) = POLICY.get() else { return Ok(()) };
    let refused = |why: &str| Err(Failure::message(format!("plugin {program:?} not allowed: {why}")));
    match policy.kind.as_str() {
        "" | "AllowAll" => Ok(()),
        "DenyAll" => refused("policy set to \"DenyAll\""),
        "Allowlist" => {
            let file = program.rsplit('/').next().unwrap_or(program);
            if policy.allowed.iter().any(|name| name == program || (!name.contains('/') && name == file)) {
                Ok(())
            } else {
                refused("policy set to \"Allowlist\" and the plugin is not in the allowlist")
            }
        }
        other => Err(Failure::message(format!("invalid credential plugin policy {other:?}"))),
    }
}

/// The file named on the line. Flags are not read yet, so it is looked for by hand.
fn explicit(line: &[String]) -> Result<Option<String>> {
    let missing = || Failure::message("kuberc file is not found");
    for (at, word) in line.iter().enumerate() {
        if word == "--" {
            break;
        }
        if word == "--kuberc" {
            return line.get(at + 1).cloned().map(Some).ok_or_else(missing);
        }
        if let Some(path) = word.strip_prefix("--kuberc=") {
            return if path.is_empty() { Err(missing()) } else { Ok(Some(path.into())) };
        }
    }
    Ok(None)
}

fn load(named: Option<String>) -> Result<Option<Preference>> {
    let variable = std::env::var("KUBERC").ok().filter(|value| !value.is_empty());
    if variable.as_deref() == Some("off") {
        return match named {
            Some(_) => Err(Failure::message(
                "kuberc error disabling kuberc via KUBERC=off and passing kuberc flag are mutually exclusive",
            )),
            None => Ok(None),
        };
    }
    let explicitly = named.or(variable);
    let path = explicitly.clone().map_or_else(|| crate::config::home().join(".kube/kuberc"), PathBuf::from);
    let bytes = match std::fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if explicitly.is_none() && error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            return unusable(
                &path,
                explicitly.is_some(),
                &format!("open {}: {}", path.display(), crate::failure::go_io_error(&error)),
            );
        }
    };
    match parse(&bytes) {
        Some(preference) => Ok(Some(preference)),
        None => unusable(
            &path,
            explicitly.is_some(),
            &format!("no valid preferences found in {}, use --v=5 to see details", path.display()),
        ),
    }
}

/// The file that `kubectl kuberc` shows and changes.
pub(crate) fn file(named: Option<&str>) -> Result<PathBuf> {
    let variable = std::env::var("KUBERC").ok().filter(|value| !value.is_empty());
    match (named, variable) {
        (Some(path), _) => Ok(path.into()),
        (None, Some(word)) if word == "off" => {
            Err(Failure::message("KUBERC is disabled via KUBERC=off environment variable"))
        }
        (None, Some(path)) => Ok(path.into()),
        (None, None) => Ok(crate::config::home().join(".kube/kuberc")),
    }
}

/// A file that was asked for must be good; one that just lies there is only worth a word.
fn unusable(path: &std::path::Path, explicitly: bool, why: &str) -> Result<Option<Preference>> {
    if explicitly {
        return Err(Failure::message(format!("kuberc error kuberc: {why}")));
    }
    terminal::errln(&format!("kuberc: no preferences loaded from {}: {why}", path.display()));
    Ok(None)
}

/// The first document of a version that is known.
fn parse(bytes: &[u8]) -> Option<Preference> {
    let documents = crate::resource::files::documents("kuberc", bytes).ok()?;
    documents.iter().find_map(|(_, document)| preference(document))
}

fn preference(document: &Value) -> Option<Preference> {
    if document["kind"] != "Preference" {
        return None;
    }
    // What the first version called overrides and flags are defaults and options now.
    let (defaults, options) = match document["apiVersion"].as_str()? {
        "kubectl.config.k8s.io/v1alpha1" => ("overrides", "flags"),
        "kubectl.config.k8s.io/v1beta1" | "kubectl.config.k8s.io/v1" => ("defaults", "options"),
        _ => return None,
    };
    let text = |value: &Value, key: &str| value[key].as_str().unwrap_or_default().to_string();
    let list = |value: &Value, key: &str| -> Vec<Value> { value[key].as_array().cloned().unwrap_or_default() };
    let texts = |value: &Value, key: &str| -> Vec<String> {
        list(value, key).iter().filter_map(Value::as_str).map(str::to_string).collect()
    };
    let pairs = |value: &Value| -> Vec<(String, String)> {
        list(value, options).iter().map(|option| (text(option, "name"), text(option, "default"))).collect()
    };
    let alias = |value: &Value| Alias {
        name: text(value, "name"),
        command: text(value, "command"),
        prepended: texts(value, "prependArgs"),
        appended: texts(value, "appendArgs"),
        options: pairs(value),
    };
    let allowed = list(document, "credentialPluginAllowlist");
    let named = |entry: &Value| [text(entry, "command"), text(entry, "name")].into_iter().find(|name| !name.is_empty());
    Some(Preference {
        aliases: list(document, "aliases").iter().map(alias).collect(),
        defaults: list(document, defaults).iter().map(|value| (text(value, "command"), pairs(value))).collect(),
        policy: Policy {
            kind: text(document, "credentialPluginPolicy"),
            allowed: allowed.iter().filter_map(named).collect(),
        },
    })
}

fn check(preference: &Preference) -> Result<()> {
    let long = |options: &[(String, String)]| match options.iter().find(|(name, _)| name.starts_with('-')) {
        Some((name, _)) => Err(Failure::message(format!("flag name {name} should be in long form without dashes"))),
        None => Ok(()),
    };
    let mut known: Vec<&str> = Vec::new();
    for alias in &preference.aliases {
        if alias.name.is_empty() || !alias.name.chars().all(|letter| letter.is_ascii_alphabetic()) {
            return Err(Failure::message("invalid alias name, can only include alphabetical characters"));
        }
        long(&alias.options)?;
        if known.contains(&alias.name.as_str()) {
            return Err(Failure::message(format!("duplicate alias name {}", alias.name)));
        }
        known.push(&alias.name);
    }
    preference.defaults.iter().try_for_each(|(_, options)| long(options))
}

/// The line with an alias replaced by its command, or with the defaults of its command.
fn worked_in(preference: &Preference, line: Vec<String>) -> Result<Vec<String>> {
    match crate::find(&ROOT, &line) {
        Found::Command(command, ..) => with_defaults(preference, command, line),
        // Not a command, so perhaps an alias of one.
        Found::Unknown(_) => without_alias(preference, line),
    }
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_string).collect()
}

fn without_alias(preference: &Preference, line: Vec<String>) -> Result<Vec<String>> {
    let Some(at) = crate::first_word(&ROOT, &line) else { return Ok(line) };
    let Some(alias) = preference.aliases.iter().find(|alias| alias.name == line[at]) else { return Ok(line) };
    if let Some((named, _)) = preference.defaults.iter().find(|(named, _)| *named == alias.name) {
        return Err(Failure::message(format!("alias {named} can not be overridden")));
    }
    let Found::Command(command, ..) = crate::find(&ROOT, &words(&alias.command)) else {
        let text = format!("command {:?} not found to set alias {:?}: []", alias.command, alias.name);
        return Err(Failure::message(text));
    };
    let mut whole = line[..at].to_vec();
    whole.extend(words(&alias.command));
    for (name, value) in &alias.options {
        let flag = known(command, name)
            .ok_or_else(|| Failure::message(format!("invalid alias flag {name} in alias kubectl")))?;
        if !given(flag, &line) {
            fits(command, flag, value).map_err(|error| {
                Failure::message(format!("could not apply value {value} to flag {name} in alias kubectl err: {error}"))
            })?;
            whole.push(format!("--{name}={value}"));
        }
    }
    whole.extend(alias.prepended.iter().chain(&line[at + 1..]).chain(&alias.appended).cloned());
    Ok(whole)
}

fn with_defaults(preference: &Preference, command: &'static Command, line: Vec<String>) -> Result<Vec<String>> {
    let mut added = Vec::new();
    for (named, options) in &preference.defaults {
        let Found::Command(other, ..) = crate::find(&ROOT, &words(named)) else {
            terminal::errln(&format!("Warning: command {named:?} not found to set kuberc override"));
            continue;
        };
        if other.name != command.name {
            continue;
        }
        for (name, value) in options {
            let flag = known(command, name)
                .ok_or_else(|| Failure::message(format!("invalid flag {name} for command {named}")))?;
            if !given(flag, &line) {
                fits(command, flag, value).map_err(|error| {
                    Failure::message(format!(
                        "could not apply override value {value} to flag {name} in command {named} err: {error}"
                    ))
                })?;
                added.push(format!("--{name}={value}"));
            }
        }
    }
    // Flags may stand before the command's name only where every command knows them, so they go behind it: as the last
    // words that are no arguments of another program.
    let end = line.iter().position(|word| word == "--").unwrap_or(line.len());
    let (before, after) = line.split_at(end);
    Ok([before, &added, after].concat())
}

fn known(command: &'static Command, name: &str) -> Option<&'static Flag> {
    command.flags.iter().flat_map(|table| table.iter()).chain(GLOBAL).find(|flag| flag.name == name)
}

/// Is the flag on the line, in whatever form?
fn given(flag: &Flag, line: &[String]) -> bool {
    line.iter().take_while(|word| *word != "--").any(|word| match (word.strip_prefix("--"), flag.short) {
        (Some(long), _) => long == flag.name || long.strip_prefix(flag.name).is_some_and(|rest| rest.starts_with('=')),
        (None, Some(letter)) => {
            let letters = word.strip_prefix('-').unwrap_or_default();
            letters.starts_with(letter)
                || (letters.chars().all(|letter| letter.is_ascii_alphabetic()) && letters.contains(letter))
        }
        (None, None) => false,
    })
}

fn fits(command: &'static Command, flag: &Flag, value: &str) -> std::result::Result<(), FlagError> {
    let tables: Vec<&[Flag]> = command.flags.iter().copied().chain([GLOBAL]).collect();
    Parsed::parse(&tables, &[format!("--{}={value}", flag.name)]).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "apiVersion: kubectl.config.k8s.io/v1beta1\nkind: Preference\ndefaults:\n- command: get\n  options: [{name: output, default: wide}]\n- command: apply\n  options: [{name: server-side, default: 'true'}]\naliases:\n- name: getn\n  command: get\n  prependArgs: [nodes]\n  appendArgs: [-A]\n  options: [{name: output, default: json}]\n";

    #[test]
    fn defaults_and_aliases_become_words() {
        let preference = parse(FILE.as_bytes()).unwrap();
        let check =
            |line: &str, whole: &str| assert_eq!(worked_in(&preference, words(line)).unwrap(), words(whole), "{line}");
        check("get pods", "get pods --output=wide");
        check("get pods -oyaml", "get pods -oyaml");
        check("get pods --output yaml", "get pods --output yaml");
        // As upstream, an alias is the first word that is no flag.
        check("getn a -w", "get --output=json nodes a -w -A");
        check("getn -o name", "get nodes -o name -A");
        check("apply -f x", "apply -f x --server-side=true");
        check("exec p -- get", "exec p -- get");
        check("unknown", "unknown");
    }

    #[test]
    fn the_first_version_has_other_names() {
        let text = "apiVersion: kubectl.config.k8s.io/v1alpha1\nkind: Preference\noverrides:\n- command: get\n  flags: [{name: output, default: wide}]\n";
        let preference = parse(text.as_bytes()).unwrap();
        assert_eq!(preference.defaults, [("get".to_string(), vec![("output".to_string(), "wide".to_string())])]);
        assert_eq!(parse(b"apiVersion: v1\nkind: Preference\n"), None);
        let two = format!("apiVersion: kubectl.config.k8s.io/v9\nkind: Preference\n---\n{text}");
        assert!(parse(two.as_bytes()).is_some());
    }

    #[test]
    fn mistakes_are_refused() {
        let wrong = |part: &str| {
            let text = format!("apiVersion: kubectl.config.k8s.io/v1beta1\nkind: Preference\n{part}\n");
            let preference = parse(text.as_bytes()).unwrap();
            check(&preference).and_then(|()| worked_in(&preference, words("get pods")).map(|_| ())).unwrap_err().text()
        };
        assert_eq!(
            wrong("aliases: [{name: a-b, command: get}]"),
            "invalid alias name, can only include alphabetical characters"
        );
        assert_eq!(wrong("aliases: [{name: a, command: get}, {name: a, command: get}]"), "duplicate alias name a");
        assert_eq!(
            wrong("defaults: [{command: get, options: [{name: -o, default: x}]}]"),
            "flag name -o should be in long form without dashes"
        );
        assert_eq!(
            wrong("defaults: [{command: get, options: [{name: nope, default: x}]}]"),
            "invalid flag nope for command get"
        );
        assert!(
            wrong("defaults: [{command: get, options: [{name: watch, default: x}]}]").starts_with(
                "could not apply override value x to flag watch in command get err: invalid argument \"x\""
            )
        );
        assert_eq!(explicit(&words("get --kuberc=")).unwrap_err().text(), "kuberc file is not found");
        assert_eq!(explicit(&words("get -- --kuberc=x")).unwrap(), None);
    }
}
