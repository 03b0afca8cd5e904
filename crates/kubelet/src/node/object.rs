//! The Node object: as it registers, as its status is worked out, and the patch from one status to the next. Pure.

use std::collections::BTreeMap;
use std::net::IpAddr;

use component_helpers::host_ports;
use cri::v1;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    ContainerImage, DaemonEndpoint, Node, NodeAddress, NodeDaemonEndpoints, NodeFeatures, NodeRuntimeHandler,
    NodeRuntimeHandlerFeatures, NodeSpec, NodeStatus, NodeSwapStatus, NodeSystemInfo,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Map, Value, json};

use super::capacity::{Resources, allocatable, as_api, capacity};
use super::conditions::{Pressure, conditions, same};
use super::machine::Machine;
use crate::Config;
use crate::device_plugins::Count;

/// The release whose behaviour this kubelet has.
pub(crate) const KUBELET_VERSION: &str = "v1.36.4";
/// Says to the attach/detach controller that attaching is its work.
const CONTROLLER_ATTACHES: &str = "volumes.kubernetes.io/controller-managed-attach-detach";
/// What this kubelet can do that older ones cannot, by upstream's names; schedulers place pods that need it by this list.
static DECLARED_FEATURES: [&str; 3] =
    ["ExtendWebSocketsToKubelet", "InPlacePodLevelResourcesVerticalScaling", "InPlacePodVerticalScalingInitContainers"];
/// As many images as upstream reports, and as many names of each.
const IMAGES_MAX: usize = 50;
const IMAGE_NAMES_MAX: usize = 5;

/// Everything that the status is worked out from.
pub struct Facts {
    pub machine: Machine,
    pub addresses: Vec<IpAddr>,
    /// The size of the filesystem with the pods' folders.
    pub storage_bytes: u64,
    /// Name and version, such as `knarr://0.1.0`.
    pub runtime_version: String,
    pub runtime_handlers: Vec<v1::RuntimeHandler>,
    pub runtime_features: Option<v1::RuntimeFeatures>,
    pub images: Vec<v1::Image>,
    pub volumes_in_use: Vec<String>,
    /// Extended resources that device plugins offer.
    pub devices: BTreeMap<String, Count>,
    pub port: u16,
    /// What the machine listens at, at the node's addresses.
    pub ports_in_use: host_ports::Ports,
    pub pressures: Vec<Pressure>,
    pub problems: Vec<String>,
}

/// The object to create. What is here beyond its status is given once: later it belongs to the cluster's users.
pub fn initial(config: &Config, facts: &Facts, now: Timestamp) -> Node {
    let mut labels = config.node_labels.clone();
    labels.extend(default_labels(&config.node_name, facts.machine.architecture));
    Node {
        metadata: ObjectMeta {
            name: Some(config.node_name.clone()),
            labels: Some(labels),
            annotations: Some(
                [
                    (CONTROLLER_ATTACHES.to_owned(), "true".to_owned()),
                    (host_ports::ANNOTATION.to_owned(), host_ports::text(&facts.ports_in_use)),
                ]
                .into(),
            ),
            ..ObjectMeta::default()
        },
        spec: Some(NodeSpec {
            taints: Some(config.register_with_taints.clone()).filter(|taints| !taints.is_empty()),
            ..NodeSpec::default()
        }),
        status: Some(status(config, facts, &NodeStatus::default(), now)),
    }
}

/// What must be changed in the metadata of a Node that was there before: labels that follow from the machine.
pub(crate) fn metadata_patch(node: &Node, architecture: &str) -> Option<Value> {
    let name = node.metadata.name.as_deref().unwrap_or("");
    let (labels, annotations) = (node.metadata.labels.clone().unwrap_or_default(), node.metadata.annotations.clone());
    let mut wrong = default_labels(name, architecture).to_vec();
    wrong.retain(|(key, value)| labels.get(key) != Some(value));
    let annotated = annotations.unwrap_or_default().get(CONTROLLER_ATTACHES).is_some_and(|value| value == "true");
    if wrong.is_empty() && annotated {
        return None;
    }
    let labels: Map<String, Value> = wrong.into_iter().map(|(key, value)| (key, json!(value))).collect();
    Some(json!({ "metadata": { "labels": labels, "annotations": { CONTROLLER_ATTACHES: "true" } } }))
}

