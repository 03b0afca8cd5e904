//! Tokens that a kubelet asks for: for pods on its node, and for audiences that those pods have a use for.

use machinery::object::Meta;
use machinery::status::{GroupResource, Status};
use serde_json::Value;

use super::super::Request;
use super::bound_to;
use crate::app::App;
use crate::conversion::decode_stored;

pub async fn check(request: &Request<'_>, node: &str, object: Option<&Value>) -> Result<(), Status> {
    let refuse = |why: String| Err(request.forbidden(None, &why));
    let none = Value::Null;
    let spec = object.and_then(|object| object.get("spec")).unwrap_or(&none);
    let reference = &spec["boundObjectRef"];
    let text = |field: &str| reference[field].as_str().unwrap_or("");
    if text("apiVersion") != "v1" || text("kind") != "Pod" || text("name").is_empty() {
        return refuse("node requested token not bound to a pod".into());
    }
    if text("uid").is_empty() {
        return refuse("node requested token with a pod binding without a uid".into());
    }
    let Some(pod) = request.app.views.one("pods", request.namespace, text("name")) else {
        return Err(Status::not_found(GroupResource { group: "", resource: "pods" }, text("name")));
    };
    if pod.uid() != text("uid") {
        return refuse(format!(
            "the UID in the bound object reference ({}) does not match the UID in record. The object might have been \
             deleted and then recreated",
            text("uid")
        ));
    }
    if !bound_to(Some(&pod), node) {
        return refuse("node requested token bound to a pod scheduled on a different node".into());
    }
    let audiences: Vec<&str> = spec["audiences"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let audience = match audiences.as_slice() {
        [] => "",
        [one] => one,
        _ => return refuse("node may only request 0 or 1 audiences".into()),
    };
    if wants(&pod, audience) || driver_wants(request.app, &pod, audience) {
        return Ok(());
    }
    // Some credential helpers need an audience that no pod names; a role can grant it.
    let verb = "request-serviceaccounts-token-audience";
    if request.call.may(verb, "", audience, "", request.namespace, request.name).await {
        return Ok(());
    }
    refuse(format!(
        "audience {audience:?} not found in pod spec volume, {} is not authorized to request tokens for this audience",
        request.user.name
    ))
}

fn volumes(pod: &Value) -> impl Iterator<Item = &Value> {
    pod.pointer("/spec/volumes").and_then(Value::as_array).into_iter().flatten()
}

/// Whether the pod mounts a token for that audience.
fn wants(pod: &Value, audience: &str) -> bool {
    let sources = volumes(pod).filter_map(|volume| volume.pointer("/projected/sources")?.as_array()).flatten();
    let mut tokens = sources.filter_map(|source| source.get("serviceAccountToken"));
    tokens.any(|token| token.get("audience").and_then(Value::as_str).unwrap_or("") == audience)
}

/// Whether the driver of one of the pod's volumes asks for such tokens.
fn driver_wants(app: &App, pod: &Value, audience: &str) -> bool {
    volumes(pod).filter_map(|volume| driver(app, pod, volume)).any(|driver| {
        let requests = driver.pointer("/spec/tokenRequests").and_then(Value::as_array).into_iter().flatten();
        requests.map(|request| request["audience"].as_str().unwrap_or("")).any(|wanted| wanted == audience)
    })
}

fn driver(app: &App, pod: &Value, volume: &Value) -> Option<Value> {
    let text = |value: &Value, path: &str| value.pointer(path).and_then(Value::as_str).map(String::from);
    let name = text(volume, "/csi/driver").or_else(|| {
        let claim = text(volume, "/persistentVolumeClaim/claimName").or_else(|| {
            let own = volume.get("ephemeral").is_some();
            own.then(|| format!("{}-{}", pod.name(), volume["name"].as_str().unwrap_or("")))
        })?;
        let claim = app.views.one("persistentvolumeclaims", pod.namespace(), &claim)?;
        let volume = app.views.one("persistentvolumes", "", &text(&claim, "/spec/volumeName")?)?;
        text(&volume, "/spec/csi/driver")
    })?;
    let table = app.table.load();
    let drivers = table.get("storage.k8s.io", "v1", "csidrivers")?;
    let item = drivers.state.as_ref()?.get(&drivers.key("", &name).ok()?)?;
    decode_stored(&item.value, item.revision.0).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_wants_the_audiences_of_its_volumes() {
        let pod = json!({"spec": {"volumes": [
            {"projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}},
            {"projected": {"sources": [{"serviceAccountToken": {"audience": "vault"}}]}},
        ]}});
        assert!(wants(&pod, "") && wants(&pod, "vault") && !wants(&pod, "other"));
        assert!(!wants(&json!({"spec": {}}), ""));
    }
}
