//! NodeRestriction: a kubelet writes about its own node and the pods on it, and nothing else. What it may write at
//! all is the authorizer's business; this looks at what the object says.

mod labels;
mod pod_certificate;
mod slices;
mod token;

use machinery::object::Meta;
use machinery::status::{GroupResource, Status};
use serde_json::Value;

use super::{Operation, Plugin, Request, certificates, secrets};
use crate::authz::node_identity;
use crate::refusal::Refusal;

const MIRROR: &str = "kubernetes.io/config.mirror";
const LEASES: &str = "kube-node-lease";

pub struct NodeRestriction;

#[async_trait::async_trait]
impl Plugin for NodeRestriction {
    fn name(&self) -> &'static str {
        "NodeRestriction"
    }

    async fn validate(&self, request: &Request<'_>, object: Option<&Value>) -> Result<(), Status> {
        let Some(node) = node_identity(request.user) else { return Ok(()) };
        let refuse = |why: Refusal| request.forbidden(object, why);
        if node.is_empty() {
            return Err(refuse(format!("could not determine node from user {:?}", request.user.name).into()));
        }
        let kind = &request.resource.kind;
        let verdict = match (kind.group, kind.plural, request.subresource) {
            ("", "pods", "") => return own_pod(request, node, object),
            ("", "pods", "status") => pod_status(request, node, object),
            ("", "pods", "eviction") => {
                if bound_to(request.old, node) {
                    Ok(())
                } else {
                    Err(format!("node {node} can only evict pods with spec.nodeName set to itself").into())
                }
            }
            ("", "pods", other) => {
                Err(format!("unexpected pod subresource {other:?}, only 'status' and 'eviction' are allowed").into())
            }
            ("", "nodes", _) => own_node(request, node, object),
            ("", "persistentvolumeclaims", "status") => claim_status(request, node, object),
            ("", "persistentvolumeclaims", _) => Err("may only update PVC status".into()),
            ("", "serviceaccounts", "token") => return token::check(request, node, object).await,
            ("coordination.k8s.io", "leases", _) => lease(request, node, object),
            ("storage.k8s.io", "csinodes", _) => {
                if name_of(request, object) == node {
                    Ok(())
                } else {
                    Err("can only access CSINode with the same name as the requesting node".into())
                }
            }
            ("resource.k8s.io", "resourceslices", _) => slice(request, node, object),
            ("discovery.k8s.io", "endpointslices", _) if request.namespace == "kube-system" => {
                let own = request.app.views.one("nodes", "", node);
                let new = object.filter(|_| request.operation != Operation::Delete);
                slices::check(node, own.as_deref(), request.old, new)
            }
            ("certificates.k8s.io", "podcertificaterequests", _) => {
                return pod_certificate::check(request, node, object);
            }
            ("certificates.k8s.io", "certificatesigningrequests", "") => certificate_request(request, object),
            _ => Ok(()),
        };
        verdict.map_err(refuse)
    }
}

fn name_of<'a>(request: &Request<'a>, object: Option<&'a Value>) -> &'a str {
    match request.operation {
        Operation::Create => object.map_or("", Meta::name),
        _ => request.name,
    }
}

fn bound_to(pod: Option<&Value>, node: &str) -> bool {
    pod.and_then(|pod| pod.pointer("/spec/nodeName")).and_then(Value::as_str) == Some(node)
}

fn own_pod(request: &Request<'_>, node: &str, object: Option<&Value>) -> Result<(), Status> {
    let refuse = |why: Refusal| Err(request.forbidden(object, why));
    match (request.operation, object) {
        (Operation::Create, Some(pod)) => {
            let Some(own) = request.app.views.one("nodes", "", node) else {
                // Everything else about the pod is said first, as upstream.
                return match mirror_pod(pod, node, None) {
                    Err(why) => refuse(why),
                    Ok(()) => Err(Status::not_found(GroupResource { group: "", resource: "nodes" }, node)),
                };
            };
            mirror_pod(pod, node, Some(own.uid())).or_else(refuse)
        }
        (Operation::Delete, _) if bound_to(request.old, node) => Ok(()),
        (Operation::Delete, _) => {
            refuse(format!("node {node:?} can only delete pods with spec.nodeName set to itself").into())
        }
        (operation, _) => {
            let word = format!("{operation:?}").to_uppercase();
            refuse(
                format!("unexpected operation {word:?}, node {node:?} can only create and delete mirror pods").into(),
            )
        }
    }
}

