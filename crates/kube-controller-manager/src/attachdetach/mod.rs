//! CSI volumes are attached to the nodes whose pods use them, and detached when none does. One key per node.

mod plan;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use component_helpers::pods::node;
use futures::FutureExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::{CSIDriver, VolumeAttachment};
use kube::Api;
use parking_lot::Mutex;
use reconcile::{Cache, Error, Index, Key, On, Plan, Rule, Work, Write};

use crate::common::pods::{BY_CLAIM, BY_NODE, of_claim};
use crate::{Context, Controller};

pub(crate) static CONTROLLER: Controller = Controller {
    name: "persistentvolume-attach-detach-controller",
    account: "attachdetach-controller",
    source: "attachdetach-controller",
    rules: &[
        Rule { groups: &[""], resources: &["persistentvolumeclaims", "persistentvolumes"], verbs: &["list", "watch"] },
        Rule { groups: &[""], resources: &["nodes"], verbs: &["get", "list", "watch"] },
        Rule { groups: &[""], resources: &["nodes/status"], verbs: &["patch", "update"] },
        Rule { groups: &[""], resources: &["pods"], verbs: &["list", "watch"] },
        Rule { groups: &["", "events.k8s.io"], resources: &["events"], verbs: &["create", "patch", "update"] },
        Rule {
            groups: &["storage.k8s.io"],
            resources: &["volumeattachments"],
            verbs: &["create", "delete", "get", "list", "watch"],
        },
        Rule { groups: &["storage.k8s.io"], resources: &["csidrivers"], verbs: &["get", "list", "watch"] },
    ],
    work: Work::Keys {
        wakes: &[
            &On::every(|_, pod: &Pod| {
                let uses = component_helpers::volumes::claim_names(pod).next().is_some();
                node(pod).filter(|_| uses).map(Key::cluster).into_iter().collect()
            }),
            &On::every(|_, attachment: &VolumeAttachment| vec![Key::cluster(attachment.spec.node_name.clone())]),
            // What a node has mounted holds back detaching; most nodes have nothing attached, and their many updates end here.
            &On::every(|_, node: &Node| {
                let attached = node.status.as_ref().and_then(|status| status.volumes_attached.as_ref());
                if attached.is_some_and(|list| !list.is_empty()) { vec![Key::of(&node.metadata)] } else { Vec::new() }
            }),
            &On::every(|cx, claim: &PersistentVolumeClaim| {
                if !component_helpers::volumes::is_bound(claim) {
                    return Vec::new();
                }
                let (namespace, name) = (claim.metadata.namespace.as_deref(), claim.metadata.name.as_deref());
                nodes_of_users(cx, namespace.unwrap_or_default(), name.unwrap_or_default())
            }),
            // A claim may be known as bound before its volume is known.
            &On::every(|cx, volume: &PersistentVolume| {
                let claim = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
                let named = claim.and_then(|claim| Some((claim.namespace.as_deref()?, claim.name.as_deref()?)));
                named.map_or_else(Vec::new, |(namespace, name)| nodes_of_users(cx, namespace, name))
            }),
            &On::every(|_, _: &CSIDriver| Vec::new()),
        ],
        workers_max: 1,
        reconcile: |cx, key| reconcile(cx, key).boxed(),
    },
};

/// The nodes of the pods that use a claim.
fn nodes_of_users(cx: &Context, namespace: &str, claim: &str) -> Vec<Key> {
    let users = cx.cache::<Pod>().found_by(BY_CLAIM, &of_claim(namespace, claim));
    users.iter().filter_map(|pod| node(pod).map(Key::cluster)).collect()
}

async fn reconcile(cx: &Context, key: &Key) -> Result<Plan, Error> {
    let (pods, claims, volumes) =
        (cx.cache::<Pod>(), cx.cache::<PersistentVolumeClaim>(), cx.cache::<PersistentVolume>());
    let drivers = cx.cache::<CSIDriver>();
    let mut wanted = Vec::new();
    for pod in pods.found_by(BY_NODE, &key.name).into_iter().filter(|pod| plan::holds(pod)) {
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        for (name, _) in component_helpers::volumes::claim_names(&pod) {
            let claim = claims.get(&Key::new(namespace.clone(), name));
            let bound = claim.filter(|claim| component_helpers::volumes::is_bound(claim));
            let name = bound.and_then(|claim| component_helpers::volumes::volume_name(&claim).map(str::to_owned));
            let Some(volume) = name.and_then(|name| volumes.get(&Key::cluster(name))) else { continue };
            let Some(csi) = volume.spec.as_ref().and_then(|spec| spec.csi.as_ref()) else { continue };
            // A driver that nobody has described is one that attaches.
            let driver = drivers.get(&Key::cluster(csi.driver.clone()));
            if driver.is_none_or(|driver| driver.spec.attach_required != Some(false)) {
                wanted.push((pod.clone(), volume.clone()));
            }
        }
    }
    let attachments = attachments(&cx.cache::<VolumeAttachment>(), &key.name, &wanted);
    let node = cx.cache::<Node>().get(key);
    let unneeded = if cx.settings.force_detach_on_timeout {
        cx.memory::<Since>().count(cx, &key.name, plan::unneeded(&key.name, &wanted, &attachments))
    } else {
        plan::Unneeded::new()
    };
    let elsewhere = |volume: &PersistentVolume| users_elsewhere(cx, &key.name, volume);
    let plan = plan::plan(&key.name, node.as_deref(), &wanted, &attachments, &unneeded, elsewhere);
    if !plan.writes.iter().any(Write::is_delete) {
        return Ok(plan);
    }
    // What a node has mounted is never detached. Its newest word counts, not the copy, which may be old.
    let node = Api::<Node>::all(cx.client.clone()).get_opt(&key.name).await;
    let node = node.map_err(|error| Error::api(format!("get node {key}"), error))?;
    Ok(plan::plan(&key.name, node.as_ref(), &wanted, &attachments, &unneeded, elsewhere))
}

