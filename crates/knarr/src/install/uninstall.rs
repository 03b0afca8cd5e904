//! `knarr uninstall`: the service, its pods and its files are gone; what knarr did not make stays.

use std::collections::BTreeSet;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use clap::Parser;

use super::place::Place;
use super::{remove, require_root, systemd, unit};

#[derive(clap::Args)]
pub struct Flags {
    /// Do not ask for confirmation.
    #[arg(long, short)]
    yes: bool,
    /// Keep the data directory: objects, images, volumes, certificates.
    #[arg(long)]
    keep_data: bool,
    /// Data directory of knarr, if no installed service names it.
    #[arg(long, env = "KNARR_DATA_DIR")]
    data_dir: Option<PathBuf>,
    /// Uninstall from this root file system. Nothing is stopped.
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
}

const ROLES: [&str; 2] = ["server", "agent"];

pub fn run(flags: Flags) -> anyhow::Result<()> {
    require_root("uninstall")?;
    let place = Place::new(&flags.root);
    let node = node(&place, &flags)?;
    // Those of this machine have nothing to do with another root.
    if place.is_here() {
        check_clusters(&flags, &node)?;
    }
    if !flags.yes {
        confirm(&flags, &node)?;
    }
    if place.is_here() {
        stop_services(&place)?;
        remove::node(&node)?;
    }
    remove_files(&place)?;
    if !flags.keep_data && place.is_here() {
        let removed = linux::tree::remove_tree(&node.data_dir);
        removed.context(
            "cannot remove the data directory, because something is mounted in it: unmount it and run this again",
        )?;
    }
    println!("knarr is uninstalled");
    if flags.keep_data {
        println!("{} is kept", node.data_dir.display());
    }
    Ok(())
}

/// What the installed service is told: only that says where its things are.
fn node(place: &Place, flags: &Flags) -> anyhow::Result<remove::Node> {
    let mut words = vec!["knarr".to_owned(), "agent".to_owned()];
    for role in ROLES {
        let Ok(text) = std::fs::read_to_string(place.unit(role)) else { continue };
        words = unit::command(&text).with_context(|| format!("{} has no command", place.unit(role).display()))?;
        let environment = std::fs::read_to_string(place.environment(role)).unwrap_or_default();
        let known = super::line::command_of(role);
        for (name, value) in unit::variables(&environment) {
            let argument = known.get_arguments().find(|one| one.get_env().is_some_and(|env| *env == *name));
            // A flag counts more than a variable, so these come first.
            if let Some(long) = argument.and_then(|one| one.get_long().filter(|_| one.get_action().takes_values())) {
                let given = words.iter().any(|word| word.starts_with(&format!("--{long}=")));
                if !given {
                    words.push(format!("--{long}={value}"));
                }
            }
        }
    }
    if let Some(folder) = &flags.data_dir {
        words.retain(|word| !word.starts_with("--data-dir="));
        words.push(format!("--data-dir={}", folder.display()));
    }
    let parsed = crate::Arguments::try_parse_from(&words);
    let parsed = parsed.map_err(|error| anyhow::anyhow!("cannot parse the command of the service: {error}"))?;
    match parsed.command {
        crate::Command::Server(flags) => Ok(flags.installed()),
        crate::Command::Agent(flags) => Ok(flags.installed()),
        _ => bail!("the command of the service is neither server nor agent"),
    }
}

/// Their machines run from the data folder.
fn check_clusters(flags: &Flags, node: &remove::Node) -> anyhow::Result<()> {
    let folder = node.data_dir.join("clusters");
    let names: Vec<String> = std::fs::read_dir(&folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    ensure!(
        flags.keep_data || names.is_empty(),
        "clusters exist on this machine ({}): delete them with `knarr cluster delete NAME`, or set --keep-data",
        names.join(", ")
    );
    Ok(())
}

fn confirm(flags: &Flags, node: &remove::Node) -> anyhow::Result<()> {
    ensure!(
        std::io::stdin().is_terminal(),
        "this stops all pods of this machine: set --yes to confirm without a terminal"
    );
    let data = if flags.keep_data {
        format!("{} is kept", node.data_dir.display())
    } else {
        format!("{} with all objects and volumes is removed", node.data_dir.display())
    };
    print!("All pods of this machine end; {data}. Go on? [y/N] ");
    std::io::stdout().flush()?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    ensure!(matches!(answer.trim(), "y" | "Y" | "yes"), "cancelled; nothing was changed");
    Ok(())
}

fn stop_services(place: &Place) -> anyhow::Result<()> {
    if !systemd::is_running() {
        return Ok(());
    }
    for role in ROLES.into_iter().filter(|role| place.unit(role).exists()) {
        let name = unit::name(role);
        println!("stopping {name}");
        systemd::call(&["disable", &name])?;
        systemd::call(&["stop", &name])?;
    }
    Ok(())
}

fn remove_files(place: &Place) -> anyhow::Result<()> {
    let mut files = vec![place.program()];
    files.extend(Some(place.kubectl()).filter(|link| place.is_own_link(link)));
    for role in ROLES {
        files.extend([place.unit(role), place.environment(role)]);
    }
    let texts: Vec<PathBuf> = crate::texts::all()?.into_iter().map(|(file, _)| file).collect();
    files.extend(texts.iter().map(|file| place.share().join(file)));
    for file in files {
        match std::fs::remove_file(&file) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("remove {}", file.display()));
            }
            _ => {}
        }
    }
    for folder in folders_above(&texts) {
        // One that is not empty is another's.
        let _ = std::fs::remove_dir(place.share().join(folder));
    }
    // Settings that somebody wrote stay.
    let _ = std::fs::remove_dir(place.settings());
    if place.is_here() && systemd::is_running() {
        systemd::call(&["daemon-reload"])?;
    }
    Ok(())
}

/// The folders that were made for files, each after those inside of it. `man` is there on every machine, also empty.
fn folders_above(files: &[PathBuf]) -> Vec<&Path> {
    let parents = files.iter().flat_map(|file| file.ancestors().skip(1));
    let own: BTreeSet<&Path> = parents.filter(|folder| !["", "man"].map(Path::new).contains(folder)).collect();
    own.into_iter().rev().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_texts_go_with_them() {
        let files = ["zsh/site-functions/_knarr", "man/man1/knarr.1", "man/man1/knarr-server.1"].map(PathBuf::from);
        let folders = folders_above(&files);
        assert_eq!(folders, ["zsh/site-functions", "zsh", "man/man1"].map(Path::new));
    }
}
