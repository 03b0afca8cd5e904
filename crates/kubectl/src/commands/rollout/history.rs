//! `kubectl rollout history`: the past states of a workload.

use serde_json::Value;

use crate::failure::{self, Failure, Result};
use crate::output::Format;
use crate::output::columns::Columns;
use crate::resource::Info;
use crate::session::{Call, Session};
use crate::terminal;

pub(crate) async fn run(session: &Session) -> Result<()> {
    super::check_revision(session)?;
    let (infos, failures) = super::chosen(session, true).await?;
    failure::all(failures)?;
    let format = Format::from(&session.flags, false)?;
    let wanted = session.flags.integer("revision");
    for info in infos {
        let revisions = revisions(session, &info).await?;
        let shown = format!("{} ", info.shown());
        if wanted > 0 {
            let Some(revision) = revisions.iter().find(|revision| revision.number == wanted) else {
                return Err(Failure::message("unable to find the specified revision"));
            };
            if !format.is_human() {
                terminal::out(&format.text(&revision.object)?);
                continue;
            }
            terminal::out(&format!("{shown}with revision #{wanted}\n{}\n", revision.described()));
            continue;
        }
        if !format.is_human() {
            for revision in &revisions {
                terminal::out(&format.text(&revision.object)?);
            }
            continue;
        }
        let mut text = String::from("REVISION\tCHANGE-CAUSE\n");
        revisions.iter().for_each(|revision| text += &format!("{}\t{}\n", revision.number, revision.cause));
        let text =
            if revisions.is_empty() { "No rollout history found.".into() } else { Columns::described().align(&text) };
        terminal::out(&format!("{shown}\n{text}\n"));
    }
    Ok(())
}

/// A past state of a workload.
#[derive(Default)]
pub(crate) struct Revision {
    pub number: i64,
    pub cause: String,
    pub template: Value,
    /// What brings it back: for sets, the stored patch.
    pub object: Value,
}

impl Revision {
    /// Upstream prints this text as it is, tabs and all.
    fn described(&self) -> String {
        described(&self.template, &[(CAUSE, self.cause.as_str())])
    }
}

pub(crate) fn described(template: &Value, added: &[(&str, &str)]) -> String {
    format!("Pod Template:\n{}", crate::describe::template::pod_template(template, added))
}

const CAUSE: &str = "kubernetes.io/change-cause";
pub(super) const REVISION: &str = "deployment.kubernetes.io/revision";

pub(super) async fn revisions(session: &Session, info: &Info) -> Result<Vec<Revision>> {
    let selector = crate::commands::selector_text(&info.object["spec"]["selector"]);
    let uid = &info.object["metadata"]["uid"];
    let owned = |object: &Value| {
        object["metadata"]["ownerReferences"].as_array().into_iter().flatten().any(|owner| owner["uid"] == *uid)
    };
    let cause = |object: &Value| object["metadata"]["annotations"][CAUSE].as_str().unwrap_or("<none>").to_string();
    let kind = match info.mapping.plural.as_str() {
        "deployments" => "replicasets",
        "daemonsets" | "statefulsets" => "controllerrevisions",
        _ => {
            return Err(Failure::message(format!(
                "no history viewer has been implemented for {:?}",
                info.mapping.kind
            )));
        }
    };
    let path = format!("/apis/apps/v1/namespaces/{}/{kind}", info.namespace);
    let list = session.send(&Call::get(path).with("labelSelector", selector)).await?;
    let mut found: Vec<Revision> = Vec::new();
    for object in crate::resource::flatten(list).iter().filter(|object| owned(object)) {
        let (number, template) = if kind == "replicasets" {
            let number = object["metadata"]["annotations"][REVISION].as_str().and_then(|text| text.parse().ok());
            (number, object["spec"]["template"].clone())
        } else {
            (object["revision"].as_i64(), object["data"]["spec"]["template"].clone())
        };
        if let Some(number) = number {
            found.push(Revision { number, cause: cause(object), template, object: object.clone() });
        }
    }
    found.sort_by_key(|revision| revision.number);
    Ok(found)
}
