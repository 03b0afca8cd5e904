//! `kubectl config view`: all files as one.

use base64::Engine;
use serde_json::{Value, json};

use super::list;
use crate::config;
use crate::failure::{Failure, Result};
use crate::output::order::InOrder;
use crate::output::{Format, yaml};
use crate::session::Session;
use crate::terminal;

pub(crate) async fn view(session: &Session) -> Result<()> {
    let flags = &session.flags;
    if !session.arguments().is_empty() {
        return session.usage(format!("unexpected arguments: [{}]", session.arguments().join(" ")));
    }
    // A file that was named and is not there is empty here.
    let mut config = match config::merged(flags) {
        Err(_) if flags.given("kubeconfig") && !std::path::Path::new(flags.text("kubeconfig")).exists() => {
            json!({"apiVersion": "v1", "kind": "Config", "current-context": ""})
        }
        config => config?,
    };
    if flags.on("minify") {
        let current = match flags.global("context") {
            Some(context) => context.to_string(),
            None => config["current-context"].as_str().unwrap_or_default().to_string(),
        };
        let Some(context) = config::named(&config, "contexts", &current).cloned() else {
            return Err(Failure::message("cannot locate context ".to_string() + &current));
        };
        let keep = |list: &str, name: &Value, config: &Value| -> Value {
            super::list(config, list).into_iter().filter(|entry| entry["name"] == *name).collect::<Vec<_>>().into()
        };
        let clusters = keep("clusters", &context["context"]["cluster"], &config);
        let users = keep("users", &context["context"]["user"], &config);
        config["clusters"] = clusters;
        config["users"] = users;
        config["contexts"] = json!([context]);
        config["current-context"] = current.into();
    }
    if flags.on("flatten") {
        flatten(&mut config)?;
    }
    if !flags.on("raw") && !flags.on("flatten") {
        hide(&mut config);
    }
    // Entries in the order of their names, as the merge of maps gives them.
    for key in ["clusters", "contexts", "users"] {
        let mut entries = list(&config, key);
        entries.sort_by_key(|entry| entry["name"].as_str().unwrap_or_default().to_string());
        config[key] = if entries.is_empty() { Value::Null } else { entries.into() };
    }
    match Format::from(flags, false)? {
        Format::Yaml | Format::Human { .. } => terminal::out(&yaml::text(&config)),
        Format::Json => terminal::outln(&crate::output::json::pretty_in_order(&config, FIELD_ORDER)),
        Format::Kyaml => {
            terminal::out(&crate::output::kyaml::document(&InOrder::named(&config, FIELD_ORDER)));
        }
        format => terminal::out(&format.text(&config)?),
    }
    Ok(())
}

fn flatten(config: &mut Value) -> Result<()> {
    for (list, inner, key) in [
        ("clusters", "cluster", "certificate-authority"),
        ("users", "user", "client-certificate"),
        ("users", "user", "client-key"),
    ] {
        for entry in config[list].as_array_mut().into_iter().flatten() {
            let Some(path) = entry[inner][key].as_str().map(str::to_string) else { continue };
            let place = std::path::absolute(&path)?;
            let bytes = std::fs::read(&place).map_err(|error| {
                Failure::message(format!("open {}: {}", place.display(), crate::failure::go_io_error(&error)))
            })?;
            entry[inner][format!("{key}-data")] = base64::engine::general_purpose::STANDARD.encode(bytes).into();
            entry[inner].as_object_mut().map(|map| map.remove(key));
        }
    }
    Ok(())
}

/// Secrets and long bytes are not for every eye.
fn hide(config: &mut Value) {
    for entry in config["clusters"].as_array_mut().into_iter().flatten() {
        if entry["cluster"]["certificate-authority-data"].is_string() {
            entry["cluster"]["certificate-authority-data"] = "DATA+OMITTED".into();
        }
    }
    for entry in config["users"].as_array_mut().into_iter().flatten() {
        for key in ["client-certificate-data", "client-key-data"] {
            if entry["user"][key].is_string() {
                entry["user"][key] = "DATA+OMITTED".into();
            }
        }
        for key in ["token", "password"] {
            if entry["user"][key].is_string() {
                entry["user"][key] = "REDACTED".into();
            }
        }
    }
}

/// The order of Go's fields, in which upstream writes JSON.
const FIELD_ORDER: &[&str] = &[
    "kind",
    "command",
    "args",
    "env",
    "apiVersion",
    "installHint",
    "provideClusterInfo",
    "interactiveMode",
    "preferences",
    "clusters",
    "users",
    "contexts",
    "current-context",
    "name",
    "cluster",
    "server",
    "tls-server-name",
    "insecure-skip-tls-verify",
    "certificate-authority",
    "certificate-authority-data",
    "proxy-url",
    "user",
    "client-certificate",
    "client-certificate-data",
    "client-key",
    "client-key-data",
    "token",
    "tokenFile",
    "as",
    "username",
    "password",
    "auth-provider",
    "exec",
    "namespace",
];

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn secrets_are_hidden() {
        let mut config = json!({
            "clusters": [{"cluster": {"server": "s", "certificate-authority-data": "x"}}],
            "users": [{"user": {"token": "t", "password": "p", "client-key-data": "k", "username": "u"}}],
        });
        hide(&mut config);
        assert_eq!(config["clusters"][0]["cluster"]["certificate-authority-data"], "DATA+OMITTED");
        let user =
            json!({"token": "REDACTED", "password": "REDACTED", "client-key-data": "DATA+OMITTED", "username": "u"});
        assert_eq!(config["users"][0]["user"], user);
    }

    #[test]
    fn files_become_data() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ca.pem");
        std::fs::write(&path, "hi").unwrap();
        let mut config = json!({"clusters": [{"cluster": {"certificate-authority": path.display().to_string()}}]});
        flatten(&mut config).unwrap();
        assert_eq!(config["clusters"][0]["cluster"], json!({"certificate-authority-data": "aGk="}));
        let mut missing = json!({"users": [{"user": {"client-key": "/no/such"}}]});
        assert_eq!(flatten(&mut missing).unwrap_err().text(), "open /no/such: no such file or directory");
    }
}
