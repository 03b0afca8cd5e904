//! Validation of a pod's status, which the kubelet and the scheduler write.

use std::collections::BTreeSet;
use std::net::IpAddr;

use machinery::field::{Errors, FieldError, Problem};
use machinery::names;
use machinery::node::Node;
use serde_json::Value;

use crate::common::pod_spec::text::{dns_label, go_struct, identity, ip, push, supported};
use crate::common::workload;

const HEALTH_MESSAGE_MAX: usize = 1024;
const GENERATION: &str = "must be a non-negative integer";

pub(super) fn validate_status(new: &Node, old: &Node, errors: &mut Errors) {
    let (status, old_status) = (new.at("status"), old.at("status"));
    let (spec, old_spec) = (new.at("spec"), old.at("spec"));
    conditions(&status.at("conditions"), errors);
    if spec.text("nodeName") != old_spec.text("nodeName") {
        errors.forbidden(&Node::new(&Value::Null, status.path.child("nodeName")), "may not be changed directly");
    }
    nominated_node(&status, &old_status, &old_spec, errors);
    if status.number("observedGeneration").is_some_and(|generation| generation < 0) {
        errors.invalid(&status.at("observedGeneration"), GENERATION);
    }
    workload::immutable(errors, &status.at("qosClass"), &old_status.at("qosClass"));
    for (list, containers) in LISTS {
        transitions(&status.at(list), &old_status.at(list), &old_spec, containers, errors);
    }
    claim_statuses(&status.at("resourceClaimStatuses"), &spec.at("resourceClaims"), errors);
    extended_claim_status(&status.at("extendedResourceClaimStatus"), &spec, errors);
    let addresses = status.at("podIPs");
    new_addresses(&addresses, &old_status.at("podIPs"), errors);
    one_address_per_family(&addresses, errors);
    host_addresses(&status, &old_status, errors);
    for (list, _) in LISTS {
        status.each(list).for_each(|container| container_user(&container, &spec, errors));
    }
    for (list, containers) in LISTS {
        status.each(list).for_each(|one| allocated_resources(&one, &spec, containers, errors));
    }
}

/// Where the states of containers stand, and where the containers.
const LISTS: [(&str, &str); 3] = [
    ("containerStatuses", "containers"),
    ("initContainerStatuses", "initContainers"),
    (EPHEMERAL, "ephemeralContainers"),
];
const EPHEMERAL: &str = "ephemeralContainerStatuses";

fn conditions(list: &Node, errors: &mut Errors) {
    for condition in list.items() {
        let kind = condition.text("type");
        if condition.number("observedGeneration").is_some_and(|generation| generation < 0) {
            errors.invalid(&condition.at("observedGeneration"), GENERATION);
        }
        if ["PodScheduled", "Ready", "Initialized"].contains(&kind) {
            continue;
        }
        for problem in names::qualified_name(kind) {
            errors.invalid_value(&condition.path.child("Type"), &kind.into(), problem);
        }
    }
}

/// A node that the scheduler has in mind for a pod; one that has a node needs none.
fn nominated_node(status: &Node, old: &Node, old_spec: &Node, errors: &mut Errors) {
    let nominated = status.at("nominatedNodeName");
    if nominated.str().is_empty() || nominated.str() == old.text("nominatedNodeName") {
        return;
    }
    names::dns_subdomain(nominated.str()).into_iter().for_each(|problem| errors.invalid(&nominated, problem));
    if !old_spec.text("nodeName").is_empty() {
        errors.forbidden(&nominated, "may not be set on pods that are already bound to a node");
    }
}

