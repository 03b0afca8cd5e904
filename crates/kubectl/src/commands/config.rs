//! `kubectl config`: reading and changing kubeconfig files.

use std::path::PathBuf;

use base64::Engine;
use serde_json::{Map, Value, json};

use crate::command::Command;
use crate::config;
use crate::failure::{Failure, Result};
use crate::flags::Flag;
use crate::output::columns::Columns;
use crate::output::{Format, yaml};
use crate::session::Session;
use crate::terminal;

macro_rules! command {
    ($name:ident, $word:literal, $aliases:expr, $short:literal, $usage:literal, $flags:expr, $run:ident) => {
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

pub static COMMAND: Command = Command {
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

command!(CURRENT_CONTEXT, "current-context", &[], "Display the current context.", "[options]", &[], current_context);
command!(
    DELETE_CLUSTER,
    "delete-cluster",
    &[],
    "Delete the specified cluster from the kubeconfig.",
    "NAME [options]",
    &[],
    delete_cluster
);
command!(
    DELETE_CONTEXT,
    "delete-context",
    &[],
    "Delete the specified context from the kubeconfig.",
    "NAME [options]",
    &[],
    delete_context
);
command!(
    DELETE_USER,
    "delete-user",
    &[],
    "Delete the specified user from the kubeconfig.",
    "NAME [options]",
    &[],
    delete_user
);
command!(
    GET_CLUSTERS,
    "get-clusters",
    &[],
    "Display clusters defined in the kubeconfig.",
    "[options]",
    &[],
    get_clusters
);
command!(
    GET_CONTEXTS,
    "get-contexts",
    &[],
    "Describe one or many contexts.",
    "[(-o|--output=)name] [options]",
    &[GET_FLAGS],
    get_contexts
);
command!(GET_USERS, "get-users", &[], "Display users defined in the kubeconfig.", "[options]", &[], get_users);
command!(
    RENAME_CONTEXT,
    "rename-context",
    &[],
    "Rename a context from the kubeconfig file.",
    "CONTEXT_NAME NEW_NAME [options]",
    &[],
    rename_context
);
command!(
    SET,
    "set",
    &[],
    "Set an individual value in a kubeconfig file.",
    "PROPERTY_NAME PROPERTY_VALUE [options]",
    &[SET_FLAGS],
    set
);
command!(
    SET_CLUSTER,
    "set-cluster",
    &[],
    "Set a cluster entry in kubeconfig.",
    "NAME [--server=server] [--certificate-authority=path] [options]",
    &[CLUSTER_FLAGS],
    set_cluster
);
command!(
    SET_CONTEXT,
    "set-context",
    &[],
    "Set a context entry in kubeconfig.",
    "[NAME | --current] [--cluster=cluster_nickname] [--user=user_nickname] [--namespace=namespace] [options]",
    &[CONTEXT_FLAGS],
    set_context
);
command!(
    SET_CREDENTIALS,
    "set-credentials",
    &[],
    "Set a user entry in kubeconfig.",
    "NAME [--client-certificate=path] [--token=bearer_token] [options]",
    &[CREDENTIAL_FLAGS],
    set_credentials
);
command!(UNSET, "unset", &[], "Unset an individual value in a kubeconfig file.", "PROPERTY_NAME [options]", &[], unset);
command!(
    USE_CONTEXT,
    "use-context",
    &["use"],
    "Set the current-context in a kubeconfig file.",
    "CONTEXT_NAME [options]",
    &[],
    use_context
);
command!(VIEW, "view", &[], "Display merged kubeconfig settings.", "[options]", &[VIEW_FLAGS], view);

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
    Flag::text("namespace", "", "The namespace of the context."),
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

async fn current_context(session: &Session) -> Result<()> {
    let config = config::merged(&session.flags)?;
    match config["current-context"].as_str().filter(|current| !current.is_empty()) {
        Some(current) => terminal::outln(current),
        None => return Err(Failure::message("current-context is not set")),
    }
    Ok(())
}

async fn delete_entry(session: &Session, key: &str, word: &str) -> Result<()> {
    if session.arguments().is_empty() {
        terminal::out(&crate::help_of(&session.path));
        return Ok(());
    }
    let name = one(session)?;
    let (file, mut config) = file_with(session, key, name)?;
    let first = config::files(&session.flags).first().cloned().unwrap_or_else(|| file.clone());
    let merged = config::merged(&session.flags)?;
    let mut entries = list(&config, key);
    let before = entries.len();
    entries.retain(|entry| entry["name"] != name);
    if entries.len() == before {
        return Err(Failure::message(format!("cannot delete {word} {name}, not in {}", first.display())));
    }
    if word == "context" && merged["current-context"] == name {
        terminal::errln(
            "warning: this removed your active context, use \"kubectl config use-context\" to select a different one",
        );
    }
    config[key] = entries.into();
    config::write(&file, &config)?;
    // Upstream names the first file, wherever the entry stood.
    terminal::outln(&format!("deleted {word} {name} from {}", first.display()));
    Ok(())
}

async fn delete_cluster(session: &Session) -> Result<()> {
    delete_entry(session, "clusters", "cluster").await
}

async fn delete_context(session: &Session) -> Result<()> {
    delete_entry(session, "contexts", "context").await
}

async fn delete_user(session: &Session) -> Result<()> {
    delete_entry(session, "users", "user").await
}

fn names(session: &Session, key: &str) -> Result<Vec<String>> {
    let config = config::merged(&session.flags)?;
    let mut names: Vec<String> =
        list(&config, key).iter().filter_map(|entry| entry["name"].as_str().map(str::to_string)).collect();
    names.sort();
    Ok(names)
}

async fn get_clusters(session: &Session) -> Result<()> {
    terminal::outln("NAME");
    names(session, "clusters")?.iter().for_each(|name| terminal::outln(name));
    Ok(())
}

async fn get_users(session: &Session) -> Result<()> {
    terminal::outln("NAME");
    names(session, "users")?.iter().for_each(|name| terminal::outln(name));
    Ok(())
}

async fn get_contexts(session: &Session) -> Result<()> {
    let config = config::merged(&session.flags)?;
    let known = names(session, "contexts")?;
    let wanted: Vec<String> = if session.arguments().is_empty() { known.clone() } else { session.arguments().to_vec() };
    let output = session.flags.text("output");
    if !["", "name", "wide"].contains(&output) {
        return Err(Failure::message(format!(
            "--output {output} is not available in kubectl config get-contexts; resetting to default output format"
        )));
    }
    let headers = !session.flags.on("no-headers") && output != "name";
    let mut text = if headers { "CURRENT\tNAME\tCLUSTER\tAUTHINFO\tNAMESPACE\n".to_string() } else { String::new() };
    let mut missing = Vec::new();
    for name in &wanted {
        let Some(entry) = config::named(&config, "contexts", name) else {
            missing.push(Failure::message(format!("context {name} not found")));
            continue;
        };
        if output == "name" {
            text += &format!("{name}\n");
            continue;
        }
        let cell = |key: &str| entry["context"][key].as_str().unwrap_or_default();
        let current = if config["current-context"] == name.as_str() { "*" } else { "" };
        text += &format!("{current}\t{name}\t{}\t{}\t{}\n", cell("cluster"), cell("user"), cell("namespace"));
    }
    terminal::out(&Columns::table().align(&text));
    crate::failure::all(missing)
}

async fn rename_context(session: &Session) -> Result<()> {
    let [old, new] = session.arguments() else {
        return unexpected(session);
    };
    let (file, mut config) = file_with(session, "contexts", old)?;
    let mut entries = list(&config, "contexts");
    if entries.iter().any(|entry| entry["name"] == new.as_str()) {
        return Err(Failure::message(format!(
            "cannot rename the context {old:?}, the context {new:?} already exists in {}",
            file.display()
        )));
    }
    let Some(entry) = entries.iter_mut().find(|entry| entry["name"] == old.as_str()) else {
        return Err(Failure::message(format!("cannot rename the context {old:?}, it's not in {}", file.display())));
    };
    entry["name"] = new.clone().into();
    config["contexts"] = entries.into();
    if config["current-context"] == old.as_str() {
        config["current-context"] = new.clone().into();
    }
    config::write(&file, &config)?;
    terminal::outln(&format!("Context {old:?} renamed to {new:?}."));
    Ok(())
}

async fn use_context(session: &Session) -> Result<()> {
    let name = one(session)?;
    let merged = config::merged(&session.flags)?;
    if config::named(&merged, "contexts", name).is_none() {
        return Err(Failure::message(format!("no context exists with the name: {name:?}")));
    }
    let (file, mut config) = file_with_current(session)?;
    config["current-context"] = name.into();
    config::write(&file, &config)?;
    terminal::outln(&format!("Switched to context {name:?}."));
    Ok(())
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

fn put(value: &mut Value, key: &str, text: &str) {
    match text {
        "" => _ = value.as_object_mut().map(|map| map.remove(key)),
        text => value[key] = text.into(),
    }
}

/// A path, or the file's own content where that is asked for.
fn put_file(session: &Session, value: &mut Value, key: &str, flag: &str) -> Result<()> {
    let flags = &session.flags;
    if !flags.given(flag) {
        return Ok(());
    }
    let path = flags.text(flag);
    let data = format!("{key}-data");
    if flags.on("embed-certs") {
        if let Err(error) = std::fs::metadata(path) {
            let error = crate::failure::go_io_error(&error);
            return Err(Failure::message(format!("could not stat {flag} file {path}: stat {path}: {error}")));
        }
        let bytes = std::fs::read(path).map_err(|error| {
            Failure::message(format!(
                "could not read {flag} data from {path}: open {path}: {}",
                crate::failure::go_io_error(&error)
            ))
        })?;
        value[&data] = base64::engine::general_purpose::STANDARD.encode(bytes).into();
        put(value, key, "");
    } else {
        let absolute = std::path::absolute(path).map(|path| path.display().to_string()).unwrap_or_else(|_| path.into());
        // Upstream makes only the authority's path absolute.
        let kept = if key.starts_with("client-") { path } else { &absolute };
        put(value, key, if path.is_empty() { "" } else { kept });
        put(value, &data, "");
    }
    Ok(())
}

async fn set_cluster(session: &Session) -> Result<()> {
    let name = one(session)?;
    let flags = &session.flags;
    let authority = flags.text("certificate-authority");
    if flags.on("embed-certs") && authority.is_empty() {
        return Err(Failure::message("you must specify a --certificate-authority to embed"));
    }
    if flags.on("insecure-skip-tls-verify") && !authority.is_empty() {
        return Err(Failure::message("you cannot specify a certificate authority and insecure mode at the same time"));
    }
    change(session, "clusters", "cluster", name, |cluster| {
        for key in ["server", "tls-server-name", "proxy-url"] {
            if flags.given(key) {
                put(cluster, key, flags.text(key));
            }
        }
        if flags.given("insecure-skip-tls-verify") {
            cluster["insecure-skip-tls-verify"] = flags.on("insecure-skip-tls-verify").into();
            if flags.on("insecure-skip-tls-verify") {
                put(cluster, "certificate-authority", "");
                put(cluster, "certificate-authority-data", "");
            }
        }
        put_file(session, cluster, "certificate-authority", "certificate-authority")
    })?;
    terminal::outln(&format!("Cluster {name:?} set."));
    Ok(())
}

async fn set_context(session: &Session) -> Result<()> {
    let flags = &session.flags;
    let merged = config::merged(flags)?;
    let current = merged["current-context"].as_str().unwrap_or_default().to_string();
    let name = match (session.arguments(), flags.on("current")) {
        ([name], false) => name.clone(),
        ([], true) if current.is_empty() => return Err(Failure::message("no current context is set")),
        ([], true) => current,
        ([_, ..], true) => return Err(Failure::message("you cannot specify both a context name and --current")),
        _ => return Err(Failure::message("you must specify a non-empty context name or --current")),
    };
    let new = change(session, "contexts", "context", &name, |context| {
        for key in ["cluster", "user", "namespace"] {
            if flags.given(key) {
                put(context, key, flags.text(key));
            } else if context[key].is_null() && key != "namespace" {
                context[key] = "".into();
            }
        }
        Ok(())
    })?;
    terminal::outln(&format!("Context {name:?} {}.", if new { "created" } else { "modified" }));
    Ok(())
}

async fn set_credentials(session: &Session) -> Result<()> {
    let name = one(session)?;
    let flags = &session.flags;
    if flags.given("token") && (flags.given("username") || flags.given("password")) {
        return Err(Failure::message(
            "you cannot specify more than one authentication method at the same time: --token, --username/--password",
        ));
    }
    change(session, "users", "user", name, |user| {
        for key in ["token", "username", "password"] {
            if flags.given(key) {
                put(user, key, flags.text(key));
            }
        }
        // One way to say who one is takes the place of the other.
        if flags.given("token") {
            put(user, "username", "");
            put(user, "password", "");
        } else if flags.given("username") || flags.given("password") {
            put(user, "token", "");
        }
        if flags.given("auth-provider") {
            user["auth-provider"] = json!({"name": flags.text("auth-provider"), "config": {}});
        }
        for argument in flags.list("auth-provider-arg") {
            match argument.split_once('=') {
                Some((key, value)) => user["auth-provider"]["config"][key] = value.into(),
                None => {
                    let key = argument.trim_end_matches('-');
                    user["auth-provider"]["config"].as_object_mut().map(|config| config.remove(key));
                }
            }
        }
        put_file(session, user, "client-certificate", "client-certificate")?;
        put_file(session, user, "client-key", "client-key")?;
        if flags.given("exec-command") {
            user["exec"]["command"] = flags.text("exec-command").into();
            user["exec"]["provideClusterInfo"] = flags.on("exec-provide-cluster-info").into();
        }
        if flags.given("exec-api-version") {
            user["exec"]["apiVersion"] = flags.text("exec-api-version").into();
        }
        if flags.given("exec-interactive-mode") {
            user["exec"]["interactiveMode"] = flags.text("exec-interactive-mode").into();
        }
        if flags.given("exec-arg") {
            user["exec"]["args"] = flags.list("exec-arg").into();
        }
        if flags.given("exec-env") {
            let pairs = flags.list("exec-env");
            let env: Vec<Value> = pairs
                .iter()
                .filter_map(|pair| pair.split_once('='))
                .map(|(name, value)| json!({"name": name, "value": value}))
                .collect();
            user["exec"]["env"] = env.into();
        }
        Ok(())
    })?;
    terminal::outln(&format!("User {name:?} set."));
    Ok(())
}

/// `users.me.token`: the list's name, the entry's name, then fields. Names may hold dots, so the longest known one wins.
fn steps(config: &Value, property: &str) -> Result<Vec<String>> {
    let parts: Vec<&str> = property.split('.').collect();
    let Some(key) = parts.first().filter(|key| ["clusters", "contexts", "users"].contains(key)) else {
        return Ok(parts.iter().map(|part| part.to_string()).collect());
    };
    if parts.len() < 2 {
        return Err(Failure::message(format!("unable to parse {property} with value: entry name missing")));
    }
    for count in (2..=parts.len()).rev() {
        let name = parts[1..count].join(".");
        if config::named(config, key, &name).is_some() || count == 2 {
            let mut found = vec![key.to_string(), name];
            found.extend(parts[count..].iter().map(|part| part.to_string()));
            return Ok(found);
        }
    }
    Ok(Vec::new())
}

fn check_property(property: &str) -> Result<()> {
    let known = ["clusters", "contexts", "users", "current-context", "preferences"];
    match property.split('.').next() {
        Some(first) if known.contains(&first) => Ok(()),
        _ => Err(Failure::message(format!("unable to parse {property} after [] at api.Config"))),
    }
}

fn inner_key(list: &str) -> &'static str {
    match list {
        "clusters" => "cluster",
        "contexts" => "context",
        _ => "user",
    }
}

async fn set(session: &Session) -> Result<()> {
    let [property, value] = session.arguments() else { return unexpected(session) };
    check_property(property)?;
    if property.ends_with(".insecure-skip-tls-verify") && !["true", "false"].contains(&value.as_str()) {
        return Err(Failure::message(format!("strconv.ParseBool: parsing {value:?}: invalid syntax")));
    }
    let merged = config::merged(&session.flags)?;
    let steps = steps(&merged, property)?;
    let value: Value = match value.as_str() {
        value if session.flags.on("set-raw-bytes") => base64::engine::general_purpose::STANDARD.encode(value).into(),
        "true" => true.into(),
        "false" => false.into(),
        value => value.into(),
    };
    match &steps[..] {
        [list, name, fields @ ..]
            if ["clusters", "contexts", "users"].contains(&list.as_str()) && !fields.is_empty() =>
        {
            change(session, list, inner_key(list), name, |entry| {
                let mut place = entry;
                for field in fields {
                    place = &mut place[field.as_str()];
                }
                *place = value;
                Ok(())
            })?;
        }
        [key] if key == "current-context" => {
            let (file, mut config) = file_with_current(session)?;
            config["current-context"] = value;
            config::write(&file, &config)?;
        }
        _ => return Err(Failure::message(format!("unable to set {property}"))),
    }
    terminal::outln(&format!("Property {property:?} set."));
    Ok(())
}

async fn unset(session: &Session) -> Result<()> {
    let property = one(session)?;
    check_property(property)?;
    let merged = config::merged(&session.flags)?;
    let steps = steps(&merged, property)?;
    match &steps[..] {
        [list, name] if ["clusters", "contexts", "users"].contains(&list.as_str()) => {
            let (file, mut config) = file_with(session, list, name)?;
            let mut entries = self::list(&config, list);
            entries.retain(|entry| entry["name"] != name.as_str());
            config[list.as_str()] = entries.into();
            config::write(&file, &config)?;
        }
        [list, name, fields @ .., last] if ["clusters", "contexts", "users"].contains(&list.as_str()) => {
            change(session, list, inner_key(list), name, |entry| {
                let mut place = entry;
                for field in fields {
                    place = &mut place[field.as_str()];
                }
                place.as_object_mut().map(|map: &mut Map<String, Value>| map.remove(last));
                Ok(())
            })?;
        }
        [key] => {
            let (file, mut config) = file_with_current(session)?;
            config[key.as_str()] = if key == "current-context" { "".into() } else { Value::Null };
            config::write(&file, &config)?;
        }
        _ => return Err(Failure::message(format!("unable to unset {property}"))),
    }
    terminal::outln(&format!("Property {property:?} unset."));
    Ok(())
}

/// The order of Go's fields, in which upstream writes JSON.
const FIELD_ORDER: &[&str] = &[
    "kind",
    "apiVersion",
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

async fn view(session: &Session) -> Result<()> {
    let flags = &session.flags;
    if !session.arguments().is_empty() {
        return session.usage(format!("unexpected arguments: [{}]", session.arguments().join(" ")));
    }
    // A file that was named and is not there is empty here.
    let mut config = match config::merged(flags) {
        Err(_) if flags.given("kubeconfig") && !std::path::Path::new(flags.text("kubeconfig")).exists() => {
            json!({"apiVersion": "v1", "kind": "Config", "preferences": {}, "current-context": ""})
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
            self::list(config, list).into_iter().filter(|entry| entry["name"] == *name).collect::<Vec<_>>().into()
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
            let bytes = std::fs::read(&path)
                .map_err(|error| Failure::message(format!("open {path}: {}", crate::failure::go_io_error(&error))))?;
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
