//! Every namespace has a ConfigMap with the authority that signs the API server's certificate, so that pods can check it.

mod plan;

use futures::FutureExt;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use reconcile::{Key, On, Plan, Rule, Work};

use crate::{Context, Controller};

const PUBLISHED_ONLY: &str = "metadata.name=kube-root-ca.crt";

pub(crate) static CONTROLLER: Controller = Controller {
    name: "root-ca-certificate-publisher-controller",
    account: "root-ca-cert-publisher",
    source: "root-ca-certificate-publisher-controller",
    rules: &[Rule { groups: &[""], resources: &["configmaps"], verbs: &["create", "update"] }],
    work: Work::Keys {
        wakes: &[
            &On::every(|_, namespace: &Namespace| vec![Key::of(&namespace.metadata)]),
            &On::selected(PUBLISHED_ONLY, |_, map: &ConfigMap| {
                vec![Key::cluster(map.metadata.namespace.clone().unwrap_or_default())]
            }),
        ],
        workers_max: 4,
        reconcile: |cx, key| reconcile(cx, key).boxed(),
    },
};

async fn reconcile(cx: &Context, key: &Key) -> Result<Plan, reconcile::Error> {
    let Some(authority) = &cx.settings.root_ca else { return Ok(Plan::nothing()) };
    let Some(namespace) = cx.cache::<Namespace>().get(key) else { return Ok(Plan::nothing()) };
    let published = cx.cache_where::<ConfigMap>(PUBLISHED_ONLY).get(&Key::new(&key.name, plan::NAME));
    Ok(plan::plan(authority, &namespace, published.as_deref()))
}
