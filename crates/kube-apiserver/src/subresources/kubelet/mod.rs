//! Subresources served by kubelets: logs, exec, attach and port-forward go to the kubelet's server, proxies to nodes,
//! pods and the endpoints of Services.

mod html;
mod nodes;
mod options;
mod page;
mod proxy;
mod requests;
mod service;
mod websocket;

pub use nodes::{NextNodes, Nodes};

use http::{Method, Uri};
use hyper::upgrade::OnUpgrade;
use machinery::object::Meta;
use machinery::status::{GroupResource, Status};
use serde_json::Value;

use crate::admission;
use crate::authz::{Attributes, forbidden};
use crate::body::Sent;
use crate::call::Call;
use crate::outgoing::relay::{self, Running};
use crate::respond::{self, Reply};
use crate::target::Verb;
use crate::write::store_status;
use nodes::Place;

/// The part of a request that other verbs have no use for.
pub struct Caller {
    pub method: Method,
    pub uri: Uri,
    pub body: Sent,
    /// How to take over the client's connection.
    pub upgrade: Option<OnUpgrade>,
}

/// Whether that subresource is answered elsewhere.
pub fn is_elsewhere(subresource: &str) -> bool {
    matches!(subresource, "log" | "exec" | "attach" | "portforward" | "proxy")
}

pub async fn connect(call: &Call, caller: Caller) -> Result<Reply, Status> {
    let known = call.resource.kind.subresources.iter().find(|sub| sub.name == call.target.subresource);
    let Some(known) = known else { return Err(Status::no_such_resource()) };
    // Proxies take every method there is, also those that are no verb.
    let proxied = known.name == "proxy" && call.target.verb == Verb::Unknown;
    if !proxied && !known.verbs.contains(&call.target.verb.as_str()) {
        return Err(Status::method_not_allowed());
    }
    call.app.cache.fresh().await.map_err(store_status)?;
    if known.name != "log" {
        let asked = options::asked(call);
        let request = admission::Request::connect(call, &asked);
        call.app.admission.connect(&request, &asked).await?;
    }
    let running = call.app.nodes.enter()?;
    match (call.resource.kind.kind, known.name) {
        ("Node", "proxy") => proxy::node(call, caller, running).await,
        ("Pod", "proxy") => proxy::pod(call, caller, running).await,
        ("Service", "proxy") => proxy::service(call, caller, running).await,
        ("Pod", "log") => log(call, caller, running).await,
        ("Pod", "exec" | "attach" | "portforward") => stream(call, caller, running).await,
        _ => Err(Status::method_not_allowed()),
    }
}

/// The pod that is asked about.
fn pod_of(call: &Call, name: &str) -> Result<Value, Status> {
    let resource = &call.resource;
    let key = resource.key(&call.target.namespace, name)?;
    let item = resource.state()?.get(&key).ok_or_else(|| Status::not_found(resource.group_resource(), name))?;
    resource.conversion.decode(&item)
}

/// Where a node's kubelet listens.
fn kubelet_of(call: &Call, node: &str) -> Result<Place, Status> {
    let Some(found) = call.app.views.one("nodes", "", node) else {
        // Upstream speaks of pods here whatever is missing.
        return Err(Status::not_found(GroupResource { group: "", resource: "pods" }, node));
    };
    let addresses = found.pointer("/status/addresses").and_then(Value::as_array).cloned().unwrap_or_default();
    let preferred = &call.app.settings.kubelet_address_types;
    let of_type = |kind: &String| addresses.iter().find(|address| address["type"] == **kind);
    let address = preferred.iter().find_map(of_type).and_then(|address| address["address"].as_str());
    let port = found.pointer("/status/daemonEndpoints/kubeletEndpoint/Port").and_then(Value::as_u64);
    let port = port.and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0).unwrap_or(10250);
    match address {
        Some(address) => Ok(Place::kubelet(node, address, port)),
        None => {
            let known: Vec<String> = addresses.iter().map(Value::to_string).collect();
            Err(failed(format!("no preferred addresses found; known addresses: [{}]", known.join(" "))))
        }
    }
}

/// An error that upstream passes on without a reason.
fn failed(message: impl Into<String>) -> Status {
    Status::new(500, "", message)
}

async fn log(call: &Call, caller: Caller, running: Running) -> Result<Reply, Status> {
    let asked = websocket::asked(&call.headers)?;
    let options = options::log(&call.query, &call.target.name)?;
    let pod = pod_of(call, &call.target.name)?;
    let container = options::container(&pod, call.query.get("container"))?;
    let node = pod.pointer("/spec/nodeName").and_then(Value::as_str).unwrap_or("");
    if node.is_empty() {
        // Nothing has run yet, so nothing has been said.
        return match asked {
            Some(asked) => websocket::tell(asked, caller.upgrade, futures::stream::empty()),
            None => Ok(respond::bytes_reply(200, "text/plain", "")),
        };
    }
    let mut place = kubelet_of(call, node)?;
    if call.query.flag("insecureSkipTLSVerifyBackend") {
        place = place.unverified();
    }
    let path = format!("/containerLogs/{}/{}/{container}{options}", call.target.namespace, pod.name());
    let body = requests::log(call, &place, &path).await?;
    match asked {
        Some(asked) => websocket::tell(asked, caller.upgrade, relay::bytes_of(body, running)),
        None => Ok(respond::reply(200, "text/plain", relay::pieces(body, running))),
    }
}

async fn stream(call: &Call, caller: Caller, running: Running) -> Result<Reply, Status> {
    may_create(call).await?;
    let pod = pod_of(call, &call.target.name)?;
    let path = match call.target.subresource.as_str() {
        "portforward" => {
            let ports = options::ports(&call.query)?;
            format!("/portForward/{}/{}{ports}", call.target.namespace, pod.name())
        }
        subresource => {
            let container = options::container(&pod, call.query.get("container"))?;
            let streams = options::streams(&call.query, subresource == "exec");
            format!("/{subresource}/{}/{}/{container}{streams}", call.target.namespace, pod.name())
        }
    };
    let node = pod.pointer("/spec/nodeName").and_then(Value::as_str).unwrap_or("");
    if node.is_empty() {
        return Err(Status::bad_request(format!("pod {} does not have a host assigned", pod.name())));
    }
    if !relay::wants_upgrade(&call.headers) {
        return Err(Status::bad_request("Upgrade request required"));
    }
    let place = kubelet_of(call, node)?;
    requests::upgrade(call, caller, &place, &path, running).await
}

/// A WebSocket begins with a GET, but starting a command is no reading: both ways need the permission to create.
async fn may_create(call: &Call) -> Result<(), Status> {
    if call.target.verb == Verb::Create {
        return Ok(());
    }
    let target = &call.target;
    let attributes = Attributes {
        version: &target.version,
        subresource: &target.subresource,
        namespace: &target.namespace,
        name: &target.name,
        ..Attributes::resource(&call.user, "create", &target.group, &target.resource)
    };
    let decision = call.app.authorizer.authorize(&attributes, &call.app.views).await;
    if decision.is_allowed() { Ok(()) } else { Err(forbidden(&attributes, decision.reason())) }
}
