//! The pod spec: what an omitted field becomes and what is refused, in a Pod and in every template of one.

use std::collections::{BTreeMap, BTreeSet};

use machinery::field::Errors;
use machinery::node::Node;

use self::text::{dns_label, dns_subdomain, one_of};
use machinery::meta::validate_labels;

mod container;
pub mod defaults;
mod env;
pub mod gated;
mod mounts;
mod network;
mod os;
mod probe;
pub mod profiles;
mod projected;
pub mod resources;
pub mod scheduling;
mod security;
pub mod template;
pub mod text;
pub mod volume_sources;
mod volumes;
pub mod warnings;

pub(crate) use container::image_without_padding;

/// Volumes by name, as mounts look them up.
type Volumes<'a> = BTreeMap<&'a str, Node<'a>>;

/// What the rules of containers need to know of their pod.
struct PodContext<'a> {
    volumes: Volumes<'a>,
    claims: BTreeSet<String>,
    grace: Option<i64>,
    os: &'a str,
    restart_policy: &'a str,
    host_users: bool,
}

/// The rules of a pod spec. `pod_name` is empty in a template, where it is not known yet.
pub fn validate(errors: &mut Errors, spec: &Node, pod_name: &str) {
    let grace = spec.at("terminationGracePeriodSeconds");
    if !grace.exists() {
        errors.required(&grace, "");
    }
    let claims = spec.at("resourceClaims");
    let cx = PodContext {
        volumes: volumes::volumes(errors, &spec.at("volumes"), pod_name),
        claims: claims.items().map(|claim| claim.text("name").to_string()).filter(|name| !name.is_empty()).collect(),
        grace: grace.int(),
        os: spec.value.pointer("/os/name").and_then(serde_json::Value::as_str).unwrap_or(""),
        restart_policy: spec.text("restartPolicy"),
        host_users: spec.at("hostUsers").bool().unwrap_or(true),
    };
    volumes::resource_claims(errors, &claims);
    container::containers(errors, spec, &cx);
    container::init_containers(errors, spec, &cx);
    container::ephemeral_containers(errors, spec, &cx);
    resources::pod_resources(errors, spec);
    network::host_network(errors, spec, !pod_name.is_empty());
    one_of(errors, &spec.at("restartPolicy"), &["Always", "OnFailure", "Never"]);
    one_of(errors, &spec.at("dnsPolicy"), &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"]);
    validate_labels(&spec.at("nodeSelector"), errors);
    security::pod_context(errors, spec);
    scheduling::affinity(errors, &spec.at("affinity"));
    network::dns_config(errors, spec);
    scheduling::gates(errors, spec);
    scheduling::spread(errors, &spec.at("topologySpreadConstraints"));
    os::host_process(errors, spec);
    os::user_namespace(errors, spec);
    hostname_override(errors, spec);
    names_and_numbers(errors, spec);
    env::file_volumes(errors, spec);
}

fn names_and_numbers(errors: &mut Errors, spec: &Node) {
    for field in ["serviceAccountName", "nodeName"] {
        if !spec.text(field).is_empty() {
            dns_subdomain(errors, &spec.at(field));
        }
    }
    let deadline = spec.at("activeDeadlineSeconds");
    if deadline.int().is_some_and(|seconds| !(1..=i64::from(i32::MAX)).contains(&seconds)) {
        errors.invalid(&deadline, "must be between 1 and 2147483647, inclusive");
    }
    for field in ["hostname", "subdomain"] {
        if !spec.text(field).is_empty() {
            dns_label(errors, &spec.at(field));
        }
    }
    scheduling::tolerations(errors, &spec.at("tolerations"));
    network::host_aliases(errors, &spec.at("hostAliases"));
    if !spec.text("priorityClassName").is_empty() {
        dns_subdomain(errors, &spec.at("priorityClassName"));
    }
    if spec.has("runtimeClassName") {
        dns_subdomain(errors, &spec.at("runtimeClassName"));
    }
    if spec.has("preemptionPolicy") {
        one_of(errors, &spec.at("preemptionPolicy"), &["PreemptLowerPriority", "Never"]);
    }
    if spec.has("overhead") {
        resources::overhead(errors, &spec.at("overhead"));
    }
    os::os(errors, spec);
}

/// A full host name of the pod's own choice, which Linux bounds at 64 bytes.
fn hostname_override(errors: &mut Errors, spec: &Node) {
    const BYTES_MAX: usize = 64;
    let name = spec.at("hostnameOverride");
    if !name.exists() {
        return;
    }
    for field in ["setHostnameAsFQDN", "hostNetwork"].into_iter().filter(|field| spec.flag(field)) {
        errors.forbidden(&name, format!("may not be specified when {field} is true"));
    }
    if name.str().len() > BYTES_MAX {
        errors.too_long(&name, BYTES_MAX);
    }
    dns_subdomain(errors, &name);
}

#[cfg(test)]
mod tests;
