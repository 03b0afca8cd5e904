//! Deployments.

use serde_json::{Value, json};

use super::{DRY_RUN, GENERATED, VALIDATE, command, generated, name, required};
use crate::command::Command;
use crate::failure::{Failure, Result};
use crate::flags::Flag;
use crate::output;
use crate::session::Session;

pub(crate) static COMMAND: Command = Command {
    name: "deployment",
    aliases: &["deploy"],
    short: "Create a deployment with the specified name.",
    usage: "NAME --image=image -- [COMMAND] [args...] [options]",
    flags: &[FLAGS, GENERATED, DRY_RUN, VALIDATE, output::FLAGS],
    run: Some(|session| Box::pin(run(session))),
    ..Command::EMPTY
};

const FLAGS: &[Flag] = &[
    Flag::list("image", "The images to run."),
    Flag::integer("port", "-1", "The port that the container listens on."),
    Flag::integer("replicas", "1", "How many replicas to make.").short('r'),
];

async fn run(session: &Session) -> Result<()> {
    required(session, &["image"])?;
    let name = name(session)?;
    let images = session.flags.list("image");
    let command = command(session);
    if images.len() > 1 && !command.is_empty() {
        return Err(Failure::message("cannot specify multiple --image options and command"));
    }
    let mut containers: Vec<Value> = Vec::new();
    for image in &images {
        let mut container = json!({"name": container_name(image), "image": image});
        if session.flags.integer("port") >= 0 {
            container["ports"] = json!([{"containerPort": session.flags.integer("port")}]);
        }
        if !command.is_empty() {
            container["command"] = json!(command);
        }
        containers.push(container);
    }
    let labels = json!({"app": name});
    let object = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "replicas": session.flags.integer("replicas"),
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": containers}},
        },
    });
    generated(session, object, "failed to create deployment: ").await
}

/// The last part of an image's path, without tag, as a name may be.
fn container_name(image: &str) -> String {
    let last = image.rsplit('/').next().unwrap_or(image);
    let last = last.split(['@', ':']).next().unwrap_or(last);
    let name: String = last.chars().map(|c| if c == '_' || c == '.' { '-' } else { c.to_ascii_lowercase() }).collect();
    name.trim_matches('-').to_string()
}
