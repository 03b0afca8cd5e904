//! The built-in provisioner: a volume is a folder on the node that the claim's first pod goes to. `plan.rs` decides; the
//! folder is made by the node that mounts it, and removed by a pod on that node.

mod plan;

use component_helpers::volumes::{PROVISIONED_BY, PROVISIONER, annotation, class_of_claim, is_bound};
use futures::FutureExt;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use reconcile::{Key, On, Plan, Rule, Work};

use crate::{Context, Controller};

pub use component_helpers::volumes::LOCAL_PATH_PROVISIONERS as PROVISIONERS;

/// Where volumes are on a node, and the image of the pods that remove them.
#[derive(Clone, Debug)]
pub struct LocalStorage {
    pub folder: String,
    pub helper_image: String,
}

impl Default for LocalStorage {
    fn default() -> LocalStorage {
        LocalStorage { folder: "/var/lib/knarr/storage".into(), helper_image: "knarr.dev/demo:latest".into() }
    }
}

pub(crate) fn is_ours(provisioner: &str) -> bool {
    PROVISIONERS.contains(&provisioner)
}

pub(crate) static CONTROLLER: Controller = Controller {
    name: "local-storage",
    account: "persistent-volume-binder",
    source: "knarr.dev/local-path",
    rules: &[
        Rule {
            groups: &[""],
            resources: &["persistentvolumes"],
            verbs: &["create", "delete", "get", "list", "update", "watch"],
        },
        Rule { groups: &[""], resources: &["persistentvolumeclaims"], verbs: &["get", "list", "update", "watch"] },
        Rule { groups: &[""], resources: &["pods"], verbs: &["create", "delete", "get", "list", "watch"] },
        Rule { groups: &["storage.k8s.io"], resources: &["storageclasses"], verbs: &["get", "list", "watch"] },
        Rule { groups: &[""], resources: &["nodes"], verbs: &["list", "watch"] },
        Rule { groups: &["", "events.k8s.io"], resources: &["events"], verbs: &["create", "patch", "update"] },
    ],
    work: Work::Keys {
        wakes: &[
            &On::every(|_, claim: &PersistentVolumeClaim| {
                let ours = annotation(&claim.metadata, PROVISIONER).is_some_and(is_ours) && !is_bound(claim);
                if ours { vec![Key::of(&claim.metadata)] } else { Vec::new() }
            }),
            &On::every(|_, volume: &PersistentVolume| {
                let ours = annotation(&volume.metadata, PROVISIONED_BY).is_some_and(is_ours);
                if ours { vec![Key::of(&volume.metadata)] } else { Vec::new() }
            }),
            &On::every(|_, pod: &Pod| plan::volume_of_helper(pod).map(Key::cluster).into_iter().collect()),
            // A node that is gone takes its folders with it.
            &On::every(|cx, node: &Node| {
                let name = node.metadata.name.as_deref().unwrap_or_default();
                let volumes = match cx.cache::<Node>().get(&Key::cluster(name)) {
                    Some(_) => Vec::new(),
                    None => cx.cache::<PersistentVolume>().list(),
                };
                let ours =
                    volumes.iter().filter(|volume| annotation(&volume.metadata, PROVISIONED_BY).is_some_and(is_ours));
                ours.map(|volume| Key::of(&volume.metadata)).collect()
            }),
            &On::every(|_, _: &StorageClass| Vec::new()),
        ],
        workers_max: 4,
        reconcile: |cx, key| reconcile(cx, key).boxed(),
    },
};

async fn reconcile(cx: &Context, key: &Key) -> Result<Plan, reconcile::Error> {
    let (volumes, nodes) = (cx.cache::<PersistentVolume>(), cx.cache::<Node>());
    let settings = &cx.settings.local_storage;
    if key.namespace.is_empty() {
        let Some(volume) = volumes.get(key) else { return Ok(Plan::nothing()) };
        let helper = cx.cache::<Pod>().get(&plan::helper_key(&key.name));
        return Ok(plan::delete(settings, &volume, helper.as_deref(), &nodes.list()));
    }
    let Some(claim) = cx.cache::<PersistentVolumeClaim>().get(key) else { return Ok(Plan::nothing()) };
    let Some(class) = cx.cache::<StorageClass>().get(&Key::cluster(class_of_claim(&claim))) else {
        return Ok(Plan::nothing());
    };
    let made = volumes.get(&Key::cluster(plan::name(&claim)));
    let node = plan::selected_node(&claim).and_then(|name| nodes.get(&Key::cluster(name)));
    Ok(plan::provision(settings, &claim, &class, node.as_deref(), made.is_some()))
}
