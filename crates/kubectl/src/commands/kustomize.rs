//! `kubectl kustomize`: builds a kustomization and prints it.

use std::path::Path;

use crate::command::Command;
use crate::failure::{Failure, Result};
use crate::flags::Flag;
use crate::session::Session;
use crate::{kustomize, output, terminal};

pub(super) static COMMAND: Command = Command {
    name: "kustomize",
    group: super::ADVANCED,
    short: "Build a kustomization target from a directory.",
    usage: "DIR [options]",
    flags: &[FLAGS],
    run: Some(|session| Box::pin(run(session))),
    ..Command::EMPTY
};

const FLAGS: &[Flag] = &[
    Flag::text("output", "", "A file to write to.").short('o'),
    Flag::switch("as-current-user", "Not used: no functions are run."),
    Flag::switch("enable-alpha-plugins", "Not supported."),
    Flag::switch("enable-helm", "Let helm render charts."),
    Flag::array("env", "Not used: no functions are run.").short('e'),
    Flag::array("helm-api-versions", "Not used."),
    Flag::text("helm-command", "helm", "The program that renders charts."),
    Flag::switch("helm-debug", "Not used."),
    Flag::text("helm-kube-version", "", "Not used."),
    Flag::array("mount", "Not used: no functions are run."),
    Flag::switch("network", "Not used: no functions are run."),
    Flag::text("network-name", "bridge", "Not used: no functions are run."),
    Flag::text("load-restrictor", "LoadRestrictionsRootOnly", "Whether files outside of the folder may be read."),
];

async fn run(session: &Session) -> Result<()> {
    let folder = match session.arguments() {
        [] => ".",
        [folder] => folder,
        _ => return Err(Failure::message("specify one path to kustomization.yaml")),
    };
    let flags = &session.flags;
    let helm = flags.on("enable-helm").then(|| flags.text("helm-command").to_string());
    let objects = kustomize::build_with(Path::new(folder), helm)?;
    let texts: Vec<String> = objects.iter().map(output::yaml::text).collect();
    let text = texts.join("---\n");
    match flags.text("output") {
        "" => terminal::out(&text),
        file => std::fs::write(file, text)?,
    }
    Ok(())
}
