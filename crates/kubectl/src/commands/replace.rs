//! `kubectl replace`.

use super::change::{self, Change, DRY_RUN, VALIDATE};
use crate::command::Command;
use crate::failure::{self, Failure, Result};
use crate::flags::Flag;
use crate::output;
use crate::resource::Info;
use crate::resource::select::{FILES, Query};
use crate::session::{Call, Session};
use crate::terminal;

pub(super) static COMMAND: Command = Command {
    name: "replace",
    group: super::ADVANCED,
    short: "Replace a resource by file name or standard input.",
    examples: "kubectl replace -f pod.json\nkubectl replace --force -f pod.json",
    usage: "-f FILENAME [options]",
    flags: &[FLAGS, FILES, DRY_RUN, VALIDATE, output::FLAGS],
    run: Some(|session| Box::pin(run(session))),
    ..Command::EMPTY
};

const FLAGS: &[Flag] = &[
    Flag::optional("cascade", "background", "background", "What happens to dependents."),
    Flag::text("field-manager", "kubectl-replace", "Who owns the fields that are set."),
    Flag::switch("force", "Delete, then create."),
    Flag::integer("grace-period", "-1", "Seconds that a deleted object has to end."),
    Flag::text("raw", "", "A path to put the file to."),
    Flag::switch("save-config", "Keep the object in an annotation, for a later apply."),
    Flag::text("subresource", "", "A subresource to replace: status, scale."),
    Flag::duration("timeout", "0s", "How long to wait for a deletion."),
    Flag::switch("wait", "Wait for deletions to end."),
];

async fn run(session: &Session) -> Result<()> {
    let query = Query::from(session);
    if !query.has_files() {
        return Err(Failure::message("must specify one of -f and -k"));
    }
    if session.flags.given("raw") {
        let [file] = &query.files[..] else { return session.usage("--raw can only use a single local file or stdin") };
        let body = if file == "-" { terminal::input()? } else { std::fs::read(file)? };
        let call = Call::new(http::Method::PUT, session.flags.text("raw")).with_body(body, crate::session::JSON);
        terminal::out_bytes(&session.bytes(&call).await?);
        return Ok(());
    }
    let force = session.flags.on("force");
    if session.flags.integer("grace-period") >= 0 && !force {
        return Err(Failure::message("--grace-period must have --force specified"));
    }
    if session.flags.seconds("timeout") != 0.0 && !force {
        return Err(Failure::message("--timeout must have --force specified"));
    }
    let change = Change::from(session)?;
    let (infos, mut failures) = session.local(&query).await?;
    if infos.is_empty() && failures.is_empty() {
        return Err(Failure::message("no objects passed to replace"));
    }
    for info in infos {
        let replaced =
            if session.flags.on("force") { by_force(&change, &info).await } else { replace(&change, &info).await };
        if let Err(failure) = replaced {
            failures.push(failure);
        }
    }
    failure::all(failures)
}

fn object(change: &Change<'_>, info: &Info) -> serde_json::Value {
    // An annotation that is already there is kept true.
    let kept = info.object["metadata"]["annotations"][change::LAST_APPLIED].is_string();
    let save = change.session.flags.on("save-config") || kept;
    if save { change::with_last_applied(&info.object) } else { info.object.clone() }
}

async fn replace(change: &Change<'_>, info: &Info) -> Result<()> {
    let object = object(change, info);
    let mut path = info.path();
    if !change.session.flags.text("subresource").is_empty() {
        path = format!("{path}/{}", change.session.flags.text("subresource"));
    }
    let replaced = if change.local() {
        object
    } else {
        change
            .send(Call::put(path, &object), "kubectl-replace")
            .await
            .map_err(|failure| failure.during("replacing", &info.source))?
    };
    change.report(&info.shown(), &replaced, "replaced")
}

async fn by_force(change: &Change<'_>, info: &Info) -> Result<()> {
    let exists = change.session.send(&Call::get(info.path())).await.is_ok();
    if exists {
        let operation = if info.mapping.namespaced {
            format!("deleted from {} namespace", info.namespace)
        } else {
            "deleted".into()
        };
        terminal::outln(&format!("{} {:?} {operation}", info.mapping.shown(), info.name));
        super::delete::and_wait(change.session, info).await?;
    }
    let created = change.send(Call::post(info.collection(), &object(change, info)), "kubectl-replace").await?;
    change.report(&info.shown(), &created, "replaced")
}
