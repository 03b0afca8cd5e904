//! Pods leave devices with `NoExecute` taints that their claims do not tolerate, or do not tolerate any longer.

mod plan;

use std::sync::Arc;

use component_helpers::pods::node as node_of;
use futures::FutureExt;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceSlice};
use reconcile::{Error, Key, On, Plan, Rule, Work};

use crate::{Context, Controller};

pub(crate) static CONTROLLER: Controller = Controller {
    name: "device-taint-eviction-controller",
    account: "device-taint-eviction-controller",
    source: "device-taint-eviction",
    rules: &[
        Rule { groups: &[""], resources: &["pods"], verbs: &["delete", "get", "list", "watch"] },
        Rule { groups: &[""], resources: &["pods/status"], verbs: &["patch", "update"] },
        Rule { groups: &["resource.k8s.io"], resources: &["resourceclaims"], verbs: &["get", "list", "watch"] },
        Rule { groups: &["resource.k8s.io"], resources: &["resourceslices"], verbs: &["get", "list", "watch"] },
        Rule { groups: &["resource.k8s.io"], resources: &["deviceclasses"], verbs: &["get", "list", "watch"] },
        Rule { groups: &["", "events.k8s.io"], resources: &["events"], verbs: &["create", "patch", "update"] },
    ],
    // A key is a claim: its devices say whether its users may stay.
    work: Work::Keys {
        wakes: &[
            &On::every(|_, claim: &ResourceClaim| vec![Key::of(&claim.metadata)]),
            &On::every(|cx, slice: &ResourceSlice| {
                let claims = cx.cache::<ResourceClaim>().list().into_iter();
                let pool = (slice.spec.driver.as_str(), slice.spec.pool.name.as_str());
                claims.filter(|claim| plan::has_devices_of(claim, pool)).map(|claim| Key::of(&claim.metadata)).collect()
            }),
            // A pod may come to its node after its claim has got its devices.
            &On::every(|cx, pod: &Pod| {
                let wants =
                    pod.spec.as_ref().is_some_and(|spec| spec.resource_claims.iter().flatten().next().is_some());
                let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
                if !wants {
                    return Vec::new();
                }
                let claims = cx.cache::<ResourceClaim>().in_namespace(namespace).into_iter();
                let used =
                    claims.filter(|claim| plan::users(claim).any(|user| Some(&user.uid) == pod.metadata.uid.as_ref()));
                used.map(|claim| Key::of(&claim.metadata)).collect()
            }),
        ],
        workers_max: 8,
        reconcile: |cx, key| reconcile(cx, key).boxed(),
    },
};

async fn reconcile(cx: &Context, key: &Key) -> Result<Plan, Error> {
    let Some(claim) = cx.cache::<ResourceClaim>().get(key) else { return Ok(Plan::nothing()) };
    let now = cx.now();
    let slices = cx.cache::<ResourceSlice>().list();
    let Some(leave_at) = plan::leave_at(&claim, &slices, now) else { return Ok(Plan::nothing()) };
    let users = plan::users(&claim).filter_map(|user| {
        let pod = cx.cache::<Pod>().get(&Key::new(&key.namespace, &user.name))?;
        Some(pod).filter(|pod| pod.metadata.uid.as_ref() == Some(&user.uid))
    });
    let staying: Vec<Arc<Pod>> =
        users.filter(|pod| node_of(pod).is_some() && pod.metadata.deletion_timestamp.is_none()).collect();
    if staying.is_empty() {
        return Ok(Plan::nothing());
    }
    match std::time::Duration::try_from(leave_at.duration_since(now)) {
        Ok(left) if !left.is_zero() => Ok(Plan::after(left)),
        Ok(_) | Err(_) => Ok(plan::evict(&staying, now)),
    }
}
