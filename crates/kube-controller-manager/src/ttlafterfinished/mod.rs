//! Jobs that name a time to live are deleted so long after they have ended.

mod plan;

use futures::FutureExt;
use k8s_openapi::api::batch::v1::Job;
use reconcile::{Key, On, Plan, Rule, Work};

use crate::{Context, Controller};

pub(crate) static CONTROLLER: Controller = Controller {
    name: "ttl-after-finished-controller",
    account: "ttl-after-finished-controller",
    source: "ttl-after-finished-controller",
    rules: &[
        Rule { groups: &["batch"], resources: &["jobs"], verbs: &["delete", "get", "list", "watch"] },
        Rule { groups: &["", "events.k8s.io"], resources: &["events"], verbs: &["create", "patch", "update"] },
    ],
    work: Work::Keys {
        wakes: &[&On::every(|_, job: &Job| vec![Key::of(&job.metadata)])],
        workers_max: 5,
        reconcile: |cx, key| async move { reconcile(cx, key) }.boxed(),
    },
};

fn reconcile(cx: &Context, key: &Key) -> Result<Plan, reconcile::Error> {
    let Some(job) = cx.cache::<Job>().get(key) else { return Ok(Plan::nothing()) };
    Ok(plan::plan(cx.now(), &job))
}
