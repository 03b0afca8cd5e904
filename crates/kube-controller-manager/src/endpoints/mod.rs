//! Endpoints: the older list of what is behind a Service, one object for all of it, cut off at a thousand addresses.

mod plan;
mod repack;

use component_helpers::labels::of_map;
use futures::FutureExt;
use k8s_openapi::api::core::v1::{Endpoints, Pod, Service};
use reconcile::{Key, On, Plan, Rule, Work};

use crate::common::pods::selected;
use crate::common::serving::matters;
use crate::endpointslice::{GATHER, services_of};
use crate::{Context, Controller};

pub(crate) use plan::LEADER;

pub(crate) const MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
pub(crate) const MANAGER: &str = "endpoint-controller";

pub(crate) static CONTROLLER: Controller = Controller {
    name: "endpoints-controller",
    account: "endpoint-controller",
    source: "endpoint-controller",
    rules: &[
        Rule { groups: &[""], resources: &["pods", "services"], verbs: &["get", "list", "watch"] },
        Rule {
            groups: &[""],
            resources: &["endpoints"],
            verbs: &["create", "delete", "get", "list", "update", "watch"],
        },
        Rule { groups: &[""], resources: &["endpoints/restricted"], verbs: &["create"] },
        Rule { groups: &["", "events.k8s.io"], resources: &["events"], verbs: &["create", "patch", "update"] },
    ],
    work: Work::Keys {
        wakes: &[
            &On::every(|_, service: &Service| vec![Key::of(&service.metadata)]),
            // Endpoints that someone else keeps may be there before their Service: they are no reason to look.
            &On::every(
                |_, endpoints: &Endpoints| {
                    if plan::is_ours(endpoints) { vec![Key::of(&endpoints.metadata)] } else { Vec::new() }
                },
            ),
            &On::every(services_of).when(matters).gathered(GATHER),
        ],
        workers_max: 5,
        reconcile: |cx, key| reconcile(cx, key).boxed(),
    },
};

async fn reconcile(cx: &Context, key: &Key) -> Result<Plan, reconcile::Error> {
    let current = cx.cache::<Endpoints>().get(key);
    let Some(service) = cx.cache::<Service>().get(key) else {
        return Ok(current.map_or_else(Plan::nothing, |current| plan::without_service(&current)));
    };
    let Some(selector) = of_map(service.spec.as_ref().and_then(|spec| spec.selector.as_ref())) else {
        return Ok(Plan::nothing());
    };
    let pods = selected(&cx.cache::<Pod>(), &key.namespace, &selector);
    Ok(plan::plan(&service, &pods, current.as_deref()))
}
