//! `kubectl edit`: objects in an editor, and back. What the server refuses is shown again with its reasons.

mod file;

use serde_json::{Value, json};

pub(super) use self::file::edit_text;
use self::file::{File, HEADER, Reason};

use super::change::{VALIDATE, validation, with_last_applied};
use crate::command::Command;
use crate::failure::{Failure, Result};
use crate::flags::Flag;
use crate::output::{self, Format, json as go_json, yaml};
use crate::resource::Info;
use crate::resource::select::{FILES, Query};
use crate::session::{Call, Session};
use crate::terminal;

pub(super) static COMMAND: Command = Command {
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
    Edit { session, as_json: matches!(format, Format::Json), format, infos }.run().await
}

/// One edit: several objects are one list in one file.
struct Edit<'a> {
    session: &'a Session,
    format: Format,
    as_json: bool,
    infos: Vec<Info>,
}

/// What became of the objects of a file.
#[derive(Default)]
struct Outcome {
    /// Why the file is to be opened again.
    reasons: Vec<Reason>,
    not_found: bool,
    failed: bool,
}

/// What became of one opening of the file.
enum Attempt {
    Done,
    /// The file is opened again, for these reasons.
    Again(Vec<Reason>),
    /// It did not work; the file stays, and the sentence says where.
    Kept(fn(&str) -> String),
}

