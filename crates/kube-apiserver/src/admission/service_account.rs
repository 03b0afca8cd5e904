//! ServiceAccount: every pod runs as an account of its namespace, which must exist, and finds the account's token
//! mounted. The controller that creates the account `default` is elsewhere.

use std::sync::Arc;

use std::time::Duration;

use machinery::object::{Meta, child_mut};
use machinery::status::Status;
use serde_json::{Map, Value, json};

use super::{Operation, Plugin, Request, secrets};
use crate::names;
use crate::refusal::Refusal;
use crate::write::store_status;

const DEFAULT: &str = "default";
const VOLUME_PREFIX: &str = "kube-api-access-";
const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const MIRROR: &str = "kubernetes.io/config.mirror";
const MOUNTABLE_ONLY: &str = "kubernetes.io/enforce-mountable-secrets";
/// A little over an hour, which kubelets know from a period that somebody chose.
const TOKEN_SECONDS: i64 = 3607;
/// The account `default` of a new namespace is on its way: how often and how long we look again.
const DEFAULT_TRIES: usize = 10;
const DEFAULT_PAUSE: Duration = Duration::from_millis(150);

pub struct ServiceAccount;

#[async_trait::async_trait]
impl Plugin for ServiceAccount {
    fn name(&self) -> &'static str {
        "ServiceAccount"
    }

    async fn mutate(&self, request: &Request<'_>, object: &mut Value) -> Result<(), Status> {
        if request.operation != Operation::Create || !request.is("", "pods") || is_mirror(object) {
            return Ok(());
        }
        let name = choose(object);
        let account = find(request, object, &name).await?;
        complete(object, &account);
        Ok(())
    }

    async fn validate(&self, request: &Request<'_>, object: Option<&Value>) -> Result<(), Status> {
        let Some(pod) = object.filter(|_| request.is_for("", "pods")) else { return Ok(()) };
        let refuse = |why: Refusal| request.forbidden(Some(pod), why);
        match (request.operation, request.subresource) {
            (Operation::Create, "") if is_mirror(pod) => check_mirror(pod).map_err(refuse),
            (Operation::Create, "") | (Operation::Update, "ephemeralcontainers") => {
                let name = pod.pointer("/spec/serviceAccountName").and_then(Value::as_str).unwrap_or("");
                if name.is_empty() {
                    let why = format!("no service account specified for pod {}/{}", request.namespace, pod.name());
                    return if request.operation == Operation::Create { Err(refuse(why.into())) } else { Ok(()) };
                }
                let account = find(request, pod, name).await?;
                if !only_mountable(&account) {
                    return Ok(());
                }
                check_secrets(pod, &account, request.subresource).map_err(refuse)
            }
            _ => Ok(()),
        }
    }
}

fn is_mirror(pod: &Value) -> bool {
    pod.annotation(MIRROR).is_some()
}

/// The account's name, written in both fields: the second is its deprecated double.
fn choose(pod: &mut Value) -> String {
    let spec = child_mut(pod, "spec");
    let text = |field: &str| spec.get(field).and_then(Value::as_str).filter(|text| !text.is_empty());
    let name = text("serviceAccountName").or(text("serviceAccount")).unwrap_or(DEFAULT).to_string();
    spec.insert("serviceAccountName".into(), name.as_str().into());
    spec.insert("serviceAccount".into(), name.as_str().into());
    name
}

async fn find(request: &Request<'_>, pod: &Value, name: &str) -> Result<Arc<Value>, Status> {
    let look = || request.app.views.one("serviceaccounts", request.namespace, name);
    if let Some(account) = look() {
        return Ok(account);
    }
    let tries = if name == DEFAULT { DEFAULT_TRIES } else { 1 };
    for attempt in 0..tries {
        if attempt > 0 {
            tokio::time::sleep(DEFAULT_PAUSE).await;
        }
        request.app.cache.fresh().await.map_err(store_status)?;
        if let Some(account) = look() {
            return Ok(account);
        }
    }
    let why =
        format!("error looking up service account {}/{name}: serviceaccount \"{name}\" not found", request.namespace);
    Err(request.forbidden(Some(pod), &why))
}

/// The account's token and pull secrets, unless the pod brings its own or wants none.
fn complete(pod: &mut Value, account: &Value) {
    let wanted = pod.pointer("/spec/automountServiceAccountToken").and_then(Value::as_bool);
    if wanted.or(account["automountServiceAccountToken"].as_bool()).unwrap_or(true) {
        mount_token(pod);
    }
    let spec = child_mut(pod, "spec");
    let own = spec.get("imagePullSecrets").and_then(Value::as_array).is_some_and(|list| !list.is_empty());
    let secrets: Vec<Value> =
        items(account, "imagePullSecrets").iter().map(|secret| json!({"name": secret["name"]})).collect();
    if !own && !secrets.is_empty() {
        spec.insert("imagePullSecrets".into(), secrets.into());
    }
}

