//! CSI volumes are attached to the nodes whose pods use them, and detached when none does. One key per node.

mod plan;

use component_helpers::pods::node;
use futures::FutureExt;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::{CSIDriver, VolumeAttachment};
use reconcile::{Key, On, Plan, Rule, Work};

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
                let pods = cx.cache::<Pod>().in_namespace(namespace.unwrap_or_default());
                let users = pods.iter().filter(|pod| {
                    component_helpers::volumes::claim_names(pod).any(|(used, _)| Some(used.as_str()) == name)
                });
                users.filter_map(|pod| node(pod).map(Key::cluster)).collect()
            }),
            &On::every(|_, _: &PersistentVolume| Vec::new()),
            &On::every(|_, _: &CSIDriver| Vec::new()),
        ],
        workers_max: 1,
        reconcile: |cx, key| reconcile(cx, key).boxed(),
    },
};

async fn reconcile(cx: &Context, key: &Key) -> Result<Plan, reconcile::Error> {
    let (pods, claims, volumes) =
        (cx.cache::<Pod>(), cx.cache::<PersistentVolumeClaim>(), cx.cache::<PersistentVolume>());
    let attachments = cx.cache::<VolumeAttachment>().list();
    let drivers = cx.cache::<CSIDriver>();
    let mut wanted = Vec::new();
    for pod in pods.list().into_iter().filter(|pod| node(pod) == Some(key.name.as_str()) && plan::holds(pod)) {
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
    let node = cx.cache::<Node>().get(key);
    Ok(plan::plan(&key.name, node.as_deref(), &wanted, &attachments))
}