impl Edit<'_> {
    async fn run(&self) -> Result<()> {
        let original = self.shown();
        let mut shown = original.clone();
        let mut reasons: Vec<Reason> = Vec::new();
        let mut last: Option<File> = None;
        loop {
            let file = match file::in_editor(&self.text(&shown, &reasons), if self.as_json { "json" } else { "yaml" }) {
                Ok(file) => file,
                Err(failure) => return Err(kept(last, failure)),
            };
            if last.as_ref().is_some_and(|last| file::same(&last.text, &file.text)) {
                let given_up = Failure::message("Edit cancelled, no valid changes were saved.");
                return Err(kept(Some(file), given_up));
            }
            shown = file::without_comments(&file.text);
            match self.attempt(&original, &file).await {
                Ok(Attempt::Done) => return Ok(()),
                Ok(Attempt::Again(why)) => {
                    reasons = why;
                    last = Some(file);
                }
                Ok(Attempt::Kept(sentence)) => {
                    terminal::errln(&sentence(&file.keep()?));
                    return crate::exit(1);
                }
                Err(failure) => return Err(kept(Some(file), failure)),
            }
        }
    }

    /// What the editor opens: why it opens again, and the objects.
    fn text(&self, shown: &str, reasons: &[Reason]) -> String {
        // JSON has no comments.
        let header = if self.as_json { String::new() } else { file::header(HEADER, reasons) };
        let text = format!("{header}{shown}");
        if self.session.flags.on("windows-line-endings") { text.replace('\n', "\r\n") } else { text }
    }

    /// Saves what was written.
    async fn attempt(&self, original: &str, file: &File) -> Result<Attempt> {
        if let Err(why) = file::check(&file.text) {
            let resource = self.infos[0].mapping.resource();
            let cause = format!("<nil>: Invalid value: \"The edited file failed validation\": {why}");
            terminal::errln(&format!("error: {resource} {:?} is invalid", self.infos[0].name));
            return Ok(Attempt::Again(vec![Reason::invalid(&resource, &self.infos[0].name, vec![cause])]));
        }
        if file::same(original, &file.text) {
            terminal::errln("Edit cancelled, no changes made.");
            return Ok(Attempt::Done);
        }
        let edited = match self.session.read_objects("edited-file", file.text.as_bytes()).await {
            Ok(edited) => edited,
            Err(failure) => {
                let text = format!("The edited file had a syntax error: {}", failure.text());
                return Ok(Attempt::Again(vec![Reason::of(text)]));
            }
        };
        let outcome = self.save_all(&edited).await?;
        Ok(if outcome.failed {
            Attempt::Kept(|path| format!("You can run `kubectl replace -f {path}` to try this update again."))
        } else if outcome.not_found {
            Attempt::Kept(|path| format!("The edits you made on deleted resources have been saved to {path:?}"))
        } else if outcome.reasons.is_empty() {
            Attempt::Done
        } else {
            Attempt::Again(outcome.reasons)
        })
    }

    /// What stands in the editor at first.
    fn shown(&self) -> String {
        let mut objects: Vec<Value> = self.infos.iter().map(|info| info.object.clone()).collect();
        objects.iter_mut().for_each(output::without_managed_fields);
        let object = match objects.len() {
            1 => objects.remove(0),
            _ => json!({"apiVersion": "v1", "items": objects, "kind": "List", "metadata": {}}),
        };
        if self.as_json { format!("{}\n", go_json::pretty(&object)) } else { yaml::text(&object) }
    }

    async fn save_all(&self, edited: &[Info]) -> Result<Outcome> {
        let namespace = self.session.namespace()?;
        if let Some(other) = edited.iter().find(|info| info.mapping.namespaced && info.namespace != namespace) {
            return Err(Failure::message(format!(
                "the namespace from the provided object {0:?} does not match the namespace {namespace:?}. You must pass '--namespace={0}' to perform this operation.",
                other.namespace
            )));
        }
        let mut outcome = Outcome::default();
        for info in edited {
            let uid = &info.object["metadata"]["uid"];
            let Some(original) = self.infos.iter().find(|original| original.object["metadata"]["uid"] == *uid) else {
                let shown = output::go_syntax(&info.object);
                let text = format!("no original object found for &unstructured.Unstructured{{Object:{shown}}}");
                return Err(Failure::message(text));
            };
            self.save(original, info, &mut outcome).await?;
        }
        Ok(outcome)
    }

    async fn save(&self, original: &Info, info: &Info, outcome: &mut Outcome) -> Result<()> {
        let flags = &self.session.flags;
        // Who manages which field was not shown, and was not changed.
        let mut edited = info.object.clone();
        let managed = &original.object["metadata"]["managedFields"];
        if managed.is_array() {
            edited["metadata"]["managedFields"] = managed.clone();
        }
        if flags.on("save-config") {
            edited = with_last_applied(&edited);
        }
        if edited == original.object {
            return self.tell(info, &edited, "skipped");
        }
        let name =
            |object: &Value| (object["metadata"]["name"].clone(), object["kind"].clone(), object["apiVersion"].clone());
        if name(&edited) != name(&original.object) {
            return Err(Failure::message("At least one of apiVersion, kind and name was changed"));
        }
        let (patch, kind) = super::apply::patch(original, &original.object, &edited, &original.object);
        let mut path = original.path();
        if !flags.text("subresource").is_empty() {
            path = format!("{path}/{}", flags.text("subresource"));
        }
        if flags.on("output-patch") {
            terminal::outln(&format!("Patch: {}", go_json::compact(&patch)));
        }
        let call = Call::patch(path, kind, &patch).with("fieldManager", flags.text("field-manager"));
        let failure = match self.session.send(&call.with("fieldValidation", validation(flags.text("validate")))).await {
            Ok(saved) => return self.tell(info, &saved, "edited"),
            Err(failure) => failure,
        };
        let (resource, name) = (info.mapping.resource(), &info.name);
        match failure.reason() {
            "Invalid" => {
                outcome.reasons.push(Reason::invalid(&resource, name, failure.causes()));
                terminal::errln(&format!("error: {resource} {name:?} is invalid"));
            }
            "NotFound" => {
                outcome.not_found = true;
                terminal::errln(&format!("error: {resource} {name:?} could not be found on the server"));
            }
            _ => {
                outcome.failed = true;
                terminal::errln(&format!("error: {resource} {name:?} could not be patched: {}", failure.text()));
            }
        }
        Ok(())
    }

    fn tell(&self, info: &Info, object: &Value, operation: &str) -> Result<()> {
        match &self.format {
            Format::Human { .. } => terminal::outln(&format!("{} {operation}", info.shown())),
            Format::Name => terminal::outln(&info.shown()),
            format => {
                let mut object = object.clone();
                output::without_managed_fields(&mut object);
                terminal::out(&format.text(&object)?);
            }
        }
        Ok(())
    }
}

/// What was written is not lost with the failure.
fn kept(file: Option<File>, failure: Failure) -> Failure {
    match file.map(File::keep) {
        Some(Ok(path)) => terminal::errln(&format!("A copy of your changes has been stored to {path:?}")),
        Some(Err(lost)) => return lost,
        None => {}
    }
    failure
}
