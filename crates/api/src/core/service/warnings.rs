//! Sentences for `Warning` headers: what is accepted but will not do what it seems to.

use machinery::object::Meta;
use serde_json::Value;

use super::strategy::{is_headless, list, spec_text};

pub(super) fn warnings(service: &Value, old: Option<&Value>) -> Vec<String> {
    let spec = &service["spec"];
    let mut sentences = Vec::new();
    const TOPOLOGY_HINTS: &str = "service.kubernetes.io/topology-aware-hints";
    if old.is_none() && service.annotation(TOPOLOGY_HINTS).is_some() {
        sentences.push(format!(
            "metadata.annotations[{TOPOLOGY_HINTS}]: deprecated in v1.27+; use service.kubernetes.io/topology-mode"
        ));
    }
    if is_headless(spec) {
        if !spec_text(spec, "loadBalancerIP").is_empty() {
            sentences.push("spec.loadBalancerIP is ignored for headless services".into());
        }
        if !list(spec, "externalIPs").is_empty() {
            sentences.push("spec.externalIPs is ignored for headless services".into());
        }
        if !matches!(spec_text(spec, "sessionAffinity"), "" | "None") {
            sentences.push("spec.SessionAffinity is ignored for headless services".into());
        }
    }
    if spec_text(spec, "trafficDistribution") == "PreferClose" && old.is_none() {
        sentences.push("spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"".into());
    }
    sentences
}
