//! Which attachments a node needs, which it does not, and what its status says is attached.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use component_helpers::pods::has_ended;
use component_helpers::volumes::volume_spec;
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{AttachedVolume, Node, PersistentVolume, Pod};
use k8s_openapi::api::storage::v1::{VolumeAttachment, VolumeAttachmentSource, VolumeAttachmentSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, ObjectMeta};
use reconcile::{Event, Plan, Write};
use sha2::{Digest, Sha256};

/// A pod holds its volumes until its containers have ended.
pub(super) fn holds(pod: &Pod) -> bool {
    !has_ended(pod)
}

/// A node that does not answer cannot say that it has unmounted. What nobody has needed for so long is detached all the same,
/// as upstream.
const UNMOUNT_MAX: SignedDuration = SignedDuration::from_mins(6);
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// For how long nobody has needed an attachment, by its name.
pub(super) type Unneeded = HashMap<String, SignedDuration>;

/// The attachments of a node that no pod needs.
pub(super) fn unneeded(
    node_name: &str,
    wanted: &[(Arc<Pod>, Arc<PersistentVolume>)],
    attachments: &[Arc<VolumeAttachment>],
) -> BTreeSet<String> {
    let needed: BTreeSet<String> = wanted.iter().map(|(_, volume)| attachment_name(volume, node_name)).collect();
    let here = attachments.iter().filter(|attachment| attachment.spec.node_name == node_name);
    here.filter_map(|attachment| attachment.metadata.name.clone()).filter(|name| !needed.contains(name)).collect()
}

/// Whether a volume goes from this node though the node says that it is mounted; when to look again where it may later.
fn is_forced(node: Option<&Node>, unneeded: Option<&SignedDuration>) -> Result<bool, Duration> {
    let Some(node) = node else { return Ok(true) };
    let mut taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    if taints.any(|taint| taint.key == OUT_OF_SERVICE) {
        return Ok(true);
    }
    let mut conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let is_ready = conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True");
    // Without a time the operator wants no force.
    let Some(waited) = unneeded.filter(|_| !is_ready) else { return Ok(false) };
    match Duration::try_from(UNMOUNT_MAX - *waited) {
        Ok(rest) if !rest.is_zero() => Err(rest),
        _ => Ok(true),
    }
}

pub(super) fn plan(
    node_name: &str,
    node: Option<&Node>,
    wanted: &[(Arc<Pod>, Arc<PersistentVolume>)],
    attachments: &[Arc<VolumeAttachment>],
    unneeded: &Unneeded,
    users_elsewhere: impl Fn(&PersistentVolume) -> Vec<Arc<Pod>>,
) -> Plan {
    let mut plan = Plan::nothing();
    let here = || attachments.iter().filter(|attachment| attachment.spec.node_name == node_name);
    let mut needed: BTreeMap<String, (&Pod, &PersistentVolume)> = BTreeMap::new();
    for (pod, volume) in wanted {
        needed.entry(attachment_name(volume, node_name)).or_insert((pod, volume));
    }
    for (name, (pod, volume)) in &needed {
        if here().any(|attachment| attachment.metadata.name.as_ref() == Some(name)) {
            continue;
        }
        let pv = volume.metadata.name.as_deref().unwrap_or_default();
        let elsewhere = attachments.iter().any(|attachment| {
            attachment.spec.node_name != node_name
                && attachment.spec.source.persistent_volume_name.as_deref() == Some(pv)
        });
        if elsewhere && is_exclusive(volume) {
            let why = already_used(pod, &users_elsewhere(volume));
            let message = format!("Multi-Attach error for volume \"{pv}\" {why}");
            plan.events.push(Event::warning(*pod, "FailedAttachVolume", message));
            plan.come_back(Duration::from_secs(30));
            continue;
        }
        plan.writes.push(Write::create(&attachment(name, volume, node_name)).accept(&["AlreadyExists"]));
    }
    let in_use = node.and_then(|node| node.status.as_ref()?.volumes_in_use.clone()).unwrap_or_default();
    for attachment in here().filter(|attachment| attachment.metadata.deletion_timestamp.is_none()) {
        let name = attachment.metadata.name.as_deref().unwrap_or_default();
        // Attachments that others made are theirs.
        let ours = name.strip_prefix("csi-").is_some_and(|hash| hash.len() == 64);
        if !ours || needed.contains_key(name) {
            continue;
        }
        let named = || in_use.iter().any(|used| attached_name(attachment, wanted).as_deref() == Some(used));
        let is_mounted = named() || still_mounted(attachment, node, &in_use);
        match is_forced(node, unneeded.get(name)) {
            Ok(forced) if forced || !is_mounted => {
                plan.writes.push(Write::delete(&**attachment, DeleteOptions::default()));
            }
            Err(_) if !is_mounted => plan.writes.push(Write::delete(&**attachment, DeleteOptions::default())),
            Err(rest) => plan.come_back(rest),
            Ok(_) => {}
        }
    }
    plan.writes.extend(node.and_then(|node| attached_status(node, &needed, here())));
    for (name, (pod, volume)) in &needed {
        let own = here().find(|each| each.metadata.name.as_ref() == Some(name));
        if let Some(error) = own.and_then(|attachment| attach_error(attachment)) {
            let pv = volume.metadata.name.as_deref().unwrap_or_default();
            let message = format!("AttachVolume.Attach failed for volume \"{pv}\" : {error}");
            plan.events.push(Event::warning(*pod, "FailedAttachVolume", message));
        }
        let attached = own.is_some_and(|attachment| is_attached(attachment));
        let said = node.is_some_and(|node| says(node, &unique_name(volume)));
        if attached && !said {
            let pv = volume.metadata.name.as_deref().unwrap_or_default();
            let message = format!("AttachVolume.Attach succeeded for volume \"{pv}\" ");
            plan.events.push(Event::normal(*pod, "SuccessfulAttachVolume", message));
        }
    }
    plan
}

