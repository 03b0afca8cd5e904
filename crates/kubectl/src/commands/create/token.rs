//! Tokens of service accounts.

use serde_json::json;

use super::name;
use crate::command::Command;
use crate::failure::{Failure, Result};
use crate::flags::Flag;
use crate::output::{self, Format};
use crate::session::{Call, Session};
use crate::terminal;

pub(crate) static COMMAND: Command = Command {
    name: "token",
    short: "Request a service account token.",
    usage: "SERVICE_ACCOUNT_NAME [options]",
    flags: &[FLAGS, output::FLAGS],
    run: Some(|session| Box::pin(run(session))),
    ..Command::EMPTY
};

const FLAGS: &[Flag] = &[
    Flag::array("audience", "Who may be shown the token."),
    Flag::duration("duration", "0s", "How long it is to be good."),
    Flag::text("bound-object-kind", "", "The kind of the object that it dies with: Pod, Secret, Node."),
    Flag::text("bound-object-name", "", "The name of that object."),
    Flag::text("bound-object-uid", "", "The UID of that object."),
];

async fn run(session: &Session) -> Result<()> {
    let name = name(session)?;
    let flags = &session.flags;
    let mut request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": flags.list("audience")}});
    let seconds = flags.seconds("duration");
    if seconds < 0.0 {
        return Err(Failure::message("--duration must be greater than or equal to 0"));
    }
    if seconds > 0.0 {
        if seconds.fract() != 0.0 {
            return Err(Failure::message("--duration cannot be expressed in units less than seconds"));
        }
        request["spec"]["expirationSeconds"] = (seconds as i64).into();
    }
    if flags.list("audience").iter().any(String::is_empty) {
        return Err(Failure::message("--audience must not be an empty string"));
    }
    let kind = flags.text("bound-object-kind");
    for flag in ["bound-object-name", "bound-object-uid"] {
        if kind.is_empty() && !flags.text(flag).is_empty() {
            return Err(Failure::message(format!("--{flag} can only be set if --bound-object-kind is provided")));
        }
    }
    if !kind.is_empty() {
        if !["Pod", "Secret", "Node"].contains(&kind) {
            return Err(Failure::message("supported --bound-object-kind values are Node, Pod, Secret"));
        }
        if flags.text("bound-object-name").is_empty() {
            return Err(Failure::message("--bound-object-name is required if --bound-object-kind is provided"));
        }
        request["spec"]["boundObjectRef"] =
            json!({"apiVersion": "v1", "kind": kind, "name": flags.text("bound-object-name")});
        if !flags.text("bound-object-uid").is_empty() {
            request["spec"]["boundObjectRef"]["uid"] = flags.text("bound-object-uid").into();
        }
    }
    let path = format!("/api/v1/namespaces/{}/serviceaccounts/{name}/token", session.namespace()?);
    let answer = session.send(&Call::post(path, &request)).await.map_err(|failure| match failure {
        Failure::Status { .. } => Failure::message(format!("failed to create token: {}", failure.text())),
        other => other,
    })?;
    let token = answer["status"]["token"].as_str().unwrap_or_default();
    if token.is_empty() {
        return Err(Failure::message("failed to create token: no token in server response"));
    }
    match Format::from(flags, false)? {
        Format::Human { .. } => terminal::outln(token),
        format => {
            let mut answer = answer.clone();
            // Go writes it, whether the token is bound to something or not.
            answer["spec"]["boundObjectRef"] = answer["spec"]["boundObjectRef"].take();
            terminal::out(&format.typed_text(&answer)?);
        }
    }
    Ok(())
}
