//! Endpoints that users keep by hand, for Services without a selector, are mirrored into EndpointSlices.

mod plan;

use futures::FutureExt;
use k8s_openapi::api::core::v1::{Endpoints, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use reconcile::{Key, On, Plan, Rule, Work};

use crate::endpointslice::service_of;
use crate::{Context, Controller};

const MANAGER: &str = "endpointslicemirroring-controller.k8s.io";

pub(crate) static CONTROLLER: Controller = Controller {
    name: "endpointslice-mirroring-controller",
    account: "endpointslicemirroring-controller",
    source: "endpoint-slice-mirroring-controller",
    rules: &[
        Rule { groups: &[""], resources: &["endpoints", "services"], verbs: &["get", "list", "watch"] },
        Rule { groups: &[""], resources: &["services/finalizers"], verbs: &["update"] },
        Rule { groups: &[""], resources: &["endpoints/finalizers"], verbs: &["update"] },
        Rule {
            groups: &["discovery.k8s.io"],
            resources: &["endpointslices"],
            verbs: &["create", "delete", "get", "list", "update", "watch"],
        },
        Rule { groups: &["", "events.k8s.io"], resources: &["events"], verbs: &["create", "patch", "update"] },
    ],
    work: Work::Keys {
        wakes: &[
            &On::every(|_, endpoints: &Endpoints| vec![Key::of(&endpoints.metadata)]),
            &On::every(|_, service: &Service| vec![Key::of(&service.metadata)]),
            &On::every(|_, slice: &EndpointSlice| service_of(slice, MANAGER).into_iter().collect()),
        ],
        workers_max: 5,
        reconcile: |cx, key| reconcile(cx, key).boxed(),
    },
};

async fn reconcile(cx: &Context, key: &Key) -> Result<Plan, reconcile::Error> {
    let endpoints = cx.cache::<Endpoints>().get(key).filter(|endpoints| plan::is_mirrored(endpoints));
    let service = cx.cache::<Service>().get(key);
    let mut slices = match &endpoints {
        // Those of an earlier object of the same name name another owner; the collector takes them.
        Some(endpoints) => cx.cache::<EndpointSlice>().owned_by(endpoints.metadata.uid.as_deref().unwrap_or_default()),
        None => cx.cache::<EndpointSlice>().in_namespace(&key.namespace),
    };
    slices.retain(|slice| service_of(slice, MANAGER).as_ref() == Some(key));
    Ok(match (endpoints, service) {
        (Some(endpoints), Some(service)) if plan::has_no_selector(&service) => {
            plan::plan(&endpoints, &slices, cx.settings.mirrored_addresses_max)
        }
        _ => plan::remove(&slices),
    })
}