/// A container that has ended for good stays ended.
fn transitions(new: &Node, old: &Node, spec: &Node, containers: &'static str, errors: &mut Errors) {
    let is_ephemeral = containers == "ephemeralContainers";
    let restarts_all = |container: Node| {
        container.each("restartPolicyRules").any(|rule| rule.text("action") == "RestartAllContainers")
    };
    let mut all = spec.each("containers").chain(spec.each("initContainers"));
    if !is_ephemeral && all.any(restarts_all) {
        return;
    }
    for (index, status) in old.items().enumerate() {
        let ended = status.at("state").at("terminated");
        let (name, code) = (status.text("name"), ended.number("exitCode").unwrap_or(0));
        let runs_again = new.items().any(|other| other.text("name") == name && !other.at("state").has("terminated"));
        if !ended.exists() || !runs_again {
            continue;
        }
        let own = spec.each(containers).find(|container| container.text("name") == name);
        // The kubelet never starts ephemeral containers again.
        let may = !is_ephemeral && own.is_some_and(|own| restarts(&own, spec.text("restartPolicy"), code));
        if !may {
            let at = Node::new(&Value::Null, new.path.index(index).child("state"));
            errors.forbidden(&at, "may not be transitioned to non-terminated state");
        }
    }
}

/// Whether a container is started again after this end: by one of its rules, by its own policy, or by the pod's.
fn restarts(container: &Node, pod_policy: &str, exit_code: i64) -> bool {
    let by_rule = container.each("restartPolicyRules").any(|rule| {
        let codes = rule.at("exitCodes");
        let listed = codes.each("values").any(|value| value.value.as_i64() == Some(exit_code));
        rule.text("action") == "Restart" && listed == (codes.text("operator") == "In")
    });
    let policy = match container.text("restartPolicy") {
        "" => pod_policy,
        own => own,
    };
    by_rule
        || match policy {
            "Always" => true,
            "OnFailure" => exit_code != 0,
            _ => false,
        }
}

fn claim_statuses(statuses: &Node, claims: &Node, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for status in statuses.items() {
        let (name, claim) = (status.at("name"), status.at("resourceClaimName"));
        if !claims.items().any(|claim| claim.text("name") == name.str()) {
            errors.invalid(&name, "must match the name of an entry in `spec.resourceClaims`");
        }
        if !seen.insert(name.str()) {
            errors.duplicate(&name);
        }
        if claim.exists() {
            names::dns_subdomain(claim.str()).into_iter().for_each(|problem| errors.invalid(&claim, problem));
        }
    }
}

/// The claim that stands for extended resources of the pod's containers.
fn extended_claim_status(status: &Node, spec: &Node, errors: &mut Errors) {
    if !status.exists() {
        return;
    }
    let mappings = status.at("requestMappings");
    if mappings.is_empty() {
        errors.required(&mappings, "at least one request mapping is required");
    }
    let mut seen = BTreeSet::new();
    for mapping in mappings.items() {
        let [container, resource, request] =
            ["containerName", "resourceName", "requestName"].map(|field| mapping.at(field));
        let mut all = spec.each("initContainers").chain(spec.each("containers"));
        match all.find(|one| one.text("name") == container.str()) {
            None => errors.invalid(
                &container,
                "must match the name of an entry in spec.initContainers.name or spec.containers.name",
            ),
            Some(own) if !own.at("resources").at("requests").has(resource.str()) => errors.invalid(
                &resource,
                "must match the extended resource name of an entry in spec.initContainers.resources.requests or \
                 spec.containers.resources.requests",
            ),
            Some(_) => {}
        }
        // Upstream leaves the list out of the path.
        dns_label(errors, &Node::new(request.value, status.path.child("requestName")));
        if !seen.insert([container.str(), resource.str(), request.str()]) {
            [container, resource, request].iter().for_each(|field| errors.duplicate(field));
        }
    }
    let claim = status.at("resourceClaimName");
    match claim.str() {
        "" => errors.required(&claim, ""),
        name => names::dns_subdomain(name).into_iter().for_each(|problem| errors.invalid(&claim, problem)),
    }
}

