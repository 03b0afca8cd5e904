//! What the Endpoints of a Service should say.

use std::collections::BTreeMap;
use std::sync::Arc;

use component_helpers::pods::{condition, is_ready, node};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{EndpointAddress, EndpointPort, EndpointSubset, Endpoints, Pod, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, ObjectMeta};
use reconcile::{Plan, Write};

use super::repack::{Single, repack, truncate};
use super::{MANAGED_BY, MANAGER};
use crate::common::serving::{
    HEADLESS, TRIGGER_TIME, addresses, host_name, is_headless, is_ipv6, is_reachable, port_number, publishes_not_ready,
    reference_to,
};

const ADDRESSES_MAX: usize = 1000;
const OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";
/// Older leader elections lived in Endpoints; those belong to no Service.
pub(crate) const LEADER: &str = "control-plane.alpha.kubernetes.io/leader";

pub(super) fn is_ours(endpoints: &Endpoints) -> bool {
    endpoints.metadata.labels.as_ref().and_then(|labels| labels.get(MANAGED_BY)).is_some_and(|by| by == MANAGER)
}

/// The Service is gone, and so go its Endpoints.
pub(super) fn without_service(current: &Endpoints) -> Plan {
    let elects = current.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(LEADER));
    if elects || current.metadata.deletion_timestamp.is_some() {
        Plan::nothing()
    } else {
        Plan::one(Write::delete(current, DeleteOptions::default()))
    }
}

pub(super) fn plan(service: &Service, pods: &[Arc<Pod>], current: Option<&Endpoints>) -> Plan {
    let spec = service.spec.as_ref();
    if spec.and_then(|spec| spec.type_.as_deref()) == Some("ExternalName")
        || service.metadata.deletion_timestamp.is_some()
    {
        return Plan::nothing();
    }
    let mut subsets = repack(pods.iter().flat_map(|pod| singles(service, pod)).collect());
    let truncated = truncate(&mut subsets, ADDRESSES_MAX);
    let labels = labels(service);
    let old_annotations = current.and_then(|current| current.metadata.annotations.clone()).unwrap_or_default();
    if let Some(current) = current {
        let same = normal(current.subsets.as_deref()) == subsets.as_slice()
            && current.metadata.labels.as_ref() == Some(&labels)
            && (old_annotations.get(OVER_CAPACITY).map(String::as_str) == truncated.then_some("truncated"));
        if same {
            return Plan::nothing();
        }
    }
    let mut annotations = old_annotations;
    match trigger_time(service, pods, annotations.get(TRIGGER_TIME), current.is_none()) {
        Some(time) => annotations.insert(TRIGGER_TIME.into(), time),
        None => annotations.remove(TRIGGER_TIME),
    };
    if truncated {
        annotations.insert(OVER_CAPACITY.into(), "truncated".into())
    } else {
        annotations.remove(OVER_CAPACITY)
    };
    let metadata = ObjectMeta {
        name: service.metadata.name.clone(),
        namespace: service.metadata.namespace.clone(),
        ..current.map(|current| current.metadata.clone()).unwrap_or_default()
    };
    let metadata = ObjectMeta {
        labels: Some(labels),
        annotations: Some(annotations).filter(|annotations| !annotations.is_empty()),
        ..metadata
    };
    let endpoints = Endpoints { metadata, subsets: Some(subsets).filter(|subsets| !subsets.is_empty()) };
    let name = service.metadata.name.as_deref().unwrap_or_default();
    let namespace = service.metadata.namespace.as_deref().unwrap_or_default();
    Plan::one(match current {
        None => Write::create(&endpoints).accept(&["NamespaceTerminating"]).tells_only_failure(
            service,
            "FailedToCreateEndpoint",
            format!("Failed to create endpoint for service {namespace}/{name}: {{error}}"),
        ),
        Some(_) => Write::update(&endpoints).tells_only_failure(
            service,
            "FailedToUpdateEndpoint",
            format!("Failed to update endpoint {namespace}/{name}: {{error}}"),
        ),
    })
}

/// An absent list is an empty one.
fn normal(subsets: Option<&[EndpointSubset]>) -> &[EndpointSubset] {
    subsets.unwrap_or_default()
}

