//! Services and Ingresses.

use serde_json::Value;

use super::{Context, head, items, map, number, or, plain, tags, text};
use crate::failure::Result;
use crate::resource::select::Query;

/// How many endpoints of a port are named before they are only counted.
const ENDPOINTS_MAX: usize = 3;

async fn slices(cx: &Context<'_>, namespace: &str, service: &str) -> Vec<Value> {
    let Ok(mapping) = cx.session.mapping("endpointslices").await else { return Vec::new() };
    let query = Query { selector: format!("kubernetes.io/service-name={service}"), chunk: 500, ..Query::default() };
    cx.session.list(&mapping, namespace, &query).await.unwrap_or_default()
}

/// The ready addresses behind a port, by its name.
fn endpoints(slices: &[Value], port_name: &str) -> String {
    if slices.is_empty() {
        return "<none>".into();
    }
    let mut found: Vec<String> = Vec::new();
    for slice in slices {
        let ready = || {
            let ready = items(slice, "/endpoints").iter().filter(|endpoint| endpoint["conditions"]["ready"] != false);
            // The others are of another form of the same address.
            ready.filter_map(|endpoint| items(endpoint, "/addresses").first().map(plain))
        };
        let ports = items(slice, "/ports");
        if ports.is_empty() {
            // A service without an address of its own needs no ports.
            found.extend(ready());
        }
        for port in ports.iter().filter(|port| text(port, "/name") == port_name) {
            let port = number(port, "/port");
            found.extend(ready().map(|address| {
                if address.contains(':') { format!("[{address}]:{port}") } else { format!("{address}:{port}") }
            }));
        }
    }
    if found.len() > ENDPOINTS_MAX {
        let more = found.len() - ENDPOINTS_MAX;
        return format!("{} + {more} more...", found[..ENDPOINTS_MAX].join(","));
    }
    found.join(",")
}

pub(crate) async fn service(cx: &Context<'_>, object: &Value) -> Result<String> {
    let slices = slices(cx, text(object, "/metadata/namespace"), text(object, "/metadata/name")).await;
    let mut out = head(object) + &tags(object);
    out += &format!("Selector:\t{}\n", super::selector(&object["spec"]["selector"]));
    out += &format!("Type:\t{}\n", text(object, "/spec/type"));
    if !object["spec"]["ipFamilyPolicy"].is_null() {
        out += &format!("IP Family Policy:\t{}\n", text(object, "/spec/ipFamilyPolicy"));
    }
    let list = |path: &str| items(object, path).iter().map(plain).collect::<Vec<_>>().join(",");
    out += &format!("IP Families:\t{}\n", or(&list("/spec/ipFamilies"), "<none>"));
    out += &format!("IP:\t{}\n", text(object, "/spec/clusterIP"));
    out += &format!("IPs:\t{}\n", or(&list("/spec/clusterIPs"), "<none>"));
    if !items(object, "/spec/externalIPs").is_empty() {
        out += &format!("External IPs:\t{}\n", list("/spec/externalIPs"));
    }
    if !text(object, "/spec/loadBalancerIP").is_empty() {
        out += &format!("Desired LoadBalancer IP:\t{}\n", text(object, "/spec/loadBalancerIP"));
    }
    if !text(object, "/spec/externalName").is_empty() {
        out += &format!("External Name:\t{}\n", text(object, "/spec/externalName"));
    }
    let ingress: Vec<String> = items(object, "/status/loadBalancer/ingress")
        .iter()
        .map(|entry| match text(entry, "/ip") {
            "" => text(entry, "/hostname").to_string(),
            ip if !text(entry, "/ipMode").is_empty() => format!("{ip} ({})", text(entry, "/ipMode")),
            ip => ip.to_string(),
        })
        .collect();
    if !ingress.is_empty() {
        out += &format!("LoadBalancer Ingress:\t{}\n", ingress.join(", "));
    }
    for port in items(object, "/spec/ports") {
        let name = or(text(port, "/name"), "<unset>");
        let protocol = text(port, "/protocol");
        out += &format!("Port:\t{name}\t{}/{protocol}\n", number(port, "/port"));
        out += &format!("TargetPort:\t{}/{protocol}\n", plain(&port["targetPort"]));
        if port["appProtocol"].is_string() {
            out += &format!("AppProtocol:\t{}\n", text(port, "/appProtocol"));
        }
        if number(port, "/nodePort") != 0 {
            out += &format!("NodePort:\t{name}\t{}/{protocol}\n", number(port, "/nodePort"));
        }
        out += &format!("Endpoints:\t{}\n", endpoints(&slices, text(port, "/name")));
    }
    out += &format!("Session Affinity:\t{}\n", text(object, "/spec/sessionAffinity"));
    for (title, key) in [
        ("External Traffic Policy", "/spec/externalTrafficPolicy"),
        ("Internal Traffic Policy", "/spec/internalTrafficPolicy"),
    ] {
        if !text(object, key).is_empty() {
            out += &format!("{title}:\t{}\n", text(object, key));
        }
    }
    if number(object, "/spec/healthCheckNodePort") != 0 {
        out += &format!("HealthCheck NodePort:\t{}\n", number(object, "/spec/healthCheckNodePort"));
    }
    if !items(object, "/spec/loadBalancerSourceRanges").is_empty() {
        out += &format!("LoadBalancer Source Ranges:\t{}\n", list("/spec/loadBalancerSourceRanges"));
    }
    if object["spec"]["trafficDistribution"].is_string() {
        out += &format!("Traffic Distribution:\t{}\n", text(object, "/spec/trafficDistribution"));
    }
    Ok(out)
}