/// A mirror pod says what the kubelet runs from its own files. It is bound to the node, owned by it, and names nothing
/// that the node could come to read by it.
fn mirror_pod(pod: &Value, node: &str, uid: Option<&str>) -> Result<(), Refusal> {
    if pod.annotation(MIRROR).is_none() {
        return Err(
            format!("pod does not have {MIRROR:?} annotation, node {node:?} can only create mirror pods").into()
        );
    }
    if !bound_to(Some(pod), node) {
        return Err(format!("node {node:?} can only create pods with spec.nodeName set to itself").into());
    }
    let owners = pod.meta("ownerReferences").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let not_owned = || Err(format!("node {node:?} can only create pods with an owner reference set to itself").into());
    match owners {
        [] => return not_owned(),
        [owner] => {
            if owner["apiVersion"] != "v1" || owner["kind"] != "Node" || owner["name"] != node {
                return not_owned();
            }
            if owner["controller"] != true {
                return Err(format!(
                    "node {node:?} can only create pods with a controller owner reference set to itself"
                )
                .into());
            }
            if owner["blockOwnerDeletion"] == true {
                return Err(format!("node {node:?} must not set blockOwnerDeletion on an owner reference").into());
            }
            let given = owner["uid"].as_str().unwrap_or("");
            if let Some(uid) = uid.filter(|uid| *uid != given) {
                return Err(format!("node {node} UID mismatch: expected {given} got {uid}").into());
            }
        }
        _ => {
            return Err(
                format!("node {node:?} can only create pods with a single owner reference set to itself").into()
            );
        }
    }
    let spec = &pod["spec"];
    let volumes = spec["volumes"].as_array().map_or(&[][..], Vec::as_slice);
    let bundles = |volume: &Value| {
        let sources = volume.pointer("/projected/sources").and_then(Value::as_array);
        sources.is_some_and(|list| list.iter().any(|source| source.get("clusterTrustBundle").is_some()))
    };
    let named = [
        ("a service account", !spec["serviceAccountName"].as_str().unwrap_or("").is_empty()),
        ("secrets", secrets::references_any(pod)),
        ("configmaps", secrets::references_config_maps(pod)),
        ("clustertrustbundles", volumes.iter().any(bundles)),
        ("persistentvolumeclaims", volumes.iter().any(|volume| volume.get("persistentVolumeClaim").is_some())),
        ("resourceclaims", spec["resourceClaims"].as_array().is_some_and(|claims| !claims.is_empty())),
    ];
    match named.into_iter().find(|(_, used)| *used) {
        Some((what, _)) => Err(format!("node {node:?} can not create pods that reference {what}").into()),
        None => Ok(()),
    }
}

fn pod_status(request: &Request<'_>, node: &str, object: Option<&Value>) -> Result<(), Refusal> {
    let (Operation::Update, Some(old), Some(new)) = (request.operation, request.old, object) else {
        return Err(format!("unexpected operation {:?}", format!("{:?}", request.operation).to_uppercase()).into());
    };
    if !bound_to(Some(old), node) {
        return Err(
            format!("node {node:?} can only update pod status for pods with spec.nodeName set to itself").into()
        );
    }
    pod_status_update(new, old, node)
}

/// What of a pod is not its node's to say.
fn pod_status_update(new: &Value, old: &Value, node: &str) -> Result<(), Refusal> {
    if new.meta("labels") != old.meta("labels") {
        return Err(format!("node {node:?} cannot update labels through pod status").into());
    }
    for (path, what) in [
        ("/status/resourceClaimStatuses", "resource claim statuses"),
        ("/status/extendedResourceClaimStatus", "extended resource claim status"),
    ] {
        if new.pointer(path) != old.pointer(path) {
            return Err(format!("node {node:?} cannot update {what}").into());
        }
    }
    Ok(())
}

