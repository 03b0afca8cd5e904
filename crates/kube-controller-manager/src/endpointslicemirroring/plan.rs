//! The slices that mirror one Endpoints object.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{EndpointAddress, EndpointSubset, Endpoints, Service};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, ObjectMeta};
use reconcile::{Event, Plan, Write};

use super::MANAGER;
use crate::common::owners::controller_reference;
use crate::common::serving::TRIGGER_TIME;
use crate::endpoints::{LEADER, MANAGED_BY as ENDPOINTS_MANAGED_BY};
use crate::endpointslice::pack::{pack, sorted};
use crate::endpointslice::{MANAGED_BY, SERVICE_NAME};

const SKIP: &str = "endpointslice.kubernetes.io/skip-mirror";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

pub(super) fn is_mirrored(endpoints: &Endpoints) -> bool {
    let label = |key: &str| endpoints.metadata.labels.as_ref().and_then(|labels| labels.get(key));
    let elects = endpoints.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(LEADER));
    !elects && label(SKIP).is_none_or(|skip| skip != "true") && endpoints.metadata.deletion_timestamp.is_none()
}

pub(super) fn has_no_selector(service: &Service) -> bool {
    service.spec.as_ref().and_then(|spec| spec.selector.as_ref()).is_none_or(BTreeMap::is_empty)
}

pub(super) fn remove(slices: &[Arc<EndpointSlice>]) -> Plan {
    let writes = slices.iter().map(|slice| Write::delete(&**slice, DeleteOptions::default())).collect();
    Plan { writes, ..Plan::default() }
}

pub(super) fn plan(endpoints: &Endpoints, slices: &[Arc<EndpointSlice>], addresses_max: usize) -> Plan {
    let mut plan = Plan::nothing();
    let (labels, annotations) = (labels(endpoints), annotations(endpoints));
    let mut there: BTreeMap<_, Vec<(usize, &EndpointSlice, bool)>> = BTreeMap::new();
    for (place, slice) in slices.iter().enumerate() {
        let ports = sorted(slice.ports.as_deref().unwrap_or_default());
        let other = slice.metadata.labels.as_ref() != Some(&labels)
            || slice.metadata.annotations.clone().unwrap_or_default() != annotations;
        there.entry((slice.address_type.clone(), ports)).or_default().push((place, slice, other));
    }
    let mut deleted = Vec::new();
    let mut created = Vec::new();
    for (family, ports, wished, left_out) in wished(endpoints, addresses_max) {
        if left_out > 0 {
            let message = format!(
                "A max of {addresses_max} addresses can be mirrored to EndpointSlices per Endpoints subset. {left_out} addresses were skipped"
            );
            plan.events.push(Event::warning(endpoints, "TooManyAddressesToMirror", message));
        }
        let existing = there.remove(&(family.to_owned(), sorted(&ports))).unwrap_or_default();
        let packed = pack(&existing, wished, addresses_max);
        deleted.extend(packed.delete);
        for (place, kept) in packed.keep {
            let other = existing.iter().any(|(index, _, other)| *index == place && *other);
            if other || slices[place].endpoints.as_deref().unwrap_or_default() != kept {
                let mut slice = EndpointSlice { endpoints: Some(kept), ..EndpointSlice::clone(&slices[place]) };
                slice.metadata.labels = Some(labels.clone());
                slice.metadata.annotations = Some(annotations.clone());
                plan.writes.push(Write::update(&slice));
            }
        }
        created.extend(packed.create.into_iter().map(|part| (family, ports.clone(), part)));
    }
    deleted.extend(there.into_values().flatten().map(|(place, ..)| place));
    for (family, ports, part) in created {
        // A slice that is not needed any more takes the place of one that would be made; its address type stays for ever.
        if let Some(found) = deleted.iter().position(|place| slices[*place].address_type == family) {
            let mut slice = EndpointSlice::clone(&slices[deleted.remove(found)]);
            (slice.endpoints, slice.ports) = (Some(part), Some(ports));
            slice.metadata.labels = Some(labels.clone());
            slice.metadata.annotations = Some(annotations.clone());
            plan.writes.push(Write::update(&slice));
            continue;
        }
        let metadata = ObjectMeta {
            generate_name: Some(format!("{}-", endpoints.metadata.name.as_deref().unwrap_or_default())),
            namespace: endpoints.metadata.namespace.clone(),
            labels: Some(labels.clone()),
            annotations: Some(annotations.clone()).filter(|annotations| !annotations.is_empty()),
            owner_references: Some(vec![controller_reference(endpoints)]),
            ..ObjectMeta::default()
        };
        let slice = EndpointSlice { metadata, address_type: family.into(), endpoints: Some(part), ports: Some(ports) };
        plan.writes.push(Write::create(&slice).accept(&["NamespaceTerminating"]));
    }
    plan.writes.extend(deleted.into_iter().map(|place| Write::delete(&*slices[place], DeleteOptions::default())));
    plan
}

