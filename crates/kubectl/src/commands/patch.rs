//! `kubectl patch`.

use serde_json::Value;

use super::change::{Change, DRY_RUN, DryRun, JSON_PATCH, MERGE, STRATEGIC};
use crate::command::Command;
use crate::failure::{self, Failure, Result};
use crate::flags::Flag;
use crate::output::{self, Format};
use crate::resource::Info;
use crate::resource::select::{FILES, Query};
use crate::session::{Call, Session};

pub(super) static COMMAND: Command = Command {
    name: "patch",
    group: super::ADVANCED,
    short: "Update fields of a resource.",
    examples: "kubectl patch deployment web -p '{\"spec\":{\"replicas\":3}}'\nkubectl patch pod web --type=json -p='[{\"op\":\"remove\",\"path\":\"/metadata/labels/x\"}]'",
    usage: "(-f FILENAME | TYPE NAME) [-p PATCH|--patch-file FILE] [options]",
    flags: &[FLAGS, FILES, DRY_RUN, output::FLAGS],
    run: Some(|session| Box::pin(run(session))),
    ..Command::EMPTY
};

const FLAGS: &[Flag] = &[
    Flag::text("field-manager", "kubectl-patch", "Who owns the fields that are set."),
    Flag::switch("local", "Only work on the files, ask no server."),
    Flag::text("patch", "", "The patch, as JSON or YAML.").short('p'),
    Flag::text("patch-file", "", "A file with the patch."),
    Flag::text("subresource", "", "A subresource to patch: status, scale, resize."),
    Flag::text("type", "strategic", "json, merge or strategic."),
];

async fn run(session: &Session) -> Result<()> {
    let flags = &session.flags;
    let change = Change::from(session)?;
    let kind = match flags.text("type") {
        "json" => JSON_PATCH,
        "merge" => MERGE,
        "strategic" => STRATEGIC,
        other => return Err(Failure::message(format!("--type must be one of [json merge strategic], not {other:?}"))),
    };
    let text = match (flags.text("patch"), flags.text("patch-file")) {
        ("", "") => {
            return Err(Failure::message("must specify --patch or --patch-file containing the contents of the patch"));
        }
        (patch, file) if !patch.is_empty() && !file.is_empty() => {
            return Err(Failure::message("cannot specify --patch and --patch-file together"));
        }
        ("", file) => std::fs::read_to_string(file).map_err(|error| {
            Failure::message(format!("unable to read patch file: open {file}: {}", crate::failure::go_io_error(&error)))
        })?,
        (patch, _) => patch.to_string(),
    };
    if flags.on("local") && !session.arguments().is_empty() {
        return Err(Failure::message("cannot specify --local and server resources"));
    }
    let patch: Value = match machinery::codec::decode_yaml(text.as_bytes()) {
        Ok(decoded) => decoded.value,
        // What looks like JSON is the server's to judge.
        Err(_) if text.trim_start().starts_with('{') && !flags.on("local") => Value::Null,
        Err(error) => return Err(Failure::message(format!("unable to parse {text:?}: {error}"))),
    };
    let query = Query { chunk: 500, subresource: String::new(), ..Query::from(session) };
    if query.arguments.is_empty() && !query.has_files() {
        return Err(Failure::message(
            "one or more resources must be specified as <resource> <name> or <resource>/<name>",
        ));
    }
    let (infos, mut failures) =
        if flags.on("local") { session.local(&query).await? } else { named(session, &query).await? };
    for info in infos {
        if let Err(failure) = patch_one(&change, &info, kind, &patch, &text).await {
            failures.push(failure);
        }
    }
    failure::all(failures)
}

/// What is there, so that it can be said whether anything changed.
async fn named(session: &Session, query: &Query) -> Result<(Vec<Info>, Vec<Failure>)> {
    let (wanted, failures) = session.wanted(query).await?;
    if wanted.iter().any(|wanted| matches!(wanted, crate::resource::select::Wanted::List(_))) {
        return Err(Failure::message("resource(s) were provided, but no name was specified"));
    }
    let mut infos = Vec::new();
    let mut failures = failures;
    for wanted in wanted {
        match session.fetch(query, wanted).await {
            Ok(found) => infos.extend(found),
            Err(failure) => failures.push(failure),
        }
    }
    Ok((infos, failures))
}

async fn patch_one(change: &Change<'_>, info: &Info, kind: &'static str, patch: &Value, text: &str) -> Result<()> {
    let flags = &change.session.flags;
    let patched = if change.local() || flags.on("local") {
        let mut object = info.object.clone();
        let applied = match kind {
            JSON_PATCH => machinery::patch::json::apply(&mut object, patch).map_err(Failure::of),
            MERGE => machinery::patch::merge::apply(&mut object, patch).map_err(Failure::of),
            _ => match api::schema::type_named(&info.mapping.group, &info.mapping.version, &info.mapping.kind) {
                Some(ty) => machinery::patch::strategic::apply(ty, &mut object, patch).map_err(Failure::of),
                None => Err(Failure::message("strategic merge patch is not supported for this kind")),
            },
        };
        applied?;
        object
    } else {
        let mut path = info.path();
        if !flags.text("subresource").is_empty() {
            path = format!("{path}/{}", flags.text("subresource"));
        }
        let mut call = Call::patch(path, kind, patch);
        if patch.is_null() {
            call = call.with_body(text.as_bytes().to_vec(), kind);
        }
        change.send(call, flags.text("field-manager")).await?
    };
    let of_subresource = !flags.text("subresource").is_empty();
    let unchanged = patched == info.object && !of_subresource;
    let shown = if of_subresource { output::name_of(&patched) } else { info.shown() };
    let told = Change { dry: DryRun::No, format: Format::from(flags, false)?, ..*change };
    // Upstream does not say of a patch that the server only tried it.
    let change = if change.dry == DryRun::Server { &told } else { change };
    change.report(&shown, &patched, if unchanged { "patched (no change)" } else { "patched" })
}
