//! Aggregated ClusterRoles have the rules of the roles their selectors name.

mod plan;

use futures::FutureExt;
use k8s_openapi::api::rbac::v1::ClusterRole;
use reconcile::{Key, On, Plan, Rule, Work};

use crate::{Context, Controller};

pub(crate) static CONTROLLER: Controller = Controller {
    name: "clusterrole-aggregation-controller",
    account: "clusterrole-aggregation-controller",
    source: "clusterrole-aggregation-controller",
    rules: &[Rule {
        groups: &["rbac.authorization.k8s.io"],
        resources: &["clusterroles"],
        verbs: &["escalate", "get", "list", "patch", "update", "watch"],
    }],
    work: Work::Keys {
        // Any role may feed any other, so there is one key for all of them.
        wakes: &[&On::every(|_, _: &ClusterRole| vec![Key::cluster("*")])],
        workers_max: 1,
        reconcile: |cx, _| reconcile(cx).boxed(),
    },
};

async fn reconcile(cx: &Context) -> Result<Plan, reconcile::Error> {
    Ok(plan::plan(&cx.cache::<ClusterRole>().list()))
}
