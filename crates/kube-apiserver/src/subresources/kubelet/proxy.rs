//! Proxies: any HTTP request to a node's, pod's or Service's own server, and the answer with its addresses rewritten.

use std::net::IpAddr;

use http::header::{HeaderValue, LOCATION};
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, Request, StatusCode};
use machinery::status::Status;
use serde_json::Value;

use super::nodes::{Place, Security};
use super::{Caller, kubelet_of, page, pod_of, requests, service as services};
use crate::body::Body;
use crate::call::Call;
use crate::outgoing::dial::SendError;
use crate::outgoing::relay::{self, Running};
use crate::respond::Reply;

/// `name`, `name:port` or `scheme:name:port`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Asked<'a> {
    scheme: &'a str,
    name: &'a str,
    port: &'a str,
}

fn asked(text: &str) -> Option<Asked<'_>> {
    let parts: Vec<&str> = text.split(':').collect();
    let asked = match parts.as_slice() {
        [name] => Asked { scheme: "", name, port: "" },
        [name, port] => Asked { scheme: "", name, port },
        [scheme @ ("" | "http" | "https"), name, port] => Asked { scheme, name, port },
        _ => return None,
    };
    (!asked.name.is_empty()).then_some(asked)
}

impl Asked<'_> {
    fn security(&self) -> Security {
        if self.scheme == "https" { Security::Anyone } else { Security::Plain }
    }
}

/// Whether this server lets itself be sent there: never to itself, and not to what only its own host reaches.
pub fn is_allowed(address: IpAddr) -> bool {
    let link_local = match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    !(address.is_loopback() || address.is_multicast() || link_local || address.is_unspecified())
}

/// What other names lead to is looked at when it is known, by `dial`.
fn checked(place: Place) -> Result<Place, Status> {
    match place.host.parse::<IpAddr>() {
        Ok(address) if !is_allowed(address.to_canonical()) => Err(Status::bad_request("address not allowed")),
        Err(_) if place.host.trim_end_matches('.').eq_ignore_ascii_case("localhost") => {
            Err(Status::bad_request("address not allowed"))
        }
        _ => Ok(place),
    }
}

fn port_number(text: &str) -> Result<u16, Status> {
    text.parse().map_err(|_| Status::bad_request(format!("invalid port {text:?}")))
}

pub async fn node(call: &Call, caller: Caller, running: Running) -> Result<Reply, Status> {
    let name = &call.target.name;
    let asked = asked(name).ok_or_else(|| Status::bad_request(format!("invalid node request {name:?}")))?;
    if !call.app.views.exists("nodes", "", asked.name) {
        return Err(Status::not_found(call.resource.group_resource(), asked.name));
    }
    let kubelet = kubelet_of(call, asked.name)?;
    let place = match asked.port {
        "" => kubelet,
        port if port_number(port)? == kubelet.port => kubelet,
        port => Place { port: port_number(port)?, security: asked.security(), ..kubelet },
    };
    pass(call, caller, checked(place)?, running).await
}

pub async fn pod(call: &Call, caller: Caller, running: Running) -> Result<Reply, Status> {
    let name = &call.target.name;
    let asked = asked(name).ok_or_else(|| Status::bad_request(format!("invalid pod request {name:?}")))?;
    let pod = pod_of(call, asked.name)?;
    let port = match asked.port {
        "" => {
            let containers = pod.pointer("/spec/containers").and_then(Value::as_array);
            let ports = containers.into_iter().flatten().filter_map(|container| container["ports"].as_array());
            let first = ports.flatten().find_map(|port| port["containerPort"].as_u64());
            let usual = if asked.scheme == "https" { 443 } else { 80 };
            first.and_then(|port| u16::try_from(port).ok()).unwrap_or(usual)
        }
        port => port_number(port)?,
    };
    let address = pod.pointer("/status/podIP").and_then(Value::as_str).unwrap_or("");
    if address.is_empty() {
        return Err(Status::bad_request("address not allowed"));
    }
    let place = checked(Place::other(address.into(), port, asked.security()))?;
    pass(call, caller, place, running).await
}

