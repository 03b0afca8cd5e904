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
    let mut out = head(object) + &tags(object) + &addresses(object);
    items(object, "/spec/ports").iter().for_each(|port| out += &service_port(port, &slices));
    Ok(out + &traffic(object))
}

fn commas(object: &Value, path: &str) -> String {
    items(object, path).iter().map(plain).collect::<Vec<_>>().join(",")
}

fn addresses(object: &Value) -> String {
    let mut out = format!("Selector:\t{}\n", super::selector(&object["spec"]["selector"]));
    out += &format!("Type:\t{}\n", text(object, "/spec/type"));
    out += &super::given(object, &[("IP Family Policy", "/spec/ipFamilyPolicy")]);
    out += &format!("IP Families:\t{}\n", or(&commas(object, "/spec/ipFamilies"), "<none>"));
    out += &format!("IP:\t{}\n", text(object, "/spec/clusterIP"));
    out += &format!("IPs:\t{}\n", or(&commas(object, "/spec/clusterIPs"), "<none>"));
    if !items(object, "/spec/externalIPs").is_empty() {
        out += &format!("External IPs:\t{}\n", commas(object, "/spec/externalIPs"));
    }
    out += &super::given(
        object,
        &[("Desired LoadBalancer IP", "/spec/loadBalancerIP"), ("External Name", "/spec/externalName")],
    );
    let ingress: Vec<String> = items(object, "/status/loadBalancer/ingress").iter().map(balanced).collect();
    if !ingress.is_empty() {
        out += &format!("LoadBalancer Ingress:\t{}\n", ingress.join(", "));
    }
    out
}

/// `10.0.0.1 (VIP)`, or a host name.
fn balanced(entry: &Value) -> String {
    match (text(entry, "/ip"), text(entry, "/ipMode")) {
        ("", _) => text(entry, "/hostname").to_string(),
        (ip, "") => ip.to_string(),
        (ip, mode) => format!("{ip} ({mode})"),
    }
}

fn service_port(port: &Value, slices: &[Value]) -> String {
    let (name, protocol) = (or(text(port, "/name"), "<unset>"), text(port, "/protocol"));
    let mut out = format!("Port:\t{name}\t{}/{protocol}\n", number(port, "/port"));
    out += &format!("TargetPort:\t{}/{protocol}\n", plain(&port["targetPort"]));
    if port["appProtocol"].is_string() {
        out += &format!("AppProtocol:\t{}\n", text(port, "/appProtocol"));
    }
    if number(port, "/nodePort") != 0 {
        out += &format!("NodePort:\t{name}\t{}/{protocol}\n", number(port, "/nodePort"));
    }
    out + &format!("Endpoints:\t{}\n", endpoints(slices, text(port, "/name")))
}

/// How connections are spread.
fn traffic(object: &Value) -> String {
    let mut out = format!("Session Affinity:\t{}\n", text(object, "/spec/sessionAffinity"));
    out += &super::given(
        object,
        &[
            ("External Traffic Policy", "/spec/externalTrafficPolicy"),
            ("Internal Traffic Policy", "/spec/internalTrafficPolicy"),
        ],
    );
    if number(object, "/spec/healthCheckNodePort") != 0 {
        out += &format!("HealthCheck NodePort:\t{}\n", number(object, "/spec/healthCheckNodePort"));
    }
    if !items(object, "/spec/loadBalancerSourceRanges").is_empty() {
        out += &format!("LoadBalancer Source Ranges:\t{}\n", commas(object, "/spec/loadBalancerSourceRanges"));
    }
    out + &super::given(object, &[("Traffic Distribution", "/spec/trafficDistribution")])
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn slice(addresses: &[&str]) -> Value {
        let endpoints: Vec<Value> = addresses.iter().map(|address| json!({"addresses": [address]})).collect();
        json!({"endpoints": endpoints, "ports": [{"name": "http", "port": 80}]})
    }

    #[test]
    fn endpoints_of_a_port_are_counted_behind_the_third() {
        assert_eq!(endpoints(&[], "http"), "<none>");
        assert_eq!(endpoints(&[slice(&["10.0.0.1", "fd00::1"])], "http"), "10.0.0.1:80,[fd00::1]:80");
        let many = slice(&["a", "b", "c", "d", "e"]);
        assert_eq!(endpoints(std::slice::from_ref(&many), "http"), "a:80,b:80,c:80 + 2 more...");
        assert_eq!(endpoints(&[many], "other"), "");
        let unready = json!({"endpoints": [{"addresses": ["a"], "conditions": {"ready": false}}], "ports": [{"name": "", "port": 1}]});
        assert_eq!(endpoints(&[unready], ""), "");
    }

    #[test]
    fn ports_have_targets_and_nodes() {
        let port = json!({"name": "http", "port": 80, "protocol": "TCP", "targetPort": "web", "nodePort": 30080});
        let text = service_port(&port, &[slice(&["10.0.0.1"])]);
        let expected =
            "Port:\thttp\t80/TCP\nTargetPort:\tweb/TCP\nNodePort:\thttp\t30080/TCP\nEndpoints:\t10.0.0.1:80\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn load_balancers_show_addresses() {
        let ingress = json!([{"ip": "1.2.3.4", "ipMode": "VIP"}, {"ip": "1.2.3.5"}, {"hostname": "lb.example.com"}]);
        let object = json!({"spec": {"type": "LoadBalancer", "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"],
            "ipFamilies": ["IPv4"], "selector": {"app": "web"}}, "status": {"loadBalancer": {"ingress": ingress}}});
        let text = addresses(&object);
        assert!(text.starts_with("Selector:\tapp=web\nType:\tLoadBalancer\nIP Families:\tIPv4\n"), "{text}");
        assert!(text.ends_with("LoadBalancer Ingress:\t1.2.3.4 (VIP), 1.2.3.5, lb.example.com\n"), "{text}");
    }

    #[test]
    fn traffic_is_told_where_it_is_set() {
        let object = json!({"spec": {"sessionAffinity": "None", "externalTrafficPolicy": "Local",
            "healthCheckNodePort": 31000, "loadBalancerSourceRanges": ["10.0.0.0/8"]}});
        let expected = "Session Affinity:\tNone\nExternal Traffic Policy:\tLocal\nHealthCheck NodePort:\t31000\nLoadBalancer Source Ranges:\t10.0.0.0/8\n";
        assert_eq!(traffic(&object), expected);
    }

    #[test]
    fn older_endpoints_have_subsets() {
        let object = json!({"metadata": {"name": "a"}, "subsets": [{"addresses": [{"ip": "1"}, {"ip": "2"}],
            "ports": [{"port": 80, "protocol": "TCP"}]}]});
        let text = endpoints_object(&object);
        assert!(text.contains("  Addresses:\t1,2\n  NotReadyAddresses:\t<none>\n"), "{text}");
        assert!(text.contains("    <unset>\t80\tTCP\n"), "{text}");
    }
}
