//! Nodes are told how long kubelets may keep Secrets and ConfigMaps they have read: longer in larger clusters.

use futures::FutureExt;
use k8s_openapi::api::core::v1::Node;
use reconcile::{Key, On, Plan, Rule, Work, Write};
use serde_json::json;

use crate::{Context, Controller};

pub(crate) static CONTROLLER: Controller = Controller {
    name: "ttl-controller",
    account: "ttl-controller",
    source: "ttl-controller",
    rules: &[
        Rule { groups: &[""], resources: &["nodes"], verbs: &["update", "patch", "list", "watch"] },
        Rule { groups: &["", "events.k8s.io"], resources: &["events"], verbs: &["create", "patch", "update"] },
    ],
    work: Work::Keys {
        wakes: &[&On::every(|_, node: &Node| vec![Key::of(&node.metadata)])],
        workers_max: 4,
        reconcile: |cx, key| reconcile(cx, key).boxed(),
    },
};

const ANNOTATION: &str = "node.alpha.kubernetes.io/ttl";

/// From so many nodes on, down to so many, the time is so many seconds. The ranges overlap, so that a cluster at a limit does not
/// swing from one to the other.
static STEPS: [(usize, usize, u32); 5] =
    [(0, 100, 0), (90, 500, 15), (450, 1000, 30), (900, 2000, 60), (1800, usize::MAX, 300)];

async fn reconcile(cx: &Context, key: &Key) -> Result<Plan, reconcile::Error> {
    let nodes = cx.cache::<Node>();
    let Some(node) = nodes.get(key) else { return Ok(Plan::nothing()) };
    Ok(plan(&node, nodes.count()))
}

fn plan(node: &Node, nodes: usize) -> Plan {
    let annotations = node.metadata.annotations.as_ref();
    let now: Option<u32> = annotations.and_then(|annotations| annotations.get(ANNOTATION)?.parse().ok());
    let fits = |seconds: &u32| STEPS.iter().any(|(from, to, step)| step == seconds && (*from..=*to).contains(&nodes));
    if now.as_ref().is_some_and(fits) {
        return Plan::nothing();
    }
    let seconds = STEPS.iter().find(|(_, to, _)| nodes <= *to).map_or(0, |(_, _, seconds)| *seconds);
    let patch = json!({"metadata": {"annotations": {ANNOTATION: seconds.to_string()}}});
    Plan::one(Write::merge_patch::<Node>(&Key::of(&node.metadata), patch).accept(&["NotFound"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_follows_the_size_of_the_cluster() {
        let after = |now: Option<&str>, nodes: usize| -> Option<String> {
            let node = json!({"metadata": {"name": "n1", "annotations": {ANNOTATION: now}}});
            let mut node = node;
            if now.is_none() {
                node["metadata"]["annotations"] = json!({});
            }
            let plan = plan(&serde_json::from_value(node).unwrap(), nodes);
            let write = plan.writes.first()?;
            Some(write.body()["metadata"]["annotations"][ANNOTATION].as_str()?.to_owned())
        };
        assert_eq!(after(None, 1).as_deref(), Some("0"));
        assert_eq!(after(Some("0"), 100), None);
        assert_eq!(after(Some("0"), 101).as_deref(), Some("15"));
        assert_eq!(after(Some("15"), 95), None, "it does not swing");
        assert_eq!(after(Some("15"), 89).as_deref(), Some("0"));
        assert_eq!(after(Some("x"), 5000).as_deref(), Some("300"));
    }
}
