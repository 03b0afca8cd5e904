//! What only a node can answer: logs, exec, attach, port-forward and proxies go to the kubelet's server.

use std::time::Duration;

use machinery::object::Meta;
use machinery::status::{GroupResource, Status};
use serde_json::Value;

use crate::call::Call;
use crate::respond::Reply;
use crate::write::store_status;

/// How long a node gets to answer the connection.
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);

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
        _ => return Err(Status::unavailable("this server cannot reach the endpoints of Services yet")),
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
    let Some(address) = address else {
        return Err(Status::internal("no preferred addresses found; known addresses: []"));
    };
    let place = format!("{address}:{port}");
    // The answer is what trying it showed, in the words of Go's dialer where there are such.
    match tokio::time::timeout(DIAL_TIMEOUT, tokio::net::TcpStream::connect(&place)).await {
        Err(_) => Err(Status::internal(format!("Get \"https://{place}\": dial tcp {place}: i/o timeout"))),
        Ok(Err(error)) => Err(Status::internal(format!("Get \"https://{place}\": dial tcp {place}: {error}"))),
        Ok(Ok(_)) => Err(Status::internal(format!("this server cannot speak to the kubelet at {place} yet"))),
    }
}
