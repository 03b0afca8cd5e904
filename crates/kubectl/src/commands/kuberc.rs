//! `kubectl kuberc`: shows and changes the file with a person's preferences.

use serde_json::{Value, json};

use crate::command::Command;
use crate::failure::{Failure, Result};
use crate::flags::Flag;
use crate::output::order::InOrder;
use crate::output::{self, Format};
use crate::session::Session;
use crate::terminal;

pub(super) static COMMAND: Command = Command {
    name: "kuberc",
    group: super::OTHER,
    short: "Manage user preferences (kuberc) file.",
    usage: "SUBCOMMAND [options]",
    subcommands: &[&SET, &VIEW],
    ..Command::EMPTY
};
static SET: Command = Command {
    name: "set",
    short: "Set values in the kuberc configuration.",
    examples: "kubectl kuberc set --section defaults --command get --option output=wide\nkubectl kuberc set --section aliases --name getn --command get --prependarg nodes --option output=wide",
    usage: "--section (defaults|aliases|credentialplugin) --command COMMAND [options]",
    flags: &[FLAGS, FILE],
    run: Some(|session| Box::pin(set(session))),
    ..Command::EMPTY
};
static VIEW: Command = Command {
    name: "view",
    short: "Display the current kuberc configuration.",
    examples: "kubectl kuberc view\nkubectl kuberc view --output json",
    usage: "[options]",
    flags: &[VIEW_FLAGS, FILE],
    run: Some(|session| Box::pin(view(session))),
    ..Command::EMPTY
};

/// Every command has it; these two tell of it.
const FILE: &[Flag] = &[Flag::text("kuberc", "", "The file with the preferences.")];
const VIEW_FLAGS: &[Flag] = &[
    Flag::text("output", "yaml", "Output format: json, yaml, kyaml, name, jsonpath=..., go-template=...").short('o'),
    Flag::text("template", "", "The template of -o go-template and -o jsonpath."),
    Flag::on("allow-missing-template-keys", "Ignore what a template names and an object lacks."),
    Flag::switch("show-managed-fields", "Keep managedFields when printing objects."),
];
const FLAGS: &[Flag] = &[
    Flag::array("allowlist-entry", "Allowlist Entry the form field=value (can be specified multiple times)"),
    Flag::array("appendarg", "Argument to append to the command (can be specified multiple times, for aliases only)"),
    Flag::text("command", "", "Command to configure (e.g., 'get', 'create', 'set env')"),
    Flag::text("name", "", "Alias name (required for --section=aliases)"),
    Flag::array("option", "Flag option in the form flag=value (can be specified multiple times)"),
    Flag::switch("overwrite", "Allow overwriting existing entries"),
    Flag::text("policy", "", "Plugin policy to use for exec credential plugins"),
    Flag::array("prependarg", "Argument to prepend to the command (can be specified multiple times, for aliases only)"),
    Flag::text("section", "", "Section to modify: 'defaults', 'aliases', or 'credentialplugin'"),
];

async fn view(session: &Session) -> Result<()> {
    let path = crate::kuberc::file(Some(session.flags.text("kuberc")).filter(|path| !path.is_empty()))?;
    let explicitly = !session.flags.text("kuberc").is_empty() || std::env::var_os("KUBERC").is_some();
    let mut file = match read(&path)? {
        Value::Null if explicitly => {
            return Err(Failure::message(format!("kuberc file not found at {}", path.display())));
        }
        Value::Null => return offer(&path),
        file => file,
    };
    for list in ["aliases", "defaults"] {
        if file[list].is_null() {
            file[list] = json!([]);
        }
    }
    match Format::from(&session.flags, false)? {
        Format::Json => terminal::outln(&output::json::pretty_in_order(&file, FIELD_ORDER)),
        Format::Kyaml => terminal::out(&output::kyaml::document(&InOrder::named(&file, FIELD_ORDER))),
        format => terminal::out(&format.text(&file)?),
    }
    Ok(())
}

/// The order of Go's fields, at every level.
const FIELD_ORDER: &[&str] = &[
    "kind",
    "apiVersion",
    "defaults",
    "aliases",
    "credentialPluginPolicy",
    "credentialPluginAllowlist",
    "name",
    "command",
    "prependArgs",
    "appendArgs",
    "options",
    "default",
];

