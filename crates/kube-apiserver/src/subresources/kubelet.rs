//! What only a node can answer: logs, exec, attach, port-forward and proxies go to the kubelet's server.

use machinery::object::Meta;
use machinery::status::{GroupResource, Status};
use serde_json::Value;

use crate::call::Call;
use crate::respond::Reply;
use crate::write::store_status;

pub async fn connect(call: &Call) -> Result<Reply, Status> {
    call.app.cache.fresh().await.map_err(store_status)?;
    let resource = &call.resource;
    let key = resource.key(&call.target.namespace, &call.target.name)?;
    let item =
        resource.state()?.get(&key).ok_or_else(|| Status::not_found(resource.group_resource(), &call.target.name))?;
    let object = resource.decode(&item)?;
    let node = match resource.kind.kind {
        "Node" => object.name().to_string(),
        "Pod" => {
            let node = object.pointer("/spec/nodeName").and_then(Value::as_str).unwrap_or("");
            if node.is_empty() {
                return Err(Status::bad_request(format!("pod {} does not have a host assigned", object.name())));
            }
            node.to_string()
        }
        _ => return Err(Status::unavailable(format!("no endpoints available for service \"{}\"", object.name()))),
    };
    let Some(found) = call.app.views.one("nodes", "", &node) else {
        // Upstream speaks of pods here whatever is missing.
        return Err(Status::not_found(GroupResource { group: "", resource: "pods" }, &node));
    };
    let addresses = found.pointer("/status/addresses").and_then(Value::as_array).cloned().unwrap_or_default();
    let address = addresses
        .iter()
        .find(|address| address["type"] == "InternalIP")
        .and_then(|address| address["address"].as_str());
    let port = found.pointer("/status/daemonEndpoints/kubeletEndpoint/Port").and_then(Value::as_i64).unwrap_or(10250);
    match address {
        None => Err(Status::internal("no preferred addresses found; known addresses: []")),
        Some(address) => Err(Status::internal(format!(
            "Get \"https://{address}:{port}\": dial tcp {address}:{port}: connect: connection refused"
        ))),
    }
}
