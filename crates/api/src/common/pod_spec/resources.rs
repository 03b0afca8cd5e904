//! Requests, limits and claims of containers, and of the pod as a whole.

use std::collections::{BTreeMap, BTreeSet};

use machinery::field::{Errors, Path, Problem};
use machinery::names;
use machinery::node::Node;
use machinery::quantity::Quantity;
use serde_json::Value;

use super::text::{NOT_NEGATIVE, dns_label, push};

const STANDARD: &[&str] = &[
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "storage",
    "services.nodeports",
    "services.loadbalancers",
];

const STANDARD_CONTAINER: &[&str] = &["cpu", "memory", "ephemeral-storage"];

const HUGE: &str = "hugepages-";

/// The resources of one container. `claims` are the names of the pod's claims.
pub(super) fn container_resources(errors: &mut Errors, resources: &Node, claims: &BTreeSet<String>) {
    requirements(errors, resources, container_resource_name);
    claim_names(errors, &resources.at("claims"), claims);
}

/// A list of amounts as a RuntimeClass or a pod's overhead says it; upstream checks it as limits.
pub fn overhead(errors: &mut Errors, list: &Node) {
    let wrapped = serde_json::json!({ "limits": list.value });
    requirements(errors, &Node::new(&wrapped, list.path.clone()), container_resource_name);
}

fn requirements(errors: &mut Errors, resources: &Node, name_rule: fn(&mut Errors, &str, &Path)) {
    let (limits, requests) = (resources.at("limits"), resources.at("requests"));
    let (mut huge, mut basic) = (false, false);
    for (name, node) in limits.entries() {
        name_rule(errors, name, &node.path);
        amount(errors, name, &node);
        huge |= name.starts_with(HUGE);
        basic |= matches!(name, "cpu" | "memory");
    }
    for (name, node) in requests.entries() {
        name_rule(errors, name, &node.path);
        let request = amount(errors, name, &node);
        match limits.value.get(name).and_then(|limit| Quantity::from_value(limit).ok()) {
            Some(limit) => {
                let bound = match request.cmp(&limit) {
                    std::cmp::Ordering::Equal => None,
                    _ if !may_overcommit(name) => Some("equal to"),
                    std::cmp::Ordering::Greater => Some("less than or equal to"),
                    std::cmp::Ordering::Less => None,
                };
                if let Some(bound) = bound {
                    let detail = format!("must be {bound} {name} limit of {}", limit.canonical());
                    errors.invalid_value(&requests.path, &request.canonical().into(), detail);
                }
            }
            None if !may_overcommit(name) => {
                errors.required(&limits, "Limit must be set for non overcommitable resources")
            }
            None => {}
        }
        huge |= name.starts_with(HUGE);
        basic |= matches!(name, "cpu" | "memory");
    }
    if huge && !basic {
        errors.forbidden(resources, "HugePages require cpu or memory");
    }
}

/// Checks the amount of a resource, and answers with it.
fn amount(errors: &mut Errors, name: &str, node: &Node) -> Quantity {
    let Ok(quantity) = Quantity::from_value(node.value) else {
        errors.invalid(node, "must be a valid resource quantity");
        return Quantity::ZERO;
    };
    let value = Value::from(quantity.canonical());
    if quantity.sign() < 0 {
        errors.invalid_value(&node.path, &value, NOT_NEGATIVE);
    }
    if is_whole_only(name) && !quantity.is_whole() {
        errors.invalid_value(&node.path, &value, "must be an integer");
    }
    if let Some(size) = name.strip_prefix(HUGE)
        && let Ok(page) = Quantity::parse(size)
        && (page.value() <= 0 || quantity.value() % page.value() != 0)
    {
        let detail = format!("{} is not positive integer multiple of {name}", quantity.canonical());
        errors.invalid_value(&node.path, &value, detail);
    }
    quantity
}

fn resource_name(errors: &mut Errors, name: &str, path: &Path) {
    let value = Value::from(name);
    let problems = names::qualified_name(name);
    if !problems.is_empty() {
        return problems.into_iter().for_each(|problem| errors.invalid_value(path, &value, problem));
    }
    if !name.contains('/') && !STANDARD.contains(&name) && !name.starts_with(HUGE) {
        errors.invalid_value(path, &value, "must be a standard resource type or fully qualified");
    }
}