fn own_node(request: &Request<'_>, node: &str, object: Option<&Value>) -> Result<(), Refusal> {
    let name = name_of(request, object);
    let none = Value::Null;
    let (new, old) = (object.unwrap_or(&none), request.old.unwrap_or(&none));
    if request.operation == Operation::Create {
        if new.pointer("/spec/configSource").is_some() {
            return Err(format!("node {node:?} is not allowed to create pods with a non-nil configSource").into());
        }
        let forbidden = labels::forbidden(new, &none);
        if !forbidden.is_empty() {
            return Err(
                format!("node {node:?} is not allowed to set the following labels: {}", forbidden.join(", ")).into()
            );
        }
    }
    if name != node {
        return Err(format!("node {node:?} is not allowed to modify node {name:?}").into());
    }
    if request.operation == Operation::Update {
        return node_update(new, old, node);
    }
    Ok(())
}

/// Taints and labels steer pods, and an owner can take the node along: these are not the kubelet's to change.
fn node_update(new: &Value, old: &Value, node: &str) -> Result<(), Refusal> {
    let config = |object: &Value| object.pointer("/spec/configSource").cloned();
    if config(new).is_some() && config(new) != config(old) {
        return Err(format!("node {node:?} is not allowed to update configSource to a new non-nil configSource").into());
    }
    if new.pointer("/spec/taints") != old.pointer("/spec/taints") {
        return Err(format!("node {node:?} is not allowed to modify taints").into());
    }
    if new.meta("ownerReferences") != old.meta("ownerReferences") {
        return Err(format!("node {node:?} is not allowed to modify ownerReferences").into());
    }
    let forbidden = labels::forbidden(new, old);
    if !forbidden.is_empty() {
        return Err(format!("is not allowed to modify labels: {}", forbidden.join(", ")).into());
    }
    Ok(())
}

/// A kubelet that resizes a volume tells its new size.
fn claim_status(request: &Request<'_>, node: &str, object: Option<&Value>) -> Result<(), Refusal> {
    let (Operation::Update, Some(old), Some(new)) = (request.operation, request.old, object) else {
        return Err(format!("unexpected operation {:?}", format!("{:?}", request.operation).to_uppercase()).into());
    };
    let rest = |claim: &Value| {
        let mut claim = claim.clone();
        for field in ["managedFields", "resourceVersion"] {
            claim.meta_mut().remove(field);
        }
        if let Some(status) = claim.get_mut("status").and_then(Value::as_object_mut) {
            for field in ["capacity", "conditions", "allocatedResources", "allocatedResourceStatuses"] {
                status.remove(field);
            }
        }
        claim
    };
    if rest(new) == rest(old) {
        Ok(())
    } else {
        Err(format!("node {node:?} is not allowed to update fields other than status.quantity and status.conditions")
            .into())
    }
}

fn lease(request: &Request<'_>, node: &str, object: Option<&Value>) -> Result<(), Refusal> {
    if request.namespace != LEASES {
        return Err(format!("can only access leases in the {LEASES:?} system namespace").into());
    }
    if name_of(request, object) == node {
        Ok(())
    } else {
        Err("can only access node lease with the same name as the requesting node".into())
    }
}

fn slice(request: &Request<'_>, node: &str, object: Option<&Value>) -> Result<(), Refusal> {
    let word = match request.operation {
        Operation::Create => "create",
        Operation::Delete => "delete",
        // The node of a slice cannot change, and the authorizer has seen to the rest.
        Operation::Update | Operation::Connect => return Ok(()),
    };
    if bound_to(object.or(request.old), node) {
        Ok(())
    } else {
        Err(format!("can only {word} ResourceSlice with the same NodeName as the requesting node").into())
    }
}

