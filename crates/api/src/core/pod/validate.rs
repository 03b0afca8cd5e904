//! What a Pod may not say, when it is made and when its status is written. Changes of its spec are in `update.rs`.

use std::collections::BTreeSet;
use std::net::IpAddr;

use machinery::field::{Errors, Problem};
use machinery::node::Node;
use serde_json::Value;

use crate::common::pod_spec::text::{ip, push};
use crate::common::pod_spec::{self, image_without_padding, profiles, template};
use crate::common::workload;
use machinery::names;

pub(super) fn validate(pod: &Node, errors: &mut Errors) {
    metadata_and_spec(pod, errors);
    let (meta, spec) = (pod.at("metadata"), pod.at("spec"));
    let ephemeral = spec.at("ephemeralContainers");
    if !ephemeral.is_empty() {
        errors.forbidden(&ephemeral, "cannot be set on create");
    }
    if !spec.text("nodeName").is_empty() && !spec.at("schedulingGates").is_empty() {
        errors.forbidden(&spec.at("nodeName"), "cannot be set until all schedulingGates have been cleared");
    }
    profiles::seccomp_annotations(errors, &meta, &spec);
    profiles::apparmor_annotations(errors, &meta, &spec);
}

/// What holds whenever a pod is written.
pub(super) fn metadata_and_spec(pod: &Node, errors: &mut Errors) {
    let (meta, spec) = (pod.at("metadata"), pod.at("spec"));
    template::pod_annotations(errors, &meta.at("annotations"), &spec);
    pod_spec::validate(errors, &spec, meta.text("name"));
    if spec.text("serviceAccountName").is_empty() {
        let sources = spec.each("volumes").flat_map(|volume| volume.at("projected").each("sources"));
        for source in sources.filter(|source| source.has("serviceAccountToken")) {
            let token = source.at("serviceAccountToken");
            errors.forbidden(&token, "must not be specified when serviceAccountName is not set");
        }
    }
    for list in ["containers", "initContainers"] {
        spec.each(list).for_each(|container| image_without_padding(errors, &container));
    }
}

pub(super) fn validate_status(new: &Node, old: &Node, errors: &mut Errors) {
    let (status, old_status, spec) = (new.at("status"), old.at("status"), new.at("spec"));
    conditions(new, errors);
    if spec.text("nodeName") != old.at("spec").text("nodeName") {
        errors.forbidden(&Node::new(&Value::Null, status.path.child("nodeName")), "may not be changed directly");
    }
    let nominated = status.at("nominatedNodeName");
    if !nominated.str().is_empty() && nominated.str() != old_status.text("nominatedNodeName") {
        names::dns_subdomain(nominated.str()).into_iter().for_each(|problem| errors.invalid(&nominated, problem));
    }
    workload::immutable(errors, &status.at("qosClass"), &old_status.at("qosClass"));
    let policy = old.at("spec").text("restartPolicy");
    for (list, policy) in [
        ("containerStatuses", policy),
        ("initContainerStatuses", policy),
        // The kubelet never starts these again.
        ("ephemeralContainerStatuses", "Never"),
    ] {
        transitions(&status.at(list), &old_status.at(list), policy, &old.at("spec"), errors);
    }
    claim_statuses(&status.at("resourceClaimStatuses"), &spec.at("resourceClaims"), errors);
    let addresses = status.at("podIPs");
    addresses.items().for_each(|address| ip(errors, &Node::new(address.at("ip").value, address.path)));
    one_address_per_family(&addresses, errors);
    host_addresses(&status, errors);
}

/// Upstream reports these under metadata.
fn conditions(pod: &Node, errors: &mut Errors) {
    let path = pod.path.child("metadata").child("conditions");
    for (index, condition) in pod.at("status").each("conditions").enumerate() {
        let kind = condition.text("type");
        if ["PodScheduled", "Ready", "Initialized"].contains(&kind) {
            continue;
        }
        for problem in names::qualified_name(kind) {
            errors.invalid_value(&path.index(index).child("Type"), &kind.into(), problem);
        }
    }
}

/// A container that has ended for good stays ended.
fn transitions(new: &Node, old: &Node, policy: &str, spec: &Node, errors: &mut Errors) {
    if policy == "Always" {
        return;
    }
    for (index, status) in old.items().enumerate() {
        let ended = status.at("state").at("terminated");
        let failed = ended.number("exitCode").unwrap_or(0) != 0;
        let mut containers = spec.each("containers").chain(spec.each("initContainers"));
        let own = containers.find(|container| container.text("name") == status.text("name"));
        let restarts = own.is_some_and(|own| restarts_itself(&own, ended.number("exitCode").unwrap_or(0)));
        if !ended.exists() || (failed && policy == "OnFailure") || restarts {
            continue;
        }
        let runs_again =
            new.items().any(|other| other.text("name") == status.text("name") && !other.at("state").has("terminated"));
        if runs_again {
            let at = Node::new(&Value::Null, new.path.index(index).child("state"));
            errors.forbidden(&at, "may not be transitioned to non-terminated state");
        }
    }
}

/// Whether a container's own policy or one of its rules starts it again after this end, whatever the pod's policy is.
fn restarts_itself(container: &Node, exit_code: i64) -> bool {
    let by_rule = container.each("restartPolicyRules").any(|rule| {
        let codes = rule.at("exitCodes");
        let listed = codes.each("values").any(|value| value.value.as_i64() == Some(exit_code));
        rule.text("action") == "Restart" && listed == (codes.text("operator") == "In")
    });
    by_rule
        || match container.text("restartPolicy") {
            "Always" => true,
            "OnFailure" => exit_code != 0,
            _ => false,
        }
}

fn claim_statuses(statuses: &Node, claims: &Node, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for status in statuses.items() {
        let name = status.at("name");
        if !claims.items().any(|claim| claim.text("name") == name.str()) {
            errors.invalid(&name, "must match the name of an entry in `spec.resourceClaims`");
        }
        if !seen.insert(name.str()) {
            errors.duplicate(&name);
        }
    }
}

fn one_address_per_family(list: &Node, errors: &mut Errors) {
    if list.len() < 2 {
        return;
    }
    let addresses: Vec<&str> = list.items().map(|address| address.text("ip")).collect();
    let parsed: Vec<IpAddr> = addresses.iter().filter_map(|address| address.parse().ok()).collect();
    let both = parsed.iter().any(IpAddr::is_ipv4) && parsed.iter().any(IpAddr::is_ipv6);
    if !both || addresses.len() > 2 {
        errors.invalid(list, "may specify no more than one IP for each IP family");
    }
    let mut seen = BTreeSet::new();
    for address in list.items() {
        if !seen.insert(address.text("ip")) {
            push(errors, Problem::Duplicate, &address.path, address.value, "");
        }
    }
}

fn host_addresses(status: &Node, errors: &mut Errors) {
    let list = status.at("hostIPs");
    let Some(first) = list.items().next() else { return };
    if status.text("hostIP") != first.text("ip") {
        errors.invalid(&first.at("ip"), "must be equal to `hostIP`");
    }
    list.items().for_each(|address| ip(errors, &Node::new(address.at("ip").value, address.path)));
    one_address_per_family(&list, errors);
}
