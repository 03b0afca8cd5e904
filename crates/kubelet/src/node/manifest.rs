//! A manifest in a file becomes static pods: named after the node, defaulted and checked as the API would. Pure.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use machinery::codec;
use machinery::field::Errors;
use machinery::kind::Kind;
use machinery::node::Node;
use machinery::schema::conform::{Problems, TypeError, conform};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

pub const SOURCE: &str = "kubernetes.io/config.source";
pub const HASH: &str = "kubernetes.io/config.hash";
pub const SEEN: &str = "kubernetes.io/config.seen";
pub const MIRROR: &str = "kubernetes.io/config.mirror";

/// Why a manifest is ignored.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    #[error(transparent)]
    Read(#[from] std::io::Error),
    #[error(transparent)]
    Decode(#[from] codec::DecodeError),
    #[error(transparent)]
    Type(#[from] TypeError),
    #[error(transparent)]
    Object(#[from] serde_json::Error),
    #[error("{version} {kind} is neither a Pod nor a PodList")]
    Kind { version: String, kind: String },
    #[error("static pods may not reference {0}")]
    Reference(&'static str),
    #[error("a static pod needs a name")]
    NoName,
    #[error("{0}")]
    Invalid(String),
}

/// The pods of one file: a Pod or a PodList, YAML or JSON.
pub fn pods(body: &[u8], path: &str, node: &str, now: Timestamp) -> Result<Vec<Pod>, ManifestError> {
    let decoded = codec::decode_yaml(body)?;
    let kind = codec::type_meta(&decoded.value)?;
    match (kind.api_version, kind.kind) {
        ("v1", "Pod") => Ok(vec![pod(decoded.value, path, node, now)?]),
        ("v1", "PodList" | "List") => {
            let items = decoded.value["items"].as_array().cloned().unwrap_or_default();
            items.into_iter().map(|item| pod(item, path, node, now)).collect()
        }
        (version, kind) => Err(ManifestError::Kind { version: version.to_owned(), kind: kind.to_owned() }),
    }
}

fn pod(mut value: Value, path: &str, node: &str, now: Timestamp) -> Result<Pod, ManifestError> {
    let kind = pod_kind();
    // Items of a list may leave out what the list says.
    value["apiVersion"] = json!("v1");
    value["kind"] = json!("Pod");
    let mut problems = Problems::default();
    conform(&mut value, api::schema::type_of(kind), &mut problems)?;
    for problem in problems.unknown {
        tracing::warn!(path, problem, "unknown field in static pod manifest");
    }
    if let Some(object) = reference_to_api(&value) {
        return Err(ManifestError::Reference(object));
    }
    let name = value["metadata"]["name"].as_str().unwrap_or("").to_owned();
    if name.is_empty() {
        return Err(ManifestError::NoName);
    }
    let given = value["metadata"]["uid"].as_str().filter(|uid| !uid.is_empty());
    let uid = given.map(str::to_owned).unwrap_or_else(|| hash(&value, path, node));
    let metadata = &mut value["metadata"];
    metadata["uid"] = json!(uid);
    metadata["name"] = json!(format!("{name}-{}", node.to_lowercase()));
    if metadata["namespace"].as_str().unwrap_or("").is_empty() {
        metadata["namespace"] = json!("default");
    }
    metadata["annotations"][SOURCE] = json!("file");
    metadata["annotations"][HASH] = json!(uid);
    metadata["annotations"][SEEN] = json!(now.to_string());
    let spec = &mut value["spec"];
    spec["nodeName"] = json!(node);
    tolerate_everything(spec);
    (kind.defaults)(&mut value);
    let mut errors = Errors::default();
    (kind.validate)(&Node::root(&value), &mut errors);
    if !errors.is_empty() {
        let errors: Vec<String> =
            errors.0.iter().map(|error| format!("{}: {}", error.field, error.message())).collect();
        return Err(ManifestError::Invalid(errors.join("; ")));
    }
    value["status"] = json!({ "phase": "Pending" });
    Ok(machinery::codec::typed(&value)?)
}

fn pod_kind() -> &'static Kind {
    let pod = api::KINDS.iter().find(|kind| kind.group.is_empty() && kind.kind == "Pod");
    pod.expect("the table of kinds has Pods")
}

/// Two nodes, two files or two contents give two identities; the same give the same after every restart.
fn hash(value: &Value, path: &str, node: &str) -> String {
    let digest =
        Sha256::new().chain_update(value.to_string()).chain_update(format!("host:{node}file:{path}")).finalize();
    digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

/// No taint drives a static pod away: nobody but the file decides about it.
fn tolerate_everything(spec: &mut Value) {
    let all = json!({ "operator": "Exists", "effect": "NoExecute" });
    match spec["tolerations"].as_array_mut() {
        Some(tolerations) if tolerations.contains(&all) => {}
        Some(tolerations) => tolerations.push(all),
        None => spec["tolerations"] = json!([all]),
    }
}

/// What only the API has. A static pod runs without it, so it may not need it.
fn reference_to_api(pod: &Value) -> Option<&'static str> {
    let spec = &pod["spec"];
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let has =
        |value: &Value, pointer: &str| value.pointer(pointer).is_some_and(|value| !value.is_null() && value != "");
    if has(spec, "/serviceAccountName") {
        return Some("a service account");
    }
    if has(spec, "/resourceClaims/0") {
        return Some("resource claims");
    }
    for volume in list(&spec["volumes"]) {
        let mut sources = list(&volume["projected"]["sources"]);
        sources.push(volume);
        for source in sources {
            let named = [
                ("configMap", "config maps"),
                ("secret", "secrets"),
                ("persistentVolumeClaim", "persistent volume claims"),
                ("ephemeral", "persistent volume claims"),
                ("serviceAccountToken", "a service account"),
                ("clusterTrustBundle", "cluster trust bundles"),
            ];
            if let Some((_, object)) = named.iter().find(|(field, _)| has(&source, &format!("/{field}"))) {
                return Some(object);
            }
        }
    }
    let containers = ["initContainers", "containers"].into_iter().flat_map(|field| list(&spec[field]));
    for container in containers {
        let sources = list(&container["envFrom"]).into_iter().chain(list(&container["env"]));
        for source in sources {
            if has(&source, "/configMapRef") || has(&source, "/valueFrom/configMapKeyRef") {
                return Some("config maps");
            }
            if has(&source, "/secretRef") || has(&source, "/valueFrom/secretKeyRef") {
                return Some("secrets");
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const WEB: &str = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: web\n  annotations: {a: b}\nspec:\n  containers:\n  - name: c\n    image: web:1\n    resources: {limits: {cpu: 0.5}}\n";

    fn parse(text: &str) -> Result<Vec<Pod>, ManifestError> {
        pods(text.as_bytes(), "/manifests/web.yaml", "n1", Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn a_manifest_becomes_a_pod_of_this_node() {
        let pod = parse(WEB).unwrap().remove(0);
        let (metadata, spec) = (pod.metadata.clone(), pod.spec.clone().unwrap());
        assert_eq!((metadata.name.as_deref(), metadata.namespace.as_deref()), (Some("web-n1"), Some("default")));
        let uid = metadata.uid.unwrap();
        assert_eq!(uid.len(), 32);
        let annotations = metadata.annotations.unwrap();
        let expected = [("a", "b"), (HASH, uid.as_str()), (SEEN, "1970-01-01T00:00:00Z"), (SOURCE, "file")];
        assert_eq!(annotations.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect::<Vec<_>>(), expected);
        assert_eq!((spec.node_name.as_deref(), spec.restart_policy.as_deref()), (Some("n1"), Some("Always")));
        assert_eq!(spec.termination_grace_period_seconds, Some(30));
        assert_eq!(spec.tolerations.unwrap()[0].effect.as_deref(), Some("NoExecute"));
        let requests = spec.containers[0].resources.clone().unwrap().requests.unwrap();
        assert_eq!(requests["cpu"].0, "500m", "requests follow limits, in canonical form");
    }

    #[test]
    fn the_identity_follows_content_file_and_node() {
        let uid = |text: &str, path: &str, node: &str| {
            pods(text.as_bytes(), path, node, Timestamp::now()).unwrap()[0].metadata.uid.clone().unwrap()
        };
        let first = uid(WEB, "f", "n");
        assert_eq!(first, uid(WEB, "f", "n"));
        for other in [uid(&WEB.replace("web:1", "web:2"), "f", "n"), uid(WEB, "g", "n"), uid(WEB, "f", "m")] {
            assert_ne!(first, other);
        }
    }

    #[test]
    fn lists_and_json_are_taken_and_broken_files_are_not() {
        let list = r#"{"apiVersion":"v1","kind":"PodList","items":[
            {"metadata":{"name":"a"},"spec":{"containers":[{"name":"c","image":"i"}]}},
            {"metadata":{"name":"b","namespace":"x"},"spec":{"containers":[{"name":"c","image":"i"}]}}]}"#;
        let names: Vec<_> = parse(list).unwrap().into_iter().map(|pod| pod.metadata.name.unwrap()).collect();
        assert_eq!(names, ["a-n1", "b-n1"]);
        for (broken, why) in [
            ("a: [", "line"),
            ("kind: Pod", ""),
            ("apiVersion: v1\nkind: Service\nmetadata: {name: a}", "neither a Pod nor a PodList"),
            (
                "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: []}",
                "spec.containers: Required value",
            ),
            ("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: 3}", "cannot unmarshal"),
            ("apiVersion: v1\nkind: Pod\nmetadata: {}\nspec: {containers: [{name: c, image: i}]}", "needs a name"),
            (
                "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {volumes: [{name: v, secret: {secretName: s}}], containers: [{name: c, image: i}]}",
                "may not reference secrets",
            ),
            (
                "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {resourceClaims: [{name: gpu, resourceClaimName: x}], containers: [{name: c, image: i, resources: {claims: [{name: gpu}]}}]}",
                "may not reference resource claims",
            ),
            (
                "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {volumes: [{name: v, persistentVolumeClaim: {claimName: x}}], containers: [{name: c, image: i}]}",
                "may not reference persistent volume claims",
            ),
        ] {
            let error = parse(broken).unwrap_err().to_string();
            assert!(error.contains(why), "{broken}: {error}");
        }
    }
}