/// What must be changed so that the Node says which ports are taken.
pub(crate) fn ports_patch(node: &Node, in_use: &host_ports::Ports) -> Option<Value> {
    let text = host_ports::text(in_use);
    let said = node.metadata.annotations.as_ref().and_then(|annotations| annotations.get(host_ports::ANNOTATION));
    (said != Some(&text)).then(|| json!({ "metadata": { "annotations": { host_ports::ANNOTATION: text } } }))
}

/// The status as it is now. What others have written into the old one stays.
pub fn status(config: &Config, facts: &Facts, old: &NodeStatus, now: Timestamp) -> NodeStatus {
    let capacity = capacity(&facts.machine, facts.storage_bytes, config.pods_max);
    let allocatable = allocatable(&capacity, config);
    let (capacity, allocatable) = with_extended(as_api(&capacity), as_api(&allocatable), old, &facts.devices);
    NodeStatus {
        addresses: Some(addresses(config, &facts.addresses)),
        allocatable: Some(allocatable),
        capacity: Some(capacity),
        conditions: Some(conditions(old.conditions.as_deref().unwrap_or(&[]), &facts.pressures, &facts.problems, now)),
        daemon_endpoints: Some(NodeDaemonEndpoints {
            kubelet_endpoint: Some(DaemonEndpoint { port: i32::from(facts.port) }),
        }),
        declared_features: Some(DECLARED_FEATURES.map(str::to_owned).to_vec()),
        features: facts
            .runtime_features
            .map(|features| NodeFeatures { supplemental_groups_policy: Some(features.supplemental_groups_policy) }),
        images: Some(images(&facts.images)),
        node_info: Some(node_info(facts)),
        runtime_handlers: Some(handlers(&facts.runtime_handlers)).filter(|handlers| !handlers.is_empty()),
        volumes_in_use: Some(facts.volumes_in_use.clone()).filter(|volumes| !volumes.is_empty()),
        ..old.clone()
    }
}

/// The patch that makes one status of another; nothing when only heartbeats differ and no report is due.
pub(crate) fn status_patch(old: &NodeStatus, new: &NodeStatus, report_due: bool) -> Option<Value> {
    let none = Vec::new();
    let (before, after) = (old.conditions.as_ref().unwrap_or(&none), new.conditions.as_ref().unwrap_or(&none));
    let conditions_same = same(before, after);
    let as_map = |status: &NodeStatus| match serde_json::to_value(status) {
        Ok(Value::Object(fields)) => fields,
        other => unreachable!("a status is written as an object, not {other:?}"),
    };
    let (old, new) = (as_map(old), as_map(new));
    let mut patch = Map::new();
    for field in old.keys().chain(new.keys()) {
        let (before, after) = (old.get(field).unwrap_or(&Value::Null), new.get(field).unwrap_or(&Value::Null));
        if before == after || (field == "conditions" && conditions_same && !report_due) {
            continue;
        }
        patch.insert(field.clone(), field_patch(field, before, after));
    }
    let due = report_due || !patch.is_empty();
    if due && !patch.contains_key("conditions") {
        patch.insert("conditions".into(), new.get("conditions").cloned().unwrap_or_default());
    }
    due.then(|| json!({ "status": patch }))
}

fn field_patch(field: &str, before: &Value, after: &Value) -> Value {
    match (field, after) {
        // Addresses are merged by their types, of which there may be several of one: the list must be replaced as a whole.
        ("addresses", Value::Array(items)) => {
            let mut replaced = vec![json!({ "$patch": "replace" })];
            replaced.extend(items.iter().cloned());
            Value::Array(replaced)
        }
        ("capacity" | "allocatable", Value::Object(amounts)) => {
            let mut amounts = amounts.clone();
            for gone in before.as_object().into_iter().flat_map(Map::keys) {
                amounts.entry(gone.clone()).or_insert(Value::Null);
            }
            Value::Object(amounts)
        }
        _ => after.clone(),
    }
}