fn container_resource_name(errors: &mut Errors, name: &str, path: &Path) {
    resource_name(errors, name, path);
    let value = Value::from(name);
    if !name.contains('/') {
        if !STANDARD_CONTAINER.contains(&name) && !name.starts_with(HUGE) {
            errors.invalid_value(path, &value, "must be a standard resource for containers");
        }
    } else if !is_native(name) && !is_extended(name) {
        errors.invalid_value(path, &value, "doesn't follow extended resource name standard");
    }
}

fn pod_resource_name(errors: &mut Errors, name: &str, path: &Path) {
    let before = errors.0.len();
    resource_name(errors, name, path);
    if errors.0.len() == before && !is_pod_level(name) {
        let detail = "supported values: \"cpu\", \"hugepages-\", \"memory\"";
        push(errors, Problem::NotSupported, path, &Value::from(name), detail);
    }
}

/// Resources that a pod may say for all its containers together.
pub(crate) fn is_pod_level(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || name.starts_with(HUGE)
}

/// Resources of Kubernetes itself; the others are extended ones, such as devices.
pub fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

pub fn is_extended(name: &str) -> bool {
    !is_native(name) && !name.starts_with("requests.") && names::qualified_name(&format!("requests.{name}")).is_empty()
}

fn may_overcommit(name: &str) -> bool {
    is_native(name) && !name.starts_with(HUGE)
}

fn is_whole_only(name: &str) -> bool {
    const COUNTS: &[&str] = &[
        "pods",
        "resourcequotas",
        "services",
        "replicationcontrollers",
        "secrets",
        "configmaps",
        "persistentvolumeclaims",
        "services.nodeports",
        "services.loadbalancers",
    ];
    COUNTS.contains(&name) || is_extended(name)
}

fn claim_names(errors: &mut Errors, list: &Node, claims: &BTreeSet<String>) {
    let mut seen = BTreeSet::new();
    for claim in list.items() {
        let (name, request) = (claim.text("name"), claim.at("request"));
        let value = Value::from(name);
        if name.is_empty() {
            errors.required(&claim, "");
            continue;
        }
        // A claim is named as a whole or by its requests, not both.
        let own: Vec<&(&str, &str)> = seen.iter().filter(|(known, _)| *known == name).collect();
        if own.iter().any(|(_, request)| request.is_empty()) {
            push(errors, Problem::Duplicate, &claim.path, &value, "");
        } else if request.str().is_empty() {
            own.iter().for_each(|_| push(errors, Problem::Duplicate, &claim.path, &value, ""));
        } else {
            dns_label(errors, &request);
            if own.iter().any(|(_, known)| *known == request.str()) {
                let key = format!("{name}/{}", request.str());
                push(errors, Problem::Duplicate, &claim.path, &key.into(), "");
            }
        }
        seen.insert((name, request.str()));
        if !claims.contains(name) {
            let known = if claims.is_empty() {
                " which is empty".to_string()
            } else {
                format!(": {}", claims.iter().cloned().collect::<Vec<_>>().join(", "))
            };
            let detail = format!("must be one of the names in pod.spec.resourceClaims{known}");
            push(errors, Problem::NotFound, &claim.path, &value, detail);
        }
    }
}

pub(super) fn resize_policy(errors: &mut Errors, list: &Node, restart_policy: &str) {
    let mut seen = BTreeSet::new();
    for policy in list.items() {
        let (resource, restart) = (policy.at("resourceName"), policy.at("restartPolicy"));
        if !seen.insert(resource.str()) {
            push(errors, Problem::Duplicate, &policy.path, resource.value, "");
        }
        for (field, supported) in [(&resource, ["cpu", "memory"]), (&restart, ["NotRequired", "RestartContainer"])] {
            super::text::one_of(errors, &Node::new(field.value, list.path.clone()), &supported);
        }
        if restart_policy == "Never" && restart.str() != "NotRequired" {
            errors.invalid_value(
                &list.path,
                restart.value,
                "must be 'NotRequired' when pod `restartPolicy` is 'Never'",
            );
        }
    }
}

