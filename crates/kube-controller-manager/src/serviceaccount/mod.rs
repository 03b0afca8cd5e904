//! Every namespace has a service account named `default`.

mod plan;

use futures::FutureExt;
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use reconcile::{Key, On, Plan, Rule, Work};

use crate::{Context, Controller};

const DEFAULT_ONLY: &str = "metadata.name=default";

pub(crate) static CONTROLLER: Controller = Controller {
    name: "serviceaccount-controller",
    account: "service-account-controller",
    source: "serviceaccount-controller",
    rules: &[Rule { groups: &[""], resources: &["serviceaccounts"], verbs: &["create"] }],
    work: Work::Keys {
        wakes: &[
            &On::every(|_, namespace: &Namespace| vec![Key::of(&namespace.metadata)]),
            &On::selected(DEFAULT_ONLY, |_, account: &ServiceAccount| {
                vec![Key::cluster(account.metadata.namespace.clone().unwrap_or_default())]
            }),
        ],
        workers_max: 4,
        reconcile: |cx, key| reconcile(cx, key).boxed(),
    },
};

async fn reconcile(cx: &Context, key: &Key) -> Result<Plan, reconcile::Error> {
    let Some(namespace) = cx.cache::<Namespace>().get(key) else { return Ok(Plan::nothing()) };
    let account = cx.cache_where::<ServiceAccount>(DEFAULT_ONLY).get(&Key::new(&key.name, plan::DEFAULT));
    Ok(plan::plan(&namespace, account.as_deref()))
}