fn singles(service: &Service, pod: &Pod) -> Vec<Single> {
    let publishes = publishes_not_ready(service);
    if !is_reachable(pod) || (pod.metadata.deletion_timestamp.is_some() && !publishes) {
        return Vec::new();
    }
    let spec = service.spec.as_ref();
    let family = spec.and_then(|spec| spec.ip_families.as_ref()?.first()).map_or("IPv4", String::as_str);
    let Some(ip) = addresses(pod).find(|one| is_ipv6(one) == (family == "IPv6")) else { return Vec::new() };
    let address = EndpointAddress {
        ip: ip.into(),
        hostname: host_name(pod, service),
        node_name: node(pod).map(Into::into),
        target_ref: Some(reference_to(pod)),
    };
    let ready = publishes || is_ready(pod);
    let ports = spec.and_then(|spec| spec.ports.as_deref()).unwrap_or_default();
    if ports.is_empty() && is_headless(service) {
        return vec![Single { address, port: None, ready }];
    }
    let found = ports.iter().filter_map(|port| {
        Some(EndpointPort {
            name: port.name.clone().filter(|name| !name.is_empty()),
            port: port_number(pod, port)?,
            protocol: Some(port.protocol.clone().unwrap_or_else(|| "TCP".into())),
            app_protocol: port.app_protocol.clone(),
        })
    });
    found.map(|port| Single { address: address.clone(), port: Some(port), ready }).collect()
}

fn labels(service: &Service) -> BTreeMap<String, String> {
    let mut labels = service.metadata.labels.clone().unwrap_or_default();
    labels.remove(HEADLESS);
    if is_headless(service) {
        labels.insert(HEADLESS.into(), String::new());
    }
    labels.insert(MANAGED_BY.into(), MANAGER.into());
    labels
}

fn trigger_time(service: &Service, pods: &[Arc<Pod>], known: Option<&String>, is_new: bool) -> Option<String> {
    let known: Option<Timestamp> = known.and_then(|time| time.parse().ok());
    let pods = pods.iter().filter_map(|pod| Some(condition(pod, "Ready")?.last_transition_time.as_ref()?.0));
    let news = pods.filter(|time| !is_new && known.is_none_or(|known| *time > known));
    let created = service.metadata.creation_timestamp.as_ref().map(|time| time.0).filter(|_| is_new);
    news.chain(created).min().map(|time| time.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn service() -> Service {
        let object = json!({
            "metadata": {"name": "web", "namespace": "a", "labels": {"team": "x"}, "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"clusterIP": "None", "ipFamilies": ["IPv4"], "selector": {"app": "web"}, "ports": [{"port": 80}]},
        });
        serde_json::from_value(object).expect("a service")
    }

    fn pod(number: usize, ready: bool) -> Arc<Pod> {
        let object = json!({
            "metadata": {"name": format!("p{number}"), "namespace": "a", "uid": format!("p{number}")},
            "spec": {"nodeName": "n", "containers": []},
            "status": {"podIP": format!("10.0.{}.{}", number / 250, number % 250), "phase": "Running",
                "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }, "lastTransitionTime": "2026-01-01T00:00:09Z"}]},
        });
        Arc::new(serde_json::from_value(object).expect("a pod"))
    }

    #[test]
    fn endpoints_are_made_and_left_alone_when_they_are_right() {
        let pods = [pod(1, true), pod(2, false)];
        let plan_one = plan(&service(), &pods, None);
        assert_eq!(plan_one.writes[0].to_string(), "create /api/v1/namespaces/a/endpoints");
        let made: Endpoints = serde_json::from_value(plan_one.writes[0].body().clone()).expect("endpoints");
        let text = serde_json::to_string(&made).expect("text");
        assert!(text.contains(r#""endpoints.kubernetes.io/managed-by":"endpoint-controller","service.kubernetes.io/headless":"","team":"x""#), "{text}");
        assert!(text.contains(r#""notReadyAddresses":[{"ip":"10.0.0.2","nodeName":"n""#), "{text}");
        assert!(plan(&service(), &pods, Some(&made)).writes.is_empty());
        let changed = plan(&service(), &pods[..1], Some(&made));
        assert_eq!(changed.writes[0].to_string(), "update /api/v1/namespaces/a/endpoints/web");
        assert!(changed.writes[0].body().to_string().contains(r#"trigger-time":"2026-01-01T00:00:09Z"#));
    }

    #[test]
    fn more_than_a_thousand_are_cut_off() {
        let pods: Vec<Arc<Pod>> = (0..1200).map(|number| pod(number, number < 1100)).collect();
        let made = plan(&service(), &pods, None);
        let body = made.writes[0].body();
        assert_eq!(body["metadata"]["annotations"][OVER_CAPACITY], "truncated");
        assert_eq!(body["subsets"][0]["addresses"].as_array().map(Vec::len), Some(1000));
        assert_eq!(body["subsets"][0]["notReadyAddresses"], json!(null));
    }
}
