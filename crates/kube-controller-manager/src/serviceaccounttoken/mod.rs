//! Secrets that ask for a service account's token get it, and go with the account.

mod plan;
mod sign;

use std::time::Duration;

use futures::FutureExt;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::Api;
use reconcile::{Error, Key, On, Plan, Rule, Work};

use crate::{Context, Controller};

/// By then the copy of the accounts has caught up.
const LOOK_AGAIN: Duration = Duration::from_secs(10);
const TOKENS: &str = "type=kubernetes.io/service-account-token";

pub(crate) static CONTROLLER: Controller = Controller {
    name: "serviceaccount-token-controller",
    account: "",
    source: "serviceaccount-token-controller",
    // Upstream does this as the controller manager itself, whose own role allows it.
    rules: &[Rule { groups: &[""], resources: &["secrets"], verbs: &["create", "get", "update", "delete"] }],
    work: Work::Keys {
        wakes: &[
            &On::selected(TOKENS, |_, secret: &Secret| vec![Key::of(&secret.metadata)]),
            &On::every(|cx, account: &ServiceAccount| {
                let namespace = account.metadata.namespace.as_deref().unwrap_or_default();
                let secrets = cx.cache_where::<Secret>(TOKENS).in_namespace(namespace).into_iter();
                let theirs = secrets.filter(|secret| plan::account_of(secret) == account.metadata.name.as_deref());
                theirs.map(|secret| Key::of(&secret.metadata)).collect()
            }),
        ],
        workers_max: 5,
        reconcile: |cx, key| reconcile(cx, key).boxed(),
    },
};

async fn reconcile(cx: &Context, key: &Key) -> Result<Plan, Error> {
    let Some(pem) = &cx.settings.service_account_key else { return Ok(Plan::nothing()) };
    let Some(secret) = cx.cache_where::<Secret>(TOKENS).get(key) else { return Ok(Plan::nothing()) };
    let Some(name) = plan::account_of(&secret) else { return Ok(Plan::nothing()) };
    let signing = sign::TokenKey::from_pem(&pem.0).map_err(|why| Error::Other(format!("read the token key: {why}")))?;
    let mut account = cx.cache::<ServiceAccount>().get(&Key::new(&key.namespace, name));
    let is_unseen = account.is_none();
    if is_unseen {
        // Deleting a token is final, so a copy that may lag is not enough to decide it.
        let accounts: Api<ServiceAccount> = Api::namespaced(cx.component_client().clone(), &key.namespace);
        let found =
            accounts.get_opt(name).await.map_err(|error| Error::api(format!("get service account of {key}"), error))?;
        account = found.map(Into::into);
    }
    let mut plan = plan::plan(&signing, cx.settings.root_ca.as_deref(), &secret, account.as_deref());
    // One that ends before the copy has ever shown it wakes nobody.
    if is_unseen && account.is_some() {
        plan.come_back(LOOK_AGAIN);
    }
    Ok(plan)
}
