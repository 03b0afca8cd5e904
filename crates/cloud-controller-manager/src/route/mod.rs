//! The cloud's network knows the way to the pods of each node.

mod plan;

use std::time::Duration;

use futures::FutureExt;
use k8s_openapi::api::core::v1::Node;
use reconcile::{Error, Key, On, Plan, Rule, Work};

use crate::{Context, Controller};

pub(crate) static CONTROLLER: Controller = Controller {
    name: "node-route-controller",
    account: "route-controller",
    source: "route_controller",
    rules: &[
        Rule { groups: &[""], resources: &["nodes"], verbs: &["list", "watch"] },
        Rule { groups: &[""], resources: &["nodes/status"], verbs: &["patch"] },
        Rule { groups: &["", "events.k8s.io"], resources: &["events"], verbs: &["create", "patch", "update"] },
    ],
    work: Work::Keys {
        // Routes are looked at as a whole, so there is but one key.
        wakes: &[&On::every(|_, _: &Node| vec![Key::cluster("routes")])],
        workers_max: 1,
        reconcile: |cx, _| reconcile(cx).boxed(),
    },
};

/// Routes can be lost without a change of any Node, so the cloud is asked again, as often as upstream does.
const AGAIN: Duration = Duration::from_secs(10);

async fn reconcile(cx: &Context) -> Result<Plan, Error> {
    let Some(routes) = cx.settings.cloud.routes() else { return Ok(Plan::nothing()) };
    let nodes = cx.cache::<Node>().list();
    let there = routes.list().await.map_err(|error| Error::Other(format!("list cloud routes: {error}")))?;
    let changes = plan::changes(&nodes, &there);
    for route in &changes.delete {
        if let Err(error) = routes.delete(route).await {
            tracing::warn!(?route, %error, "cannot delete cloud route");
        }
    }
    let mut failed = Vec::new();
    for route in &changes.create {
        if let Err(error) = routes.create(route).await {
            failed.push((route.clone(), error.to_string()));
        }
    }
    let mut plan = plan::conditions(&nodes, &failed, cx.now());
    plan.come_back(AGAIN);
    Ok(plan)
}
