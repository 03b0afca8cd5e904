//! `set-cluster`, `set-context` and `set-credentials`.

use base64::Engine;
use serde_json::{Value, json};

use super::{change, one};
use crate::config;
use crate::failure::{Failure, Result};
use crate::flags::Parsed;
use crate::session::Session;
use crate::terminal;

pub(super) async fn set_cluster(session: &Session) -> Result<()> {
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

pub(super) async fn set_context(session: &Session) -> Result<()> {
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

pub(super) async fn set_credentials(session: &Session) -> Result<()> {
    let name = one(session)?;
    let flags = &session.flags;
    if flags.given("token") && (flags.given("username") || flags.given("password")) {
        return Err(Failure::message(
            "you cannot specify more than one authentication method at the same time: --token, --username/--password",
        ));
    }
    change(session, "users", "user", name, |user| {
        put_credentials(user, flags);
        put_file(session, user, "client-certificate", "client-certificate")?;
        put_file(session, user, "client-key", "client-key")?;
        put_exec(user, flags)?;
        Ok(())
    })?;
    terminal::outln(&format!("User {name:?} set."));
    Ok(())
}

fn put_credentials(user: &mut Value, flags: &Parsed) {
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
}

/// The program that gets credentials.
fn put_exec(user: &mut Value, flags: &Parsed) -> Result<()> {
    if flags.given("exec-command") {
        user["exec"]["command"] = flags.text("exec-command").into();
        user["exec"]["provideClusterInfo"] = flags.on("exec-provide-cluster-info").into();
    }
    for (flag, key) in [("exec-api-version", "apiVersion"), ("exec-interactive-mode", "interactiveMode")] {
        if flags.given(flag) {
            user["exec"][key] = flags.text(flag).into();
        }
    }
    if flags.given("exec-arg") {
        user["exec"]["args"] = flags.list("exec-arg").into();
    }
    if flags.given("exec-env") {
        let mut env = user["exec"]["env"].as_array().cloned().unwrap_or_default();
        for pair in flags.list("exec-env") {
            match (pair.split_once('='), pair.strip_suffix('-')) {
                (Some((name, value)), _) => put_variable(&mut env, name, value),
                (None, Some(name)) => env.retain(|known| known["name"] != name),
                (None, None) => return Err(Failure::message(format!("invalid exec-env format: {pair}"))),
            }
        }
        user["exec"]["env"] = env.into();
    }
    Ok(())
}

/// A variable that is there gets the new value.
fn put_variable(env: &mut Vec<Value>, name: &str, value: &str) {
    match env.iter_mut().find(|known| known["name"] == name) {
        Some(known) => known["value"] = value.into(),
        None => env.push(json!({"name": name, "value": value})),
    }
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::commands::config::COMMAND as CONFIG;

    fn flags(line: &str) -> Parsed {
        let line: Vec<String> = line.split_whitespace().map(str::to_string).collect();
        Parsed::parse(CONFIG.find("set-credentials").unwrap().flags, &line).unwrap()
    }

    #[test]
    fn one_way_to_authenticate_takes_the_place_of_the_other() {
        let mut user = json!({"username": "a", "password": "b"});
        put_credentials(&mut user, &flags("me --token=t"));
        assert_eq!(user, json!({"token": "t"}));
        put_credentials(&mut user, &flags("me --username=c"));
        assert_eq!(user, json!({"username": "c"}));
    }

    #[test]
    fn providers_take_arguments() {
        let mut user = json!({});
        put_credentials(&mut user, &flags("me --auth-provider=oidc --auth-provider-arg=a=b"));
        put_credentials(&mut user, &flags("me --auth-provider-arg=c=d --auth-provider-arg=a-"));
        assert_eq!(user["auth-provider"], json!({"name": "oidc", "config": {"c": "d"}}));
    }

    #[test]
    fn programs_get_arguments_and_variables() {
        let mut user = json!({});
        put_exec(&mut user, &flags("me --exec-command=give --exec-api-version=v --exec-arg=x --exec-env=A=b")).unwrap();
        let exec = json!({"command": "give", "provideClusterInfo": false, "apiVersion": "v", "args": ["x"],
            "env": [{"name": "A", "value": "b"}]});
        assert_eq!(user["exec"], exec);
        let env = |user: &mut Value, line: &str| put_exec(user, &flags(line)).map_err(|failure| failure.text());
        env(&mut user, "me --exec-env=B=1 --exec-env=A=c").unwrap();
        assert_eq!(user["exec"]["env"], json!([{"name": "A", "value": "c"}, {"name": "B", "value": "1"}]));
        env(&mut user, "me --exec-env=A-").unwrap();
        assert_eq!(user["exec"]["env"], json!([{"name": "B", "value": "1"}]));
        assert_eq!(env(&mut user, "me --exec-env=A"), Err("invalid exec-env format: A".into()));
    }
}
