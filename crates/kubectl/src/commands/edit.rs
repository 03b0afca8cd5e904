//! `kubectl edit`: the object in an editor, and back.

use std::io::Write;

use serde_json::Value;

use super::change::VALIDATE;
use crate::command::Command;
use crate::failure::{Failure, Result};
use crate::flags::Flag;
use crate::output::{self, Format, json};
use crate::resource::Info;
use crate::resource::select::{FILES, Query};
use crate::session::{Call, Session};
use crate::terminal;

pub static COMMAND: Command = Command {
    name: "edit",
    group: super::INTERMEDIATE,
    short: "Edit a resource on the server.",
    examples: "kubectl edit svc/web\nKUBE_EDITOR=nano kubectl edit deployment/web",
    usage: "(RESOURCE/NAME | -f FILENAME) [options]",
    flags: &[FLAGS, FILES, VALIDATE, output::FLAGS],
    run: Some(|session| Box::pin(run(session))),
    ..Command::EMPTY
};

const FLAGS: &[Flag] = &[
    Flag::text("field-manager", "kubectl-edit", "Who owns the fields that are set."),
    Flag::switch("output-patch", "Show the patch that was sent."),
    Flag::switch("save-config", "Keep the object in an annotation, for a later apply."),
    Flag::text("subresource", "", "A subresource to edit: status."),
    Flag::switch("windows-line-endings", "Lines end as on Windows."),
];

const HEADER: &str = "# Please edit the object below. Lines beginning with a '#' will be ignored,\n\
# and an empty file will abort the edit. If an error occurs while saving this file will be\n\
# reopened with the relevant failures.\n#\n";

async fn run(session: &Session) -> Result<()> {
    let query = Query { chunk: 500, ..Query::from(session) };
    if query.arguments.is_empty() && !query.has_files() {
        return Err(Failure::message(super::NO_RESOURCES));
    }
    let format = Format::from(&session.flags, false)?;
    let (infos, failures) = session.infos(&query).await?;
    crate::failure::all(failures)?;
    if infos.is_empty() {
        return Err(Failure::message("edit cancelled, no objects found"));
    }
    for mut info in infos {
        if !session.flags.on("show-managed-fields") {
            output::without_managed_fields(&mut info.object);
        }
        edit_one(session, &info, &format).await?;
    }
    Ok(())
}

async fn edit_one(session: &Session, info: &Info, format: &Format) -> Result<()> {
    let as_json = matches!(format, Format::Json);
    let original =
        if as_json { format!("{}\n", json::pretty(&info.object)) } else { crate::output::yaml::text(&info.object) };
    // JSON has no comments.
    let first = if as_json { "" } else { HEADER };
    let mut header = first.to_string();
    let mut shown = original.clone();
    loop {
        let edited = in_editor(&format!("{header}{shown}"), if as_json { "json" } else { "yaml" })?;
        let body: String = edited.split_inclusive('\n').filter(|line| !line.starts_with('#')).collect();
        if body.trim().is_empty() {
            terminal::errln("Edit cancelled, saved file was empty.");
            return Ok(());
        }
        if body == original {
            terminal::errln("Edit cancelled, no changes made.");
            return Ok(());
        }
        // The same text as before the failure: the user has given up.
        if header != first && body == shown {
            let kept = keep(&edited)?;
            terminal::errln(&format!("A copy of your changes has been stored to {kept:?}"));
            return Err(Failure::message("Edit cancelled, no valid changes were saved."));
        }
        let failed = match machinery::codec::decode_yaml(body.as_bytes()) {
            Err(error) => format!("The edited file had a syntax error: {error}"),
            Ok(decoded) if decoded.value == info.object => {
                terminal::errln("Edit cancelled, no changes made.");
                return Ok(());
            }
            Ok(decoded) => match save(session, info, &decoded.value).await {
                Ok(saved) => {
                    if format.is_human() {
                        terminal::outln(&format!("{} edited", info.shown()));
                    } else if matches!(format, Format::Name) {
                        terminal::outln(&info.shown());
                    } else {
                        let mut saved = saved;
                        output::without_managed_fields(&mut saved);
                        terminal::out(&format.text(&saved)?);
                    }
                    return Ok(());
                }
                Err(failure) => failure.report(&session.path).0.trim_end().to_string(),
            },
        };
        terminal::errln(&failed);
        header = format!("{first}{}#\n", failed.lines().map(|line| format!("# {line}\n")).collect::<String>());
        shown = body;
    }
}

async fn save(session: &Session, info: &Info, edited: &Value) -> Result<Value> {
    let name =
        |object: &Value| (object["metadata"]["name"].clone(), object["kind"].clone(), object["apiVersion"].clone());
    if name(edited) != name(&info.object) {
        return Err(Failure::message("At least one of apiVersion, kind and name was changed"));
    }
    let (patch, kind) = super::apply::patch(info, &info.object, edited, &info.object);
    let mut path = info.path();
    if !session.flags.text("subresource").is_empty() {
        path = format!("{path}/{}", session.flags.text("subresource"));
    }
    if session.flags.on("output-patch") {
        terminal::outln(&format!("Patch: {}", json::compact(&patch)));
    }
    let call = Call::patch(path, kind, &patch).with("fieldManager", session.flags.text("field-manager"));
    session.send(&call.with("fieldValidation", "Strict")).await
}

/// An object through the editor once, for other commands.
pub fn edit_text(object: &Value) -> Result<Value> {
    let edited = in_editor(&format!("{HEADER}{}", crate::output::yaml::text(object)), "yaml")?;
    machinery::codec::decode_yaml(edited.as_bytes())
        .map(|decoded| decoded.value)
        .map_err(|error| Failure::message(format!("The edited file had a syntax error: {error}")))
}

fn keep(text: &str) -> Result<String> {
    let (mut file, path) = tempfile::Builder::new()
        .prefix("kubectl-edit-")
        .suffix(".yaml")
        .tempfile()?
        .keep()
        .map_err(|error| Failure::from(error.error))?;
    file.write_all(text.as_bytes())?;
    Ok(path.display().to_string())
}

fn in_editor(text: &str, extension: &str) -> Result<String> {
    let mut file = tempfile::Builder::new().prefix("kubectl-edit-").suffix(&format!(".{extension}")).tempfile()?;
    file.write_all(text.as_bytes())?;
    let editor = ["KUBE_EDITOR", "EDITOR"]
        .iter()
        .find_map(|name| std::env::var(name).ok().filter(|editor| !editor.trim().is_empty()))
        .unwrap_or_else(|| "vi".into());
    // The editor may come with arguments, as in EDITOR="code --wait".
    let command = format!("{editor} {}", shell_quoted(&file.path().display().to_string()));
    let status = std::process::Command::new("sh")
        .args([
            "-c",
            &format!("command -v {} >/dev/null 2>&1 || exit 127; {command}", editor.split(' ').next().unwrap_or("vi")),
        ])
        .status()?;
    if !status.success() {
        let code = status.code().unwrap_or(1);
        return Err(Failure::message(match code {
            // What a shell says of a program that is not there.
            127 => format!("unable to launch the editor {editor:?}"),
            _ => format!("there was a problem with the editor {editor:?}"),
        }));
    }
    Ok(std::fs::read_to_string(file.path())?)
}

fn shell_quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}