/// As upstream's CSI attacher names it, so that drivers and kubelets find it.
pub(super) fn attachment_name(volume: &PersistentVolume, node: &str) -> String {
    let (driver, handle) = driver_and_handle(volume);
    format!("csi-{}", hex::encode(Sha256::digest(format!("{handle}{driver}{node}"))))
}

fn driver_and_handle(volume: &PersistentVolume) -> (&str, &str) {
    let csi = volume_spec(volume).csi.as_ref();
    (csi.map_or("", |csi| csi.driver.as_str()), csi.map_or("", |csi| csi.volume_handle.as_str()))
}

fn unique_name(volume: &PersistentVolume) -> String {
    let (driver, handle) = driver_and_handle(volume);
    format!("kubernetes.io/csi/{driver}^{handle}")
}

fn attached_name(attachment: &VolumeAttachment, wanted: &[(Arc<Pod>, Arc<PersistentVolume>)]) -> Option<String> {
    let name = attachment.spec.source.persistent_volume_name.as_ref()?;
    let volume = wanted.iter().find(|(_, volume)| volume.metadata.name.as_ref() == Some(name));
    volume.map(|(_, volume)| unique_name(volume))
}

/// The kubelet says what it has mounted; what it said when the volume was attached tells which of these names is meant.
fn still_mounted(attachment: &VolumeAttachment, node: Option<&Node>, in_use: &[String]) -> bool {
    let attached = node.iter().flat_map(|node| node.status.iter());
    let mut attached = attached.flat_map(|status| status.volumes_attached.iter().flatten());
    let prefix = format!("kubernetes.io/csi/{}^", attachment.spec.attacher);
    attached.any(|each| {
        let handle = each.name.strip_prefix(&prefix);
        let same = handle.is_some_and(|handle| {
            let hash = Sha256::digest(format!("{handle}{}{}", attachment.spec.attacher, attachment.spec.node_name));
            attachment.metadata.name.as_deref() == Some(format!("csi-{}", hex::encode(hash)).as_str())
        });
        same && in_use.contains(&each.name)
    })
}

fn is_exclusive(volume: &PersistentVolume) -> bool {
    let modes = volume_spec(volume).access_modes.as_deref().unwrap_or_default();
    !modes.is_empty() && modes.iter().all(|mode| matches!(mode.as_str(), "ReadWriteOnce" | "ReadWriteOncePod"))
}

fn attachment(name: &str, volume: &PersistentVolume, node: &str) -> VolumeAttachment {
    VolumeAttachment {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        spec: VolumeAttachmentSpec {
            attacher: driver_and_handle(volume).0.to_owned(),
            node_name: node.to_owned(),
            source: VolumeAttachmentSource {
                persistent_volume_name: volume.metadata.name.clone(),
                ..VolumeAttachmentSource::default()
            },
        },
        status: None,
    }
}

fn is_attached(attachment: &VolumeAttachment) -> bool {
    attachment.status.as_ref().is_some_and(|status| status.attached)
}

/// Why the driver's controller could not attach it.
fn attach_error(attachment: &VolumeAttachment) -> Option<&str> {
    let status = attachment.status.as_ref().filter(|status| !status.attached)?;
    status.attach_error.as_ref().map(|error| error.message.as_deref().unwrap_or_default())
}

