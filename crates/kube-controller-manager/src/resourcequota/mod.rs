//! ResourceQuotas: what a namespace really holds, counted anew. Admission reserves before it lets objects in; here what has
//! ended or is gone is given back.

mod plan;

use std::time::Duration;

use component_helpers::quota::devices::Classes;
use component_helpers::quota::pod_resources::Amounts;
use futures::FutureExt;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, ReplicationController, ResourceQuota, Service};
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim};
use kube::Client;
use reconcile::{Error, Key, Kind, On, Plan, Rule, Work, discover};
use serde_json::Value;

use crate::{Context, Controller};

pub(crate) static CONTROLLER: Controller = Controller {
    name: "resourcequota-controller",
    account: "resourcequota-controller",
    source: "resourcequota-controller",
    rules: &[
        Rule { groups: &["*"], resources: &["*"], verbs: &["list", "watch"] },
        Rule { groups: &[""], resources: &["resourcequotas/status"], verbs: &["update"] },
        Rule { groups: &["", "events.k8s.io"], resources: &["events"], verbs: &["create", "patch", "update"] },
    ],
    work: Work::Keys {
        wakes: &[
            &On::every(|_, quota: &ResourceQuota| vec![Key::of(&quota.metadata)]),
            &On::every(|cx, pod: &Pod| quotas_beside(cx, pod)),
            &On::every(|cx, service: &Service| quotas_beside(cx, service)),
            &On::every(|cx, claim: &PersistentVolumeClaim| quotas_beside(cx, claim)),
            &On::every(|cx, controller: &ReplicationController| quotas_beside(cx, controller)),
            &On::every(|cx, claim: &ResourceClaim| quotas_beside(cx, claim)),
            &On::every(|_, _: &DeviceClass| Vec::new()),
        ],
        workers_max: 5,
        reconcile: |cx, key| reconcile(cx, key).boxed(),
    },
};

/// Kinds that are not cached are counted this often.
const RECOUNT: Duration = Duration::from_secs(15);
/// What was reserved before the quota was read has been stored by then, or never will be.
const LANDING: Duration = Duration::from_secs(1);

fn quotas_beside<K: Kind>(cx: &Context, object: &K) -> Vec<Key> {
    let namespace = object.metadata().namespace.as_deref().unwrap_or_default();
    cx.cache::<ResourceQuota>().in_namespace(namespace).iter().map(|quota| Key::of(&quota.metadata)).collect()
}

async fn reconcile(cx: &Context, key: &Key) -> Result<Plan, Error> {
    let Some(quota) = cx.cache::<ResourceQuota>().get(key) else { return Ok(Plan::nothing()) };
    let mut used = count(cx, key, &quota).await?;
    if plan::gives_back(&quota, &used) {
        // Admission reserves first and stores the object then: what is missing may just be on its way.
        tokio::time::sleep(LANDING).await;
        used = count(cx, key, &quota).await?;
    }
    let mut plan = plan::plan(&quota, &used);
    plan.come_back(if plan::others(&quota).is_empty() { cx.settings.quota_sync_period } else { RECOUNT });
    Ok(plan)
}

async fn count(cx: &Context, key: &Key, quota: &ResourceQuota) -> Result<Amounts, Error> {
    let mut used = plan::nothing_used(quota);
    let value = serde_json::to_value(quota).unwrap_or_default();
    let classes = cx.cache::<DeviceClass>().list();
    let classes =
        classes.iter().map(|class| (Key::of(&class.metadata).name, class.spec.extended_resource_name.clone()));
    let classes = Classes::new(classes);
    let counted = plan::weighed(quota, &classes);
    let (namespace, now) = (&key.namespace, cx.now());
    if counted.contains(&"pods") {
        plan::add_all(&mut used, &value, "pods", &cx.cache::<Pod>().in_namespace(namespace), now);
    }
    if counted.contains(&"services") {
        plan::add_all(&mut used, &value, "services", &cx.cache::<Service>().in_namespace(namespace), now);
    }
    if counted.contains(&"persistentvolumeclaims") {
        let claims = cx.cache::<PersistentVolumeClaim>().in_namespace(namespace);
        plan::add_all(&mut used, &value, "persistentvolumeclaims", &claims, now);
    }
    if counted.contains(&"replicationcontrollers") {
        let all = cx.cache::<ReplicationController>().in_namespace(namespace);
        plan::add_all(&mut used, &value, "replicationcontrollers", &all, now);
    }
    if counted.contains(&"resourceclaims") {
        let claims = cx.cache::<ResourceClaim>().in_namespace(namespace);
        let pod = |name: &str| cx.cache::<Pod>().get(&Key::new(namespace, name));
        plan::add_device_claims(&mut used, &value, &classes, &claims, pod, now);
    }
    let others = plan::others(quota);
    if others.is_empty() {
        return Ok(used);
    }
    let found =
        discover(&cx.client).await.map_err(|error| Error::api("discover the resources of the server", error))?;
    for resource in found.resources.iter().filter(|one| one.namespaced && one.supports(&["list"])) {
        let names = plan::names_of(&resource.group, &resource.plural, &others);
        if !names.is_empty() {
            let number = how_many(&cx.client, &resource.path(namespace)).await?;
            plan::add_number(&mut used, &value, &resource.group, &resource.plural, &names, number);
        }
    }
    Ok(used)
}

/// The server says how many it left out.
async fn how_many(client: &Client, path: &str) -> Result<i64, Error> {
    let request = http::Request::get(format!("{path}?limit=1")).body(Vec::new());
    let request = request.map_err(|error| Error::Other(error.to_string()))?;
    let list = client.request::<Value>(request).await.map_err(|error| Error::api(format!("list {path}"), error))?;
    let shown = list["items"].as_array().map_or(0, Vec::len);
    Ok(shown as i64 + list.pointer("/metadata/remainingItemCount").and_then(Value::as_i64).unwrap_or(0))
}
