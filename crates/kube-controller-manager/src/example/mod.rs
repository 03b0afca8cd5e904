//! The controller of CONTRIBUTING.md, compiled and run by the tests only.

use futures::FutureExt;
use k8s_openapi::api::core::v1::Namespace;
use reconcile::{Key, On, Plan, Rule, Work, Write};
use serde_json::json;

use crate::{Context, Controller};

pub(crate) static CONTROLLER: Controller = Controller {
    name: "namespace-owner-controller",
    account: "namespace-owner-controller",
    source: "namespace-owner-controller",
    rules: &[Rule { groups: &[""], resources: &["namespaces"], verbs: &["list", "patch", "watch"] }],
    work: Work::Keys {
        wakes: &[&On::every(|_, namespace: &Namespace| vec![Key::of(&namespace.metadata)])],
        workers_max: 1,
        reconcile: |cx, key| reconcile(cx, key).boxed(),
    },
};

async fn reconcile(cx: &Context, key: &Key) -> Result<Plan, reconcile::Error> {
    Ok(cx.cache::<Namespace>().get(key).map_or(Plan::nothing(), |namespace| plan(&namespace)))
}

fn plan(namespace: &Namespace) -> Plan {
    let labels = namespace.metadata.labels.as_ref();
    if labels.is_some_and(|labels| labels.contains_key("example.com/owner")) {
        return Plan::nothing();
    }
    let patch = json!({"metadata": {"labels": {"example.com/owner": "nobody"}}});
    Plan::one(Write::merge_patch::<Namespace>(&Key::of(&namespace.metadata), patch))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use kube::client::Body;
    use reconcile::{Caches, Clock, Cluster, Shutdown};
    use tokio::sync::mpsc;

    use super::*;

    #[test]
    fn a_namespace_without_an_owner_gets_one() {
        let written = |labels: serde_json::Value| {
            let namespace = json!({"metadata": {"name": "a", "labels": labels}});
            let plan = plan(&serde_json::from_value(namespace).expect("a namespace"));
            plan.writes.iter().map(|write| format!("{write:?}")).collect::<Vec<_>>()
        };
        let patch = r#"patch /api/v1/namespaces/a {"metadata":{"labels":{"example.com/owner":"nobody"}}}"#;
        assert_eq!(written(json!({})), [patch]);
        assert!(written(json!({"example.com/owner": "ann"})).is_empty());
    }

    /// In a cluster: a cache that a watch fills, a queue, and a write. The API is a function.
    #[tokio::test]
    async fn the_controller_reconciles() {
        let (written, mut writes) = mpsc::unbounded_channel();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let written = written.clone();
            async move {
                let namespace = json!({"apiVersion": "v1", "kind": "Namespace",
                "metadata": {"name": "a", "uid": "1", "resourceVersion": "1"}});
                let end = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"resourceVersion": "1",
                "annotations": {"k8s.io/initial-events-end": "true"}}});
                let event =
                    |kind: &str, object: &serde_json::Value| json!({"type": kind, "object": object}).to_string();
                let body = if request.method() == http::Method::PATCH {
                    let _ = written.send(request.uri().path().to_owned());
                    namespace.to_string()
                } else {
                    format!("{}\n{}\n", event("ADDED", &namespace), event("BOOKMARK", &end))
                };
                Ok::<_, std::convert::Infallible>(http::Response::new(Body::from(body.into_bytes())))
            }
        });
        let (client, shutdown) = (kube::Client::new(service, "default"), Shutdown::new());
        let cluster = Cluster::with_client(client.clone(), Caches::new(client, shutdown.clone()));
        let settings = Arc::new(crate::Config::default());
        let run = reconcile::run(&CONTROLLER, settings, cluster, Clock::system(), shutdown.clone());
        let task = component_base::tasks::spawn(run);
        assert_eq!(writes.recv().await.as_deref(), Some("/api/v1/namespaces/a"));
        shutdown.cancel();
        task.await.expect("no panic").expect("a controller that ends when it is told to");
    }
}
