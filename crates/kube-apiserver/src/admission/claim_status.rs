//! Who may change which part of a ResourceClaim's status: users and allocation are the scheduler's (`resourceclaims/binding`), the state of
//! devices is each driver's (`resourceclaims/driver`). Upstream asks this while it validates; here it is one more question of admission,
//! with the same answer.

use std::collections::{BTreeMap, BTreeSet};

use machinery::field::{Errors, FieldError, Problem};
use machinery::object::Meta;
use machinery::status::Status;
use serde_json::Value;

use super::{Operation, Plugin, Request};
use crate::authn::User;
use crate::authz::{self, Attributes, Decision};

const GROUP: &str = "resource.k8s.io";
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";

pub struct ClaimStatus;

#[async_trait::async_trait]
impl Plugin for ClaimStatus {
    fn name(&self) -> &'static str {
        "DRAResourceClaimGranularStatusAuthorization"
    }

    async fn validate(&self, request: &Request<'_>, object: Option<&Value>) -> Result<(), Status> {
        let asked = request.operation == Operation::Update
            && request.subresource == "status"
            && request.is_for(GROUP, "resourceclaims");
        let (Some(object), Some(old)) = (object.filter(|_| asked), request.old) else { return Ok(()) };
        let (status, before) = (&object["status"], &old["status"]);
        let mut errors = Errors::default();
        if changes_binding(status, before) {
            let verb = request.call.target.verb.as_str();
            if let Some(why) = refusal(request, verb, "binding", "", "").await {
                let text = format!(
                    "changing status.allocation or status.reservedFor requires resource=\"resourceclaims/binding\", verb=\"{verb}\" permission: {why}"
                );
                errors.push(FieldError::new(Problem::Forbidden, "status.allocation".to_owned(), "", text));
            }
        }
        if !status["allocation"].is_null() {
            for driver in changed_drivers(status, before) {
                if let Some(text) = driver_refusal(request, status, &driver).await {
                    errors.push(FieldError::new(Problem::Forbidden, "status.devices".to_owned(), "", text));
                }
            }
        }
        if errors.is_empty() {
            return Ok(());
        }
        let kind = &request.resource.kind;
        Err(Status::invalid(kind.group, kind.kind, object.name(), &errors))
    }
}

fn changes_binding(status: &Value, before: &Value) -> bool {
    status["allocation"] != before["allocation"] || status["reservedFor"] != before["reservedFor"]
}

/// The drivers of devices whose state came, went or changed.
fn changed_drivers(status: &Value, before: &Value) -> BTreeSet<String> {
    let devices = |status: &Value| -> BTreeMap<[String; 4], Value> {
        let all = status["devices"].as_array().into_iter().flatten();
        let text = |device: &Value, field: &str| device[field].as_str().unwrap_or_default().to_owned();
        all.map(|one| (["driver", "pool", "device", "shareID"].map(|field| text(one, field)), one.clone())).collect()
    };
    let (new, old) = (devices(status), devices(before));
    let changed = |(key, device): (&[String; 4], &Value), other: &BTreeMap<[String; 4], Value>| {
        (other.get(key) != Some(device)).then(|| key[0].clone())
    };
    let came = new.iter().filter_map(|entry| changed(entry, &old));
    came.chain(old.iter().filter_map(|entry| changed(entry, &new))).collect()
}

/// A driver on the node of the allocation needs less than one that writes about any node.
async fn driver_refusal(request: &Request<'_>, status: &Value, driver: &str) -> Option<String> {
    let verb = request.call.target.verb.as_str();
    let mut verbs = vec![format!("arbitrary-node:{verb}")];
    if node_of(&status["allocation"]).is_some_and(|node| is_on(request.user, node)) {
        verbs.insert(0, format!("associated-node:{verb}"));
    }
    let mut first = None;
    for verb in &verbs {
        let why = refusal(request, verb, "driver", request.namespace, driver).await?;
        first = first.or(Some(why));
    }
    let shown = format!("[{}]", verbs.join(" "));
    let why = first.unwrap_or_default();
    Some(format!(
        "changing status.devices requires resource=\"resourceclaims/driver\", verb=\"{shown}\" permission: {why}"
    ))
}