fn mount_token(pod: &mut Value) {
    let spec = child_mut(pod, "spec");
    let volumes: Vec<&str> = spec.get("volumes").map_or(Vec::new(), |volumes| {
        volumes.as_array().into_iter().flatten().filter_map(|volume| volume["name"].as_str()).collect()
    });
    let given = volumes.iter().find(|name| name.starts_with(VOLUME_PREFIX)).map(|name| name.to_string());
    let name = given.clone().unwrap_or_else(|| {
        let mut name = names::generate(VOLUME_PREFIX);
        while volumes.contains(&name.as_str()) {
            name = names::generate(VOLUME_PREFIX);
        }
        name
    });
    let mut mounted = false;
    for field in ["initContainers", "containers"] {
        let containers = spec.get_mut(field).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten().filter_map(Value::as_object_mut) {
            mounted |= mount(container, &name);
        }
    }
    if mounted && given.is_none() {
        let volumes = spec.entry("volumes").or_insert(Value::Null);
        match volumes.as_array_mut() {
            Some(list) => list.push(volume(&name)),
            None => *volumes = vec![volume(&name)].into(),
        }
    }
}

/// Whether the volume was mounted: a mount that the pod itself has in that place stays.
fn mount(container: &mut Map<String, Value>, volume: &str) -> bool {
    let mounts = container.entry("volumeMounts").or_insert(Value::Null);
    if !mounts.is_array() {
        *mounts = Value::Array(Vec::new());
    }
    let Some(list) = mounts.as_array_mut() else { return false };
    if list.iter().any(|mount| mount["mountPath"] == MOUNT_PATH) {
        return false;
    }
    list.push(json!({"name": volume, "readOnly": true, "mountPath": MOUNT_PATH}));
    true
}

fn volume(name: &str) -> Value {
    json!({"name": name, "projected": {"defaultMode": 420, "sources": [
        {"serviceAccountToken": {"expirationSeconds": TOKEN_SECONDS, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [
            {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}},
        ]}},
    ]}})
}

/// A mirror pod is the kubelet's word for what runs already: nothing it names would be looked up.
fn check_mirror(pod: &Value) -> Result<(), Refusal> {
    let account = pod.pointer("/spec/serviceAccountName").and_then(Value::as_str).unwrap_or("");
    if !account.is_empty() {
        return Err("a mirror pod may not reference service accounts".into());
    }
    if secrets::references_any(pod) {
        return Err("a mirror pod may not reference secrets".into());
    }
    let has_token = |volume: &Value| {
        let sources = volume.pointer("/projected/sources").and_then(Value::as_array);
        sources.is_some_and(|list| list.iter().any(|source| source.get("serviceAccountToken").is_some()))
    };
    if items(&pod["spec"], "volumes").iter().any(has_token) {
        return Err("a mirror pod may not use service account token volumes".into());
    }
    Ok(())
}

fn only_mountable(account: &Value) -> bool {
    matches!(account.annotation(MOUNTABLE_ONLY), Some("1" | "t" | "T" | "TRUE" | "true" | "True"))
}

/// A pod of a restricted account uses only the secrets that the account lists.
fn check_secrets(pod: &Value, account: &Value, subresource: &str) -> Result<(), Refusal> {
    let listed = |field: &str, name: &Value| items(account, field).iter().any(|entry| entry["name"] == *name);
    let (spec, owner) = (&pod["spec"], account.name());
    let text = |value: &Value| value.as_str().unwrap_or("").to_string();
    let kinds = [
        ("initContainers", "init container"),
        ("containers", "container"),
        ("ephemeralContainers", "ephemeral container"),
    ];
    for (field, word) in kinds {
        if (field == "ephemeralContainers") != (subresource == "ephemeralcontainers") {
            continue;
        }
        for container in items(spec, field) {
            for variable in items(container, "env") {
                let Some(secret) = variable.pointer("/valueFrom/secretKeyRef/name") else { continue };
                if !listed("secrets", secret) {
                    return Err(format!(
                        "{word} {} with envVar {} referencing secret.secretName=\"{}\" is not allowed because service \
                         account {owner} does not reference that secret",
                        text(&container["name"]),
                        text(&variable["name"]),
                        text(secret)
                    )
                    .into());
                }
            }
        }
    }
    if !subresource.is_empty() {
        return Ok(());
    }
    for volume in items(spec, "volumes") {
        let Some(secret) = volume.pointer("/secret/secretName") else { continue };
        if !listed("secrets", secret) {
            return Err(format!(
                "volume with secret.secretName=\"{}\" is not allowed because service account {owner} does not reference that secret",
                text(secret)
            ).into());
        }
    }
    for (index, secret) in items(spec, "imagePullSecrets").iter().enumerate() {
        if !listed("imagePullSecrets", &secret["name"]) {
            return Err(format!(
                "imagePullSecrets[{index}].name=\"{}\" is not allowed because service account {owner} does not reference that imagePullSecret",
                text(&secret["name"])
            ).into());
        }
    }
    Ok(())
}

