//! From what a user names (`web`, `pod/web`, `deploy/web`, `svc/web`) to the pod behind it.

use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use crate::failure::{Failure, Result};
use crate::resource::select::Query;
use crate::session::{Call, Session};

/// The pod of a name; for anything else than a pod, the best of its pods, waited for as long as told.
pub(crate) async fn one(session: &Session, text: &str, limit: Duration) -> Result<Value> {
    let namespace = session.namespace()?.to_string();
    let Some((kind, name)) = text.split_once('/') else {
        return session.send(&Call::get(format!("/api/v1/namespaces/{namespace}/pods/{text}"))).await;
    };
    let mapping = session.mapping(kind).await?;
    let object = session.send(&Call::get(mapping.object(&namespace, name))).await?;
    if mapping.is("", "pods") {
        return Ok(object);
    }
    let selector = selector(&object).map_err(|why| Failure::message(format!("cannot attach to {why}")))?;
    let call = Call::get(format!("/api/v1/namespaces/{namespace}/pods")).with("labelSelector", selector);
    let found = until(session, call, limit, |pods| best(pods.to_vec())).await?;
    found.ok_or_else(|| Failure::message("timed out waiting for the condition"))
}

/// Looks at a list of pods whenever it changes, until something is found in it or time is up.
pub(super) async fn until<T>(
    session: &Session,
    call: Call,
    limit: Duration,
    found: impl Fn(&[Value]) -> Option<T>,
) -> Result<Option<T>> {
    let deadline = Instant::now() + limit;
    loop {
        let list = session.send(&call).await?;
        let revision = list["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_string();
        if let Some(found) = found(&crate::resource::flatten(list)) {
            return Ok(Some(found));
        }
        let watching = async {
            let watch = call.clone().with("watch", "true").with("resourceVersion", revision);
            session.chunks(&watch).await?.event().await
        };
        // One change is enough to look again.
        match tokio::time::timeout_at(deadline, watching).await {
            Ok(changed) => _ = changed?,
            Err(_) => return Ok(None),
        }
    }
}

/// All pods that an object selects.
pub(crate) async fn of(session: &Session, object: &Value) -> Result<Vec<Value>> {
    let selector = selector(object).map_err(|why| Failure::message(format!("cannot get the logs from {why}")))?;
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
    let query = Query { selector, chunk: 500, ..Query::default() };
    let mapping = session.mapping("pods").await?;
    session.list(&mapping, namespace, &query).await
}

/// How an object chooses its pods, or why it has none, in the words of Go's types.
fn selector(object: &Value) -> Result<String> {
    let kind = object["kind"].as_str().unwrap_or_default();
    let version = object["apiVersion"].as_str().unwrap_or_default().rsplit('/').next().unwrap_or_default();
    let selector = match kind {
        "Service" | "ReplicationController" => labels(&object["spec"]["selector"]),
        _ => super::selector_text(&object["spec"]["selector"]),
    };
    match kind {
        _ if !selector.is_empty() => Ok(selector),
        "Service" => {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            Err(Failure::message(format!(
                "*v1.Service: invalid service '{name}': Service is defined without a selector"
            )))
        }
        _ => Err(Failure::message(format!("*{version}.{kind}: selector for *{version}.{kind} not implemented"))),
    }
}

fn labels(selector: &Value) -> String {
    let pairs = selector.as_object().into_iter().flatten();
    let texts: Vec<String> =
        pairs.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
    texts.join(",")
}

/// Ready before running before pending, then the older one.
fn best(mut pods: Vec<Value>) -> Option<Value> {
    let ready = |pod: &Value| {
        pod["status"]["conditions"]
            .as_array()
            .into_iter()
            .flatten()
            .any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
    };
    let phase = |pod: &Value| match pod["status"]["phase"].as_str().unwrap_or_default() {
        "Running" => 0,
        "Pending" => 1,
        _ => 2,
    };
    pods.sort_by_key(|pod| {
        (phase(pod), !ready(pod), pod["metadata"]["creationTimestamp"].as_str().unwrap_or_default().to_string())
    });
    pods.into_iter().next()
}

pub(crate) fn container_names(pod: &Value, lists: &[&str]) -> Vec<String> {
    let mut names = Vec::new();
    for list in lists {
        for container in pod["spec"][*list].as_array().into_iter().flatten() {
            names.extend(container["name"].as_str().map(str::to_string));
        }
    }
    names
}

pub(super) const ALL_LISTS: &[&str] = &["initContainers", "containers", "ephemeralContainers"];

/// The container a command means: the one named, the one annotated, or the first, which is then told.
pub(crate) fn container(pod: &Value, given: &str, quiet: bool) -> Result<String> {
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    let all = container_names(pod, &["containers", "initContainers", "ephemeralContainers"]);
    if !given.is_empty() {
        if !all.iter().any(|known| known == given) {
            return Err(no_container(pod, given));
        }
        return Ok(given.to_string());
    }
    if let Some(default) = pod["metadata"]["annotations"]["kubectl.kubernetes.io/default-container"].as_str() {
        if all.iter().any(|known| known == default) {
            return Ok(default.to_string());
        }
        crate::terminal::err(&format!("Default container name {default:?} not found in pod {name}\n"));
    }
    let Some(first) = all.first() else {
        let namespace = pod["metadata"]["namespace"].as_str().unwrap_or_default();
        return Err(Failure::message(format!("pod {namespace}/{name} does not have any containers")));
    };
    if all.len() > 1 && !quiet {
        crate::terminal::err(&format!("Defaulted container {first:?} out of: {}\n", listed_containers(pod)));
    }
    Ok(first.clone())
}

/// `app, first (init)`
fn listed_containers(pod: &Value) -> String {
    let mut shown = container_names(pod, &["containers"]);
    shown.extend(container_names(pod, &["initContainers"]).into_iter().map(|name| format!("{name} (init)")));
    shown.extend(container_names(pod, &["ephemeralContainers"]).into_iter().map(|name| format!("{name} (ephem)")));
    shown.join(", ")
}

/// What is said of a container that the pod does not have.
fn no_container(pod: &Value, name: &str) -> Failure {
    let of = pod["metadata"]["name"].as_str().unwrap_or_default();
    Failure::message(format!("container {name} is not valid for pod {of} out of: {}", listed_containers(pod)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod() -> Value {
        json!({"metadata": {"name": "web", "namespace": "team"}, "spec": {
            "containers": [{"name": "app"}, {"name": "side"}], "initContainers": [{"name": "first"}],
            "ephemeralContainers": [{"name": "debug"}],
        }})
    }

    #[test]
    fn the_container_is_named_annotated_or_the_first() {
        assert_eq!(container(&pod(), "side", true).unwrap(), "side");
        assert_eq!(container(&pod(), "", true).unwrap(), "app");
        let mut annotated = pod();
        annotated["metadata"]["annotations"] = json!({"kubectl.kubernetes.io/default-container": "side"});
        assert_eq!(container(&annotated, "", true).unwrap(), "side");
        let refused = container(&pod(), "none", true).unwrap_err().text();
        let all = "app, side, first (init), debug (ephem)";
        assert_eq!(refused, format!("container none is not valid for pod web out of: {all}"));
        let empty = json!({"metadata": {"name": "web", "namespace": "team"}});
        let refused = container(&empty, "", true).unwrap_err().text();
        assert_eq!(refused, "pod team/web does not have any containers");
    }

    #[test]
    fn the_best_pod_is_ready_and_old() {
        let pod = |name: &str, phase: &str, ready: &str, created: &str| {
            json!({"metadata": {"name": name, "creationTimestamp": created},
                "status": {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]}})
        };
        let name = |pods: Vec<Value>| best(pods).map(|pod| pod["metadata"]["name"].clone());
        let (waiting, young) = (pod("waiting", "Pending", "False", "1"), pod("young", "Running", "True", "3"));
        let (old, unready) = (pod("old", "Running", "True", "2"), pod("unready", "Running", "False", "1"));
        assert_eq!(name(vec![waiting.clone(), unready.clone(), young, old]), Some("old".into()));
        assert_eq!(name(vec![waiting, unready]), Some("unready".into()));
        assert_eq!(name(vec![]), None);
    }

    #[test]
    fn workloads_choose_their_pods() {
        let check = |kind: &str, spec: Value, text: &str| {
            let object = json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "web"}, "spec": spec});
            assert_eq!(selector(&object).unwrap_or_else(|failure| failure.text()), text);
        };
        check("Service", json!({"selector": {"a": "b"}}), "a=b");
        check("Deployment", json!({"selector": {"matchLabels": {"a": "b"}}}), "a=b");
        check("Service", json!({}), "*v1.Service: invalid service 'web': Service is defined without a selector");
        check("Node", json!({}), "*v1.Node: selector for *v1.Node not implemented");
    }
}
