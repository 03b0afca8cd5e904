//! Sentences for `Warning` headers: what is accepted but will not do what it seems to, or will not for long.

use std::net::{IpAddr, Ipv6Addr};

use machinery::object::Meta;
use serde_json::Value;

use super::strategy::{is_headless, list, spec_text};

const TOPOLOGY_HINTS: &str = "service.kubernetes.io/topology-aware-hints";

pub(super) fn warnings(service: &Value, _old: Option<&Value>) -> Vec<String> {
    let spec = &service["spec"];
    let (kind, headless) = (spec_text(spec, "type"), is_headless(spec));
    let external_ips = !list(spec, "externalIPs").is_empty();
    let mut sentences = Vec::new();
    if service.annotation(TOPOLOGY_HINTS).is_some() {
        sentences.push(format!(
            "annotation {TOPOLOGY_HINTS} is deprecated, please use service.kubernetes.io/topology-mode instead"
        ));
    }
    addresses(spec, "clusterIPs", &mut sentences);
    if headless && kind == "ClusterIP" {
        if !spec_text(spec, "loadBalancerIP").is_empty() {
            sentences.push("spec.loadBalancerIP is ignored for headless services".into());
        }
        if external_ips {
            sentences.push("spec.externalIPs is ignored for headless services".into());
        }
        if spec_text(spec, "sessionAffinity") != "None" {
            sentences.push("spec.SessionAffinity is ignored for headless services".into());
        }
    }
    addresses(spec, "externalIPs", &mut sentences);
    if external_ips && !headless && kind != "ExternalName" {
        sentences.push("spec.externalIPs is deprecated and may no longer be implemented in some clusters".into());
    }
    sentences.extend(address("spec.loadBalancerIP", spec_text(spec, "loadBalancerIP")));
    for (index, range) in list(spec, "loadBalancerSourceRanges").iter().enumerate() {
        let range = range.as_str().unwrap_or("");
        if let Some((v6, length)) =
            range.split_once('/').and_then(|(ip, length)| Some((ip.parse::<Ipv6Addr>().ok()?, length)))
            && range != format!("{v6}/{length}")
        {
            sentences.push(format!(
                "spec.loadBalancerSourceRanges[{index}]: IPv6 CIDR value {range:?} should be in RFC 5952 canonical \
                 format (\"{v6}/{length}\")"
            ));
        }
    }
    if kind == "ExternalName" && external_ips {
        sentences.push("spec.externalIPs is ignored when spec.type is \"ExternalName\"".into());
    }
    if kind != "ExternalName" && !spec_text(spec, "externalName").is_empty() {
        sentences.push("spec.externalName is ignored when spec.type is not \"ExternalName\"".into());
    }
    if spec_text(spec, "trafficDistribution") == "PreferClose" {
        sentences.push("spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"".into());
    }
    sentences
}

fn addresses(spec: &Value, field: &str, sentences: &mut Vec<String>) {
    for (index, item) in list(spec, field).iter().enumerate() {
        sentences.extend(address(&format!("spec.{field}[{index}]"), item.as_str().unwrap_or("")));
    }
}

/// An address that is not written the one way it should be.
fn address(field: &str, text: &str) -> Option<String> {
    let address = machinery::names::lenient_ip(text)?;
    let canonical = address.to_canonical();
    if text.parse::<IpAddr>().is_err() || canonical != address {
        return Some(format!(
            "{field}: non-standard IP address {text:?} will be considered invalid in a future Kubernetes release: use \
             \"{canonical}\""
        ));
    }
    (address.is_ipv6() && text != address.to_string())
        .then(|| format!("{field}: IPv6 address {text:?} should be in RFC 5952 canonical format (\"{address}\")"))
}
