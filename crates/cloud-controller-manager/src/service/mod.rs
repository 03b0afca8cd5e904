//! Services of type LoadBalancer get a load balancer of the cloud, and lose it when they end or become something else.

mod plan;

use futures::FutureExt;
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use reconcile::{Key, On, Plan, Rule, Work};

use crate::{Context, Controller};
pub(crate) use plan::service_of;

pub(crate) static CONTROLLER: Controller = Controller {
    name: "service-lb-controller",
    account: "service-controller",
    source: "service-controller",
    rules: &[
        Rule { groups: &[""], resources: &["services"], verbs: &["get", "list", "watch"] },
        Rule { groups: &[""], resources: &["services/status"], verbs: &["patch", "update"] },
        Rule { groups: &[""], resources: &["nodes"], verbs: &["list", "watch"] },
        Rule { groups: &["", "events.k8s.io"], resources: &["events"], verbs: &["create", "patch", "update"] },
    ],
    work: Work::Keys {
        wakes: &[
            &On::every(|cx, service: &Service| {
                // A port that becomes free may be what another one waits for.
                let mut keys = vec![Key::of(&service.metadata)];
                if plan::wants(service) && cx.cache::<Service>().get(&keys[0]).is_none() {
                    keys.extend(balanced(cx, |_| true));
                }
                keys
            }),
            &On::every(|cx, _: &Node| balanced(cx, |_| true)),
            &On::every(|cx, slice: &EndpointSlice| {
                let namespace = slice.metadata.namespace.clone().unwrap_or_default();
                let Some(name) = plan::service_of(slice) else { return Vec::new() };
                let key = Key::new(namespace, name);
                let wanted = cx.cache::<Service>().get(&key).is_some_and(|service| plan::wants(&service));
                if wanted { vec![key] } else { Vec::new() }
            }),
        ],
        workers_max: 1,
        reconcile: |cx, key| reconcile(cx, key).boxed(),
    },
};

/// The keys of all Services that want a load balancer.
fn balanced(cx: &Context, chosen: impl Fn(&Service) -> bool) -> Vec<Key> {
    let services = cx.cache::<Service>().list().into_iter();
    services
        .filter(|service| plan::wants(service) && chosen(service))
        .map(|service| Key::of(&service.metadata))
        .collect()
}

async fn reconcile(cx: &Context, key: &Key) -> Result<Plan, reconcile::Error> {
    let Some(balancers) = cx.settings.cloud.load_balancers() else { return Ok(Plan::nothing()) };
    let services = cx.cache::<Service>();
    let Some(service) = services.get(key).filter(|service| plan::concerns(service)) else { return Ok(Plan::nothing()) };
    let others = services.list().into_iter().filter(|other| plan::wants(other) && Key::of(&other.metadata) != *key);
    let slices = cx.cache::<EndpointSlice>().in_namespace(&key.namespace);
    Ok(plan::plan(balancers, &service, &others.collect::<Vec<_>>(), &cx.cache::<Node>().list(), &slices).await)
}
