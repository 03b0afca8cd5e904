//! A volume that is bound is not removed before its claim.

use futures::FutureExt;
use k8s_openapi::api::core::v1::PersistentVolume;
use reconcile::{Key, On, Plan, Rule, Work};

use crate::common::finalizers::{added, has, removed};
use crate::{Context, Controller};

const FINALIZER: &str = "kubernetes.io/pv-protection";

pub(crate) static CONTROLLER: Controller = Controller {
    name: "persistentvolume-protection-controller",
    account: "pv-protection-controller",
    source: "persistentvolume-protection-controller",
    rules: &[
        Rule { groups: &[""], resources: &["persistentvolumes"], verbs: &["get", "list", "update", "watch"] },
        Rule { groups: &["", "events.k8s.io"], resources: &["events"], verbs: &["create", "patch", "update"] },
    ],
    work: Work::Keys {
        wakes: &[&On::every(|_, volume: &PersistentVolume| vec![Key::of(&volume.metadata)])],
        workers_max: 5,
        reconcile: |cx, key| reconcile(cx, key).boxed(),
    },
};

async fn reconcile(cx: &Context, key: &Key) -> Result<Plan, reconcile::Error> {
    let Some(volume) = cx.cache::<PersistentVolume>().get(key) else { return Ok(Plan::nothing()) };
    Ok(plan(&volume))
}

fn plan(volume: &PersistentVolume) -> Plan {
    let bound = volume.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound");
    match (volume.metadata.deletion_timestamp.is_some(), has(volume, FINALIZER)) {
        (true, true) if !bound => Plan::one(removed(volume, FINALIZER)),
        (false, false) => Plan::one(added(volume, FINALIZER)),
        _ => Plan::nothing(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_volume_stays() {
        let check = |ending: bool, phase: &str, finalizers: &[&str], expected: Option<&[&str]>| {
            let mut object =
                serde_json::json!({"metadata": {"name": "v", "finalizers": finalizers}, "status": {"phase": phase}});
            if ending {
                object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
            }
            let plan = plan(&serde_json::from_value(object).expect("a volume"));
            let left = plan.writes.first().map(|write| write.body()["metadata"]["finalizers"].clone());
            let expected =
                expected.map(|list| if list.is_empty() { serde_json::Value::Null } else { serde_json::json!(list) });
            assert_eq!(left, expected);
        };
        check(false, "Available", &[], Some(&[FINALIZER]));
        check(false, "Available", &[FINALIZER], None);
        check(true, "Bound", &[FINALIZER, "x"], None);
        check(true, "Released", &[FINALIZER, "x"], Some(&["x"]));
        check(true, "Released", &[FINALIZER], Some(&[]));
    }
}