/// The resources of the pod as a whole: they must hold what its containers ask for.
pub(super) fn pod_resources(errors: &mut Errors, spec: &Node) {
    let resources = spec.at("resources");
    if !resources.exists() {
        return;
    }
    if spec.at("os").text("name") == "windows" {
        return errors.forbidden(&resources, "may not be set for a windows pod");
    }
    if !resources.at("claims").is_empty() {
        errors.forbidden(&resources.at("claims"), "claims may not be set for Resources at pod-level");
    }
    requirements(errors, &resources, pod_resource_name);
    let amount_of = |list: &Node, name: &str| Quantity::from_value(list.value.get(name)?).ok();
    let (limits, requests) = (resources.at("limits"), resources.at("requests"));
    for (name, sum) in containers_requests(spec.value) {
        let Some(request) = amount_of(&requests, &name) else { continue };
        if sum > request {
            let sum = sum.canonical();
            let detail = format!("must be greater than or equal to aggregate container requests of {sum}");
            errors.invalid_value(&requests.path.key(&name), &request.canonical().into(), detail);
        }
    }
    for (name, sum) in together(spec.value, "limits").into_iter().filter(|(name, _)| name.starts_with(HUGE)) {
        let Some(limit) = amount_of(&limits, &name).filter(|limit| sum > *limit) else { continue };
        let detail = format!("must be greater than or equal to aggregate container limits of {}", sum.canonical());
        errors.invalid_value(&limits.path.key(&name), &limit.canonical().into(), detail);
    }
    for (index, container) in spec.each("containers").enumerate() {
        let own = container.at("resources").at("limits");
        for (name, _) in own.entries() {
            let (Some(amount), Some(limit)) = (amount_of(&own, name), amount_of(&limits, name)) else { continue };
            if amount > limit {
                let path = resources.path.child("containers").index(index).key(name).child("limits");
                let detail = format!("must be less than or equal to pod limits of {}", limit.canonical());
                errors.invalid_value(&path, &amount.canonical().into(), detail);
            }
        }
    }
}

/// What the containers of a pod ask for together: the sum of those that run side by side, and at least what the
/// largest init container needs with the sidecars that started before it.
pub(crate) fn containers_requests(spec: &Value) -> BTreeMap<String, Quantity> {
    together(spec, "requests")
}

fn together(spec: &Value, what: &str) -> BTreeMap<String, Quantity> {
    let mut sum = BTreeMap::new();
    for container in list(spec, "containers") {
        add(&mut sum, &amounts(container, what));
    }
    let (mut sidecars, mut peak) = (BTreeMap::new(), BTreeMap::new());
    for container in list(spec, "initContainers") {
        let mut step = amounts(container, what);
        if container["restartPolicy"] == "Always" {
            add(&mut sum, &step);
            add(&mut sidecars, &step);
            step = sidecars.clone();
        } else {
            add(&mut step, &sidecars);
        }
        raise(&mut peak, &step);
    }
    raise(&mut sum, &peak);
    sum
}

fn amounts(container: &Value, what: &str) -> BTreeMap<String, Quantity> {
    let list = container.get("resources").and_then(|resources| resources.get(what)).and_then(Value::as_object);
    let amounts = list.into_iter().flatten();
    amounts.filter_map(|(name, amount)| Some((name.clone(), Quantity::from_value(amount).ok()?))).collect()
}

fn add(sum: &mut BTreeMap<String, Quantity>, more: &BTreeMap<String, Quantity>) {
    for (name, amount) in more {
        sum.entry(name.clone()).and_modify(|total| *total = *total + *amount).or_insert(*amount);
    }
}

fn raise(most: &mut BTreeMap<String, Quantity>, other: &BTreeMap<String, Quantity>) {
    for (name, amount) in other {
        let entry = most.entry(name.clone()).or_insert(*amount);
        if *amount > *entry {
            *entry = *amount;
        }
    }
}

fn list<'a>(value: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    value.get(field).and_then(Value::as_array).into_iter().flatten()
}