/// Where there is no file yet, one with what is recommended can be had.
fn offer(path: &std::path::Path) -> Result<()> {
    terminal::outln(&format!("kuberc file not found at {}", path.display()));
    terminal::out("Would you like to generate a default kuberc file with recommended options? (y/N): ");
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    if !answer.trim().eq_ignore_ascii_case("y") {
        return Ok(());
    }
    let option =
        |command: &str, name: &str| json!({"command": command, "options": [{"name": name, "default": "true"}]});
    let defaults = [option("apply", "server-side"), option("delete", "interactive")];
    write(path, json!({"apiVersion": VERSION, "kind": "Preference", "defaults": defaults}))
}

const VERSION: &str = "kubectl.config.k8s.io/v1beta1";

/// Writes the file as Go would: with the lists that are always there.
fn write(path: &std::path::Path, mut file: Value) -> Result<()> {
    for list in ["aliases", "defaults"] {
        file[list] = file[list].take();
    }
    for entry in file["defaults"].as_array_mut().into_iter().flatten() {
        entry["options"] = entry["options"].take();
    }
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(path, output::yaml::text(&file))?;
    terminal::outln(&format!("Updated {}", path.display()));
    Ok(())
}

/// The file, or null where there is none.
fn read(path: &std::path::Path) -> Result<Value> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Value::Null),
        Err(error) => {
            let error = crate::failure::go_io_error(&error);
            return Err(Failure::message(format!("error reading kuberc file: open {}: {error}", path.display())));
        }
    };
    let decoded = machinery::codec::decode_yaml(&bytes);
    Ok(decoded.map_err(|error| Failure::message(format!("error parsing kuberc file: {error}")))?.value)
}

async fn set(session: &Session) -> Result<()> {
    let path = crate::kuberc::file(Some(session.flags.text("kuberc")).filter(|path| !path.is_empty()))?;
    if !session.flags.given("section") {
        return Err(Failure::message("required flag(s) \"section\" not set"));
    }
    let change = Change::from(session)?;
    let mut file = match read(&path)? {
        Value::Null => json!({"apiVersion": VERSION, "kind": "Preference"}),
        file => file,
    };
    change.put(&mut file)?;
    write(&path, file)
}

#[derive(Default)]
struct Change {
    section: String,
    command: String,
    name: String,
    options: Vec<Value>,
    prepended: Vec<String>,
    appended: Vec<String>,
    policy: String,
    allowed: Vec<String>,
    overwrite: bool,
}

impl Change {
    fn from(session: &Session) -> Result<Change> {
        let flags = &session.flags;
        let text = |name: &str| flags.text(name).to_string();
        let mut change = Change {
            section: text("section"),
            command: text("command"),
            name: text("name"),
            options: Vec::new(),
            prepended: flags.list("prependarg"),
            appended: flags.list("appendarg"),
            policy: text("policy"),
            allowed: flags.list("allowlist-entry"),
            overwrite: flags.on("overwrite"),
        };
        change.check()?;
        for option in flags.list("option") {
            let Some((name, value)) = option.split_once('=') else {
                return Err(Failure::message(format!("invalid option format {option:?}, expected flag=value")));
            };
            change.options.push(json!({"name": name.trim_start_matches('-'), "default": value}));
        }
        Ok(change)
    }

    fn check(&self) -> Result<()> {
        let refuse = |text: &str| Err(Failure::message(text));
        match self.section.as_str() {
            "aliases" if self.name.is_empty() => refuse("--name is required when --section=aliases"),
            "defaults" if !self.name.is_empty() => refuse("--name should not be specified when --section=defaults"),
            "defaults" if !self.prepended.is_empty() || !self.appended.is_empty() => {
                refuse("--prependarg and --appendarg are only valid for --section=aliases")
            }
            "aliases" | "defaults" if self.command.is_empty() => {
                refuse("--command is required when --section=aliases or --section=defaults")
            }
            "aliases" | "defaults" => Ok(()),
            "credentialplugin" => match (self.policy.as_str(), self.allowed.is_empty()) {
                ("", _) => refuse("--policy is required when --section=credentialplugin"),
                ("AllowAll" | "DenyAll", false) => {
                    refuse("--allowlist-entry may only be used when --section=credentialplugin and --policy=Allowlist")
                }
                ("Allowlist", true) => {
                    refuse("--allowlist-entry is required when --section=credentialplugin and --policy=Allowlist")
                }
                ("AllowAll" | "DenyAll" | "Allowlist", _) => Ok(()),
                (other, _) => {
                    refuse(&format!(" --policy must be  \"AllowAll\", \"DenyAll\", or \"Allowlist\", got: {other}"))
                }
            },
            other => {
                refuse(&format!("--section must be \"defaults\", \"aliases\", or \"credentialplugin\", got: {other}"))
            }
        }
    }