fn items<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value.get(field).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mounts(pod: &Value, path: &str) -> usize {
        pod.pointer(path).and_then(Value::as_array).map_or(0, Vec::len)
    }

    #[test]
    fn the_token_is_mounted_in_every_container() {
        let mut pod = json!({"spec": {"initContainers": [{"name": "i"}], "containers": [{"name": "c"}]}});
        assert_eq!(choose(&mut pod), "default");
        complete(&mut pod, &json!({"imagePullSecrets": [{"name": "pull"}]}));
        let name = pod.pointer("/spec/volumes/0/name").and_then(Value::as_str).unwrap_or("").to_string();
        assert!(name.starts_with(VOLUME_PREFIX) && name.len() == VOLUME_PREFIX.len() + 5, "{name}");
        let mount = json!([{"name": name, "readOnly": true, "mountPath": MOUNT_PATH}]);
        assert_eq!(pod["spec"]["containers"][0]["volumeMounts"], mount);
        assert_eq!(pod["spec"]["initContainers"][0]["volumeMounts"], mount);
        assert_eq!(pod["spec"]["volumes"], json!([volume(&name)]));
        assert_eq!(pod["spec"]["imagePullSecrets"], json!([{"name": "pull"}]));
        assert_eq!(
            (&pod["spec"]["serviceAccountName"], &pod["spec"]["serviceAccount"]),
            (&json!("default"), &json!("default"))
        );
    }

    #[test]
    fn the_pod_and_the_account_may_decline_the_token() {
        let check = |spec: Value, account: Value, volumes: usize| {
            let mut pod = json!({"spec": spec});
            complete(&mut pod, &account);
            assert_eq!(mounts(&pod, "/spec/volumes"), volumes, "{pod}");
        };
        let containers = json!([{"name": "c"}]);
        check(json!({"containers": containers, "automountServiceAccountToken": false}), json!({}), 0);
        check(json!({"containers": containers}), json!({"automountServiceAccountToken": false}), 0);
        let both = json!({"containers": containers, "automountServiceAccountToken": true});
        check(both, json!({"automountServiceAccountToken": false}), 1);
        check(json!({"containers": [{"volumeMounts": [{"mountPath": MOUNT_PATH}]}]}), json!({}), 0);
        check(json!({"containers": containers, "volumes": [{"name": "kube-api-access-own"}]}), json!({}), 1);
    }

    #[test]
    fn mirror_pods_reference_nothing() {
        let check = |spec: Value, expected: Result<(), &str>| {
            let found = check_mirror(&json!({"spec": spec})).map_err(|error| error.to_string());
            assert_eq!(found, expected.map_err(String::from));
        };
        check(json!({"containers": [{"name": "c"}]}), Ok(()));
        check(json!({"serviceAccountName": "x"}), Err("a mirror pod may not reference service accounts"));
        check(json!({"volumes": [{"secret": {"secretName": "s"}}]}), Err("a mirror pod may not reference secrets"));
        let token = json!({"volumes": [{"projected": {"sources": [{"serviceAccountToken": {}}]}}]});
        check(token, Err("a mirror pod may not use service account token volumes"));
    }

    #[test]
    fn a_restricted_account_lists_its_secrets() {
        let account =
            json!({"metadata": {"name": "a", "annotations": {MOUNTABLE_ONLY: "true"}}, "secrets": [{"name": "mine"}]});
        assert!(only_mountable(&account));
        let check = |spec: Value, expected: Result<(), &str>| {
            let found = check_secrets(&json!({"spec": spec}), &account, "").map_err(|error| error.to_string());
            assert_eq!(found, expected.map_err(String::from));
        };
        check(json!({"volumes": [{"secret": {"secretName": "mine"}}]}), Ok(()));
        check(
            json!({"volumes": [{"secret": {"secretName": "other"}}]}),
            Err(
                "volume with secret.secretName=\"other\" is not allowed because service account a does not reference that secret",
            ),
        );
        check(
            json!({"containers": [{"name": "c", "env": [{"name": "E", "valueFrom": {"secretKeyRef": {"name": "other"}}}]}]}),
            Err(
                "container c with envVar E referencing secret.secretName=\"other\" is not allowed because service account a \
                 does not reference that secret",
            ),
        );
        check(
            json!({"imagePullSecrets": [{"name": "p"}]}),
            Err(
                "imagePullSecrets[0].name=\"p\" is not allowed because service account a does not reference that imagePullSecret",
            ),
        );
    }
}
