//! What the slices of a Service should hold, and the writes that make it so.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use component_helpers::pods::{condition, is_ready, node};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, ObjectMeta};
use reconcile::{Plan, Write};

use super::hints::Distribution;
use super::pack::{pack, sorted};
use super::zones::Zones;
use super::{MANAGED_BY, MANAGER, SERVICE_NAME};
use crate::common::owners::controller_reference;
use crate::common::serving::{
    HEADLESS, TRIGGER_TIME, addresses, host_name, is_headless, is_ipv6, is_reachable, port_number, publishes_not_ready,
    reference_to, zone_of,
};

/// When a pod's node is not known yet, the pod is left out until it is.
const NODE_UNKNOWN_WAIT: Duration = Duration::from_secs(1);

/// `slices` are those that are kept for this Service.
pub(super) fn plan(
    service: &Service,
    pods: &[Arc<Pod>],
    slices: &[Arc<EndpointSlice>],
    node_of: impl Fn(&str) -> Option<Arc<Node>>,
    zones: Option<&Zones>,
    endpoints_max: usize,
) -> Plan {
    let mut plan = Plan::nothing();
    let spec = service.spec.as_ref();
    if spec.and_then(|spec| spec.type_.as_deref()) == Some("ExternalName")
        || service.metadata.deletion_timestamp.is_some()
    {
        return plan;
    }
    let trigger = trigger_time(service, pods, slices);
    let families = spec.and_then(|spec| spec.ip_families.clone()).unwrap_or_else(|| vec!["IPv4".into()]);
    for slice in slices.iter().filter(|slice| !families.contains(&slice.address_type)) {
        plan.writes.push(Write::delete(&**slice, DeleteOptions::default()));
    }
    for family in &families {
        let (wished, all_known) = wished(service, pods, family, &node_of);
        if !all_known {
            plan.come_back(NODE_UNKNOWN_WAIT);
        }
        let existing: Vec<&EndpointSlice> =
            slices.iter().map(|slice| &**slice).filter(|slice| slice.address_type == *family).collect();
        plan.writes.extend(writes(service, family, &existing, wished, trigger.as_deref(), zones, endpoints_max));
    }
    plan
}

/// Endpoints that have the same ports.
type Group = (Vec<EndpointPort>, Vec<Endpoint>);

/// Endpoints by their ports, and whether the nodes of all were known.
fn wished(
    service: &Service,
    pods: &[Arc<Pod>],
    family: &str,
    node_of: impl Fn(&str) -> Option<Arc<Node>>,
) -> (Vec<Group>, bool) {
    let publishes = publishes_not_ready(service);
    let mut grouped: BTreeMap<_, Group> = BTreeMap::new();
    let mut all_known = true;
    for pod in pods.iter().filter(|pod| is_reachable(pod)) {
        let found = node(pod).map(&node_of);
        if matches!(found, Some(None)) && !publishes {
            all_known = false;
            continue;
        }
        let own: Vec<String> =
            addresses(pod).filter(|one| is_ipv6(one) == (family == "IPv6")).map(Into::into).collect();
        if own.is_empty() {
            continue;
        }
        let (serving, terminating) = (is_ready(pod), pod.metadata.deletion_timestamp.is_some());
        let endpoint = Endpoint {
            addresses: own,
            conditions: Some(EndpointConditions {
                ready: Some(publishes || (serving && !terminating)),
                serving: Some(serving),
                terminating: Some(terminating),
            }),
            hostname: host_name(pod, service),
            node_name: node(pod).map(Into::into),
            target_ref: Some(reference_to(pod)),
            zone: found.flatten().as_deref().and_then(zone_of).cloned(),
            ..Endpoint::default()
        };
        let ports = ports(service, pod);
        let group = grouped.entry(sorted(&ports)).or_insert_with(|| (ports, Vec::new()));
        group.1.push(endpoint);
    }
    (grouped.into_values().collect(), all_known)
}

fn ports(service: &Service, pod: &Pod) -> Vec<EndpointPort> {
    let ports = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
    let found = ports.filter_map(|port| {
        Some(EndpointPort {
            name: Some(port.name.clone().unwrap_or_default()),
            port: Some(port_number(pod, port)?),
            protocol: Some(port.protocol.clone().unwrap_or_else(|| "TCP".into())),
            app_protocol: port.app_protocol.clone(),
        })
    });
    found.collect()
}

/// What a slice becomes: an existing one by its place, or a new one.
struct Target {
    place: Option<usize>,
    ports: Vec<EndpointPort>,
    endpoints: Vec<Endpoint>,
}

