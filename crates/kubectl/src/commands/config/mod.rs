//! `kubectl config`: reading and changing kubeconfig files.

mod view;
mod entries;
mod set;
mod property;

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::command::Command;
use crate::config;
use crate::failure::{Failure, Result};
use crate::flags::Flag;
use crate::session::Session;
use crate::terminal;

macro_rules! command {
    ($name:ident, $word:literal, $aliases:expr, $short:literal, $usage:literal, $flags:expr, $run:path) => {
        static $name: Command = Command {
            name: $word,
            aliases: $aliases,
            short: $short,
            usage: $usage,
            flags: $flags,
            run: Some(|session| Box::pin($run(session))),
            ..Command::EMPTY
        };
    };
}

pub(super) static COMMAND: Command = Command {
    name: "config",
    group: super::OTHER,
    short: "Modify kubeconfig files.",
    usage: "SUBCOMMAND [options]",
    subcommands: &[
        &CURRENT_CONTEXT,
        &DELETE_CLUSTER,
        &DELETE_CONTEXT,
        &DELETE_USER,
        &GET_CLUSTERS,
        &GET_CONTEXTS,
        &GET_USERS,
        &RENAME_CONTEXT,
        &SET,
        &SET_CLUSTER,
        &SET_CONTEXT,
        &SET_CREDENTIALS,
        &UNSET,
        &USE_CONTEXT,
        &VIEW,
    ],
    ..Command::EMPTY
};

command!(
    CURRENT_CONTEXT,
    "current-context",
    &[],
    "Display the current context.",
    "[options]",
    &[],
    entries::current_context
);
command!(
    DELETE_CLUSTER,
    "delete-cluster",
    &[],
    "Delete the specified cluster from the kubeconfig.",
    "NAME [options]",
    &[],
    entries::delete_cluster
);
command!(
    DELETE_CONTEXT,
    "delete-context",
    &[],
    "Delete the specified context from the kubeconfig.",
    "NAME [options]",
    &[],
    entries::delete_context
);
command!(
    DELETE_USER,
    "delete-user",
    &[],
    "Delete the specified user from the kubeconfig.",
    "NAME [options]",
    &[],
    entries::delete_user
);
command!(
    GET_CLUSTERS,
    "get-clusters",
    &[],
    "Display clusters defined in the kubeconfig.",
    "[options]",
    &[],
    entries::get_clusters
);
command!(
    GET_CONTEXTS,
    "get-contexts",
    &[],
    "Describe one or many contexts.",
    "[(-o|--output=)name] [options]",
    &[GET_FLAGS],
    entries::get_contexts
);
command!(GET_USERS, "get-users", &[], "Display users defined in the kubeconfig.", "[options]", &[], entries::get_users);
command!(
    RENAME_CONTEXT,
    "rename-context",
    &[],
    "Rename a context from the kubeconfig file.",
    "CONTEXT_NAME NEW_NAME [options]",
    &[],
    entries::rename_context
);
command!(
    SET,
    "set",
    &[],
    "Set an individual value in a kubeconfig file.",
    "PROPERTY_NAME PROPERTY_VALUE [options]",
    &[SET_FLAGS],
    property::set
);
command!(
    SET_CLUSTER,
    "set-cluster",
    &[],
    "Set a cluster entry in kubeconfig.",
    "NAME [--server=server] [--certificate-authority=path] [options]",
    &[CLUSTER_FLAGS],
    set::set_cluster
);
command!(
    SET_CONTEXT,
    "set-context",
    &[],
    "Set a context entry in kubeconfig.",
    "[NAME | --current] [--cluster=cluster_nickname] [--user=user_nickname] [--namespace=namespace] [options]",
    &[CONTEXT_FLAGS],
    set::set_context
);
command!(
    SET_CREDENTIALS,
    "set-credentials",
    &[],
    "Set a user entry in kubeconfig.",
    "NAME [--client-certificate=path] [--token=bearer_token] [options]",
    &[CREDENTIAL_FLAGS],
    set::set_credentials
);
command!(
    UNSET,
    "unset",
    &[],
    "Unset an individual value in a kubeconfig file.",
    "PROPERTY_NAME [options]",
    &[],
    property::unset
);
command!(
    USE_CONTEXT,
    "use-context",
    &["use"],
    "Set the current-context in a kubeconfig file.",
    "CONTEXT_NAME [options]",
    &[],
    entries::use_context
);
command!(VIEW, "view", &[], "Display merged kubeconfig settings.", "[options]", &[VIEW_FLAGS], view::view);

