//! Classes of Ingresses, ranges and addresses of Services, EndpointSlices.

use serde_json::Value;

use super::{head, items, or, plain, tags, text, timed_conditions};

/// Name, labels and annotations of what has no namespace.
fn head_of_cluster(object: &Value) -> String {
    format!("Name:\t{}\n", text(object, "/metadata/name")) + &tags(object)
}

pub(super) fn ingress_class(object: &Value) -> String {
    let mut out = head_of_cluster(object);
    out += &format!("Controller:\t{}\n", text(object, "/spec/controller"));
    let parameters = &object["spec"]["parameters"];
    if parameters.is_object() {
        out += "Parameters:\n";
        if parameters["apiGroup"].is_string() {
            out += &format!("  APIGroup:\t{}\n", text(parameters, "/apiGroup"));
        }
        out += &format!("  Kind:\t{}\n  Name:\t{}\n", text(parameters, "/kind"), text(parameters, "/name"));
    }
    out
}

pub(super) fn service_cidr(object: &Value) -> String {
    let mut out = head_of_cluster(object);
    let ranges: Vec<String> = items(object, "/spec/cidrs").iter().map(plain).collect();
    out += &format!("CIDRs:\t{}\n", ranges.join(", "));
    if !items(object, "/status/conditions").is_empty() {
        out += "Status:\n";
        out += &timed_conditions(object);
    }
    out
}

pub(super) fn ip_address(object: &Value) -> String {
    let mut out = head_of_cluster(object);
    let parent = &object["spec"]["parentRef"];
    if parent.is_object() {
        out += "Parent Reference:\n";
        for (title, key) in
            [("Group", "/group"), ("Resource", "/resource"), ("Namespace", "/namespace"), ("Name", "/name")]
        {
            out += &format!("  {title}:\t{}\n", text(parent, key));
        }
    }
    out
}

pub(super) fn endpoint_slice(object: &Value) -> String {
    let mut out = head(object) + &tags(object);
    out += &format!("AddressType:\t{}\n", text(object, "/addressType"));
    let ports = items(object, "/ports");
    if ports.is_empty() {
        out += "Ports: <unset>\n";
    } else {
        out += "Ports:\n  Name\tPort\tProtocol\n  ----\t----\t--------\n";
    }
    for port in ports {
        let number = plain(&port["port"]);
        let (name, number) = (or(text(port, "/name"), "<unset>"), or(&number, "<unset>"));
        out += &format!("  {name}\t{number}\t{}\n", text(port, "/protocol"));
    }
    let endpoints = items(object, "/endpoints");
    out += if endpoints.is_empty() { "Endpoints: <none>\n" } else { "Endpoints:\n" };
    endpoints.iter().for_each(|endpoint| out += &one_endpoint(endpoint));
    out
}

fn one_endpoint(endpoint: &Value) -> String {
    let addresses: Vec<String> = items(endpoint, "/addresses").iter().map(plain).collect();
    let unset = |value: &Value| if value.is_null() { "<unset>".to_string() } else { plain(value) };
    let mut out = format!("  - Addresses:\t{}\n", or(&addresses.join(", "), "<none>"));
    out += &format!("    Conditions:\n      Ready:\t{}\n", unset(&endpoint["conditions"]["ready"]));
    out += &format!("    Hostname:\t{}\n", unset(&endpoint["hostname"]));
    let target = &endpoint["targetRef"];
    if target.is_object() {
        out += &format!("    TargetRef:\t{}/{}\n", text(target, "/kind"), text(target, "/name"));
    }
    out + &format!("    NodeName:\t{}\n    Zone:\t{}\n", unset(&endpoint["nodeName"]), unset(&endpoint["zone"]))
}