fn writes(
    service: &Service,
    family: &str,
    existing: &[&EndpointSlice],
    wished: Vec<(Vec<EndpointPort>, Vec<Endpoint>)>,
    trigger: Option<&str>,
    zones: Option<&Zones>,
    endpoints_max: usize,
) -> Vec<Write> {
    let labels = labels(service);
    let mut of_ports: BTreeMap<_, Vec<(usize, &EndpointSlice, bool)>> = BTreeMap::new();
    for (place, slice) in existing.iter().enumerate() {
        let ports = sorted(slice.ports.as_deref().unwrap_or_default());
        let relabel = slice.metadata.labels.as_ref() != Some(&labels);
        of_ports.entry(ports).or_default().push((place, slice, relabel));
    }
    let (mut targets, mut deleted) = (Vec::new(), Vec::new());
    for (ports, endpoints) in wished {
        let slices = of_ports.remove(&sorted(&ports)).unwrap_or_default();
        let packed = pack(&slices, endpoints, endpoints_max);
        deleted.extend(packed.delete);
        let kept = packed.keep.into_iter().map(|(place, endpoints)| (Some(place), endpoints));
        let created = packed.create.into_iter().map(|endpoints| (None, endpoints));
        targets.extend(kept.chain(created).map(|(place, endpoints)| Target { place, ports: ports.clone(), endpoints }));
    }
    deleted.extend(of_ports.into_values().flatten().map(|(place, ..)| place));
    if targets.is_empty() {
        // A Service with nobody behind it has one empty slice, which tells it from one nobody has looked at yet.
        targets.push(Target { place: None, ports: Vec::new(), endpoints: Vec::new() });
        if let Some(empty) = deleted.iter().position(|place| is_placeholder(existing[*place])) {
            targets[0].place = Some(deleted.remove(empty));
        }
    }
    set_hints(service, &mut targets, zones);
    // A slice that is not needed any more takes the place of one that would be made.
    for target in targets.iter_mut().filter(|target| target.place.is_none()) {
        target.place = deleted.pop();
    }
    let mut writes: Vec<Write> = Vec::new();
    for target in targets {
        match target.place {
            None => {
                let slice = new_slice(service, family, &labels, target, trigger);
                writes.push(Write::create(&slice).accept(&["NamespaceTerminating"]).tells_failure_of(service));
            }
            Some(place) => {
                let old = existing[place];
                let same = old.endpoints.as_deref().unwrap_or_default() == target.endpoints
                    && old.metadata.labels.as_ref() == Some(&labels)
                    && sorted(old.ports.as_deref().unwrap_or_default()) == sorted(&target.ports);
                if !same {
                    let mut slice =
                        EndpointSlice { endpoints: Some(target.endpoints), ports: Some(target.ports), ..old.clone() };
                    slice.metadata.labels = Some(labels.clone());
                    set_trigger(&mut slice.metadata, trigger);
                    writes.push(Write::update(&slice).tells_failure_of(service));
                }
            }
        }
    }
    writes.extend(deleted.into_iter().map(|place| Write::delete(existing[place], DeleteOptions::default())));
    writes
}

/// Only failures are told to users.
trait TellsFailure {
    fn tells_failure_of(self, service: &Service) -> Self;
}

impl TellsFailure for Write {
    fn tells_failure_of(self, service: &Service) -> Write {
        let name = service.metadata.name.as_deref().unwrap_or_default();
        let namespace = service.metadata.namespace.as_deref().unwrap_or_default();
        let message = format!("Error updating Endpoint Slices for Service {namespace}/{name}: {{error}}");
        self.tells_only_failure(service, "FailedToUpdateEndpointSlices", message)
    }
}

fn is_placeholder(slice: &EndpointSlice) -> bool {
    slice.endpoints.as_ref().is_none_or(Vec::is_empty) && slice.ports.as_ref().is_none_or(Vec::is_empty)
}

fn set_hints(service: &Service, targets: &mut [Target], zones: Option<&Zones>) {
    let mut all: Vec<&mut Endpoint> = targets.iter_mut().flat_map(|target| target.endpoints.iter_mut()).collect();
    if let Some(zones) = zones {
        return zones.hint(&mut all);
    }
    let distribution = Distribution::of(service);
    for endpoint in all {
        endpoint.hints = distribution.hint(endpoint);
    }
}

/// Those of the Service, without what only slices may say, and whose they are.
fn labels(service: &Service) -> BTreeMap<String, String> {
    let mut labels = service.metadata.labels.clone().unwrap_or_default();
    labels.remove(HEADLESS);
    if is_headless(service) {
        labels.insert(HEADLESS.into(), String::new());
    }
    labels.insert(SERVICE_NAME.into(), service.metadata.name.clone().unwrap_or_default());
    labels.insert(MANAGED_BY.into(), MANAGER.into());
    labels
}

fn new_slice(
    service: &Service,
    family: &str,
    labels: &BTreeMap<String, String>,
    target: Target,
    trigger: Option<&str>,
) -> EndpointSlice {
    let mut metadata = ObjectMeta {
        generate_name: Some(format!("{}-", service.metadata.name.as_deref().unwrap_or_default())),
        namespace: service.metadata.namespace.clone(),
        labels: Some(labels.clone()),
        owner_references: Some(vec![controller_reference(service)]),
        ..ObjectMeta::default()
    };
    set_trigger(&mut metadata, trigger);
    EndpointSlice {
        metadata,
        address_type: family.into(),
        endpoints: Some(target.endpoints),
        ports: Some(target.ports),
    }
}

fn set_trigger(metadata: &mut ObjectMeta, trigger: Option<&str>) {
    match trigger {
        Some(time) => {
            let annotations = metadata.annotations.get_or_insert_default();
            annotations.insert(TRIGGER_TIME.into(), time.into());
        }
        None => {
            if let Some(annotations) = &mut metadata.annotations {
                annotations.remove(TRIGGER_TIME);
            }
        }
    }
}

/// The earliest change of a pod that the slices do not know of; for new slices that of the Service counts too.
fn trigger_time(service: &Service, pods: &[Arc<Pod>], slices: &[Arc<EndpointSlice>]) -> Option<String> {
    let known = slices
        .iter()
        .filter_map(|slice| slice.metadata.annotations.as_ref()?.get(TRIGGER_TIME)?.parse::<Timestamp>().ok());
    let known = known.max();
    let pods = pods.iter().filter_map(|pod| Some(condition(pod, "Ready")?.last_transition_time.as_ref()?.0));
    let service = service.metadata.creation_timestamp.as_ref().map(|time| time.0).filter(|_| slices.is_empty());
    let news = pods.filter(|time| known.is_none_or(|known| *time > known) && !slices.is_empty());
    news.chain(service).min().map(|time| time.to_string())
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
