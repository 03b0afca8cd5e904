//! A pod's generic ephemeral volume is a claim of the pod's own, which ends with it.

use component_helpers::pods::{has_ended, is_controlled_by};
use component_helpers::volumes::claim_name;
use futures::FutureExt;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use reconcile::{Event, Key, On, Plan, Rule, Work, Write};

use crate::common::owners::controller_reference;
use crate::{Context, Controller};

pub(crate) static CONTROLLER: Controller = Controller {
    name: "ephemeral-volume-controller",
    account: "ephemeral-volume-controller",
    source: "ephemeral_volume",
    rules: &[
        Rule { groups: &[""], resources: &["pods"], verbs: &["get", "list", "watch"] },
        Rule { groups: &[""], resources: &["pods/finalizers"], verbs: &["update"] },
        Rule { groups: &[""], resources: &["persistentvolumeclaims"], verbs: &["create", "get", "list", "watch"] },
        Rule { groups: &["", "events.k8s.io"], resources: &["events"], verbs: &["create", "patch", "update"] },
    ],
    work: Work::Keys {
        wakes: &[
            &On::every(|_, pod: &Pod| if has_ephemeral(pod) { vec![Key::of(&pod.metadata)] } else { Vec::new() }),
            &On::every(|_, claim: &PersistentVolumeClaim| {
                let namespace = claim.metadata.namespace.clone().unwrap_or_default();
                let owner = component_helpers::pods::controller_of(&claim.metadata);
                let pod = owner.filter(|owner| owner.kind == "Pod");
                pod.map(|pod| Key::new(namespace, pod.name.clone())).into_iter().collect()
            }),
        ],
        workers_max: 5,
        reconcile: |cx, key| reconcile(cx, key).boxed(),
    },
};

fn has_ephemeral(pod: &Pod) -> bool {
    pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()).any(|volume| volume.ephemeral.is_some())
}

async fn reconcile(cx: &Context, key: &Key) -> Result<Plan, reconcile::Error> {
    let Some(pod) = cx.cache::<Pod>().get(key) else { return Ok(Plan::nothing()) };
    let claims = cx.cache::<PersistentVolumeClaim>();
    Ok(plan(&pod, |name| claims.get(&Key::new(key.namespace.clone(), name)).map(|claim| claim.metadata.clone())))
}

/// `existing` finds the claim of a name.
fn plan(pod: &Pod, existing: impl Fn(&str) -> Option<ObjectMeta>) -> Plan {
    let mut plan = Plan::nothing();
    if pod.metadata.deletion_timestamp.is_some() || has_ended(pod) {
        return plan;
    }
    for volume in pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()) {
        let Some(ephemeral) = &volume.ephemeral else { continue };
        let Some((name, _)) = claim_name(pod, volume) else { continue };
        match existing(&name) {
            Some(found) if is_controlled_by(&found, pod.metadata.uid.as_deref().unwrap_or_default()) => {}
            Some(_) => {
                let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
                let pod_name = pod.metadata.name.as_deref().unwrap_or_default();
                let message = format!(
                    "ephemeral volume {}: PVC {namespace}/{name} was not created for pod {namespace}/{pod_name} (pod is not owner)",
                    volume.name
                );
                plan.events.push(Event::warning(pod, "FailedBinding", message));
            }
            None => {
                let template = ephemeral.volume_claim_template.clone().unwrap_or_default();
                let given = template.metadata.unwrap_or_default();
                let claim = PersistentVolumeClaim {
                    metadata: ObjectMeta {
                        name: Some(name),
                        namespace: pod.metadata.namespace.clone(),
                        labels: given.labels,
                        annotations: given.annotations,
                        owner_references: Some(vec![controller_reference(pod)]),
                        ..ObjectMeta::default()
                    },
                    spec: Some(template.spec),
                    status: None,
                };
                plan.writes.push(Write::create(&claim));
            }
        }
    }
    plan
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_ephemeral_volume_gets_its_claim() {
        let pod = serde_json::json!({"metadata": {"name": "p", "namespace": "a", "uid": "1"}, "spec": {"containers": [], "volumes": [
            {"name": "x", "ephemeral": {"volumeClaimTemplate": {"metadata": {"labels": {"k": "v"}}, "spec": {"accessModes": ["ReadWriteOnce"]}}}},
            {"name": "y", "emptyDir": {}}]}});
        let pod: Pod = serde_json::from_value(pod).expect("a pod");
        let first = plan(&pod, |_| None);
        let body = first.writes[0].body();
        assert_eq!(
            (body["metadata"]["name"].as_str(), body["metadata"]["labels"]["k"].as_str()),
            (Some("p-x"), Some("v"))
        );
        assert_eq!(body["metadata"]["ownerReferences"][0]["uid"], "1");
        assert!(plan(&pod, |_| serde_json::from_value(body["metadata"].clone()).ok()).writes.is_empty());
        let foreign = plan(&pod, |_| Some(ObjectMeta::default()));
        assert_eq!(
            foreign.events[0].message,
            "ephemeral volume x: PVC a/p-x was not created for pod a/p (pod is not owner)"
        );
        let ended = serde_json::json!({"phase": "Succeeded"});
        let ended = Pod { status: serde_json::from_value(ended).ok(), ..pod };
        assert!(plan(&ended, |_| None).writes.is_empty());
    }
}