/// The one node that an allocation is for.
fn node_of(allocation: &Value) -> Option<&str> {
    let [term] = allocation.pointer("/nodeSelector/nodeSelectorTerms")?.as_array()?.as_slice() else { return None };
    let none = term["matchExpressions"].as_array().is_none_or(|list| list.is_empty());
    let [field] = term["matchFields"].as_array()?.as_slice() else { return None };
    let [value] = field["values"].as_array()?.as_slice() else { return None };
    let is_name = none && field["key"] == "metadata.name" && field["operator"] == "In";
    value.as_str().filter(|_| is_name)
}

/// Whether this is a service account whose token was given to a pod on that node.
fn is_on(user: &User, node: &str) -> bool {
    let is_account =
        user.name.strip_prefix("system:serviceaccount:").is_some_and(|rest| rest.matches(':').count() == 1);
    let nodes = user.extra.get(NODE_NAME).map(Vec::as_slice).unwrap_or_default();
    is_account && matches!(nodes, [one] if one == node)
}

/// Why not, in the words of a 403; nothing where it is allowed.
async fn refusal(request: &Request<'_>, verb: &str, subresource: &str, namespace: &str, name: &str) -> Option<String> {
    let attributes = Attributes {
        user: request.user,
        verb,
        group: GROUP,
        version: request.resource.kind.version,
        resource: "resourceclaims",
        subresource,
        namespace,
        name,
        path: "",
        field_selector: "",
        label_selector: "",
    };
    let reason = match request.app.authorizer.authorize(&attributes, &request.app.views).await {
        Decision::Allow(_) => return None,
        Decision::Deny(reason) | Decision::NoOpinion(reason) => reason,
        Decision::Failed { reason, error, .. } if reason.is_empty() => error,
        Decision::Failed { reason, error, .. } => format!("{error}: {reason}"),
    };
    Some(authz::forbidden(&attributes, &reason).message)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_drivers_whose_devices_changed_are_asked_about() {
        let device = |driver: &str, data: u64| json!({"driver": driver, "pool": "p", "device": "d", "data": data});
        let status = |devices: &[Value]| json!({"devices": devices});
        let changed =
            |new: &[Value], old: &[Value]| changed_drivers(&status(new), &status(old)).into_iter().collect::<Vec<_>>();
        assert_eq!(changed(&[device("a", 1)], &[device("a", 1)]), [""; 0]);
        assert_eq!(changed(&[device("a", 2), device("b", 1)], &[device("a", 1), device("b", 1)]), ["a"]);
        assert_eq!(changed(&[], &[device("a", 1)]), ["a"]);
        assert_eq!(changed(&[device("c", 1)], &[device("a", 1)]), ["a", "c"]);
        assert!(changes_binding(&json!({"reservedFor": [1]}), &json!({})));
        assert!(!changes_binding(&json!({"devices": [1]}), &json!({})));
    }

    #[test]
    fn a_driver_is_known_by_the_node_of_its_token() {
        let on = |node: &str| json!({"nodeSelector": {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]}});
        assert_eq!(node_of(&on("n1")), Some("n1"));
        assert_eq!(node_of(&json!({})), None);
        let mut two = on("n1");
        two["nodeSelector"]["nodeSelectorTerms"][0]["matchFields"][0]["values"] = json!(["n1", "n2"]);
        assert_eq!(node_of(&two), None);
        let user = |name: &str, nodes: &[&str]| User {
            name: name.into(),
            uid: String::new(),
            groups: Vec::new(),
            extra: [(NODE_NAME.to_owned(), nodes.iter().map(ToString::to_string).collect())].into(),
        };
        assert!(is_on(&user("system:serviceaccount:a:b", &["n1"]), "n1"));
        assert!(!is_on(&user("system:serviceaccount:a:b", &["n2"]), "n1"));
        assert!(!is_on(&user("system:serviceaccount:a:b", &["n1", "n2"]), "n1"));
        assert!(!is_on(&user("system:node:n1", &["n1"]), "n1"));
    }
}
