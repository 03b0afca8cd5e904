//! `kubectl set env`.

use serde_json::{Value, json};

use super::{COMMON, CONTAINERS, chosen, containers, failed, no_template, pod_spec, save};
use crate::command::Command;
use crate::commands::change::{Change, DRY_RUN};
use crate::failure::{self, Failure, Result};
use crate::flags::Flag;
use crate::output;
use crate::resource::Info;
use crate::resource::select::{FILES, SELECTOR};
use crate::session::{Call, Session};
use crate::terminal;

pub(super) static COMMAND: Command = Command {
    name: "env",
    short: "Update environment variables on a pod template.",
    examples: "kubectl set env deployment/web A=1 B-",
    usage: "RESOURCE/NAME KEY_1=VAL_1 ... KEY_N=VAL_N [options]",
    flags: &[COMMON, FLAGS, CONTAINERS, FILES, SELECTOR, DRY_RUN, output::FLAGS],
    run: Some(|session| Box::pin(env(session))),
    ..Command::EMPTY
};

const FLAGS: &[Flag] = &[
    Flag::array("env", "A variable, as key=value.").short('e'),
    Flag::text("from", "", "A ConfigMap or Secret to take variables from, as type/name."),
    Flag::list("keys", "Only these keys of it."),
    Flag::switch("list", "Show the variables."),
    Flag::on("overwrite", "Replace variables that are there."),
    Flag::text("prefix", "", "What the names of taken variables begin with."),
    Flag::switch("resolve", "With --list: show values of references."),
];

async fn env(session: &Session) -> Result<()> {
    let flags = &session.flags;
    let change = Change::from(session)?;
    let is_pair = |argument: &String| argument.contains('=') || argument.ends_with('-') || argument == "-";
    let arguments = session.arguments();
    let first = arguments.iter().position(is_pair).unwrap_or(arguments.len());
    let (resources, pairs) = arguments.split_at(first);
    if !pairs.iter().all(is_pair) {
        let words = arguments.join(" ");
        return Err(Failure::message(format!("all resources must be specified before environment changes: {words}")));
    }
    let pairs: Vec<String> = pairs.iter().cloned().chain(flags.list("env")).collect();
    let mut variables = parse(&pairs, || Ok(String::from_utf8_lossy(&terminal::input()?).into_owned()))?;
    if resources.is_empty() && !flags.given("filename") {
        return Err(Failure::message(
            "one or more resources must be specified as <resource> <name> or <resource>/<name>",
        ));
    }
    if flags.on("list") && flags.given("output") {
        return Err(Failure::message("--list and --output may not be specified together"));
    }
    if flags.given("keys") && flags.text("from").is_empty() {
        return Err(Failure::message("when specifying --keys, a configmap or secret must be provided with --from"));
    }
    variables.check()?;
    variables.set.extend(from(session).await?);
    let (infos, mut failures) = chosen(session, resources).await?;
    for before in infos {
        if let Err(failure) = one(&change, &before, &variables).await? {
            failures.push(failure);
        }
    }
    failure::all(failures)
}

/// One object. The outer error ends the command, the inner one only this object.
async fn one(change: &Change<'_>, before: &Info, variables: &Variables) -> Result<Result<()>> {
    let session = change.session;
    let flags = &session.flags;
    let mut after = before.clone();
    let Some(spec) = pod_spec(&mut after) else { return Ok(Err(no_template(session, before))) };
    let found = containers(spec, flags.text("containers"));
    if found.is_empty() {
        terminal::errln(&format!(
            "Warning: {}/{} does not have any containers matching {:?}",
            before.mapping.kind,
            before.name,
            flags.text("containers")
        ));
        return Ok(Ok(()));
    }
    for container in found {
        if flags.on("list") {
            list(session, before, container).await?;
        } else {
            variables
                .put_into(container, flags.on("overwrite"))
                .map_err(|conflict| failed(session, before, format!("{conflict}, and --overwrite is false")))?;
        }
    }
    if flags.on("list") { Ok(Ok(())) } else { Ok(save(change, before, after, "env updated").await) }
}

