//! EndpointSlices: the addresses behind every Service that selects pods, in slices of a hundred.
//!
//! `plan.rs` says what should be in the slices, `pack.rs` fits it into those that are there with few writes, `hints.rs`
//! says from where each address is best reached.

pub(crate) mod pack;
mod hints;
mod plan;
mod zones;

use std::time::Duration;

use component_helpers::labels::of_map;
use futures::FutureExt;
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use reconcile::{Key, On, Plan, Rule, Work};

use crate::common::pods::selected;
use crate::common::serving::matters;
use crate::{Context, Controller};

pub(crate) const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
pub(crate) const SERVICE_NAME: &str = "kubernetes.io/service-name";
const MANAGER: &str = "endpointslice-controller.k8s.io";

/// Changes of pods within this time are told together: behind a large Service they come by the hundred, and each look
/// at it costs a look at all of its pods.
pub(crate) const GATHER: Duration = Duration::from_millis(25);

pub(crate) static CONTROLLER: Controller = Controller {
    name: "endpointslice-controller",
    account: "endpointslice-controller",
    source: "endpoint-slice-controller",
    rules: &[
        Rule { groups: &[""], resources: &["nodes", "pods", "services"], verbs: &["get", "list", "watch"] },
        Rule { groups: &[""], resources: &["services/finalizers"], verbs: &["update"] },
        Rule {
            groups: &["discovery.k8s.io"],
            resources: &["endpointslices"],
            verbs: &["create", "delete", "get", "list", "update", "watch"],
        },
        Rule { groups: &["", "events.k8s.io"], resources: &["events"], verbs: &["create", "patch", "update"] },
    ],
    work: Work::Keys {
        wakes: &[
            &On::every(|_, service: &Service| vec![Key::of(&service.metadata)]),
            &On::every(|_, slice: &EndpointSlice| service_of(slice, MANAGER).into_iter().collect()),
            &On::every(services_of).when(matters).gathered(GATHER),
            &On::every(|cx, _: &Node| {
                let services = cx.cache::<Service>().list();
                let spread = services.iter().filter(|service| zones::are_wished(service));
                spread.map(|service| Key::of(&service.metadata)).collect()
            })
            .when(zones::matters)
            .gathered(GATHER),
        ],
        workers_max: 5,
        reconcile: |cx, key| reconcile(cx, key).boxed(),
    },
};

/// The Services that lead to a pod.
pub(crate) fn services_of(cx: &Context, pod: &Pod) -> Vec<Key> {
    let services = cx.cache::<Service>().in_namespace(pod.metadata.namespace.as_deref().unwrap_or_default());
    let has = |(key, value): (&String, &String)| {
        pod.metadata.labels.as_ref().and_then(|labels| labels.get(key)) == Some(value)
    };
    // Asked for every Service at every change of a pod, so nothing is built for it. An empty selector takes nobody.
    let leading = services.iter().filter(|service| {
        let selector = service.spec.as_ref().and_then(|spec| spec.selector.as_ref());
        selector.is_some_and(|selector| !selector.is_empty() && selector.iter().all(has))
    });
    leading.map(|service| Key::of(&service.metadata)).collect()
}

/// The Service of a slice, if that manager keeps it.
pub(crate) fn service_of(slice: &EndpointSlice, manager: &str) -> Option<Key> {
    let labels = slice.metadata.labels.as_ref()?;
    let managed = labels.get(MANAGED_BY).is_some_and(|by| by == manager);
    let name = labels.get(SERVICE_NAME).filter(|_| managed)?;
    Some(Key::new(slice.metadata.namespace.clone().unwrap_or_default(), name))
}

async fn reconcile(cx: &Context, key: &Key) -> Result<Plan, reconcile::Error> {
    // What a deleted Service leaves behind names it as its owner and is collected.
    let Some(service) = cx.cache::<Service>().get(key) else { return Ok(Plan::nothing()) };
    let Some(selector) = of_map(service.spec.as_ref().and_then(|spec| spec.selector.as_ref())) else {
        return Ok(Plan::nothing());
    };
    let pods = selected(&cx.cache::<Pod>(), &key.namespace, &selector);
    let mut slices = cx.cache::<EndpointSlice>().owned_by(service.metadata.uid.as_deref().unwrap_or_default());
    slices.retain(|slice| service_of(slice, MANAGER).as_ref() == Some(key));
    let nodes = cx.cache::<Node>();
    let zones = zones::are_wished(&service).then(|| zones::Zones::of(&nodes.list()));
    let (zones, endpoints_max) = (zones.as_ref(), cx.settings.endpoints_per_slice_max);
    Ok(plan::plan(&service, &pods, &slices, |name| nodes.get(&Key::cluster(name)), zones, endpoints_max))
}
