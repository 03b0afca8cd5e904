//! A range of Service addresses is said to be ready, and does not go while an address of it is in use that no other range
//! holds.

mod plan;

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::FutureExt;
use k8s_openapi::api::networking::v1::{IPAddress, ServiceCIDR};
use kube::Api;
use kube::api::ListParams;
use parking_lot::Mutex;
use reconcile::{Key, Kind, On, Plan, Rule, Work};

use crate::{Context, Controller};

pub(crate) static CONTROLLER: Controller = Controller {
    name: "service-cidr-controller",
    account: "service-cidrs-controller",
    source: "service-cidr-controller",
    rules: &[
        Rule {
            groups: &["networking.k8s.io"],
            resources: &["servicecidrs"],
            verbs: &["get", "list", "patch", "update", "watch"],
        },
        Rule { groups: &["networking.k8s.io"], resources: &["servicecidrs/finalizers"], verbs: &["patch", "update"] },
        Rule { groups: &["networking.k8s.io"], resources: &["servicecidrs/status"], verbs: &["patch", "update"] },
        Rule { groups: &["networking.k8s.io"], resources: &["ipaddresses"], verbs: &["get", "list", "watch"] },
        Rule { groups: &["", "events.k8s.io"], resources: &["events"], verbs: &["create", "patch", "update"] },
    ],
    work: Work::Keys {
        wakes: &[
            &On::every(|cx, range: &ServiceCIDR| {
                let key = Key::of(&range.metadata);
                let mut keys = cx.memory::<Ending>().seen(cx, &key);
                // One that comes may hold what another waits for.
                keys.insert(key);
                keys.into_iter().collect()
            }),
            &On::every(|cx, _: &IPAddress| cx.memory::<Ending>().all().into_iter().collect()),
        ],
        workers_max: 5,
        reconcile: |cx, key| reconcile(cx, key).boxed(),
    },
};

/// The ranges that are to go: only they care for addresses.
#[derive(Default)]
struct Ending(Mutex<BTreeSet<Key>>);

impl Ending {
    fn seen(&self, cx: &Context, key: &Key) -> BTreeSet<Key> {
        let range = cx.cache::<ServiceCIDR>().get(key);
        let mut ending = self.0.lock();
        if range.is_some_and(|range| range.metadata.deletion_timestamp.is_some()) {
            ending.insert(key.clone())
        } else {
            ending.remove(key)
        };
        ending.clone()
    }

    fn all(&self) -> BTreeSet<Key> {
        self.0.lock().clone()
    }
}

async fn reconcile(cx: &Context, key: &Key) -> Result<Plan, reconcile::Error> {
    let ranges = cx.cache::<ServiceCIDR>();
    let Some(range) = ranges.get(key) else { return Ok(Plan::nothing()) };
    let mut needed = plan::is_needed(&range, &others(&range, ranges.list()), &cx.cache::<IPAddress>().list());
    // A copy of the addresses that is late must not cost a Service its address.
    if !needed && range.metadata.deletion_timestamp.is_some() {
        needed = plan::is_needed(&range, &others(&range, listed(cx).await?), &listed(cx).await?);
    }
    Ok(plan::plan(&range, || needed, cx.now()))
}

fn others(range: &ServiceCIDR, all: Vec<Arc<ServiceCIDR>>) -> Vec<Arc<ServiceCIDR>> {
    all.into_iter().filter(|other| other.metadata.name != range.metadata.name).collect()
}

/// All that there are now, as the server says.
async fn listed<K: Kind>(cx: &Context) -> Result<Vec<Arc<K>>, reconcile::Error> {
    let all = Api::<K>::all(cx.client.clone()).list(&ListParams::default()).await;
    let all = all.map_err(|error| reconcile::Error::api("list IPAddresses of ServiceCIDR", error))?;
    Ok(all.items.into_iter().map(Arc::new).collect())
}