async fn list(session: &Session, info: &Info, container: &Value) -> Result<()> {
    let name = container["name"].as_str().unwrap_or_default();
    terminal::outln(&format!("# {} {}, container {name}", info.mapping.kind, info.name));
    for variable in container["env"].as_array().into_iter().flatten() {
        let resolved = if session.flags.on("resolve") { resolved(session, variable).await? } else { None };
        terminal::outln(&resolved.unwrap_or_else(|| listed(variable)));
    }
    Ok(())
}

/// What is set, and the names of what is taken away.
#[derive(Debug, Default, PartialEq)]
struct Variables {
    set: Vec<Value>,
    removed: Vec<String>,
}

/// A variable that has a value already.
#[derive(Debug, PartialEq, thiserror::Error)]
#[error("'{name}' already has a value ({value})")]
struct Conflict {
    name: String,
    value: String,
}

/// `key=value` sets, `key-` takes away, and `-` stands for lines of standard input.
fn parse(pairs: &[String], input: impl Fn() -> Result<String>) -> Result<Variables> {
    let mut variables = Variables::default();
    for pair in pairs {
        if pair == "-" {
            for line in input()?.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')) {
                let (key, value) = line.split_once('=').unwrap_or((line, ""));
                variables.set.push(json!({"name": key, "value": value}));
            }
            continue;
        }
        match pair.split_once('=') {
            Some((key, value)) => variables.set.push(json!({"name": key, "value": value})),
            None => variables.removed.push(pair.trim_end_matches('-').into()),
        }
    }
    Ok(variables)
}

impl Variables {
    fn check(&self) -> Result<()> {
        if self.set.iter().any(|variable| self.removed.iter().any(|name| variable["name"] == name.as_str())) {
            return Err(Failure::message(
                "can not both modify and remove the same environment variable in the same command",
            ));
        }
        for variable in &self.set {
            let name = variable["name"].as_str().unwrap_or_default();
            if let Some(problem) = machinery::names::env_var_name(name).first() {
                return Err(Failure::message(format!("{name:?} is not a valid key name: {problem}")));
            }
        }
        Ok(())
    }

    fn put_into(&self, container: &mut Value, overwrite: bool) -> std::result::Result<(), Conflict> {
        let mut env = container["env"].as_array().cloned().unwrap_or_default();
        for variable in &self.set {
            match env.iter_mut().find(|known| known["name"] == variable["name"]) {
                Some(known) if !overwrite => {
                    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
                    return Err(Conflict { name: text(&variable["name"]), value: text(&known["value"]) });
                }
                Some(known) => *known = variable.clone(),
                None => env.push(variable.clone()),
            }
        }
        env.retain(|variable| !self.removed.iter().any(|name| variable["name"] == name.as_str()));
        if !env.is_empty() {
            container["env"] = env.into();
        } else if let Some(container) = container.as_object_mut() {
            container.remove("env");
        }
        Ok(())
    }
}

