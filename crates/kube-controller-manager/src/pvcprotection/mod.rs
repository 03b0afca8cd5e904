//! A claim that a pod uses is not removed before the pod has ended.

use component_helpers::pods::{has_ended, node};
use component_helpers::volumes::claim_names;
use futures::FutureExt;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use reconcile::{Key, On, Plan, Rule, Work};

use crate::common::finalizers::{added, has, removed};
use crate::common::pods::{BY_CLAIM, of_claim};
use crate::{Context, Controller};

const FINALIZER: &str = "kubernetes.io/pvc-protection";

pub(crate) static CONTROLLER: Controller = Controller {
    name: "persistentvolumeclaim-protection-controller",
    account: "pvc-protection-controller",
    source: "persistentvolumeclaim-protection-controller",
    rules: &[
        Rule { groups: &[""], resources: &["persistentvolumeclaims"], verbs: &["get", "list", "update", "watch"] },
        Rule { groups: &[""], resources: &["persistentvolumeclaims/status"], verbs: &["update"] },
        Rule { groups: &[""], resources: &["pods"], verbs: &["get", "list", "watch"] },
        Rule { groups: &["", "events.k8s.io"], resources: &["events"], verbs: &["create", "patch", "update"] },
    ],
    work: Work::Keys {
        wakes: &[
            &On::every(|_, claim: &PersistentVolumeClaim| vec![Key::of(&claim.metadata)]),
            &On::every(|cx, pod: &Pod| {
                let namespace = pod.metadata.namespace.clone().unwrap_or_default();
                let keys = claim_names(pod).map(|(name, _)| Key::new(namespace.clone(), name));
                // Only claims that are to go wait for pods.
                let claims = cx.cache::<PersistentVolumeClaim>();
                keys.filter(|key| claims.get(key).is_some_and(|claim| claim.metadata.deletion_timestamp.is_some()))
                    .collect()
            }),
        ],
        workers_max: 5,
        reconcile: |cx, key| reconcile(cx, key).boxed(),
    },
};

async fn reconcile(cx: &Context, key: &Key) -> Result<Plan, reconcile::Error> {
    let Some(claim) = cx.cache::<PersistentVolumeClaim>().get(key) else { return Ok(Plan::nothing()) };
    if claim.metadata.deletion_timestamp.is_some() && has(&*claim, FINALIZER) {
        let pods = cx.cache::<Pod>().found_by(BY_CLAIM, &of_claim(&key.namespace, &key.name));
        return Ok(if pods.iter().any(|pod| uses(pod, &key.name)) {
            Plan::nothing()
        } else {
            Plan::one(removed(&*claim, FINALIZER))
        });
    }
    Ok(if claim.metadata.deletion_timestamp.is_none() && !has(&*claim, FINALIZER) {
        Plan::one(added(&*claim, FINALIZER))
    } else {
        Plan::nothing()
    })
}

/// A pod that has no node yet, or has ended, uses nothing.
fn uses(pod: &Pod, claim: &str) -> bool {
    node(pod).is_some() && !has_ended(pod) && claim_names(pod).any(|(name, _)| name == claim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_use_claims_from_their_node_to_their_end() {
        let check = |node: &str, phase: &str, expected: bool| {
            let pod = serde_json::json!({"metadata": {"name": "p"}, "status": {"phase": phase}, "spec": {"nodeName": node,
                "containers": [], "volumes": [{"name": "x", "persistentVolumeClaim": {"claimName": "c"}}, {"name": "y", "ephemeral": {}}]}});
            let pod: Pod = serde_json::from_value(pod).expect("a pod");
            assert_eq!((uses(&pod, "c"), uses(&pod, "p-y"), uses(&pod, "d")), (expected, expected, false));
        };
        check("n1", "Running", true);
        check("n1", "Succeeded", false);
        check("", "Pending", false);
    }
}
