//! `kubectl create`: from manifests, and one subcommand per kind that kubectl itself can write.

mod batch;
mod config;
mod deployment;
mod ingress;
mod policy;
mod rbac;
mod secret;
mod service;
mod token;

pub(super) use policy::quantities;
use serde_json::{Value, json};

use super::change::{self, Change, DRY_RUN, VALIDATE};
use crate::command::Command;
use crate::failure::{self, Failure, Result};
use crate::flags::Flag;
use crate::output;
use crate::resource::Info;
use crate::resource::select::{FILES, Query, SELECTOR};
use crate::session::{Call, Session};
use crate::terminal;

pub(super) static COMMAND: Command = Command {
    name: "create",
    group: super::BEGINNER,
    short: "Create a resource from a file or from standard input.",
    examples: "kubectl create -f pod.yaml\nkubectl create deployment web --image=nginx",
    usage: "-f FILENAME [options]",
    flags: &[FLAGS, FILES, SELECTOR, DRY_RUN, VALIDATE, output::FLAGS],
    subcommands: &[
        &rbac::CLUSTER_ROLE,
        &rbac::CLUSTER_ROLE_BINDING,
        &config::COMMAND,
        &batch::CRON_JOB,
        &deployment::COMMAND,
        &ingress::COMMAND,
        &batch::JOB,
        &policy::NAMESPACE,
        &policy::DISRUPTION_BUDGET,
        &policy::PRIORITY_CLASS,
        &policy::QUOTA,
        &rbac::ROLE,
        &rbac::ROLE_BINDING,
        &secret::COMMAND,
        &service::COMMAND,
        &policy::SERVICE_ACCOUNT,
        &token::COMMAND,
    ],
    run: Some(|session| Box::pin(run(session))),
    ..Command::EMPTY
};

const FLAGS: &[Flag] = &[
    Flag::switch("edit", "Edit the object before it is created."),
    Flag::text("field-manager", "kubectl-create", "Who owns the fields that are set."),
    Flag::text("raw", "", "A path to post the file to."),
    Flag::switch("save-config", "Keep the object in an annotation, for a later apply."),
    Flag::switch("windows-line-endings", "Only for --edit."),
];

/// Flags of every generator.
pub(super) const GENERATED: &[Flag] = &[
    Flag::text("field-manager", "kubectl-create", "Who owns the fields that are set."),
    Flag::switch("save-config", "Keep the object in an annotation, for a later apply."),
];

async fn run(session: &Session) -> Result<()> {
    let query = Query::from(session);
    if session.flags.given("raw") {
        if query.files.is_empty() {
            return Err(Failure::message("must specify one of -f and -k"));
        }
        let [file] = &query.files[..] else {
            return session.usage("--raw can only use a single local file or stdin");
        };
        let body = if file == "-" { terminal::input()? } else { std::fs::read(file)? };
        let call = Call::new(http::Method::POST, session.flags.text("raw")).with_body(body, crate::session::JSON);
        terminal::out_bytes(&session.bytes(&call).await?);
        return Ok(());
    }
    if !query.has_files() {
        if let Some(unknown) = session.arguments().first() {
            return session.usage(format!("Unexpected args: [{unknown}]"));
        }
        return Err(Failure::message("must specify one of -f and -k"));
    }
    if !session.arguments().is_empty() {
        return session.usage(format!("Unexpected args: [{}]", session.arguments().join(" ")));
    }
    let change = Change::from(session)?;
    let (infos, mut failures) = session.local(&query).await?;
    if infos.is_empty() && failures.is_empty() {
        return Err(Failure::message("no objects passed to create"));
    }
    for mut info in infos {
        if session.flags.on("edit") {
            info.object = super::edit::edit_text(&info.object)?;
        }
        if let Err(failure) = create(&change, info).await {
            failures.push(failure);
        }
    }
    failure::all(failures)
}

async fn create(change: &Change<'_>, info: Info) -> Result<()> {
    let object = if change.session.flags.on("save-config") {
        change::with_last_applied(&info.object)
    } else {
        info.object.clone()
    };
    let created = if change.local() {
        object
    } else {
        let call = Call::post(info.collection(), &object);
        change.send(call, "kubectl-create").await.map_err(|failure| failure.during("creating", &info.source))?
    };
    let name = created["metadata"]["name"].as_str().unwrap_or_default();
    change.report(&format!("{}/{name}", info.mapping.shown()), &created, "created")
}

/// Creates what a generator has made. `failed` stands before the server's refusal; where it is empty, the refusal
/// stands for itself.
pub(super) async fn generated(session: &Session, mut object: Value, failed: &str) -> Result<()> {
    let change = Change::from(session)?;
    let (version, kind) = (
        object["apiVersion"].as_str().unwrap_or_default().to_string(),
        object["kind"].as_str().unwrap_or_default().to_string(),
    );
    let mapping = session
        .mapping_of_kind(&version, &kind)
        .await?
        .ok_or_else(|| Failure::message(format!("no matches for kind {kind:?} in version {version:?}")))?;
    let settings = session.settings()?;
    if mapping.namespaced && settings.namespace_given {
        object["metadata"]["namespace"] = settings.namespace.clone().into();
    }
    object = change::as_go_writes(object);
    if session.flags.on("save-config") {
        object = change::with_last_applied_typed(&object);
    }
    let created = if change.local() {
        object
    } else {
        let call = Call::post(mapping.collection(&settings.namespace), &object);
        change.send(call, "kubectl-create").await.map_err(|failure| match failure {
            Failure::Status { .. } if !failed.is_empty() => Failure::message(format!("{failed}{}", failure.text())),
            other => other,
        })?
    };
    let name = created["metadata"]["name"].as_str().unwrap_or_default().to_string();
    change.report_typed(&format!("{}/{name}", mapping.shown()), &created, "created")
}

/// The one argument of a generator.
pub(super) fn name(session: &Session) -> Result<String> {
    let before = session.flags.dash.unwrap_or(session.arguments().len());
    match &session.arguments()[..before] {
        [name] => Ok(name.clone()),
        given => session.usage(format!("exactly one NAME is required, got {}", given.len())),
    }
}

/// What stands behind `--`.
pub(super) fn command(session: &Session) -> Vec<String> {
    session.flags.dash.map(|dash| session.arguments()[dash..].to_vec()).unwrap_or_default()
}

pub(super) fn required(session: &Session, flags: &[&str]) -> Result<()> {
    let missing: Vec<String> =
        flags.iter().filter(|flag| !session.flags.given(flag)).map(|flag| format!("{flag:?}")).collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(Failure::Message(format!("required flag(s) {} not set", missing.join(", "))))
}

pub(super) fn metadata(name: &str) -> Value {
    json!({"name": name})
}
