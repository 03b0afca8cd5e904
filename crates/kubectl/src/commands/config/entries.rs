//! Clusters, contexts and users: listing, choosing, renaming and deleting them.

use super::{file_with, file_with_current, list, one, unexpected};
use crate::config;
use crate::failure::{Failure, Result};
use crate::output::columns::Columns;
use crate::session::Session;
use crate::terminal;

pub(super) async fn current_context(session: &Session) -> Result<()> {
    let config = config::merged(&session.flags)?;
    match config["current-context"].as_str().filter(|current| !current.is_empty()) {
        Some(current) => terminal::outln(current),
        None => return Err(Failure::message("current-context is not set")),
    }
    Ok(())
}

fn names(session: &Session, key: &str) -> Result<Vec<String>> {
    let config = config::merged(&session.flags)?;
    let mut names: Vec<String> =
        list(&config, key).iter().filter_map(|entry| entry["name"].as_str().map(str::to_string)).collect();
    names.sort();
    Ok(names)
}

pub(super) async fn get_clusters(session: &Session) -> Result<()> {
    terminal::outln("NAME");
    names(session, "clusters")?.iter().for_each(|name| terminal::outln(name));
    Ok(())
}

pub(super) async fn get_users(session: &Session) -> Result<()> {
    terminal::outln("NAME");
    names(session, "users")?.iter().for_each(|name| terminal::outln(name));
    Ok(())
}

pub(super) async fn get_contexts(session: &Session) -> Result<()> {
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

pub(super) async fn delete_cluster(session: &Session) -> Result<()> {
    delete_entry(session, "clusters", "cluster").await
}

pub(super) async fn delete_context(session: &Session) -> Result<()> {
    delete_entry(session, "contexts", "context").await
}

pub(super) async fn delete_user(session: &Session) -> Result<()> {
    delete_entry(session, "users", "user").await
}

pub(super) async fn rename_context(session: &Session) -> Result<()> {
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

pub(super) async fn use_context(session: &Session) -> Result<()> {
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