fn certificate_request(request: &Request<'_>, object: Option<&Value>) -> Result<(), Refusal> {
    const SIGNERS: [&str; 2] = ["kubernetes.io/kubelet-serving", "kubernetes.io/kube-apiserver-client-kubelet"];
    let signer = object.and_then(|object| object.pointer("/spec/signerName")).and_then(Value::as_str).unwrap_or("");
    let (Operation::Create, Some(object)) = (request.operation, object.filter(|_| SIGNERS.contains(&signer))) else {
        return Ok(());
    };
    let subject = certificates::subject(object).map_err(|error| format!("unable to parse csr: {error}"))?;
    if subject.common_name == request.user.name {
        Ok(())
    } else {
        Err(format!("can only create a node CSR with CN={}", request.user.name).into())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn mirror(change: impl Fn(&mut Value)) -> Value {
        let owner = json!({"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u", "controller": true});
        let mut pod = json!({
            "metadata": {"annotations": {MIRROR: "x"}, "ownerReferences": [owner]},
            "spec": {"nodeName": "n", "containers": [{"name": "c"}]},
        });
        change(&mut pod);
        pod
    }

    #[test]
    fn nodes_create_their_own_mirror_pods_only() {
        let check = |change: &dyn Fn(&mut Value), expected: Result<(), &str>| {
            let found = mirror_pod(&mirror(change), "n", Some("u")).map_err(|error| error.to_string());
            assert_eq!(found, expected.map_err(String::from));
        };
        check(&|_| {}, Ok(()));
        check(
            &|pod| pod["metadata"]["annotations"] = json!({}),
            Err("pod does not have \"kubernetes.io/config.mirror\" annotation, node \"n\" can only create mirror pods"),
        );
        check(
            &|pod| pod["spec"]["nodeName"] = "m".into(),
            Err("node \"n\" can only create pods with spec.nodeName set to itself"),
        );
        check(
            &|pod| pod["metadata"]["ownerReferences"] = json!([]),
            Err("node \"n\" can only create pods with an owner reference set to itself"),
        );
        check(
            &|pod| pod["metadata"]["ownerReferences"][0]["uid"] = "v".into(),
            Err("node n UID mismatch: expected v got u"),
        );
        check(
            &|pod| pod["spec"]["volumes"] = json!([{"secret": {"secretName": "s"}}]),
            Err("node \"n\" can not create pods that reference secrets"),
        );
        check(
            &|pod| pod["spec"]["volumes"] = json!([{"persistentVolumeClaim": {"claimName": "s"}}]),
            Err("node \"n\" can not create pods that reference persistentvolumeclaims"),
        );
    }

    #[test]
    fn nodes_do_not_say_which_claims_a_pod_has() {
        let check = |status: Value, expected: Result<(), &str>| {
            let extended = json!({"resourceClaimName": "x", "requestMappings": [{"containerName": "c"}]});
            let old = json!({"metadata": {"labels": {"a": "b"}}, "status": {"extendedResourceClaimStatus": extended}});
            let new = json!({"metadata": {"labels": {"a": "b"}}, "status": status});
            let found = pod_status_update(&new, &old, "n").map_err(|error| error.to_string());
            assert_eq!(found, expected.map_err(String::from), "{new}");
        };
        let own = json!({"resourceClaimName": "x", "requestMappings": [{"containerName": "c"}]});
        check(json!({"phase": "Running", "extendedResourceClaimStatus": own}), Ok(()));
        let refused = Err("node \"n\" cannot update extended resource claim status");
        check(json!({"phase": "Running"}), refused);
        let mut other = own.clone();
        other["resourceClaimName"] = "of-another".into();
        check(json!({"extendedResourceClaimStatus": other}), refused);
        check(
            json!({"extendedResourceClaimStatus": own, "resourceClaimStatuses": [{"name": "x"}]}),
            Err("node \"n\" cannot update resource claim statuses"),
        );
    }

    #[test]
    fn nodes_keep_their_taints_and_labels() {
        let check = |new: Value, expected: Result<(), &str>| {
            let old = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"taints": [{"key": "t"}]}});
            let found = node_update(&new, &old, "n").map_err(|error| error.to_string());
            assert_eq!(found, expected.map_err(String::from));
        };
        let taints = json!([{"key": "t"}]);
        check(json!({"metadata": {"labels": {"a": "c"}}, "spec": {"taints": taints}}), Ok(()));
        check(
            json!({"metadata": {"labels": {"a": "b"}}, "spec": {}}),
            Err("node \"n\" is not allowed to modify taints"),
        );
        let role = json!({"a": "b", "node-role.kubernetes.io/x": ""});
        check(
            json!({"metadata": {"labels": role}, "spec": {"taints": taints}}),
            Err("is not allowed to modify labels: node-role.kubernetes.io/x"),
        );
    }
}
