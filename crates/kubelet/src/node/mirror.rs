//! Mirror pods: what the API shows of static pods. They follow the files, whatever is done to them in the API.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::{Api, Client};
use reconcile::{Cache, Shutdown};
use tokio::sync::watch;

use super::Seen;
use super::manifest::{HASH, MIRROR, SOURCE};

/// After a failure, such as a namespace that does not exist yet.
const AGAIN_AFTER: Duration = Duration::from_secs(5);

/// Whether a pod of the API only shows a static one; its worker must then be that of the file's pod.
pub fn is_mirror(pod: &Pod) -> bool {
    annotation(pod, MIRROR).is_some()
}

/// Whether a pod comes from a file.
pub(crate) fn is_static(pod: &Pod) -> bool {
    annotation(pod, SOURCE).is_some_and(|source| source != "api") && !is_mirror(pod)
}

/// Keeps the mirror pods. `in_api` is this node's pods in the API, `node` its Node, which owns them.
pub async fn run(
    client: Client,
    mut files: watch::Receiver<Vec<Arc<Pod>>>,
    in_api: Arc<Cache<Pod>>,
    mut node: watch::Receiver<Seen>,
    shutdown: Shutdown,
) {
    let mut changes = in_api.changes();
    tokio::select! {
        () = shutdown.cancelled() => return,
        () = in_api.synced() => {}
    }
    loop {
        let static_pods = files.borrow_and_update().clone();
        changes.mark_unchanged();
        let owner = match &*node.borrow_and_update() {
            Seen::Here(node) => node.metadata.name.clone().zip(node.metadata.uid.clone()),
            Seen::Unknown | Seen::Gone => None,
        };
        let mut failed = false;
        for step in plan(&static_pods, &in_api.list(), owner) {
            failed |= !step.take(&client).await;
        }
        tokio::select! {
            () = shutdown.cancelled() => return,
            Ok(()) = files.changed() => {}
            Ok(()) = changes.changed() => {}
            Ok(()) = node.changed() => {}
            () = tokio::time::sleep(AGAIN_AFTER), if failed => {}
        }
    }
}

#[derive(Debug, PartialEq)]
enum Step {
    Create(Box<Pod>),
    Delete { namespace: String, name: String, uid: String },
}

/// A mirror that is of another version of its file, or marked for deletion, goes at once: there is nothing to wait for, since
/// the container's grace period is the business of the static pod.
fn plan(static_pods: &[Arc<Pod>], in_api: &[Arc<Pod>], owner: Option<(String, String)>) -> Vec<Step> {
    let mut steps = Vec::new();
    let named = |pod: &Pod| (pod.metadata.namespace.clone(), pod.metadata.name.clone());
    for mirror in in_api.iter().filter(|pod| is_mirror(pod)) {
        let of = static_pods.iter().find(|pod| named(pod) == named(mirror));
        let current = of.is_some_and(|pod| annotation(pod, HASH) == annotation(mirror, MIRROR));
        if !current || mirror.metadata.deletion_timestamp.is_some() {
            let text = |value: &Option<String>| value.clone().unwrap_or_default();
            let metadata = &mirror.metadata;
            let (namespace, name) = (text(&metadata.namespace), text(&metadata.name));
            steps.push(Step::Delete { namespace, name, uid: text(&metadata.uid) });
        }
    }
    // Without its Node in the API a mirror would be nobody's, and be refused.
    let Some(owner) = owner else { return steps };
    for pod in static_pods.iter().filter(|pod| in_api.iter().all(|other| named(other) != named(pod))) {
        steps.push(Step::Create(Box::new(mirror(pod, &owner))));
    }
    steps
}

fn mirror(pod: &Pod, (node, uid): &(String, String)) -> Pod {
    let mut mirror = pod.clone();
    let hash = annotation(pod, HASH).unwrap_or("").to_owned();
    mirror.metadata.annotations.get_or_insert_default().insert(MIRROR.into(), hash);
    mirror.metadata.uid = None;
    mirror.metadata.owner_references = Some(vec![OwnerReference {
        api_version: "v1".into(),
        kind: "Node".into(),
        name: node.clone(),
        uid: uid.clone(),
        controller: Some(true),
        block_owner_deletion: None,
    }]);
    mirror
}