const GET_FLAGS: &[Flag] = &[
    Flag::switch("no-headers", "No line with the names of columns."),
    Flag::text("output", "", "name, for short output.").short('o'),
];
const SET_FLAGS: &[Flag] = &[Flag::switch("set-raw-bytes", "The value is bytes, to be kept as base64.")];
const CLUSTER_FLAGS: &[Flag] = &[
    Flag::text("certificate-authority", "", "A file with the certificates of authorities."),
    Flag::switch("insecure-skip-tls-verify", "Do not check the server's certificate."),
    Flag::text("server", "", "The address and port of the API server."),
    Flag::text("tls-server-name", "", "The name the server's certificate must have."),
    Flag::switch("embed-certs", "Keep the certificate itself in the file."),
    Flag::text("proxy-url", "", "A proxy for this cluster."),
];
const CONTEXT_FLAGS: &[Flag] = &[
    Flag::text("cluster", "", "The cluster of the context."),
    Flag::switch("current", "Change the current context."),
    Flag::text("namespace", "", "The namespace of the context.").short('n'),
    Flag::text("user", "", "The user of the context."),
];
const CREDENTIAL_FLAGS: &[Flag] = &[
    Flag::text("client-certificate", "", "A file with the client's certificate."),
    Flag::text("client-key", "", "A file with the client's key."),
    Flag::text("password", "", "Password for basic authentication."),
    Flag::text("token", "", "Bearer token."),
    Flag::text("username", "", "Username for basic authentication."),
    Flag::switch("embed-certs", "Keep certificate and key in the file."),
    Flag::text("auth-provider", "", "An authentication provider, which no client knows any more."),
    Flag::array("auth-provider-arg", "Its arguments."),
    Flag::text("exec-command", "", "A program that gives credentials."),
    Flag::text("exec-api-version", "", "The version of its answers."),
    Flag::array("exec-arg", "Its arguments."),
    Flag::array("exec-env", "Its environment, as key=value."),
    Flag::text("exec-interactive-mode", "", "Never, IfAvailable or Always."),
    Flag::switch("exec-provide-cluster-info", "Tell it about the cluster."),
];
const VIEW_FLAGS: &[Flag] = &[
    Flag::switch("flatten", "Keep certificates themselves in the output."),
    Flag::on("merge", "Merge all files."),
    Flag::switch("minify", "Only what the current context uses."),
    Flag::switch("raw", "Show bytes and secrets."),
    Flag::text("output", "yaml", "Output format.").short('o'),
    Flag::text("template", "", "The template of -o go-template and -o jsonpath."),
    Flag::on("allow-missing-template-keys", "Ignore what a template names and an object lacks."),
    Flag::switch("show-managed-fields", "Not used: there are none here."),
];

fn list(config: &Value, key: &str) -> Vec<Value> {
    config[key].as_array().cloned().unwrap_or_default()
}

fn one(session: &Session) -> Result<&str> {
    match session.arguments() {
        [name] => Ok(name),
        _ => unexpected(session),
    }
}

/// Upstream shows the help and what it did not expect.
fn unexpected<T>(session: &Session) -> Result<T> {
    terminal::out(&crate::help_of(&session.path));
    Err(Failure::message(format!("Unexpected args: [{}]", session.arguments().join(" "))))
}

/// The file that holds an entry, or the first one, where new entries go.
fn file_with(session: &Session, key: &str, name: &str) -> Result<(PathBuf, Value)> {
    let files = config::files(&session.flags);
    for file in &files {
        let config = config::read(file)?;
        if list(&config, key).iter().any(|entry| entry["name"] == name) {
            return Ok((file.clone(), config));
        }
    }
    let first = files.first().cloned().ok_or_else(|| Failure::message("there is no kubeconfig file"))?;
    Ok((first.clone(), config::read(&first)?))
}

/// The file that says which context is current.
fn file_with_current(session: &Session) -> Result<(PathBuf, Value)> {
    let files = config::files(&session.flags);
    for file in &files {
        let config = config::read(file)?;
        if config["current-context"].as_str().is_some_and(|current| !current.is_empty()) {
            return Ok((file.clone(), config));
        }
    }
    let first = files.first().cloned().ok_or_else(|| Failure::message("there is no kubeconfig file"))?;
    Ok((first.clone(), config::read(&first)?))
}

/// Changes one entry of a list, or adds it. Answers whether it was new.
fn change(
    session: &Session,
    key: &str,
    inner: &str,
    name: &str,
    edit: impl FnOnce(&mut Value) -> Result<()>,
) -> Result<bool> {
    let (file, mut config) = file_with(session, key, name)?;
    let mut entries = list(&config, key);
    let at = entries.iter().position(|entry| entry["name"] == name);
    let at = match at {
        Some(at) => at,
        None => {
            entries.push(json!({"name": name, inner: {}}));
            entries.len() - 1
        }
    };
    let new = config::named(&config, key, name).is_none();
    if !entries[at][inner].is_object() {
        entries[at][inner] = json!({});
    }
    edit(&mut entries[at][inner])?;
    config[key] = entries.into();
    config::write(&file, &config)?;
    Ok(new)
}
