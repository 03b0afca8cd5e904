//! The CSINode of this node: there from the start, owned by the Node, with no drivers as long as none is installed.

use std::time::Duration;

use k8s_openapi::api::storage::v1::{CSINode, CSINodeSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::sleep;

use super::Seen;

/// Says which volumes of the old kinds are to be left to CSI drivers: all that upstream has given up.
const MIGRATED: &str = "storage.alpha.kubernetes.io/migrated-plugins";
const MIGRATED_PLUGINS: [&str; 7] = [
    "kubernetes.io/aws-ebs",
    "kubernetes.io/azure-disk",
    "kubernetes.io/azure-file",
    "kubernetes.io/cinder",
    "kubernetes.io/gce-pd",
    "kubernetes.io/portworx-volume",
    "kubernetes.io/vsphere-volume",
];
const RETRY: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(60);

/// What is to be done about the object that is there.
#[derive(Debug, PartialEq)]
enum Verdict {
    Keep,
    Annotate(Value),
    /// It belongs to another Node of the same name.
    Replace,
}

/// Keeps the object as the Node is, until shutdown.
pub(super) async fn run(client: Client, name: String, mut seen: watch::Receiver<Seen>) {
    let objects: Api<CSINode> = Api::all(client);
    let (mut done, mut wait) = (None, RETRY);
    loop {
        let uid = seen.borrow_and_update().uid();
        let mut failed = false;
        if let Some(uid) = uid.filter(|uid| done.as_ref() != Some(uid)) {
            match ensure(&objects, &name, &uid).await {
                Ok(()) => (done, wait) = (Some(uid), RETRY),
                Err(error) => {
                    tracing::warn!(%error, node = name, "cannot write CSINode; retrying");
                    failed = true;
                }
            }
        }
        tokio::select! {
            changed = seen.changed() => if changed.is_err() { return std::future::pending().await },
            () = sleep(wait), if failed => wait = (wait * 2).min(RETRY_MAX),
        }
    }
}

async fn ensure(objects: &Api<CSINode>, name: &str, uid: &str) -> Result<(), kube::Error> {
    if let Some(existing) = objects.get_opt(name).await? {
        match judge(&existing, name, uid) {
            Verdict::Keep => return Ok(()),
            Verdict::Annotate(patch) => {
                return objects.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await.map(drop);
            }
            Verdict::Replace => {
                let only = Preconditions { uid: existing.metadata.uid.clone(), ..Preconditions::default() };
                let parameters = DeleteParams { preconditions: Some(only), ..DeleteParams::default() };
                objects.delete(name, &parameters).await?;
            }
        }
    }
    objects.create(&PostParams::default(), &wished(name, uid)).await.map(drop)
}

fn wished(name: &str, uid: &str) -> CSINode {
    let owner = OwnerReference {
        api_version: "v1".into(),
        kind: "Node".into(),
        name: name.into(),
        uid: uid.into(),
        ..OwnerReference::default()
    };
    CSINode {
        metadata: ObjectMeta {
            name: Some(name.into()),
            annotations: Some([(MIGRATED.into(), MIGRATED_PLUGINS.join(","))].into()),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        spec: CSINodeSpec { drivers: Vec::new() },
    }
}

fn judge(existing: &CSINode, name: &str, uid: &str) -> Verdict {
    let mut owners = existing.metadata.owner_references.iter().flatten();
    if !owners.any(|owner| owner.kind == "Node" && owner.name == name && owner.uid == uid) {
        return Verdict::Replace;
    }
    let annotations = existing.metadata.annotations.as_ref();
    let said = annotations.and_then(|annotations| annotations.get(MIGRATED)).map(String::as_str).unwrap_or_default();
    let mut said: Vec<&str> = said.split(',').collect();
    said.sort();
    if said == MIGRATED_PLUGINS {
        Verdict::Keep
    } else {
        Verdict::Annotate(json!({"metadata": {"annotations": {MIGRATED: MIGRATED_PLUGINS.join(",")}}}))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_made_as_upstream_makes_it() {
        let made = serde_json::to_value(wished("n1", "u1")).unwrap();
        assert_eq!(made["spec"], json!({"drivers": []}));
        let owner = json!([{"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u1"}]);
        assert_eq!(made["metadata"]["ownerReferences"], owner);
        let plugins = "kubernetes.io/aws-ebs,kubernetes.io/azure-disk,kubernetes.io/azure-file,kubernetes.io/cinder,\
                       kubernetes.io/gce-pd,kubernetes.io/portworx-volume,kubernetes.io/vsphere-volume";
        assert_eq!(made["metadata"]["annotations"][MIGRATED], plugins);
    }

    #[test]
    fn what_is_there_is_kept_if_it_is_this_nodes() {
        let own = wished("n1", "u1");
        assert_eq!(judge(&own, "n1", "u1"), Verdict::Keep);
        assert_eq!(judge(&own, "n1", "u2"), Verdict::Replace);
        let mut bare = own.clone();
        bare.metadata.annotations = None;
        assert!(matches!(judge(&bare, "n1", "u1"), Verdict::Annotate(_)));
        bare.metadata.owner_references = None;
        assert_eq!(judge(&bare, "n1", "u1"), Verdict::Replace);
    }
}