fn listed(variable: &Value) -> String {
    let name = variable["name"].as_str().unwrap_or_default();
    let from = &variable["valueFrom"];
    if from.is_null() {
        return format!("{name}={}", variable["value"].as_str().unwrap_or_default());
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    let what = if from["configMapKeyRef"].is_object() {
        format!("configmap {}, key {}", text(&from["configMapKeyRef"]["name"]), text(&from["configMapKeyRef"]["key"]))
    } else if from["secretKeyRef"].is_object() {
        format!("secret {}, key {}", text(&from["secretKeyRef"]["name"]), text(&from["secretKeyRef"]["key"]))
    } else if from["resourceFieldRef"].is_object() {
        format!("resource field {}", text(&from["resourceFieldRef"]["resource"]))
    } else {
        format!("field path {}", text(&from["fieldRef"]["fieldPath"]))
    };
    format!("# {name} from {what}")
}

/// The value of a variable that is kept in a ConfigMap or Secret.
async fn resolved(session: &Session, variable: &Value) -> Result<Option<String>> {
    let name = variable["name"].as_str().unwrap_or_default();
    for (reference, plural) in [("configMapKeyRef", "configmaps"), ("secretKeyRef", "secrets")] {
        let from = &variable["valueFrom"][reference];
        let (Some(holder), Some(key)) = (from["name"].as_str(), from["key"].as_str()) else { continue };
        let path = format!("/api/v1/namespaces/{}/{plural}/{holder}", session.namespace()?);
        let object = session.send(&Call::get(path)).await?;
        let value = object["data"][key].as_str().unwrap_or_default().to_string();
        let value = match plural {
            "secrets" => {
                let bytes = base64::Engine::decode(&base64::engine::general_purpose::STANDARD, value);
                String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned()
            }
            _ => value,
        };
        return Ok(Some(format!("{name}={value}")));
    }
    Ok(None)
}

/// A variable for each key of a ConfigMap or Secret.
async fn from(session: &Session) -> Result<Vec<Value>> {
    let flags = &session.flags;
    let Some((kind, name)) = flags.text("from").split_once('/') else { return Ok(Vec::new()) };
    if flags.on("local") {
        return Err(Failure::message("unsupported resource specified in --from"));
    }
    let mapping = session.mapping(kind).await?;
    let object = session.send(&Call::get(mapping.object(session.namespace()?, name))).await?;
    let reference = match mapping.plural.as_str() {
        "configmaps" => "configMapKeyRef",
        "secrets" => "secretKeyRef",
        _ => return Err(Failure::message("unsupported resource specified in --from")),
    };
    let keys = flags.list("keys");
    let mut found = Vec::new();
    for key in object["data"].as_object().into_iter().flatten().map(|(key, _)| key) {
        if !keys.is_empty() && !keys.contains(key) {
            continue;
        }
        let shouted = shouted(key);
        if shouted != key.to_uppercase() {
            terminal::warn(&format!("key {key} transferred to {shouted}"));
        }
        found.push(json!({"name": format!("{}{shouted}", flags.text("prefix")), "valueFrom": {reference: {"name": name, "key": key}}}));
    }
    Ok(found)
}

/// A key as the name of a variable.
fn shouted(key: &str) -> String {
    key.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter.to_ascii_uppercase() } else { '_' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(line: &str, input: &str) -> Variables {
        let pairs: Vec<String> = line.split_whitespace().map(str::to_string).collect();
        parse(&pairs, || Ok(input.to_string())).unwrap()
    }

    #[test]
    fn pairs_set_and_take_away() {
        let parsed = variables("A=1 B- C=x=y -", "# comment\nD=2\n\nE\n");
        let set = |name: &str, value: &str| json!({"name": name, "value": value});
        assert_eq!(parsed.set, [set("A", "1"), set("C", "x=y"), set("D", "2"), set("E", "")]);
        assert_eq!(parsed.removed, ["B"]);
        assert!(parsed.check().is_ok());
        assert!(variables("a/b=1", "").check().is_err());
    }

    #[test]
    fn containers_get_the_variables() {
        let mut container = json!({"env": [{"name": "A", "value": "old"}, {"name": "B", "value": "b"}]});
        let conflict = variables("A=1", "").put_into(&mut container, false).unwrap_err();
        assert_eq!(conflict.to_string(), "'A' already has a value (old)");
        variables("A=1 C=c B-", "").put_into(&mut container, true).unwrap();
        assert_eq!(container["env"], json!([{"name": "A", "value": "1"}, {"name": "C", "value": "c"}]));
        variables("A- C-", "").put_into(&mut container, true).unwrap();
        assert_eq!(container, json!({}));
    }

    #[test]
    fn variables_are_listed_with_their_source() {
        let check = |variable: Value, text: &str| assert_eq!(listed(&variable), text);
        check(json!({"name": "A", "value": "1"}), "A=1");
        let from = |key: &str, value: Value| json!({"name": "A", "valueFrom": {key: value}});
        let reference = json!({"name": "settings", "key": "color"});
        check(from("configMapKeyRef", reference.clone()), "# A from configmap settings, key color");
        check(from("secretKeyRef", reference), "# A from secret settings, key color");
        check(from("fieldRef", json!({"fieldPath": "metadata.name"})), "# A from field path metadata.name");
        check(from("resourceFieldRef", json!({"resource": "limits.cpu"})), "# A from resource field limits.cpu");
    }

    #[test]
    fn keys_become_names_of_variables() {
        assert_eq!(shouted("my.key-1"), "MY_KEY_1");
    }
}
