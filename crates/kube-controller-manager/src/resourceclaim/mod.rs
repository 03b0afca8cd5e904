//! Claims for devices: made from templates for the pods that want them, free again when no pod uses them.

mod claim;
mod pod;
#[cfg(test)]
mod tests;

use futures::FutureExt;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimTemplate};
use kube::Api;
use kube::api::PostParams;
use reconcile::{Error, Key, On, Plan, Rule, Work};

use crate::common::finalizers::removed;
use crate::{Context, Controller};

/// Keeps a claim that is allocated from going.
const FINALIZER: &str = "resource.kubernetes.io/delete-protection";
/// On a claim made from a template: for which of the pod's claims.
const POD_CLAIM_NAME: &str = "resource.kubernetes.io/pod-claim-name";

pub(crate) static CONTROLLER: Controller = Controller {
    name: "resourceclaim-controller",
    account: "resource-claim-controller",
    source: "resource_claim",
    rules: &[
        Rule { groups: &[""], resources: &["pods"], verbs: &["get", "list", "watch"] },
        Rule { groups: &[""], resources: &["pods/finalizers"], verbs: &["update"] },
        Rule { groups: &[""], resources: &["pods/status"], verbs: &["patch", "update"] },
        Rule {
            groups: &["resource.k8s.io"],
            resources: &["resourceclaims"],
            verbs: &["create", "delete", "get", "list", "watch", "patch", "update"],
        },
        Rule { groups: &["resource.k8s.io"], resources: &["resourceclaims/status"], verbs: &["patch", "update"] },
        Rule { groups: &["resource.k8s.io"], resources: &["resourceclaims/binding"], verbs: &["patch", "update"] },
        Rule { groups: &["", "events.k8s.io"], resources: &["events"], verbs: &["create", "patch", "update"] },
    ],
    // A key is the name of a pod, of a claim, or of both: each is looked at where it is there.
    work: Work::Keys {
        wakes: &[
            &On::every(|_, pod: &Pod| {
                let namespace = pod.metadata.namespace.clone().unwrap_or_default();
                let claims = pod::held_claims(pod).map(|name| Key::new(namespace.clone(), name));
                if pod::wants_claims(pod) { claims.chain([Key::of(&pod.metadata)]).collect() } else { Vec::new() }
            }),
            &On::every(|_, claim: &ResourceClaim| {
                let namespace = claim.metadata.namespace.clone().unwrap_or_default();
                let owner = claim::owning_pod(claim).map(|owner| Key::new(namespace, owner.name.clone()));
                owner.into_iter().chain([Key::of(&claim.metadata)]).collect()
            }),
            &On::every(|cx, template: &ResourceClaimTemplate| {
                let namespace = template.metadata.namespace.as_deref().unwrap_or_default();
                let name = template.metadata.name.as_deref().unwrap_or_default();
                let pods = cx.cache::<Pod>().in_namespace(namespace).into_iter();
                pods.filter(|pod| pod::uses_template(pod, name)).map(|pod| Key::of(&pod.metadata)).collect()
            }),
        ],
        workers_max: 50,
        reconcile: |cx, key| reconcile(cx, key).boxed(),
    },
};

async fn reconcile(cx: &Context, key: &Key) -> Result<Plan, Error> {
    let mut plan = Plan::nothing();
    if let Some(pod) = cx.cache::<Pod>().get(key).filter(|pod| pod::wants_claims(pod)) {
        let owned = cx.cache::<ResourceClaim>().owned_by(pod.metadata.uid.as_deref().unwrap_or_default());
        let template = |name: &str| cx.cache::<ResourceClaimTemplate>().get(&Key::new(&key.namespace, name));
        let claim = |name: &str| cx.cache::<ResourceClaim>().get(&Key::new(&key.namespace, name));
        plan = pod::plan(&pod, &owned, template, claim);
    }
    if let Some(claim) = cx.cache::<ResourceClaim>().get(key) {
        let pods = consumers(cx, &claim).await?;
        match claim::decide(&claim, &pods) {
            claim::Decision::Nothing => {}
            claim::Decision::Status(claim) => plan.writes.push(reconcile::Write::update_sub(&*claim, "status")),
            claim::Decision::Free(claim) => {
                // The finalizer goes after the allocation, and only if nobody took the claim in between.
                let claims: Api<ResourceClaim> = Api::namespaced(cx.client.clone(), &key.namespace);
                let written = claims.replace_status(&key.name, &PostParams::default(), &claim).await;
                let written = written.map_err(|error| Error::api(format!("free claim {key}"), error))?;
                plan.writes.push(removed(&written, FINALIZER));
            }
            claim::Decision::Release => plan.writes.push(removed(&*claim, FINALIZER)),
            claim::Decision::Delete => {
                plan.writes.push(reconcile::Write::delete(&*claim, Default::default()));
            }
        }
    }
    Ok(plan)
}

/// The pods that the claim is reserved for or made for, those that are there. Taking a device from a pod cannot be taken back, so a
/// copy that lags is not enough to say that a pod is gone.
async fn consumers(cx: &Context, claim: &ResourceClaim) -> Result<Vec<Pod>, Error> {
    let namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
    let reserved = claim.status.iter().flat_map(|status| status.reserved_for.iter().flatten());
    let reserved = reserved.filter(|one| claim::is_pod(one)).map(|one| (&one.name, &one.uid));
    let owner = claim::owning_pod(claim).map(|owner| (&owner.name, &owner.uid));
    let mut found = Vec::new();
    for (name, uid) in reserved.chain(owner) {
        let cached = cx.cache::<Pod>().get(&Key::new(namespace, name));
        let cached = cached.filter(|pod| pod.metadata.uid.as_ref() == Some(uid));
        let pod = match cached {
            Some(pod) => Some(Pod::clone(&pod)),
            None => {
                let pods: Api<Pod> = Api::namespaced(cx.client.clone(), namespace);
                let asked = pods.get_opt(name).await;
                asked.map_err(|error| Error::api(format!("get pod {namespace}/{name}"), error))?
            }
        };
        found.extend(pod.filter(|pod| pod.metadata.uid.as_ref() == Some(uid)));
    }
    Ok(found)
}
