//! Every node gets a range of pod addresses of its own.

mod plan;

use futures::FutureExt;
use k8s_openapi::api::core::v1::Node;
use reconcile::{Key, On, Plan, Work};

use crate::{Context, Controller};

pub(crate) static CONTROLLER: Controller = Controller {
    name: "node-ipam-controller",
    account: "node-controller",
    source: "cidrAllocator",
    rules: crate::nodelifecycle::RULES,
    work: Work::Keys {
        wakes: &[&On::every(|cx, node: &Node| {
            // A node that goes leaves its range for those that wait for one.
            if !plan::has_range(node) || cx.cache::<Node>().get(&Key::of(&node.metadata)).is_some() {
                return vec![Key::of(&node.metadata)];
            }
            let waiting = cx.cache::<Node>().list().into_iter().filter(|node| !plan::has_range(node));
            waiting.map(|node| Key::of(&node.metadata)).collect()
        })],
        // One at a time: the next sees in the cache what the one before has got, so none is given twice.
        workers_max: 1,
        reconcile: |cx, key| reconcile(cx, key).boxed(),
    },
};

async fn reconcile(cx: &Context, key: &Key) -> Result<Plan, reconcile::Error> {
    if !cx.settings.allocate_node_cidrs {
        return Ok(Plan::nothing());
    }
    let nodes = cx.cache::<Node>();
    let Some(node) = nodes.get(key) else { return Ok(Plan::nothing()) };
    Ok(plan::plan(&cx.settings, &node, &nodes.list()))
}