/// Who has the volume on another node, as far as the pod's owner may know: names of other namespaces are not theirs to see.
fn already_used(pod: &Pod, users: &[Arc<Pod>]) -> String {
    let (near, far): (Vec<&Arc<Pod>>, Vec<&Arc<Pod>>) =
        users.iter().partition(|user| user.metadata.namespace == pod.metadata.namespace);
    let names: Vec<&str> = near.iter().filter_map(|user| user.metadata.name.as_deref()).collect();
    match (names.is_empty(), far.len()) {
        (true, 0) => "Volume is already exclusively attached to one node and can't be attached to another".to_owned(),
        (true, others) => format!("Volume is already used by {others} pod(s) in different namespaces"),
        (false, 0) => format!("Volume is already used by pod(s) {}", names.join(", ")),
        (false, others) => {
            let names = names.join(", ");
            format!("Volume is already used by pod(s) {names} and {others} pod(s) in different namespaces")
        }
    }
}

fn says(node: &Node, name: &str) -> bool {
    let attached = node.status.iter().flat_map(|status| status.volumes_attached.iter().flatten());
    attached.into_iter().any(|attached| attached.name == name)
}

/// What the node's kubelet waits to read before it mounts. A volume leaves the list with its attachment.
fn attached_status<'a>(
    node: &Node,
    needed: &BTreeMap<String, (&Pod, &PersistentVolume)>,
    here: impl Iterator<Item = &'a Arc<VolumeAttachment>>,
) -> Option<Write> {
    let here: Vec<&Arc<VolumeAttachment>> = here.collect();
    let before = node.status.as_ref().and_then(|status| status.volumes_attached.clone()).unwrap_or_default();
    let hash = |driver: &str, handle: &str| {
        let node = node.metadata.name.as_deref().unwrap_or_default();
        format!("csi-{}", hex::encode(Sha256::digest(format!("{handle}{driver}{node}"))))
    };
    let mut after: Vec<AttachedVolume> = before
        .iter()
        .filter(|attached| {
            let parts = attached.name.strip_prefix("kubernetes.io/csi/").and_then(|rest| rest.split_once('^'));
            // Others than CSI are not ours to say.
            parts.is_none_or(|(driver, handle)| {
                here.iter().any(|each| {
                    each.metadata.name.as_deref() == Some(&hash(driver, handle))
                        && each.metadata.deletion_timestamp.is_none()
                })
            })
        })
        .cloned()
        .collect();
    for (name, (_, volume)) in needed {
        let unique = unique_name(volume);
        let attached = here.iter().any(|each| each.metadata.name.as_ref() == Some(name) && is_attached(each));
        if attached && !after.iter().any(|each| each.name == unique) {
            after.push(AttachedVolume { name: unique, device_path: String::new() });
        }
    }
    if after == before {
        return None;
    }
    let mut node = node.clone();
    node.status.get_or_insert_default().volumes_attached = Some(after).filter(|list| !list.is_empty());
    Some(Write::update_sub(&node, "status"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn volume(mode: &str) -> Arc<PersistentVolume> {
        let object = json!({"metadata": {"name": "pv"}, "spec": {"accessModes": [mode], "csi": {"driver": "d", "volumeHandle": "h"}}});
        Arc::new(serde_json::from_value(object).expect("a volume"))
    }

    fn attached(node: &str, attached: bool) -> Arc<VolumeAttachment> {
        let mut made = attachment(&attachment_name(&volume("ReadWriteOnce"), node), &volume("ReadWriteOnce"), node);
        made.status = serde_json::from_value(json!({"attached": attached})).ok();
        Arc::new(made)
    }

    fn node(volumes_attached: &[&str], in_use: &[&str]) -> Node {
        let list: Vec<_> = volumes_attached.iter().map(|name| json!({"name": name, "devicePath": ""})).collect();
        let object = json!({"metadata": {"name": "n1"}, "status": {"volumesAttached": list, "volumesInUse": in_use}});
        serde_json::from_value(object).expect("a node")
    }

    #[test]
    fn volumes_are_attached_while_pods_use_them() {
        const NAME: &str = "kubernetes.io/csi/d^h";
        let check = |used: bool, mode: &str, node: &Node, attachments: &[Arc<VolumeAttachment>], expected: &[&str]| {
            let wanted = if used { vec![(Arc::<Pod>::default(), volume(mode))] } else { Vec::new() };
            let plan = plan("n1", Some(node), &wanted, attachments, &Unneeded::new(), |_| Vec::new());
            let writes = plan.writes.iter().map(|write| {
                let text = write.to_string();
                text.split("/csi-").next().unwrap_or_default().to_owned()
            });
            let told: Vec<String> = writes.chain(plan.events.iter().map(|event| event.reason.to_owned())).collect();
            assert_eq!(told, expected);
        };
        let create = "create /apis/storage.k8s.io/v1/volumeattachments";
        let delete = "delete /apis/storage.k8s.io/v1/volumeattachments";
        let status = "update /api/v1/nodes/n1/status";
        check(true, "ReadWriteOnce", &node(&[], &[]), &[], &[create]);
        check(true, "ReadWriteOnce", &node(&[], &[]), &[attached("n1", false)], &[]);
        check(true, "ReadWriteOnce", &node(&[], &[]), &[attached("n1", true)], &[status, "SuccessfulAttachVolume"]);
        check(true, "ReadWriteOnce", &node(&[NAME], &[NAME]), &[attached("n1", true)], &[]);
        check(true, "ReadWriteOnce", &node(&[], &[]), &[attached("n2", true)], &["FailedAttachVolume"]);
        check(true, "ReadWriteMany", &node(&[], &[]), &[attached("n2", true)], &[create]);
        check(false, "ReadWriteOnce", &node(&[NAME], &[NAME]), &[attached("n1", true)], &[]);
        check(false, "ReadWriteOnce", &node(&[NAME], &[]), &[attached("n1", true)], &[delete]);
        check(false, "ReadWriteOnce", &node(&[NAME], &[]), &[], &[status]);
    }

    #[test]
    fn what_went_wrong_is_told() {
        let pod = |namespace: &str, name: &str| {
            let object = json!({"metadata": {"namespace": namespace, "name": name}});
            Arc::new(serde_json::from_value::<Pod>(object).expect("a pod"))
        };
        let check = |users: &[Arc<Pod>], expected: &str| assert_eq!(already_used(&pod("a", "x"), users), expected);
        check(&[], "Volume is already exclusively attached to one node and can't be attached to another");
        check(&[pod("a", "y"), pod("a", "z")], "Volume is already used by pod(s) y, z");
        check(&[pod("b", "y")], "Volume is already used by 1 pod(s) in different namespaces");
        check(
            &[pod("a", "y"), pod("b", "z")],
            "Volume is already used by pod(s) y and 1 pod(s) in different namespaces",
        );
        let mut failed = (*attached("n1", false)).clone();
        failed.status = serde_json::from_value(json!({"attached": false, "attachError": {"message": "no slot"}})).ok();
        let wanted = [(pod("a", "x"), volume("ReadWriteOnce"))];
        let plan = plan("n1", Some(&node(&[], &[])), &wanted, &[Arc::new(failed)], &Unneeded::new(), |_| Vec::new());
        let told: Vec<_> = plan.events.iter().map(|event| (event.reason, event.message.as_str())).collect();
        assert_eq!(told, [("FailedAttachVolume", "AttachVolume.Attach failed for volume \"pv\" : no slot")]);
    }

    #[test]
    fn what_is_mounted_on_a_lost_node_is_detached_in_the_end() {
        const NAME: &str = "kubernetes.io/csi/d^h";
        let attachment = attached("n1", true);
        let name = attachment.metadata.name.clone().expect("a name");
        assert_eq!(unneeded("n1", &[], std::slice::from_ref(&attachment)), BTreeSet::from([name.clone()]));
        let check = |ready: &str, taint: &str, minutes: Option<i64>, expected: (usize, Option<u64>)| {
            let mut node = node(&[NAME], &[NAME]);
            node.status.as_mut().expect("a status").conditions =
                serde_json::from_value(json!([{"type": "Ready", "status": ready}])).expect("conditions");
            node.spec =
                serde_json::from_value(json!({"taints": [{"key": taint, "effect": "NoExecute"}]})).expect("a spec");
            let times = minutes.map(|minutes| (name.clone(), SignedDuration::from_mins(minutes)));
            let times = times.into_iter().collect();
            let plan = plan("n1", Some(&node), &[], std::slice::from_ref(&attachment), &times, |_| Vec::new());
            let deletes = plan.writes.iter().filter(|write| write.is_delete()).count();
            assert_eq!((deletes, plan.again.map(|time| time.as_secs())), expected, "{ready} {taint} {minutes:?}");
        };
        check("True", "", Some(60), (0, None));
        check("Unknown", "", Some(5), (0, Some(60)));
        check("Unknown", "", Some(6), (1, None));
        check("False", "", Some(7), (1, None));
        // The operator wants no force: only the taint helps.
        check("Unknown", "", None, (0, None));
        check("Unknown", OUT_OF_SERVICE, None, (1, None));
        check("True", OUT_OF_SERVICE, Some(0), (1, None));
    }
}
