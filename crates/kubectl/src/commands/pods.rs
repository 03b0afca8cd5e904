//! From what a user names (`web`, `pod/web`, `deploy/web`, `svc/web`) to the pod behind it.

use serde_json::Value;

use crate::failure::{Failure, Result};
use crate::resource::select::Query;
use crate::session::{Call, Session};

/// The pod of a name; for anything else than a pod, the best of its pods, waited for as long as told.
pub async fn one(session: &Session, text: &str, limit: std::time::Duration) -> Result<Value> {
    let namespace = session.namespace()?.to_string();
    let Some((kind, name)) = text.split_once('/') else {
        return session.send(&Call::get(format!("/api/v1/namespaces/{namespace}/pods/{text}"))).await;
    };
    let mapping = session.mapping(kind).await?;
    let object = session.send(&Call::get(mapping.object(&namespace, name))).await?;
    if mapping.is("", "pods") {
        return Ok(object);
    }
    let until = tokio::time::Instant::now() + limit;
    loop {
        let mut pods = of(session, &object).await?;
        if let Some(pod) = best(&mut pods) {
            return Ok(pod);
        }
        if tokio::time::Instant::now() >= until {
            return Err(Failure::message("timed out waiting for the condition"));
        }
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    }
}

/// All pods that an object selects.
pub async fn of(session: &Session, object: &Value) -> Result<Vec<Value>> {
    let kind = object["kind"].as_str().unwrap_or_default();
    let selector = match kind {
        "Service" | "ReplicationController" => labels(&object["spec"]["selector"]),
        _ => super::selector_text(&object["spec"]["selector"]),
    };
    if selector.is_empty() {
        return Err(Failure::message(
            format!("cannot attach to a {kind} without a selector")
                .replace("cannot attach to", "invalid: cannot find pods of"),
        ));
    }
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
    let query = Query { selector, chunk: 500, ..Query::default() };
    let mapping = session.mapping("pods").await?;
    session.list(&mapping, namespace, &query).await
}

fn labels(selector: &Value) -> String {
    let pairs = selector.as_object().into_iter().flatten();
    let texts: Vec<String> =
        pairs.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
    texts.join(",")
}

/// Ready before running before pending, then the older one.
fn best(pods: &mut Vec<Value>) -> Option<Value> {
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
    pods.drain(..).next()
}

pub fn container_names(pod: &Value, lists: &[&str]) -> Vec<String> {
    let mut names = Vec::new();
    for list in lists {
        for container in pod["spec"][*list].as_array().into_iter().flatten() {
            names.extend(container["name"].as_str().map(str::to_string));
        }
    }
    names
}

pub const ALL_LISTS: &[&str] = &["initContainers", "containers", "ephemeralContainers"];

/// The container a command means: the one named, the one annotated, or the first, which is then told.
pub fn container(pod: &Value, given: &str, quiet: bool) -> Result<String> {
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    let all = container_names(pod, &["containers", "initContainers", "ephemeralContainers"]);
    if !given.is_empty() {
        return Ok(given.to_string());
    }
    if let Some(default) = pod["metadata"]["annotations"]["kubectl.kubernetes.io/default-container"].as_str() {
        if all.iter().any(|known| known == default) {
            return Ok(default.to_string());
        }
        crate::terminal::err(&format!("Default container name {default:?} not found in pod {name}\n"));
    }
    let Some(first) = all.first() else {
        return Err(Failure::message(format!("pod {name} does not have any containers")));
    };
    if all.len() > 1 && !quiet {
        let mut shown = container_names(pod, &["containers"]);
        shown.extend(container_names(pod, &["initContainers"]).into_iter().map(|name| format!("{name} (init)")));
        shown.extend(container_names(pod, &["ephemeralContainers"]).into_iter().map(|name| format!("{name} (ephem)")));
        crate::terminal::err(&format!("Defaulted container {first:?} out of: {}\n", shown.join(", ")));
    }
    Ok(first.clone())
}
