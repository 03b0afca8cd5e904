//! A class of volume attributes that a claim or a volume uses is not removed before they are.

use futures::FutureExt;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::VolumeAttributesClass;
use reconcile::{Key, On, Plan, Rule, Work};

use crate::common::finalizers::{added, has, removed};
use crate::{Context, Controller};

const FINALIZER: &str = "kubernetes.io/vac-protection";

pub(crate) static CONTROLLER: Controller = Controller {
    name: "volumeattributesclass-protection-controller",
    account: "volumeattributesclass-protection-controller",
    source: "volumeattributesclass-protection-controller",
    rules: &[
        Rule {
            groups: &[""],
            resources: &["persistentvolumeclaims", "persistentvolumes"],
            verbs: &["get", "list", "watch"],
        },
        Rule {
            groups: &["storage.k8s.io"],
            resources: &["volumeattributesclasses"],
            verbs: &["get", "list", "update", "watch"],
        },
        Rule { groups: &["", "events.k8s.io"], resources: &["events"], verbs: &["create", "patch", "update"] },
    ],
    work: Work::Keys {
        wakes: &[
            &On::every(|_, class: &VolumeAttributesClass| vec![Key::of(&class.metadata)]),
            &On::every(|_, claim: &PersistentVolumeClaim| of_claim(claim).map(Key::cluster).collect()),
            &On::every(|_, volume: &PersistentVolume| of_volume(volume).map(Key::cluster).into_iter().collect()),
        ],
        workers_max: 1,
        reconcile: |cx, key| reconcile(cx, key).boxed(),
    },
};

async fn reconcile(cx: &Context, key: &Key) -> Result<Plan, reconcile::Error> {
    let Some(class) = cx.cache::<VolumeAttributesClass>().get(key) else { return Ok(Plan::nothing()) };
    let used = || {
        let claims = cx.cache::<PersistentVolumeClaim>().list();
        let volumes = cx.cache::<PersistentVolume>().list();
        claims.iter().any(|claim| of_claim(claim).any(|name| name == key.name))
            || volumes.iter().any(|volume| of_volume(volume) == Some(&key.name))
    };
    Ok(plan(&class, used))
}

fn plan(class: &VolumeAttributesClass, used: impl Fn() -> bool) -> Plan {
    match (class.metadata.deletion_timestamp.is_some(), has(class, FINALIZER)) {
        (true, true) if !used() => Plan::one(removed(class, FINALIZER)),
        (false, false) => Plan::one(added(class, FINALIZER)),
        _ => Plan::nothing(),
    }
}

/// The class that a claim asks for, the one it has, and the one it is being changed to.
fn of_claim(claim: &PersistentVolumeClaim) -> impl Iterator<Item = &str> {
    let wanted = claim.spec.iter().filter_map(|spec| spec.volume_attributes_class_name.as_deref());
    let status = claim.status.as_ref();
    let current = status.and_then(|status| status.current_volume_attributes_class_name.as_deref());
    let target = status.and_then(|status| status.modify_volume_status.as_ref());
    let target = target.and_then(|modify| modify.target_volume_attributes_class_name.as_deref());
    wanted.chain(current).chain(target)
}

fn of_volume(volume: &PersistentVolume) -> Option<&str> {
    volume.spec.as_ref()?.volume_attributes_class_name.as_deref()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_in_use_stays() {
        let check = |ending: bool, used: bool, finalizers: &[&str], expected: Option<usize>| {
            let mut object =
                serde_json::json!({"metadata": {"name": "gold", "finalizers": finalizers}, "driverName": "d"});
            if ending {
                object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
            }
            let plan = plan(&serde_json::from_value(object).expect("a class"), || used);
            let left =
                plan.writes.first().map(|write| write.body()["metadata"]["finalizers"].as_array().map_or(0, Vec::len));
            assert_eq!(left, expected, "ending {ending}, used {used}");
        };
        check(false, false, &[], Some(1));
        check(false, true, &[FINALIZER], None);
        check(true, true, &[FINALIZER], None);
        check(true, false, &[FINALIZER], Some(0));
        let claim = serde_json::json!({"spec": {"volumeAttributesClassName": "a"}, "status": {
            "currentVolumeAttributesClassName": "b", "modifyVolumeStatus": {"status": "Pending", "targetVolumeAttributesClassName": "c"}}});
        let claim: PersistentVolumeClaim = serde_json::from_value(claim).expect("a claim");
        assert_eq!(of_claim(&claim).collect::<Vec<_>>(), ["a", "b", "c"]);
    }
}
