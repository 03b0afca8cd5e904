//! Tokens that old clusters made for every service account: those nobody has used for long are marked, then removed.
//!
//! The API server says since when it notes who uses them, and notes it on each; where it does not, nothing is ever removed.

mod plan;
mod used;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use jiff::civil::Date;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, ServiceAccount};
use kube::Api;
use reconcile::{Error, Key, Plan, Rule, Shutdown, Work, perform};

use crate::{Context, Controller};

const TOKENS: &str = "type=kubernetes.io/service-account-token";
const NAMESPACE: &str = "kube-system";
const TRACKING: &str = "kube-apiserver-legacy-service-account-token-tracking";
/// Days are what is noted, so one look a day is enough.
const LOOK_EVERY: Duration = Duration::from_secs(24 * 60 * 60);
/// After a look in which something failed; longer every time, up to the usual.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

pub(crate) static CONTROLLER: Controller = Controller {
    name: "legacy-serviceaccount-token-cleaner-controller",
    account: "legacy-service-account-token-cleaner",
    source: "legacy-service-account-token-cleaner",
    rules: &[
        Rule { groups: &[""], resources: &["configmaps"], verbs: &["get"] },
        Rule { groups: &[""], resources: &["secrets"], verbs: &["delete", "patch"] },
    ],
    work: Work::Own(|cx, shutdown| run(cx, shutdown).boxed()),
};

async fn run(cx: Arc<Context>, shutdown: Shutdown) -> Result<(), Error> {
    let mut again = LOOK_AGAIN;
    loop {
        let look = async {
            let next = match look(&cx).await {
                Ok(()) => {
                    again = LOOK_AGAIN;
                    LOOK_EVERY
                }
                Err(error) => {
                    tracing::warn!(%error, seconds = again.as_secs(), "cannot clean up unused legacy tokens; retrying");
                    let next = again;
                    again = (again * 2).min(LOOK_EVERY);
                    next
                }
            };
            tokio::time::sleep(next).await;
        };
        tokio::select! {
            () = shutdown.cancelled() => return Ok(()),
            () = look => {}
        }
    }
}

/// Looks at all tokens. One that cannot be written does not keep the others from their end; the first failure is answered.
async fn look(cx: &Context) -> Result<(), Error> {
    let Some(since) = tracked_since(cx).await? else { return Ok(()) };
    let today = cx.now().to_zoned(jiff::tz::TimeZone::UTC).date();
    let days = i64::try_from(cx.settings.legacy_token_clean_up_period.as_secs() / (24 * 60 * 60)).unwrap_or(i64::MAX);
    if !plan::is_past(since, days, today) {
        return Ok(());
    }
    let (secrets, accounts, pods) =
        (cx.follow::<Secret>(TOKENS), cx.follow::<ServiceAccount>(""), cx.follow::<Pod>(""));
    secrets.synced().await;
    accounts.synced().await;
    pods.synced().await;
    let mut used: HashMap<String, BTreeSet<String>> = HashMap::new();
    let mut outcome = Ok(());
    for secret in secrets.list() {
        let namespace = secret.metadata.namespace.as_deref().unwrap_or_default();
        let account = plan::account(&secret).and_then(|name| accounts.get(&Key::new(namespace, name)));
        let Some(account) = account else { continue };
        let used = used
            .entry(namespace.to_owned())
            .or_insert_with(|| pods.in_namespace(namespace).iter().flat_map(|pod| used::secrets(pod)).collect());
        let writes = plan::plan(&secret, &account, used, days, today);
        let written = perform(cx, Plan { writes: writes.into_iter().collect(), ..Plan::nothing() }).await;
        outcome = outcome.and(written.map(|_| ()));
    }
    outcome
}

async fn tracked_since(cx: &Context) -> Result<Option<Date>, Error> {
    let maps: Api<ConfigMap> = Api::namespaced(cx.client.clone(), NAMESPACE);
    let map = maps.get_opt(TRACKING).await.map_err(|error| Error::api(format!("get {TRACKING}"), error))?;
    let since = map.and_then(|map| map.data?.get("since").cloned());
    Ok(since.and_then(|text| text.parse().ok()))
}
