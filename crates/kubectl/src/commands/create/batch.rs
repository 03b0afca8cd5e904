//! Jobs and CronJobs.

use serde_json::{Value, json};

use super::{DRY_RUN, GENERATED, VALIDATE, command, generated, name, required};
use crate::command::Command;
use crate::failure::{Failure, Result};
use crate::flags::Flag;
use crate::output;
use crate::session::{Call, Session};

pub(super) static JOB: Command = Command {
    name: "job",
    short: "Create a job with the specified name.",
    usage: "NAME --image=image [--from=cronjob/name] -- [COMMAND] [args...] [options]",
    flags: &[JOB_FLAGS, GENERATED, DRY_RUN, VALIDATE, output::FLAGS],
    run: Some(|session| Box::pin(job(session))),
    ..Command::EMPTY
};

pub(super) static CRON_JOB: Command = Command {
    name: "cronjob",
    aliases: &["cj"],
    short: "Create a cron job with the specified name.",
    usage: "NAME --image=image --schedule='0/5 * * * ?' -- [COMMAND] [args...] [options]",
    flags: &[CRON_JOB_FLAGS, GENERATED, DRY_RUN, VALIDATE, output::FLAGS],
    run: Some(|session| Box::pin(cron_job(session))),
    ..Command::EMPTY
};

const JOB_FLAGS: &[Flag] = &[
    Flag::text("image", "", "The image to run."),
    Flag::text("from", "", "The resource to take the job from: cronjob/name."),
];
const CRON_JOB_FLAGS: &[Flag] = &[
    Flag::text("image", "", "The image to run."),
    Flag::text("schedule", "", "When to run, in cron's notation."),
    Flag::text("restart", "", "The restart policy: OnFailure or Never."),
];

async fn job(session: &Session) -> Result<()> {
    let name = name(session)?;
    let (image, from) = (session.flags.text("image"), session.flags.text("from"));
    if image.is_empty() == from.is_empty() {
        return Err(Failure::message("either --image or --from must be specified"));
    }
    let command = command(session);
    let object = if image.is_empty() {
        if !command.is_empty() {
            return Err(Failure::message("cannot specify --from and command"));
        }
        from_cron_job(session, &name, from).await?
    } else {
        let mut container = json!({"name": name, "image": image});
        if !command.is_empty() {
            container["command"] = json!(command);
        }
        json!({
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name},
            "spec": {"template": {"spec": {"containers": [container], "restartPolicy": "Never"}}},
        })
    };
    generated(session, object, "failed to create job: ").await
}

async fn from_cron_job(session: &Session, name: &str, from: &str) -> Result<Value> {
    let Some((kind, source)) = from.split_once('/') else {
        return Err(Failure::message("from must be an existing cronjob"));
    };
    let mapping = session.mapping(kind).await?;
    let cron_job = session.send(&Call::get(mapping.object(session.namespace()?, source))).await?;
    if !mapping.is("batch", "cronjobs") {
        return Err(Failure::message("from must be an existing cronjob".to_string()));
    }
    let template = &cron_job["spec"]["jobTemplate"];
    let mut annotations = template["metadata"]["annotations"].as_object().cloned().unwrap_or_default();
    annotations.insert("cronjob.kubernetes.io/instantiate".into(), "manual".into());
    let mut metadata = json!({"name": name, "annotations": annotations});
    if template["metadata"]["labels"].is_object() {
        metadata["labels"] = template["metadata"]["labels"].clone();
    }
    metadata["ownerReferences"] = json!([{"apiVersion": "batch/v1", "kind": "CronJob", "name": cron_job["metadata"]["name"],
        "uid": cron_job["metadata"]["uid"], "controller": true}]);
    Ok(json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": template["spec"]}))
}

async fn cron_job(session: &Session) -> Result<()> {
    required(session, &["image", "schedule"])?;
    let name = name(session)?;
    let mut container = json!({"name": name, "image": session.flags.text("image")});
    let command = command(session);
    if !command.is_empty() {
        container["command"] = json!(command);
    }
    let restart = match session.flags.text("restart") {
        "" => "OnFailure",
        given => given,
    };
    let object = json!({
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": name},
        "spec": {
            "schedule": session.flags.text("schedule"),
            "jobTemplate": {
                "metadata": {"name": name},
                "spec": {"template": {"spec": {"containers": [container], "restartPolicy": restart}}},
            },
        },
    });
    generated(session, object, "failed to create cronjob: ").await
}
