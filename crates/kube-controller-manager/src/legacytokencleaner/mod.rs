//! Tokens that old clusters made for every service account: those nobody has used for long are marked, then removed.
//!
//! The API server says since when it notes who uses them, and notes it on each; where it does not, nothing is ever removed.

mod plan;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use jiff::civil::Date;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, ServiceAccount};
use kube::Api;
use reconcile::{Error, Plan, Rule, Shutdown, Work, perform};
use tokio::time::MissedTickBehavior;

use crate::{Context, Controller};

/// How long a token may lie unused before it is marked, and then before it goes, as upstream.
pub(crate) const CLEAN_UP_PERIOD: Duration = Duration::from_secs(365 * 24 * 60 * 60);

const TOKENS: &str = "type=kubernetes.io/service-account-token";
const NAMESPACE: &str = "kube-system";
const TRACKING: &str = "kube-apiserver-legacy-service-account-token-tracking";
/// Days are what is noted, so one look a day is enough.
const LOOK_EVERY: Duration = Duration::from_secs(24 * 60 * 60);

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
    let mut looks = tokio::time::interval(LOOK_EVERY);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let look = async {
            looks.tick().await;
            if let Err(error) = look(&cx).await {
                tracing::warn!(%error, "unused tokens are looked at again tomorrow");
            }
        };
        tokio::select! {
            () = shutdown.cancelled() => return Ok(()),
            () = look => {}
        }
    }
}

async fn look(cx: &Context) -> Result<(), Error> {
    let Some(since) = tracked_since(cx).await? else { return Ok(()) };
    let today = cx.now().to_zoned(jiff::tz::TimeZone::UTC).date();
    let days = i64::try_from(CLEAN_UP_PERIOD.as_secs() / (24 * 60 * 60)).unwrap_or(i64::MAX);
    if !plan::is_past(since, days, today) {
        return Ok(());
    }
    let (secrets, accounts, pods) =
        (cx.follow::<Secret>(TOKENS), cx.follow::<ServiceAccount>(""), cx.follow::<Pod>(""));
    secrets.synced().await;
    accounts.synced().await;
    pods.synced().await;
    for secret in secrets.list() {
        let namespace = secret.metadata.namespace.as_deref().unwrap_or_default();
        let accounts = accounts.in_namespace(namespace);
        let mounted: BTreeSet<String> =
            pods.in_namespace(namespace).iter().flat_map(|pod| plan::mounted(pod)).collect();
        let writes = plan::plan(&secret, &accounts, &mounted, days, today);
        perform(cx, Plan { writes: writes.into_iter().collect(), ..Plan::nothing() }).await?;
    }
    Ok(())
}

async fn tracked_since(cx: &Context) -> Result<Option<Date>, Error> {
    let maps: Api<ConfigMap> = Api::namespaced(cx.client.clone(), NAMESPACE);
    let map = maps.get_opt(TRACKING).await.map_err(|error| Error::api(format!("get {TRACKING}"), error))?;
    let since = map.and_then(|map| map.data?.get("since").cloned());
    Ok(since.and_then(|text| text.parse().ok()))
}