impl Step {
    /// Whether it is done, or needs no doing any more.
    async fn take(self, client: &Client) -> bool {
        let (what, answer) = match self {
            Step::Create(pod) => {
                let pods: Api<Pod> =
                    Api::namespaced(client.clone(), pod.metadata.namespace.as_deref().unwrap_or("default"));
                let created = pods.create(&PostParams::default(), &pod).await.map(|_| ());
                (format!("create the mirror pod {}", pod.metadata.name.unwrap_or_default()), created)
            }
            Step::Delete { namespace, name, uid } => {
                let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
                let only = Preconditions { uid: Some(uid), resource_version: None };
                let parameters = DeleteParams { preconditions: Some(only), ..DeleteParams::default().grace_period(0) };
                (format!("delete the mirror pod {name}"), pods.delete(&name, &parameters).await.map(|_| ()))
            }
        };
        match answer {
            Ok(()) => true,
            Err(error) if matches!(reconcile::reason(&error), "AlreadyExists" | "NotFound" | "Conflict") => true,
            Err(error) => {
                tracing::warn!(%error, "cannot {what}; retrying");
                false
            }
        }
    }
}

fn annotation<'a>(pod: &'a Pod, key: &str) -> Option<&'a str> {
    pod.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Node;
    use reconcile::Caches;
    use serde_json::json;
    use testkit::{FakeApi, Fault};

    use super::*;

    fn pod(image: &str) -> Arc<Pod> {
        let text = format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: web}}\nspec: {{containers: [{{name: c, image: {image}}}]}}\n"
        );
        Arc::new(
            super::super::manifest::pods(text.as_bytes(), "f", "n1", jiff::Timestamp::UNIX_EPOCH).unwrap().remove(0),
        )
    }

    const PATH: &str = "/api/v1/namespaces/default/pods/web-n1";

    #[tokio::test(start_paused = true)]
    async fn mirrors_follow_the_files_whatever_the_api_is_told() {
        let api = FakeApi::default();
        let (client, link) = api.client();
        let shutdown = Shutdown::new();
        let cache = Caches::new(api.client().0, shutdown.clone()).start::<Pod>("spec.nodeName=n1");
        let (files, node) = (watch::Sender::new(vec![pod("a:1")]), watch::Sender::new(Seen::Unknown));
        tokio::spawn(run(client, files.subscribe(), cache, node.subscribe(), shutdown));
        let wait = || tokio::time::sleep(Duration::from_secs(6));
        wait().await;
        assert_eq!(api.get(PATH), None, "without a Node there is no owner");
        let object = json!({ "metadata": { "name": "n1", "uid": "node-uid" } });
        node.send_replace(Seen::Here(Arc::new(serde_json::from_value::<Node>(object).unwrap())));
        wait().await;
        let mirror = api.get(PATH).unwrap();
        let hash = &mirror["metadata"]["annotations"][HASH];
        assert_eq!(&mirror["metadata"]["annotations"][MIRROR], hash);
        assert_ne!(&mirror["metadata"]["uid"], hash);
        let owner =
            json!([{ "apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "node-uid", "controller": true }]);
        assert_eq!(mirror["metadata"]["ownerReferences"], owner);

        api.remove(PATH);
        wait().await;
        assert_ne!(api.get(PATH).expect("it is made again")["metadata"]["uid"], mirror["metadata"]["uid"]);

        let mut marked = api.get(PATH).unwrap();
        marked["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        api.put(PATH, marked);
        wait().await;
        assert_eq!(api.get(PATH).unwrap()["metadata"].get("deletionTimestamp"), None);

        link.set(Fault::Refused);
        files.send_replace(vec![pod("a:2")]);
        wait().await;
        assert_eq!(api.get(PATH).unwrap()["spec"]["containers"][0]["image"], "a:1");
        link.set(Fault::None);
        wait().await;
        wait().await;
        assert_eq!(api.get(PATH).unwrap()["spec"]["containers"][0]["image"], "a:2");

        files.send_replace(Vec::new());
        wait().await;
        assert_eq!(api.get(PATH), None);
    }

    #[test]
    fn pods_of_the_api_are_let_be() {
        let mut other = (*pod("a:1")).clone();
        other.metadata.annotations = None;
        assert_eq!(plan(&[], &[Arc::new(other)], Some(("n1".into(), "u".into()))), []);
        assert!(is_static(&pod("a:1")) && !is_mirror(&pod("a:1")));
    }
}