async fn backend(cx: &Context<'_>, namespace: &str, backend: &Value) -> String {
    if backend["resource"].is_object() {
        let resource = &backend["resource"];
        return format!(
            "APIGroup: {}, Kind: {}, Name: {}",
            or(text(resource, "/apiGroup"), "<none>"),
            text(resource, "/kind"),
            text(resource, "/name")
        );
    }
    let service = text(backend, "/service/name");
    let port = &backend["service"]["port"];
    let shown = if port["number"].is_number() { plain(&port["number"]) } else { plain(&port["name"]) };
    let found = cx.session.mapping("services").await;
    let Ok(mapping) = found else { return format!("{service}:{shown}") };
    match cx.session.send(&crate::session::Call::get(mapping.object(namespace, service))).await {
        Err(failure) => format!("{service}:{shown} (<error: {}>)", failure.text()),
        Ok(object) => {
            let port_name = items(&object, "/spec/ports")
                .iter()
                .find(|candidate| plain(&candidate["port"]) == shown || text(candidate, "/name") == shown)
                .map(|port| text(port, "/name").to_string())
                .unwrap_or_default();
            format!("{service}:{shown} ({})", endpoints(&slices(cx, namespace, service).await, &port_name))
        }
    }
}

pub(crate) async fn ingress(cx: &Context<'_>, object: &Value) -> Result<String> {
    let namespace = text(object, "/metadata/namespace");
    let mut out = format!("Name:\t{}\n", text(object, "/metadata/name"));
    out += &super::pairs("Labels", "", &map(object, "/metadata/labels"));
    out += &format!("Namespace:\t{namespace}\n");
    let mut addresses: Vec<&str> = items(object, "/status/loadBalancer/ingress")
        .iter()
        .map(|entry| or(text(entry, "/ip"), text(entry, "/hostname")))
        .filter(|address| !address.is_empty())
        .collect();
    addresses.sort_unstable();
    addresses.dedup();
    out += &format!("Address:\t{}\n", addresses.join(","));
    out += &format!("Ingress Class:\t{}\n", or(text(object, "/spec/ingressClassName"), "<none>"));
    let default = if object["spec"]["defaultBackend"].is_object() {
        backend(cx, namespace, &object["spec"]["defaultBackend"]).await
    } else {
        "<default>".into()
    };
    out += &format!("Default backend:\t{default}\n");
    let tls = items(object, "/spec/tls");
    if !tls.is_empty() {
        out += "TLS:\n";
        for entry in tls {
            let hosts: Vec<String> = items(entry, "/hosts").iter().map(plain).collect();
            out += &match text(entry, "/secretName") {
                "" => format!("  SNI routes {}\n", hosts.join(",")),
                secret => format!("  {secret} terminates {}\n", hosts.join(",")),
            };
        }
    }
    out += "Rules:\n  Host\tPath\tBackends\n  ----\t----\t--------\n";
    // Rules without paths are not shown.
    let rules: Vec<&Value> = items(object, "/spec/rules").iter().filter(|rule| rule["http"].is_object()).collect();
    for rule in &rules {
        out += &format!("  {}\t\n", or(text(rule, "/host"), "*"));
        for path in items(rule, "/http/paths") {
            out += &format!("    \t{} \t{}\n", text(path, "/path"), backend(cx, namespace, &path["backend"]).await);
        }
    }
    if rules.is_empty() {
        out += &format!("  *\t*\t{default}\n");
    }
    out += &super::annotations("Annotations", "", &map(object, "/metadata/annotations"));
    Ok(out)
}

/// The older form of a service's endpoints.
pub(super) fn endpoints_object(object: &Value) -> String {
    let mut out = super::head(object) + &super::tags(object) + "Subsets:\n";
    for subset in items(object, "/subsets") {
        let addresses = |list: &str| {
            let all: Vec<&str> = items(subset, list).iter().map(|address| text(address, "/ip")).collect();
            all.join(",")
        };
        out += &format!("  Addresses:\t{}\n", or(&addresses("/addresses"), "<none>"));
        out += &format!("  NotReadyAddresses:\t{}\n", or(&addresses("/notReadyAddresses"), "<none>"));
        if !items(subset, "/ports").is_empty() {
            out += "  Ports:\n    Name\tPort\tProtocol\n    ----\t----\t--------\n";
            for port in items(subset, "/ports") {
                let name = or(text(port, "/name"), "<unset>");
                out += &format!("    {name}\t{}\t{}\n", plain(&port["port"]), text(port, "/protocol"));
            }
        }
        out += "\n";
    }
    out
}
