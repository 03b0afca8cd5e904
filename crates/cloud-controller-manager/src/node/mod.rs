//! Nodes as the cloud knows them: who they are, where they are, and whether their machines still exist.

mod plan;

use std::time::Duration;

use futures::FutureExt;
use k8s_openapi::api::core::v1::Node;
use reconcile::{Key, On, Plan, Rule, Work};

use crate::{Context, Controller};

pub(crate) static CONTROLLER: Controller = Controller {
    name: "cloud-node-controller",
    account: "node-controller",
    source: "cloud-node-controller",
    rules: &[
        Rule { groups: &[""], resources: &["nodes"], verbs: &["get", "list", "watch", "update", "patch", "delete"] },
        Rule { groups: &[""], resources: &["nodes/status"], verbs: &["update", "patch"] },
        Rule { groups: &["", "events.k8s.io"], resources: &["events"], verbs: &["create", "patch", "update"] },
    ],
    work: Work::Keys {
        wakes: &[&On::every(|_, node: &Node| vec![Key::of(&node.metadata)])],
        workers_max: 4,
        reconcile: |cx, key| reconcile(cx, key).boxed(),
    },
};

/// A machine changes without a change of its Node, so the cloud is asked again, as often as upstream does.
const AGAIN: Duration = Duration::from_secs(5 * 60);
/// A machine whose node is not ready may be gone.
const AGAIN_UNWELL: Duration = Duration::from_secs(5);

async fn reconcile(cx: &Context, key: &Key) -> Result<Plan, reconcile::Error> {
    let Some(instances) = cx.settings.cloud.instances() else { return Ok(Plan::nothing()) };
    let Some(node) = cx.cache::<Node>().get(key) else { return Ok(Plan::nothing()) };
    let instance = instances.get(&node).await;
    let instance =
        instance.map_err(|error| reconcile::Error::Other(format!("get node {key} from the cloud: {error}")))?;
    let mut plan = plan::plan(&node, instance.as_ref(), cx.now());
    plan.come_back(if plan::is_ready(&node) { AGAIN } else { AGAIN_UNWELL });
    Ok(plan)
}