pub async fn service(call: &Call, caller: Caller, running: Running) -> Result<Reply, Status> {
    let name = &call.target.name;
    let asked = asked(name).ok_or_else(|| Status::bad_request(format!("invalid service request {name:?}")))?;
    let namespace = &call.target.namespace;
    if !call.app.views.exists("services", namespace, asked.name) {
        return Err(Status::not_found(call.resource.group_resource(), asked.name));
    }
    let (host, port) = services::endpoint(&call.app.views, namespace, asked.name, asked.port, name)?;
    pass(call, caller, Place::other(host, port, asked.security()), running).await
}

/// The path of the proxy itself, and what stands behind it, both as the client wrote them.
fn split(path: &str, namespaced: bool) -> (&str, &str) {
    // `/api/v1/nodes/<name>/proxy`, `/api/v1/namespaces/<namespace>/pods/<name>/proxy`.
    let parts = if namespaced { 7 } else { 5 };
    let mut ends = path.match_indices('/').map(|(place, _)| place).skip(1);
    match ends.nth(parts - 1) {
        Some(end) => path.split_at(end),
        None => (path, ""),
    }
}

async fn pass(call: &Call, caller: Caller, place: Place, running: Running) -> Result<Reply, Status> {
    let (prefix, rest) = split(caller.uri.path(), call.resource.kind.namespaced());
    let (prefix, rest) = (prefix.to_string(), rest.to_string());
    let query = caller.uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    let upgrades = relay::wants_upgrade(&call.headers);
    let reads = matches!(caller.method, Method::GET | Method::HEAD);
    if rest.is_empty() && reads && !upgrades {
        // Relative links of a page would otherwise lead astray. Other methods are for the root, which is no page.
        let mut reply = Reply::new(Body::Empty);
        *reply.status_mut() = StatusCode::MOVED_PERMANENTLY;
        let location = HeaderValue::from_str(&format!("{prefix}/{query}"));
        reply.headers_mut().insert(LOCATION, location.map_err(|error| Status::bad_request(error.to_string()))?);
        return Ok(reply);
    }
    let path = if rest.is_empty() { "/" } else { &rest };
    let path: PathAndQuery =
        format!("{path}{query}").parse().map_err(|error| Status::bad_request(format!("{path}: {error}")))?;
    let mut request = Request::new(relay::empty());
    *request.method_mut() = caller.method.clone();
    *request.uri_mut() = path.into();
    *request.headers_mut() = headers(call, &prefix, &rest, upgrades);
    if upgrades {
        let sent = requests::send(call, &place, request).await.map_err(unreachable)?;
        return relay::joined(caller.upgrade, sent, running);
    }
    let request = request.map(|_| relay::of_sent(caller.body));
    let response = requests::send(call, &place, request).await.map_err(unreachable)?;
    let (mut head, body) = response.into_parts();
    clean(&mut head.headers);
    let host = call.headers.get(http::header::HOST).and_then(|host| host.to_str().ok()).unwrap_or("");
    let address = |address: &str| rewritten(address, &place, host, &prefix);
    if let Some(location) = head.headers.get(LOCATION).and_then(|value| value.to_str().ok()) {
        if let Some(Ok(value)) = address(location).map(|location| HeaderValue::from_str(&location)) {
            head.headers.insert(LOCATION, value);
        }
    } else if caller.method != Method::HEAD && page::is_page(&head.headers) {
        return page::rewritten(head, body, address, running).await;
    }
    Ok(Reply::from_parts(head, relay::pieces(body, running)))
}

/// Takes away what concerned that connection only, and what this server alone says.
fn clean(headers: &mut HeaderMap) {
    for name in relay::HOP_HEADERS {
        headers.remove(*name);
    }
    // Whether other sites may read this is for this server to say.
    let cross: Vec<_> =
        headers.keys().filter(|name| name.as_str().starts_with("access-control-allow-")).cloned().collect();
    cross.iter().for_each(|name| {
        headers.remove(name);
    });
    headers.remove("access-control-expose-headers");
}