    fn put(&self, file: &mut Value) -> Result<()> {
        if self.section == "credentialplugin" {
            let entries = self.allowed.iter().flat_map(|entry| entry.split(','));
            let entries: Vec<Value> = entries.map(allowlist_entry).collect::<Result<_>>()?;
            file["credentialPluginPolicy"] = self.policy.clone().into();
            if !entries.is_empty() {
                file["credentialPluginAllowlist"] = entries.into();
            }
            return Ok(());
        }
        let (key, name, known) = match self.section.as_str() {
            "aliases" => ("name", &self.name, format!("alias {:?} already exists", self.name)),
            _ => ("command", &self.command, format!("defaults for command {:?} already exist", self.command)),
        };
        if !file[&self.section].is_array() {
            file[&self.section] = json!([]);
        }
        let Some(list) = file[&self.section].as_array_mut() else { return Ok(()) };
        let at = list.iter().position(|entry| entry[key] == name.as_str());
        if at.is_some() && !self.overwrite {
            return Err(Failure::message(format!("{known}, use --overwrite to replace")));
        }
        // What is not named stays as it was.
        let mut entry = at.map_or_else(|| json!({}), |at| list[at].clone());
        entry[key] = name.clone().into();
        entry["command"] = self.command.clone().into();
        for (field, value) in [
            ("prependArgs", json!(self.prepended)),
            ("appendArgs", json!(self.appended)),
            ("options", json!(self.options)),
        ] {
            if value.as_array().is_some_and(|value| !value.is_empty()) {
                entry[field] = value;
            }
        }
        match at {
            Some(at) => list[at] = entry,
            None => list.push(entry),
        }
        Ok(())
    }
}

/// `command=name`, as an entry of the list.
fn allowlist_entry(pair: &str) -> Result<Value> {
    Err(Failure::message(match pair.split_once('=') {
        Some(("command", value)) if !value.trim().is_empty() => return Ok(json!({"command": value})),
        Some(("command", _)) => "empty value in allowlist entry for field \"command\"".into(),
        Some(("name", _)) => "allowlist entry field \"name\" is deprecated, use \"command\" instead".into(),
        Some((field, _)) => format!("unrecognized allowlist entry field: {field:?}"),
        None => format!("improperly formatted allowlist entry: {pair:?}"),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_added_and_replaced() {
        let mut file = json!({});
        let mut change =
            Change { section: "aliases".into(), name: "getn".into(), command: "get".into(), ..Change::default() };
        change.prepended = vec!["nodes".into()];
        change.put(&mut file).unwrap();
        assert_eq!(file, json!({"aliases": [{"name": "getn", "command": "get", "prependArgs": ["nodes"]}]}));
        assert_eq!(
            change.put(&mut file).unwrap_err().text(),
            "alias \"getn\" already exists, use --overwrite to replace"
        );
        (change.overwrite, change.prepended, change.options) =
            (true, vec![], vec![json!({"name": "output", "default": "wide"})]);
        change.put(&mut file).unwrap();
        assert_eq!(file["aliases"][0]["prependArgs"], json!(["nodes"]));
        assert_eq!(file["aliases"][0]["options"], json!([{"name": "output", "default": "wide"}]));
    }

    #[test]
    fn what_does_not_go_together_is_refused() {
        let of = |section: &str, name: &str, policy: &str| {
            let change =
                Change { section: section.into(), name: name.into(), policy: policy.into(), ..Change::default() };
            change.check().unwrap_err().text()
        };
        assert_eq!(of("aliases", "", ""), "--name is required when --section=aliases");
        assert_eq!(of("defaults", "", ""), "--command is required when --section=aliases or --section=defaults");
        assert!(of("credentialplugin", "", "Some").ends_with("got: Some"));
        assert!(of("other", "", "").ends_with("got: other"));
    }
}
