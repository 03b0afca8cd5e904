//! `kubectl set env`.

use serde_json::{Value, json};

use super::{COMMON, CONTAINERS, chosen, containers, no_template, pod_spec, save};
use crate::command::Command;
use crate::commands::change::{Change, DRY_RUN};
use crate::failure::{self, Failure, Result};
use crate::flags::Flag;
use crate::output;
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
    let mut set: Vec<Value> = Vec::new();
    let mut removed: Vec<String> = Vec::new();
    for pair in pairs.iter().chain(&flags.list("env")) {
        if pair == "-" {
            let text = String::from_utf8_lossy(&terminal::input()?).into_owned();
            for line in text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')) {
                let (key, value) = line.split_once('=').unwrap_or((line, ""));
                set.push(json!({"name": key, "value": value}));
            }
            continue;
        }
        match pair.split_once('=') {
            Some((key, value)) => set.push(json!({"name": key, "value": value})),
            None => removed.push(pair.trim_end_matches('-').into()),
        }
    }
    if resources.is_empty() && !flags.given("filename") {
        return Err(Failure::message(
            "one or more resources must be specified as <resource> <name> or <resource>/<name>",
        ));
    }
    for variable in &set {
        let name = variable["name"].as_str().unwrap_or_default();
        if let Some(problem) = machinery::names::env_var_name(name).first() {
            return Err(Failure::message(format!("{name:?} is not a valid key name: {problem}")));
        }
    }
    set.extend(from(session).await?);
    let (infos, mut failures) = chosen(session, resources).await?;
    for before in infos {
        let mut after = before.clone();
        let Some(spec) = pod_spec(&mut after) else {
            failures.push(no_template(&before));
            continue;
        };
        let found = containers(spec, flags.text("containers"));
        if found.is_empty() {
            terminal::errln(&format!(
                "Warning: {}/{} does not have any containers matching {:?}",
                before.mapping.kind,
                before.name,
                flags.text("containers")
            ));
            continue;
        }
        for container in found {
            if flags.on("list") {
                terminal::outln(&format!(
                    "# {} {}, container {}",
                    before.mapping.kind,
                    before.name,
                    container["name"].as_str().unwrap_or_default()
                ));
                for variable in container["env"].as_array().into_iter().flatten() {
                    let resolved = if flags.on("resolve") { resolved(session, variable).await? } else { None };
                    terminal::outln(&resolved.unwrap_or_else(|| listed(variable)));
                }
                continue;
            }
            let mut env = container["env"].as_array().cloned().unwrap_or_default();
            for variable in &set {
                match env.iter_mut().find(|known| known["name"] == variable["name"]) {
                    Some(known) if !flags.on("overwrite") => {
                        return Err(Failure::message(format!(
                            "{}/{} '{}' already has a value ({}), and --overwrite is false",
                            before.mapping.plural,
                            before.name,
                            variable["name"].as_str().unwrap_or_default(),
                            known["value"].as_str().unwrap_or_default()
                        )));
                    }
                    Some(known) => *known = variable.clone(),
                    None => env.push(variable.clone()),
                }
            }
            env.retain(|variable| !removed.iter().any(|name| variable["name"] == name.as_str()));
            if env.is_empty() {
                _ = container.as_object_mut().map(|container| container.remove("env"))
            } else {
                container["env"] = env.into()
            }
        }
        if !flags.on("list")
            && let Err(failure) = save(&change, &before, after, "env updated").await
        {
            failures.push(failure);
        }
    }
    failure::all(failures)
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
        let shouted: String =
            key.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' }).collect();
        if shouted != key.to_uppercase() {
            terminal::warn(&format!("key {key} transferred to {shouted}"));
        }
        found.push(json!({"name": format!("{}{shouted}", flags.text("prefix")), "valueFrom": {reference: {"name": name, "key": key}}}));
    }
    Ok(found)
}