type Wished = (&'static str, Vec<EndpointPort>, Vec<Endpoint>, usize);

/// Per subset and family: ports, endpoints, and how many addresses were too many.
fn wished(endpoints: &Endpoints, addresses_max: usize) -> Vec<Wished> {
    let mut all: BTreeMap<_, Wished> = BTreeMap::new();
    for subset in endpoints.subsets.iter().flatten() {
        let ports = ports(subset);
        let ready = subset.addresses.iter().flatten().map(|address| (address, true));
        let not_ready = subset.not_ready_addresses.iter().flatten().map(|address| (address, false));
        let mut seen = BTreeSet::new();
        for (address, ready) in ready.chain(not_ready) {
            // An address that is none was refused when the object was written; one told twice counts once.
            let Ok(ip) = address.ip.parse::<IpAddr>() else { continue };
            if !seen.insert(ip) {
                continue;
            }
            let family = if ip.is_ipv6() { "IPv6" } else { "IPv4" };
            let entry = all.entry((family, sorted(&ports))).or_insert_with(|| (family, ports.clone(), Vec::new(), 0));
            if seen.len() > addresses_max { entry.3 += 1 } else { entry.2.push(endpoint(address, ready)) }
        }
    }
    all.into_values().collect()
}

fn endpoint(address: &EndpointAddress, ready: bool) -> Endpoint {
    Endpoint {
        addresses: vec![address.ip.clone()],
        conditions: Some(EndpointConditions { ready: Some(ready), ..EndpointConditions::default() }),
        hostname: address.hostname.clone().filter(|name| !name.is_empty()),
        node_name: address.node_name.clone(),
        target_ref: address.target_ref.clone(),
        ..Endpoint::default()
    }
}

fn ports(subset: &EndpointSubset) -> Vec<EndpointPort> {
    let ports = subset.ports.iter().flatten().map(|port| EndpointPort {
        name: Some(port.name.clone().unwrap_or_default()),
        port: Some(port.port),
        protocol: Some(port.protocol.clone().unwrap_or_else(|| "TCP".into())),
        app_protocol: port.app_protocol.clone(),
    });
    ports.collect()
}

fn labels(endpoints: &Endpoints) -> BTreeMap<String, String> {
    let mut labels = endpoints.metadata.labels.clone().unwrap_or_default();
    labels.remove(ENDPOINTS_MANAGED_BY);
    labels.insert(SERVICE_NAME.into(), endpoints.metadata.name.clone().unwrap_or_default());
    labels.insert(MANAGED_BY.into(), MANAGER.into());
    labels
}

fn annotations(endpoints: &Endpoints) -> BTreeMap<String, String> {
    let mut annotations = endpoints.metadata.annotations.clone().unwrap_or_default();
    annotations.remove(TRIGGER_TIME);
    annotations.remove(LAST_APPLIED);
    annotations
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn endpoints() -> Endpoints {
        let object = json!({
            "metadata": {"name": "db", "namespace": "a", "uid": "e", "labels": {"x": "y"}, "annotations": {"note": "z", LAST_APPLIED: "{}"}},
            "subsets": [{"addresses": [{"ip": "192.0.2.1"}, {"ip": "2001:db8::1"}], "notReadyAddresses": [{"ip": "192.0.2.2"}],
                "ports": [{"port": 5432, "protocol": "TCP"}]}],
        });
        serde_json::from_value(object).expect("endpoints")
    }

    #[test]
    fn each_family_has_its_slice() {
        let made = plan(&endpoints(), &[], 1000);
        let slices: Vec<EndpointSlice> =
            made.writes.iter().map(|write| serde_json::from_value(write.body().clone()).expect("a slice")).collect();
        let told: Vec<(String, usize)> = slices
            .iter()
            .map(|slice| (slice.address_type.clone(), slice.endpoints.as_ref().map_or(0, Vec::len)))
            .collect();
        assert_eq!(told, [("IPv4".to_owned(), 2), ("IPv6".to_owned(), 1)]);
        assert_eq!(made.writes[0].body()["metadata"]["annotations"], json!({"note": "z"}));
        let slices: Vec<Arc<EndpointSlice>> = slices.into_iter().map(Arc::new).collect();
        assert!(plan(&endpoints(), &slices, 1000).writes.is_empty());
        let mut fewer = endpoints();
        fewer.subsets.as_mut().expect("subsets")[0].addresses.as_mut().expect("addresses").pop();
        assert_eq!(plan(&fewer, &slices, 1000).writes.len(), 1);
        assert_eq!(remove(&slices).writes.len(), 2);
    }

    #[test]
    fn some_are_left_alone() {
        let mut skipped = endpoints();
        skipped.metadata.labels.get_or_insert_default().insert(SKIP.into(), "true".into());
        assert!(is_mirrored(&endpoints()));
        assert!(!is_mirrored(&skipped));
    }
}
