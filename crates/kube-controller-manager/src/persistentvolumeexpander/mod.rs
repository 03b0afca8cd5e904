//! Claims that ask for more than they have. Volumes of our own provisioner only need to say their new size; all others have
//! a resizer of their own, and users are told whom they wait for.

use component_helpers::volumes::{PROVISIONED_BY, annotation, asked_size, is_bound, volume_name, volume_size};
use futures::FutureExt;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use machinery::quantity::Quantity;
use reconcile::{Event, Key, On, Plan, Rule, Work, Write};

use crate::localstorage::is_ours;
use crate::{Context, Controller};

pub(crate) static CONTROLLER: Controller = Controller {
    name: "persistentvolume-expander-controller",
    account: "expand-controller",
    source: "volume_expand",
    rules: &[
        Rule { groups: &[""], resources: &["persistentvolumes"], verbs: &["get", "list", "patch", "update", "watch"] },
        Rule { groups: &[""], resources: &["persistentvolumeclaims/status"], verbs: &["patch", "update"] },
        Rule { groups: &[""], resources: &["persistentvolumeclaims"], verbs: &["get", "list", "watch"] },
        Rule { groups: &["", "events.k8s.io"], resources: &["events"], verbs: &["create", "patch", "update"] },
    ],
    work: Work::Keys {
        wakes: &[
            &On::every(|_, claim: &PersistentVolumeClaim| vec![Key::of(&claim.metadata)]),
            &On::every(|_, volume: &PersistentVolume| {
                let reference = volume.spec.as_ref().and_then(|spec| spec.claim_ref.clone());
                let key = reference.map(|reference| {
                    Key::new(reference.namespace.unwrap_or_default(), reference.name.unwrap_or_default())
                });
                key.into_iter().collect()
            }),
        ],
        workers_max: 2,
        reconcile: |cx, key| reconcile(cx, key).boxed(),
    },
};

async fn reconcile(cx: &Context, key: &Key) -> Result<Plan, reconcile::Error> {
    let Some(claim) = cx.cache::<PersistentVolumeClaim>().get(key) else { return Ok(Plan::nothing()) };
    let named = volume_name(&claim).and_then(|name| cx.cache::<PersistentVolume>().get(&Key::cluster(name)));
    Ok(named.map_or_else(Plan::nothing, |volume| plan(&claim, &volume)))
}

fn plan(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> Plan {
    let status = claim.status.as_ref();
    let bound = is_bound(claim) && status.and_then(|status| status.phase.as_deref()) == Some("Bound");
    let has = status.and_then(|status| status.capacity.as_ref()?.get("storage"));
    let Some(has) = has.and_then(|has| Quantity::parse(&has.0).ok()) else { return Plan::nothing() };
    let asked = asked_size(claim);
    if !bound || asked <= has || claim.metadata.deletion_timestamp.is_some() {
        return Plan::nothing();
    }
    let size = k8s_openapi::apimachinery::pkg::api::resource::Quantity(asked.canonical());
    if !annotation(&volume.metadata, PROVISIONED_BY).is_some_and(is_ours) {
        let csi = volume.spec.as_ref().is_some_and(|spec| spec.csi.is_some());
        let event = if csi {
            Event::normal(claim, "ExternalExpanding", "waiting for an external controller to expand this PVC")
        } else {
            Event::warning(
                claim,
                "ExternalExpanding",
                "Ignoring the PVC: didn't find a plugin capable of expanding the volume; waiting for an external controller \
                 to process this PVC.",
            )
        };
        return Plan { events: vec![event], ..Plan::default() };
    }
    if volume_size(volume) < asked {
        let mut volume = volume.clone();
        let spec = volume.spec.get_or_insert_default();
        spec.capacity.get_or_insert_default().insert("storage".into(), size);
        return Plan::one(Write::update(&volume));
    }
    let mut claim = claim.clone();
    let status = claim.status.get_or_insert_default();
    status.capacity.get_or_insert_default().insert("storage".into(), size);
    let write = Write::update_sub(&claim, "status");
    Plan::one(write.tells(&claim, "VolumeResizeSuccessful", "Resize volume succeeded"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(provisioner: &str, size: &str, has: &str, asks: &str, expected: &[&str]) {
        let claim = serde_json::json!({
            "metadata": {"name": "c", "namespace": "a", "annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
            "spec": {"volumeName": "v", "resources": {"requests": {"storage": asks}}},
            "status": {"phase": "Bound", "capacity": {"storage": has}}});
        let volume = serde_json::json!({"metadata": {"name": "v", "annotations": {"pv.kubernetes.io/provisioned-by": provisioner}},
            "spec": {"capacity": {"storage": size}}});
        let plan =
            plan(&serde_json::from_value(claim).expect("a claim"), &serde_json::from_value(volume).expect("a volume"));
        let told: Vec<String> = plan.writes.iter().map(ToString::to_string).collect();
        let told: Vec<String> =
            told.into_iter().chain(plan.events.iter().map(|event| event.reason.to_string())).collect();
        assert_eq!(told, expected);
    }

    #[test]
    fn our_volumes_grow_and_others_wait() {
        check("knarr.dev/local-path", "1Gi", "1Gi", "1Gi", &[]);
        check("knarr.dev/local-path", "1Gi", "1Gi", "2Gi", &["update /api/v1/persistentvolumes/v"]);
        let status = "update /api/v1/namespaces/a/persistentvolumeclaims/c/status";
        check("knarr.dev/local-path", "2Gi", "1Gi", "2Gi", &[status]);
        check("example.com/other", "1Gi", "1Gi", "2Gi", &["ExternalExpanding"]);
        check("example.com/other", "1Gi", "2Gi", "1Gi", &[]);
    }
}