/// Attachments by their node.
const OF_NODE: Index<VolumeAttachment> =
    Index { name: "node", of: |attachment| vec![attachment.spec.node_name.clone()] };

/// Attachments by their volume.
const OF_VOLUME: Index<VolumeAttachment> = Index {
    name: "volume",
    of: |attachment| attachment.spec.source.persistent_volume_name.clone().into_iter().collect(),
};

/// The attachments of a node, and those of the volumes it wants to other nodes: whatever else is attached concerns nobody here.
fn attachments(
    all: &Cache<VolumeAttachment>,
    node: &str,
    wanted: &[(Arc<Pod>, Arc<PersistentVolume>)],
) -> Vec<Arc<VolumeAttachment>> {
    let mut found = all.found_by(OF_NODE, node);
    let volumes: BTreeSet<&str> = wanted.iter().filter_map(|(_, volume)| volume.metadata.name.as_deref()).collect();
    let elsewhere = volumes.into_iter().flat_map(|volume| all.found_by(OF_VOLUME, volume));
    found.extend(elsewhere.filter(|attachment| attachment.spec.node_name != node));
    found.sort_by(|one, other| one.metadata.name.cmp(&other.metadata.name));
    found
}

/// Pods on other nodes that use the volume. Its claim is in one namespace, and so are they.
fn users_elsewhere(cx: &Context, here: &str, volume: &PersistentVolume) -> Vec<Arc<Pod>> {
    let claim = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
    let Some((namespace, name)) = claim.and_then(|claim| Some((claim.namespace.as_deref()?, claim.name.as_deref()?)))
    else {
        return Vec::new();
    };
    let users = cx.cache::<Pod>().found_by(BY_CLAIM, &of_claim(namespace, name)).into_iter();
    users.filter(|pod| plan::holds(pod) && node(pod).is_some_and(|node| node != here)).collect()
}

/// Since when nobody has needed the attachments of a node, by the node's name. After a restart the time begins anew, as upstream.
#[derive(Default)]
struct Since(Mutex<HashMap<String, HashMap<String, Timestamp>>>);

impl Since {
    fn count(&self, cx: &Context, node: &str, unneeded: BTreeSet<String>) -> plan::Unneeded {
        let now = cx.steady();
        let mut all = self.0.lock();
        let mut before = all.remove(node).unwrap_or_default();
        let since: HashMap<String, Timestamp> =
            unneeded.into_iter().map(|name| (name.clone(), before.remove(&name).unwrap_or(now))).collect();
        let counted = since.iter().map(|(name, time)| (name.clone(), now.duration_since(*time))).collect();
        if !since.is_empty() {
            all.insert(node.to_owned(), since);
        }
        counted
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read<K: serde::de::DeserializeOwned>(object: Value) -> K {
        serde_json::from_value(object).expect("an object of its kind")
    }

    #[test]
    fn only_attachments_of_the_node_and_of_its_volumes_are_looked_at() {
        let attachment = |name: &str, node: &str, volume: &str| -> VolumeAttachment {
            read(
                json!({"metadata": {"name": name}, "spec": {"attacher": "d", "nodeName": node, "source": {"persistentVolumeName": volume}}}),
            )
        };
        let all = Cache::holding([
            attachment("a", "n1", "v1"),
            attachment("b", "n2", "v1"),
            attachment("c", "n2", "v2"),
            attachment("d", "n1", "v3"),
        ]);
        let volume: PersistentVolume = read(json!({"metadata": {"name": "v1"}}));
        let wanted = [(Arc::new(Pod::default()), Arc::new(volume))];
        let names = |found: Vec<Arc<VolumeAttachment>>| -> Vec<String> {
            found.iter().filter_map(|one| one.metadata.name.clone()).collect()
        };
        assert_eq!(names(attachments(&all, "n1", &wanted)), ["a", "b", "d"]);
        assert_eq!(names(attachments(&all, "n3", &[])), [""; 0]);
    }
}
