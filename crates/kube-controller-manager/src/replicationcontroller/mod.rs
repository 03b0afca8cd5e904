//! ReplicationControllers: so many pods of one template, the older way to say it.

mod plan;

use component_helpers::labels::{of_map, selects};
use futures::FutureExt;
use k8s_openapi::api::core::v1::{Pod, ReplicationController};
use reconcile::{Key, On, Plan, Rule, Work};

use crate::common::owners::concerned;
use crate::{Context, Controller};

pub(crate) static CONTROLLER: Controller = Controller {
    name: "replicationcontroller-controller",
    account: "replication-controller",
    source: "replication-controller",
    rules: &[
        Rule { groups: &[""], resources: &["replicationcontrollers"], verbs: &["get", "list", "update", "watch"] },
        Rule {
            groups: &[""],
            resources: &["replicationcontrollers/status", "replicationcontrollers/finalizers"],
            verbs: &["update"],
        },
        Rule { groups: &[""], resources: &["pods"], verbs: &["create", "delete", "list", "patch", "watch"] },
        Rule { groups: &["", "events.k8s.io"], resources: &["events"], verbs: &["create", "patch", "update"] },
    ],
    work: Work::Keys {
        wakes: &[
            &On::every(|_, controller: &ReplicationController| vec![Key::of(&controller.metadata)]),
            &On::every(|cx, pod: &Pod| {
                let namespace = pod.metadata.namespace.clone().unwrap_or_default();
                let controllers = || cx.cache::<ReplicationController>().in_namespace(&namespace);
                concerned(&pod.metadata, controllers, |controller, labels| {
                    let selector = of_map(controller.spec.as_ref().and_then(|spec| spec.selector.as_ref()));
                    selector.is_some_and(|selector| selects(&selector, labels))
                })
            }),
        ],
        workers_max: 5,
        reconcile: |cx, key| reconcile(cx, key).boxed(),
    },
};

async fn reconcile(cx: &Context, key: &Key) -> Result<Plan, reconcile::Error> {
    let Some(controller) = cx.cache::<ReplicationController>().get(key) else { return Ok(Plan::nothing()) };
    let pods = cx.cache::<Pod>();
    let mut found = pods.owned_by(controller.metadata.uid.as_deref().unwrap_or_default());
    found.extend(pods.uncontrolled(&key.namespace));
    Ok(plan::plan(cx.now(), &controller, &found))
}