fn headers(call: &Call, prefix: &str, rest: &str, upgrades: bool) -> HeaderMap {
    let mut headers = relay::passed_on(&call.headers);
    if upgrades {
        headers.insert(http::header::CONNECTION, HeaderValue::from_static("Upgrade"));
        if let Some(wanted) = call.headers.get(http::header::UPGRADE) {
            headers.insert(http::header::UPGRADE, wanted.clone());
        }
    }
    headers.insert("x-forwarded-proto", HeaderValue::from_static("https"));
    if let Ok(value) = HeaderValue::from_str(&format!("{prefix}{rest}")) {
        headers.insert("x-forwarded-uri", value);
    }
    if let Some(host) = call.headers.get(http::header::HOST) {
        headers.insert("x-forwarded-host", host.clone());
    }
    headers
}

/// An address within the same server, in a redirect or a page, leads through the proxy again.
fn rewritten(address: &str, place: &Place, host: &str, prefix: &str) -> Option<String> {
    let path = match address.strip_prefix("http://").or_else(|| address.strip_prefix("https://")) {
        None if address.starts_with('/') && !address.starts_with("//") => address,
        None => return None,
        Some(rest) => {
            let (named, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
            let usual = if place.scheme() == "https" { 443 } else { 80 };
            let same = named == place.authority() || (place.port == usual && named == place.host);
            if !same && (host.is_empty() || named != host) {
                return None;
            }
            if path.is_empty() { "/" } else { path }
        }
    };
    // A server that knows where it is seen from has written it already.
    let known = path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '?', '#']));
    Some(if known { path.to_string() } else { format!("{prefix}{path}") })
}

fn unreachable(error: SendError) -> Status {
    Status::unavailable(format!("error trying to reach service: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_carry_scheme_and_port() {
        assert_eq!(asked("web"), Some(Asked { scheme: "", name: "web", port: "" }));
        assert_eq!(asked("web:80"), Some(Asked { scheme: "", name: "web", port: "80" }));
        assert_eq!(asked("https:web:"), Some(Asked { scheme: "https", name: "web", port: "" }));
        assert_eq!(asked("ftp:web:1"), None);
        assert_eq!(asked("a:b:c:d"), None);
        assert_eq!(asked(":80"), None);
    }

    #[test]
    fn the_rest_of_a_path_is_left_as_it_is() {
        let check = |path: &str, namespaced, expected: (&str, &str)| assert_eq!(split(path, namespaced), expected);
        check("/api/v1/nodes/n/proxy", false, ("/api/v1/nodes/n/proxy", ""));
        check("/api/v1/nodes/n/proxy/", false, ("/api/v1/nodes/n/proxy", "/"));
        check("/api/v1/nodes/n/proxy/a%2Fb//c/", false, ("/api/v1/nodes/n/proxy", "/a%2Fb//c/"));
        let pod = "/api/v1/namespaces/a/pods/b:80/proxy";
        check(&format!("{pod}/x"), true, (pod, "/x"));
    }

    #[test]
    fn redirects_stay_within_the_proxy() {
        let place = Place::other("10.0.0.5".into(), 8080, Security::Plain);
        let check = |location: &str, expected: Option<&str>| {
            assert_eq!(rewritten(location, &place, "proxy:8001", "/p").as_deref(), expected, "{location}");
        };
        check("/login", Some("/p/login"));
        check("http://10.0.0.5:8080/x?y", Some("/p/x?y"));
        check("http://10.0.0.5:8080", Some("/p/"));
        check("http://elsewhere/x", None);
        check("http://proxy:8001/x", Some("/p/x"));
        check("/p/x", Some("/p/x"));
        check("/pages", Some("/p/pages"));
        check("//elsewhere/x", None);
        check("relative", None);
    }

    #[test]
    fn some_addresses_are_never_reached() {
        for (text, allowed) in [("127.0.0.1", false), ("::1", false), ("169.254.1.1", false), ("10.0.0.1", true)] {
            assert_eq!(is_allowed(text.parse().unwrap()), allowed, "{text}");
        }
    }
}