fn default_labels(name: &str, architecture: &str) -> [(String, String); 5] {
    let label = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    [
        label("beta.kubernetes.io/arch", architecture),
        label("beta.kubernetes.io/os", "linux"),
        label("kubernetes.io/arch", architecture),
        label("kubernetes.io/hostname", name),
        label("kubernetes.io/os", "linux"),
    ]
}

fn addresses(config: &Config, ips: &[IpAddr]) -> Vec<NodeAddress> {
    let address = |kind: &str, text: String| NodeAddress { address: text, type_: kind.into() };
    let internal = ips.iter().map(|ip| address("InternalIP", ip.to_string()));
    let external = config.node_external_ips.iter().map(|ip| address("ExternalIP", ip.to_string()));
    internal.chain(external).chain([address("Hostname", config.node_name.clone())]).collect()
}

/// Resources with a domain in their name are not the kubelet's to remove: administrators set them too. All of what there is may be used,
/// unless the plugin that offers it says otherwise.
fn with_extended(
    mut capacity: Resources,
    mut allocatable: Resources,
    old: &NodeStatus,
    devices: &BTreeMap<String, Count>,
) -> (Resources, Resources) {
    for (name, amount) in old.capacity.iter().flatten().filter(|(name, _)| name.contains('/')) {
        capacity.entry(name.clone()).or_insert_with(|| amount.clone());
        allocatable.entry(name.clone()).or_insert_with(|| amount.clone());
    }
    for (name, count) in devices {
        capacity.insert(name.clone(), Quantity(count.capacity.to_string()));
        allocatable.insert(name.clone(), Quantity(count.allocatable.to_string()));
    }
    (capacity, allocatable)
}

/// The largest, since these are the ones worth scheduling for.
fn images(all: &[v1::Image]) -> Vec<ContainerImage> {
    let mut sorted: Vec<&v1::Image> = all.iter().collect();
    sorted.sort_by(|a, b| b.size.cmp(&a.size).then_with(|| b.id.cmp(&a.id)));
    let image = |image: &&v1::Image| ContainerImage {
        names: Some(image.repo_digests.iter().chain(&image.repo_tags).take(IMAGE_NAMES_MAX).cloned().collect()),
        size_bytes: i64::try_from(image.size).ok(),
    };
    sorted.iter().take(IMAGES_MAX).map(image).collect()
}

fn handlers(handlers: &[v1::RuntimeHandler]) -> Vec<NodeRuntimeHandler> {
    let features = |features: v1::RuntimeHandlerFeatures| NodeRuntimeHandlerFeatures {
        recursive_read_only_mounts: Some(features.recursive_read_only_mounts),
        user_namespaces: Some(features.user_namespaces),
    };
    let handler = |handler: &v1::RuntimeHandler| NodeRuntimeHandler {
        name: Some(handler.name.clone()),
        features: handler.features.map(features),
    };
    handlers.iter().map(handler).collect()
}

fn node_info(facts: &Facts) -> NodeSystemInfo {
    let machine = &facts.machine;
    NodeSystemInfo {
        architecture: machine.architecture.to_owned(),
        boot_id: machine.boot_id.clone(),
        container_runtime_version: facts.runtime_version.clone(),
        kernel_version: machine.kernel_version.clone(),
        kube_proxy_version: String::new(),
        kubelet_version: KUBELET_VERSION.to_owned(),
        machine_id: machine.machine_id.clone(),
        operating_system: "linux".into(),
        os_image: machine.os_image.clone(),
        swap: (machine.swap_bytes > 0).then(|| NodeSwapStatus { capacity: i64::try_from(machine.swap_bytes).ok() }),
        system_uuid: machine.system_uuid.clone(),
    }
}
