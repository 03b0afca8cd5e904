//! CronJobs: a Job whenever its time has come.

mod schedule;
mod plan;
#[cfg(test)]
mod tests;

pub use schedule::Schedule;
pub use schedule::ScheduleError;

use futures::FutureExt;
use jiff::tz::TimeZone;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use reconcile::{Key, On, Plan, Rule, Work};

use crate::common::owners::managed_by;
use crate::{Context, Controller};

pub(crate) static CONTROLLER: Controller = Controller {
    name: "cronjob-controller",
    account: "cronjob-controller",
    source: "cronjob-controller",
    rules: &[
        Rule { groups: &["batch"], resources: &["cronjobs"], verbs: &["get", "list", "update", "watch"] },
        Rule {
            groups: &["batch"],
            resources: &["jobs"],
            verbs: &["create", "delete", "get", "list", "patch", "update", "watch"],
        },
        Rule { groups: &["batch"], resources: &["cronjobs/status", "cronjobs/finalizers"], verbs: &["update"] },
        Rule { groups: &[""], resources: &["pods"], verbs: &["delete", "list", "watch"] },
        Rule { groups: &["", "events.k8s.io"], resources: &["events"], verbs: &["create", "patch", "update"] },
    ],
    work: Work::Keys {
        wakes: &[
            &On::every(|_, cron: &CronJob| vec![Key::of(&cron.metadata)]),
            &On::every(|_, job: &Job| managed_by(&job.metadata, "CronJob").into_iter().collect()),
        ],
        workers_max: 5,
        reconcile: |cx, key| async move { reconcile(cx, key) }.boxed(),
    },
};

fn reconcile(cx: &Context, key: &Key) -> Result<Plan, reconcile::Error> {
    let Some(cron) = cx.cache::<CronJob>().get(key) else { return Ok(Plan::nothing()) };
    let jobs = cx.cache::<Job>().owned_by(cron.metadata.uid.as_deref().unwrap_or_default());
    Ok(plan::plan(cx.now(), &cron, &jobs, &TimeZone::system()))
}
