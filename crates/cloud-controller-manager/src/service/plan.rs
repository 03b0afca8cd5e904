//! What a Service needs of the cloud, and what it is told.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{LoadBalancerStatus, Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use reconcile::{Event, Key, Plan, Write};
use serde_json::json;

use crate::cloud::{Balance, LoadBalancers};

const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";
const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
/// Nodes with one of these are new or about to go.
static TAINTS: [&str; 2] = ["node.cloudprovider.kubernetes.io/uninitialized", "ToBeDeletedByClusterAutoscaler"];
/// What the cloud refuses is asked for again.
const RETRY: Duration = Duration::from_secs(15);

/// Whether it is for us to balance: a class names someone else.
pub(super) fn wants(service: &Service) -> bool {
    let spec = service.spec.as_ref();
    spec.is_some_and(|spec| spec.type_.as_deref() == Some("LoadBalancer") && spec.load_balancer_class.is_none())
}

/// Whether there is anything to do for it: it is to be balanced, or has been.
pub(super) fn concerns(service: &Service) -> bool {
    wants(service) || is_marked(service)
}

fn is_marked(service: &Service) -> bool {
    service.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == FINALIZER)
}

pub(crate) fn service_of(slice: &EndpointSlice) -> Option<&str> {
    slice.metadata.labels.as_ref()?.get("kubernetes.io/service-name").map(String::as_str)
}

pub(super) async fn plan(
    balancers: &dyn LoadBalancers,
    service: &Service,
    others: &[Arc<Service>],
    nodes: &[Arc<Node>],
    slices: &[Arc<EndpointSlice>],
) -> Plan {
    let marked = is_marked(service);
    if service.metadata.deletion_timestamp.is_some() || !wants(service) {
        return if marked { remove(balancers, service).await } else { Plan::nothing() };
    }
    let mut nodes: Vec<Arc<Node>> = nodes.iter().filter(|node| is_usable(node)).cloned().collect();
    if !balancers.checks_health() && is_local(service) {
        let local = nodes_with_endpoints(service, slices);
        nodes.retain(|node| node.metadata.name.as_ref().is_some_and(|name| local.contains(name)));
    }
    ensure(balancers, service, marked, &Balance { service, nodes: &nodes, others, slices }).await
}

async fn ensure(balancers: &dyn LoadBalancers, service: &Service, marked: bool, balance: &Balance<'_>) -> Plan {
    let mut plan = Plan::nothing();
    if !marked {
        // The mark comes before the thing, or a crash in between would leave the thing behind.
        plan.events.push(Event::normal(service, "EnsuringLoadBalancer", "Ensuring load balancer"));
        let mut finalizers = service.metadata.finalizers.clone().unwrap_or_default();
        finalizers.push(FINALIZER.to_owned());
        plan.writes.push(patch(service, json!({"finalizers": finalizers}), None));
        return plan;
    }
    let status = match balancers.ensure(balance).await {
        Ok(status) => status,
        Err(error) => {
            let message = format!("Error syncing load balancer: failed to ensure load balancer: {error}");
            plan.events.push(Event::warning(service, "SyncLoadBalancerFailed", message));
            if balancers.refusal_withdraws() && balanced_at(service) != nowhere() {
                plan.writes.push(patch(service, json!({}), Some(&nowhere())));
            }
            plan.come_back(RETRY);
            return plan;
        }
    };
    let before = balanced_at(service);
    if before != status {
        let (reason, message) = match before.ingress.iter().flatten().next() {
            None => ("EnsuredLoadBalancer", "Ensured load balancer"),
            Some(_) => ("UpdatedLoadBalancer", "Updated load balancer with new hosts"),
        };
        plan.events.push(Event::normal(service, reason, message));
        plan.writes.push(patch(service, json!({}), Some(&status)));
    }
    if balance.nodes.is_empty() && before != status {
        let message = "There are no available nodes for LoadBalancer";
        plan.events.push(Event::warning(service, "UnAvailableLoadBalancer", message));
    }
    plan
}

async fn remove(balancers: &dyn LoadBalancers, service: &Service) -> Plan {
    let mut plan = Plan::nothing();
    plan.events.push(Event::normal(service, "DeletingLoadBalancer", "Deleting load balancer"));
    if let Err(error) = balancers.delete(service).await {
        let message = format!("Error deleting load balancer: {error}");
        plan.events.push(Event::warning(service, "SyncLoadBalancerFailed", message));
        plan.come_back(RETRY);
        return plan;
    }
    plan.events.push(Event::normal(service, "DeletedLoadBalancer", "Deleted load balancer"));
    let mut finalizers = service.metadata.finalizers.clone().unwrap_or_default();
    finalizers.retain(|finalizer| finalizer != FINALIZER);
    plan.writes.push(patch(service, json!({"finalizers": finalizers}), Some(&LoadBalancerStatus::default())));
    plan
}

/// Both go through the status, as the controller may write nothing else.
fn patch(service: &Service, mut metadata: serde_json::Value, status: Option<&LoadBalancerStatus>) -> Write {
    metadata["uid"] = json!(service.metadata.uid);
    metadata["resourceVersion"] = json!(service.metadata.resource_version);
    let mut patch = json!({"metadata": metadata});
    if let Some(status) = status {
        patch["status"] = json!({"loadBalancer": {"ingress": status.ingress}});
    }
    Write::merge_patch_sub::<Service>(&Key::of(&service.metadata), "status", patch).accept(&["NotFound"])
}

/// Where it is reached now. No list and an empty one are the same.
fn balanced_at(service: &Service) -> LoadBalancerStatus {
    let status = service.status.as_ref().and_then(|status| status.load_balancer.clone()).unwrap_or_default();
    LoadBalancerStatus { ingress: Some(status.ingress.unwrap_or_default()) }
}

fn nowhere() -> LoadBalancerStatus {
    LoadBalancerStatus { ingress: Some(Vec::new()) }
}

fn is_usable(node: &Node) -> bool {
    let labels = node.metadata.labels.as_ref();
    let mut taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    node.metadata.deletion_timestamp.is_none()
        && !labels.is_some_and(|labels| labels.contains_key(EXCLUDED))
        && !taints.any(|taint| TAINTS.contains(&taint.key.as_str()))
}

fn is_local(service: &Service) -> bool {
    service.spec.as_ref().and_then(|spec| spec.external_traffic_policy.as_deref()) == Some("Local")
}

fn nodes_with_endpoints(service: &Service, slices: &[Arc<EndpointSlice>]) -> BTreeSet<String> {
    let ours = slices.iter().filter(|slice| service_of(slice) == service.metadata.name.as_deref());
    let endpoints = ours.flat_map(|slice| slice.endpoints.iter().flatten());
    let ready = endpoints
        .filter(|endpoint| endpoint.conditions.as_ref().and_then(|conditions| conditions.ready).unwrap_or(true));
    ready.filter_map(|endpoint| endpoint.node_name.clone()).collect()
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
