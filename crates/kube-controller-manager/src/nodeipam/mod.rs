//! Every node gets a range of pod addresses of its own.

mod plan;
mod pool;

use futures::FutureExt;
use k8s_openapi::api::core::v1::Node;
use reconcile::{Key, On, Plan, Work};

use crate::{Context, Controller};
use pool::Pool;

pub(crate) static CONTROLLER: Controller = Controller {
    name: "node-ipam-controller",
    account: "node-controller",
    source: "cidrAllocator",
    rules: crate::nodelifecycle::RULES,
    work: Work::Keys {
        wakes: &[&On::every(|cx, node: &Node| {
            let (key, pool) = (Key::of(&node.metadata), cx.memory::<Pool>());
            let uid = node.metadata.uid.as_deref().unwrap_or_default();
            let there = cx.cache::<Node>().get(&key);
            let gone = there.is_none_or(|there| there.metadata.uid != node.metadata.uid);
            let ranges = plan::ranges(node);
            match (gone, ranges.is_empty()) {
                (false, true) => vec![key],
                (false, false) => {
                    pool.hold(uid, ranges);
                    Vec::new()
                }
                // It leaves its range for those that wait for one.
                (true, _) => {
                    pool.release(uid);
                    let waiting = cx.cache::<Node>().list().into_iter().filter(|node| plan::needs_range(node));
                    waiting.map(|node| Key::of(&node.metadata)).collect()
                }
            }
        })],
        workers_max: 8,
        reconcile: |cx, key| reconcile(cx, key).boxed(),
    },
};

async fn reconcile(cx: &Context, key: &Key) -> Result<Plan, reconcile::Error> {
    if !cx.settings.allocate_node_cidrs {
        return Ok(Plan::nothing());
    }
    let waiting = cx.cache::<Node>().get(key).filter(|node| plan::needs_range(node));
    let Some(node) = waiting else { return Ok(Plan::nothing()) };
    let uid = node.metadata.uid.as_deref().unwrap_or_default();
    let chosen = cx.memory::<Pool>().choose(&cx.settings, uid);
    Ok(plan::plan(&node, chosen.as_deref()))
}
