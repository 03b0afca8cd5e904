//! EndpointSlices of kube-system: a node says where its own part of the cluster's DNS is, and nothing else. Whoever can
//! write others there leads the whole cluster's names, or metrics, to a place of their choice.

use std::net::IpAddr;

use crate::refusal::Refusal;
use ipnet::IpNet;
use machinery::object::Meta;
use serde_json::Value;

const SERVICE: &str = "kube-dns";
const SERVICE_LABEL: &str = "kubernetes.io/service-name";

/// `own` is the Node object of who asks.
pub fn check(node: &str, own: Option<&Value>, old: Option<&Value>, new: Option<&Value>) -> Result<(), Refusal> {
    if let Some(old) = old
        && (old.label(SERVICE_LABEL) != Some(SERVICE) || !is_owned_by(old, node))
    {
        return Err(format!("node {node:?} can only change EndpointSlices of {SERVICE} that it owns itself").into());
    }
    let Some(new) = new else { return Ok(()) };
    if new.label(SERVICE_LABEL) != Some(SERVICE) {
        return Err(format!("node {node:?} can only write EndpointSlices of the Service {SERVICE}").into());
    }
    let Some(own) = own else { return Err(format!("node {node:?} has no Node object").into()) };
    let owner = new.pointer("/metadata/ownerReferences/0/uid").and_then(Value::as_str);
    if !is_owned_by(new, node) || owner != Some(own.uid()) {
        return Err(format!("node {node:?} can only write EndpointSlices with an owner reference set to itself").into());
    }
    let ranges = ranges(own);
    let is_own = |address: &Value| {
        let address = address.as_str().and_then(|text| text.parse::<IpAddr>().ok());
        address.is_some_and(|address| ranges.iter().any(|range| range.contains(&address)))
    };
    for endpoint in list(&new["endpoints"]) {
        if endpoint["nodeName"] != node {
            return Err(format!("node {node:?} can only write endpoints with nodeName set to itself").into());
        }
        if !list(&endpoint["addresses"]).all(is_own) {
            return Err(
                format!("node {node:?} can only write endpoints at its own addresses and those of its pods").into()
            );
        }
    }
    Ok(())
}

/// By exactly one Node, that of the name. Its uid may be that of an earlier Node: what it left behind is taken over.
fn is_owned_by(slice: &Value, node: &str) -> bool {
    match slice.meta("ownerReferences").and_then(Value::as_array).map(Vec::as_slice) {
        Some([owner]) => owner["apiVersion"] == "v1" && owner["kind"] == "Node" && owner["name"] == node,
        _ => false,
    }
}

fn ranges(node: &Value) -> Vec<IpNet> {
    let pods = list(&node["spec"]["podCIDRs"]).chain([&node["spec"]["podCIDR"]]);
    let pods = pods.filter_map(|range| range.as_str()?.parse::<IpNet>().ok());
    let own =
        list(&node["status"]["addresses"]).filter_map(|address| address["address"].as_str()?.parse::<IpAddr>().ok());
    pods.chain(own.map(IpNet::from)).collect()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn slice(change: impl Fn(&mut Value)) -> Value {
        let mut slice = json!({
            "metadata": {
                "name": "kube-dns-n", "labels": {SERVICE_LABEL: SERVICE},
                "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}],
            },
            "endpoints": [{"addresses": ["10.42.3.1"], "nodeName": "n"}],
        });
        change(&mut slice);
        slice
    }

    #[test]
    fn a_node_writes_its_own_part_of_the_dns_only() {
        let own = json!({
            "metadata": {"name": "n", "uid": "u"}, "spec": {"podCIDR": "10.42.3.0/24"},
            "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.9"}]},
        });
        let check = |old: Option<Value>, change: &dyn Fn(&mut Value), expected: &str| {
            let new = slice(change);
            let found = check("n", Some(&own), old.as_ref(), Some(&new));
            let found = found.err().map(|error| error.to_string()).unwrap_or_default();
            assert!(found.contains(expected) && found.is_empty() == expected.is_empty(), "{new}: {found}");
        };
        check(None, &|_| {}, "");
        check(None, &|new| new["endpoints"][0]["addresses"] = json!(["192.0.2.9"]), "");
        check(None, &|new| new["endpoints"][0]["addresses"] = json!(["10.42.4.1"]), "its own addresses");
        check(None, &|new| new["endpoints"][0]["nodeName"] = "m".into(), "nodeName set to itself");
        check(None, &|new| new["metadata"]["labels"][SERVICE_LABEL] = "metrics".into(), "of the Service kube-dns");
        check(None, &|new| new["metadata"]["ownerReferences"][0]["uid"] = "v".into(), "owner reference");
        check(None, &|new| new["metadata"]["ownerReferences"] = json!([]), "owner reference");
        check(Some(slice(|old| old["metadata"]["ownerReferences"][0]["uid"] = "before".into())), &|_| {}, "");
        check(Some(slice(|old| old["metadata"]["ownerReferences"][0]["name"] = "m".into())), &|_| {}, "that it owns");
        check(Some(slice(|old| old["metadata"]["labels"] = json!({}))), &|_| {}, "that it owns");
        assert!(super::check("n", None, Some(&slice(|_| {})), None).is_ok(), "it may take its own back");
        let others = slice(|old| old["metadata"]["ownerReferences"][0]["name"] = "m".into());
        assert!(super::check("n", None, Some(&others), None).is_err());
    }
}
