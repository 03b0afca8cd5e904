//! Volumes that a controller must attach to this node before anything can be mounted.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;

use super::wanted::{Wanted, hex};
use super::{Error, Problem, Request};
use crate::node::Seen;

/// After so long users are told, and it is tried anew, as upstream.
const ATTACHED_WITHIN: Duration = Duration::from_secs(123);

/// As upstream's controller names the attachment.
pub(super) fn name(wanted: &Wanted, node: &str) -> String {
    format!("csi-{}", hex(format!("{}{}{node}", wanted.handle, wanted.driver)))
}

/// Says that the volume is used here, waits until the Node's status shows it as attached, and answers what the driver's controller
/// wants its node part to know.
pub(super) async fn wait(request: &Request<'_>, wanted: &Wanted) -> Result<BTreeMap<String, String>, Problem> {
    let volume = wanted.unique_name();
    request.csi.uses(volume.clone(), request.uid());
    if let Some(mut seen) = request.objects.node_seen() {
        let attached = seen.wait_for(|seen| matches!(seen, Seen::Here(node) if is_attached(node, &volume)));
        tokio::select! {
            () = request.ending.cancelled() => return Err(Problem::GivenUp),
            attached = tokio::time::timeout(ATTACHED_WITHIN, attached) => if attached.is_err() {
                let name = &request.volume.name;
                return Err(Problem::Message(format!(
                    "Unable to attach or mount volumes: unmounted volumes=[{name}], unattached volumes=[{name}], failed to process volumes=[]: timed out waiting for the condition"
                )));
            },
        }
    }
    let id = name(wanted, request.node_name);
    let failed = |error: Error| {
        let step = if wanted.is_block { "MapVolume" } else { "MountVolume" };
        Problem::Message(format!("{step}.WaitForAttach failed for volume {:?} : {error}", wanted.name))
    };
    let attachment = request.objects.volume_attachment(&id).await;
    let attachment = attachment
        .map_err(|source| failed(Error::Attachment { handle: wanted.handle.clone(), id: id.clone(), source }))?;
    let status = attachment.status.clone().unwrap_or_default();
    if attachment.metadata.deletion_timestamp.is_some() {
        return Err(failed(Error::AttachmentDeleted));
    }
    if let Some(error) = status.attach_error.filter(|_| !status.attached) {
        return Err(failed(Error::AttachFailed(error.message.unwrap_or_default())));
    }
    if status.attached {
        Ok(status.attachment_metadata.unwrap_or_default())
    } else {
        Err(failed(Error::NotAttached(id)))
    }
}

/// A volume that the Node does not report as used may be detached at any moment, so both must stand there.
fn is_attached(node: &Node, volume: &str) -> bool {
    let Some(status) = &node.status else { return false };
    let used = status.volumes_in_use.iter().flatten().any(|used| used == volume);
    used && status.volumes_attached.iter().flatten().any(|attached| attached.name == volume)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn attached_is_what_is_reported_as_used_as_well() {
        let check = |used: &[&str], attached: &[&str], expected: bool| {
            let attached: Vec<_> = attached.iter().map(|name| json!({"name": name, "devicePath": ""})).collect();
            let status = json!({"volumesInUse": used, "volumesAttached": attached});
            let node: Node = serde_json::from_value(json!({"metadata": {}, "status": status})).unwrap();
            assert_eq!(is_attached(&node, "kubernetes.io/csi/d^h"), expected);
        };
        check(&["kubernetes.io/csi/d^h"], &["kubernetes.io/csi/d^h"], true);
        check(&[], &["kubernetes.io/csi/d^h"], false);
        check(&["kubernetes.io/csi/d^h"], &["kubernetes.io/csi/d^i"], false);
    }
}
