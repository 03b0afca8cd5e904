//! `kubectl top` and autoscalers by use: the resource metrics API, served within the server's process.

use std::sync::Arc;

use component_base::tasks;
use kube_apiserver::local::App;
use kube_apiserver::local::Loopback;
use reconcile::{Caches, Cluster, Shutdown};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

/// The published manifests of metrics-server have objects of their own names, which they would put in place of ours.
const ACCOUNT: &str = "knarr-metrics-server";
const ROLE: &str = "system:knarr:metrics-server";
const READER: &str = "system:knarr:aggregated-metrics-reader";
const AGENT: &str = concat!("metrics-server/v", env!("CARGO_PKG_VERSION"), " (knarr)");

/// Serves the API from now on; the handle ends when it has stopped.
pub async fn start(app: &Arc<App>, caches: Arc<Caches>, shutdown: Shutdown) -> anyhow::Result<JoinHandle<()>> {
    for object in permissions() {
        let made = kube_apiserver::local::ensure(app, object).await;
        made.map_err(|status| anyhow::anyhow!("create role of metrics-server: {}", status.message))?;
    }
    let client = Loopback::service_account(app.clone(), "kube-system", ACCOUNT, AGENT);
    let cluster = Cluster::with_client(kube::Client::new(client, "default"), caches);
    let app = app.clone();
    let attach = move |handler| app.aggregator.attach(metrics_server::API_SERVICE, handler);
    Ok(tasks::spawn(metrics_server::run(metrics_server::Config::default(), cluster, attach, shutdown)))
}

/// What it may read, and that those who may look at a namespace may see what its pods use, as upstream's manifests have it.
pub fn permissions() -> [Value; 3] {
    let role = |name: &str, labels: Value, rules: Value| {
        let annotations = json!({"rbac.authorization.kubernetes.io/autoupdate": "true"});
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": name, "labels": labels, "annotations": annotations}, "rules": rules,
        })
    };
    let aggregate = |to: &str| format!("rbac.authorization.k8s.io/aggregate-to-{to}");
    let readers = json!({
        aggregate("admin"): "true", aggregate("edit"): "true", aggregate("view"): "true",
    });
    let read = json!(["get", "list", "watch"]);
    [
        role(
            READER,
            readers,
            json!([{"apiGroups": ["metrics.k8s.io"], "resources": ["pods", "nodes"], "verbs": read}]),
        ),
        role(
            ROLE,
            json!({}),
            json!([
                {"apiGroups": [""], "resources": ["nodes/metrics", "nodes/proxy"], "verbs": ["get"]},
                {"apiGroups": [""], "resources": ["pods", "nodes"], "verbs": read},
            ]),
        ),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": ROLE},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": ROLE},
            "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": "kube-system"}],
        }),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `components.yaml` of metrics-server has in it.
    #[test]
    fn no_object_has_the_name_of_a_published_one() {
        let published = ["metrics-server", "system:metrics-server", "system:aggregated-metrics-reader"];
        for object in permissions() {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            assert!(!published.contains(&name), "{name}");
        }
        assert!(!published.contains(&ACCOUNT));
    }
}
