//! Role labels of a server's node, as `kubectl get nodes` shows them. Nodes may not set them on themselves; the server does.

use futures::StreamExt;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams};
use kube::runtime::{WatchStreamExt, watcher};
use reconcile::Shutdown;
use serde_json::json;

const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";
const ETCD: &str = "node-role.kubernetes.io/etcd";

/// Keeps the labels on the node until told to stop, as k3s does.
pub async fn keep(client: kube::Client, name: String, runs_etcd: bool, shutdown: Shutdown) {
    let nodes: Api<Node> = Api::all(client);
    let labels: &[&str] = if runs_etcd { &[CONTROL_PLANE, ETCD] } else { &[CONTROL_PLANE] };
    let mut changes = std::pin::pin!(watcher::watch_object(nodes.clone(), &name).default_backoff());
    loop {
        let seen = tokio::select! {
            seen = changes.next() => seen,
            () = shutdown.cancelled() => return,
        };
        let node = match seen {
            Some(Ok(Some(node))) => node,
            Some(Ok(None)) => continue,
            // The watch begins again by itself, more slowly each time.
            Some(Err(error)) => {
                tracing::debug!(%error, "watch of Node for role labels failed; retrying");
                continue;
            }
            None => return,
        };
        let Some(patch) = missing(&node, labels) else { continue };
        match nodes.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => tracing::warn!(%error, "cannot write role labels of node"),
        }
    }
}

fn missing(node: &Node, wanted: &[&str]) -> Option<serde_json::Value> {
    let there = node.metadata.labels.as_ref();
    let is_there = |label: &&&str| there.is_some_and(|labels| labels.contains_key(**label));
    let missing: serde_json::Map<_, _> =
        wanted.iter().filter(|label| !is_there(label)).map(|label| (label.to_string(), json!("true"))).collect();
    (!missing.is_empty()).then(|| json!({"metadata": {"labels": missing}}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_labels_that_are_missing_are_added() {
        let node = |labels| serde_json::from_value(json!({"metadata": {"labels": labels}})).unwrap();
        let both = [CONTROL_PLANE, ETCD];
        let patch = missing(&node(json!({"a": "b"})), &both).unwrap();
        assert_eq!(patch, json!({"metadata": {"labels": {CONTROL_PLANE: "true", ETCD: "true"}}}));
        let patch = missing(&node(json!({CONTROL_PLANE: ""})), &both).unwrap();
        assert_eq!(patch, json!({"metadata": {"labels": {ETCD: "true"}}}));
        assert_eq!(missing(&node(json!({CONTROL_PLANE: "true"})), &[CONTROL_PLANE]), None);
    }
}