/// Whom a container runs as.
fn container_user(container: &Node, spec: &Node, errors: &mut Errors) {
    let user = container.at("user").at("linux");
    if !user.exists() {
        return;
    }
    match spec.at("os").text("name") {
        "windows" => errors.forbidden(&user, "cannot be set for a windows pod"),
        _ => {
            identity(errors, &user.at("uid"));
            identity(errors, &user.at("gid"));
            user.each("supplementalGroups").for_each(|group| identity(errors, &group));
        }
    }
}

/// How the devices of a container are.
fn allocated_resources(status: &Node, spec: &Node, containers: &'static str, errors: &mut Errors) {
    let list = status.at("allocatedResourcesStatus");
    if containers == "ephemeralContainers" {
        if !list.is_empty() {
            errors.forbidden(&list, "must not be specified in container status");
        }
        return;
    }
    let own = spec.each(containers).find(|container| container.text("name") == status.text("name"));
    for resource in list.items() {
        let name = resource.at("name");
        if let Some(detail) = own.as_ref().and_then(|own| unknown_resource(own, name.str())) {
            errors.invalid(&name, detail);
        }
        let mut seen = BTreeSet::new();
        for device in resource.each("resources") {
            supported(errors, &device.at("health"), &["Healthy", "Unhealthy", "Unknown"]);
            let message = device.at("message");
            if message.exists() && message.str().is_empty() {
                errors.required(&message, "must be non-empty if specified");
            } else if message.str().len() > HEALTH_MESSAGE_MAX {
                errors.too_long(&message, HEALTH_MESSAGE_MAX);
            }
            if !seen.insert(device.text("resourceID")) {
                let id = device.text("resourceID").into();
                push(errors, Problem::Duplicate, &device.path.child("resourceID"), &id, "");
            }
        }
    }
}

/// Why a container cannot have a resource of that name.
fn unknown_resource(container: &Node, name: &str) -> Option<&'static str> {
    let resources = container.at("resources");
    let Some(claim) = name.strip_prefix("claim:") else {
        let detail = "must match one of the container's resource requests";
        return (!resources.at("requests").has(name)).then_some(detail);
    };
    let detail = "must match one of the container's resource claims in a format 'claim:<claimName>/<request>' or \
                  'claim:<claimName>' if request is empty";
    let known = resources.each("claims").any(|one| match one.text("request") {
        "" => one.text("name") == claim,
        request => claim.strip_prefix(one.text("name")).and_then(|rest| rest.strip_prefix('/')) == Some(request),
    });
    (!known).then_some(detail)
}

fn one_address_per_family(list: &Node, errors: &mut Errors) {
    if list.len() < 2 {
        return;
    }
    let addresses: Vec<&str> = list.items().map(|address| address.text("ip")).collect();
    let parsed: Vec<IpAddr> = addresses.iter().filter_map(|address| address.parse().ok()).collect();
    let both = parsed.iter().any(IpAddr::is_ipv4) && parsed.iter().any(IpAddr::is_ipv6);
    if !both || addresses.len() > 2 {
        let shown: Vec<String> = list.items().map(|address| go_struct(address.value, &[("IP", "ip")])).collect();
        let detail = "may specify no more than one IP for each IP family";
        errors.push(FieldError::new(Problem::Invalid, &list.path, format!("[{}]", shown.join(",")), detail));
    }
}

/// Addresses that were there before stay, however they are written.
fn new_addresses(list: &Node, old: &Node, errors: &mut Errors) {
    for address in list.items() {
        if !old.items().any(|known| known.text("ip") == address.text("ip")) {
            ip(errors, &Node::new(address.at("ip").value, address.path));
        }
    }
}

fn host_addresses(status: &Node, old: &Node, errors: &mut Errors) {
    let list = status.at("hostIPs");
    let Some(first) = list.items().next() else { return };
    if status.text("hostIP") != first.text("ip") {
        errors.invalid(&first.at("ip"), "must be equal to `hostIP`");
    }
    new_addresses(&list, &old.at("hostIPs"), errors);
    one_address_per_family(&list, errors);
}
