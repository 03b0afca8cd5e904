//! Containers, init containers and ephemeral containers.

use std::collections::BTreeSet;

use machinery::field::{Errors, Path, Problem};
use machinery::names;
use machinery::node::Node;
use serde_json::Value;

use super::text::{dns_label, names_in, one_of, port_number, push, supported};
use super::{PodContext, env, mounts, probe, resources, security};

pub(super) fn containers(errors: &mut Errors, spec: &Node, cx: &PodContext) {
    let list = spec.at("containers");
    if list.is_empty() {
        return errors.required(&list, "");
    }
    let mut seen = BTreeSet::new();
    for container in list.items() {
        common(errors, &container, cx);
        if !seen.insert(container.text("name")) {
            duplicate_name(errors, &container);
        }
        probe::probes_and_hooks(errors, &container, cx.grace, cx.os);
        restart_rules(errors, &container);
    }
    let mut ports = BTreeSet::new();
    for container in list.items() {
        host_port_conflicts(errors, &container, &container.path, &mut ports);
    }
}

pub(super) fn init_containers(errors: &mut Errors, spec: &Node, cx: &PodContext) {
    let list = spec.at("initContainers");
    let mut seen = names_in(&spec.at("containers"));
    for container in list.items() {
        let sidecar = container.text("restartPolicy") == "Always";
        common(errors, &container, cx);
        restart_rules(errors, &container);
        let name = container.text("name");
        if seen.contains(name) {
            duplicate_name(errors, &container);
        } else if !name.is_empty() {
            seen.insert(name.into());
        }
        // Init containers run one by one, so only ports of the same one conflict. Upstream names the first index.
        host_port_conflicts(errors, &container, &list.path.index(0), &mut BTreeSet::new());
        if sidecar {
            probe::probes_and_hooks(errors, &container, cx.grace, cx.os);
        } else {
            for field in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
                if container.has(field) {
                    errors.forbidden(
                        &container.at(field),
                        "may not be set for init containers without restartPolicy=Always",
                    );
                }
            }
        }
        for policy in container.each("resizePolicy").filter(|_| !sidecar) {
            let restart = policy.at("restartPolicy");
            if restart.str() == "RestartContainer" {
                errors.invalid(&restart, "must not be set to 'RestartContainer' for non-sidecar initContainers");
            }
        }
    }
}

pub(super) fn ephemeral_containers(errors: &mut Errors, spec: &Node, cx: &PodContext) {
    const FORBIDDEN: &[&str] = &[
        "ports",
        "resources",
        "resizePolicy",
        "restartPolicy",
        "restartPolicyRules",
        "livenessProbe",
        "readinessProbe",
        "startupProbe",
        "lifecycle",
    ];
    let refusal = "cannot be set for an Ephemeral Container";
    let mut others = names_in(&spec.at("containers"));
    others.append(&mut names_in(&spec.at("initContainers")));
    let mut seen = others.clone();
    for container in spec.each("ephemeralContainers") {
        common(errors, &container, cx);
        image_without_padding(errors, &container);
        if !seen.insert(container.text("name").into()) {
            duplicate_name(errors, &container);
        }
        let target = container.at("targetContainerName");
        if !target.str().is_empty() && !others.contains(target.str()) {
            errors.not_found(&target);
        }
        for field in FORBIDDEN {
            let node = container.at(field);
            if node.exists() && (!node.is_empty() || node.value.is_string()) {
                errors.forbidden(&node, refusal);
            }
        }
        for mount in container.each("volumeMounts") {
            for field in ["subPath", "subPathExpr"] {
                if !mount.text(field).is_empty() {
                    errors.forbidden(&mount.at(field), refusal);
                }
            }
        }
    }
}

/// What a Pod refuses and a template still lets through.
pub(crate) fn image_without_padding(errors: &mut Errors, container: &Node) {
    let image = container.at("image");
    if image.str().trim().len() != image.str().len() {
        errors.invalid(&image, "must not have leading or trailing whitespace");
    }
}

fn common(errors: &mut Errors, container: &Node, cx: &PodContext) {
    let name = container.at("name");
    match name.str() {
        "" => errors.required(&name, ""),
        _ => dns_label(errors, &name),
    }
    if container.text("image").is_empty() {
        errors.required(&container.at("image"), "");
    }
    one_of(errors, &container.at("terminationMessagePolicy"), &["File", "FallbackToLogsOnError"]);
    ports(errors, &container.at("ports"));
    env::env(errors, &container.at("env"));
    env::env_from(errors, &container.at("envFrom"));
    mounts::mounts(errors, container, &cx.volumes);
    mounts::devices(errors, container, &cx.volumes);
    one_of(errors, &container.at("imagePullPolicy"), &["Always", "IfNotPresent", "Never"]);
    resources::container_resources(errors, &container.at("resources"), &cx.claims);
    resources::resize_policy(errors, &container.at("resizePolicy"), cx.restart_policy);
    security::container_context(errors, &container.at("securityContext"), cx.host_users);
}

fn ports(errors: &mut Errors, list: &Node) {
    let mut seen = BTreeSet::new();
    for port in list.items() {
        let name = port.at("name");
        if !name.str().is_empty() {
            let problems = names::port_name(name.str());
            if problems.is_empty() && !seen.insert(name.str()) {
                errors.duplicate(&name);
            }
            problems.into_iter().for_each(|problem| errors.invalid(&name, problem));
        }
        match port.number("containerPort").unwrap_or(0) {
            0 => errors.required(&port.at("containerPort"), ""),
            _ => port_number(errors, &port.at("containerPort")),
        }
        if port.number("hostPort").unwrap_or(0) != 0 {
            port_number(errors, &port.at("hostPort"));
        }
        one_of(errors, &port.at("protocol"), &["SCTP", "TCP", "UDP"]);
    }
}

fn host_port_conflicts(errors: &mut Errors, container: &Node, path: &Path, taken: &mut BTreeSet<String>) {
    for (index, port) in container.each("ports").enumerate() {
        let number = port.number("hostPort").unwrap_or(0);
        if number == 0 {
            continue;
        }
        let place = format!("{}/{}/{number}", port.text("protocol"), port.text("hostIP"));
        let path = path.child("ports").index(index).child("hostPort");
        if taken.contains(&place) {
            push(errors, Problem::Duplicate, &path, &Value::from(place), "")
        } else {
            _ = taken.insert(place)
        }
    }
}

/// A container's own restart policy and the rules that go with it.
fn restart_rules(errors: &mut Errors, container: &Node) {
    const POLICIES: &[&str] = &["Always", "Never", "OnFailure"];
    const RULES_MAX: usize = 20;
    const CODES_MAX: usize = 255;
    let (policy, rules) = (container.at("restartPolicy"), container.at("restartPolicyRules"));
    if policy.exists() && !POLICIES.contains(&policy.str()) {
        errors.not_supported(&policy, POLICIES);
    }
    if !policy.exists() && !rules.is_empty() {
        errors.required(&policy, "must specify restartPolicy when restart rules are used");
    }
    if rules.len() > RULES_MAX {
        errors.too_many(&rules, rules.len(), RULES_MAX);
    }
    for rule in rules.items() {
        supported(errors, &rule.at("action"), &["Restart", "RestartAllContainers"]);
        let codes = rule.at("exitCodes");
        if !codes.exists() {
            errors.required(&codes, "must be specified");
            continue;
        }
        supported(errors, &codes.at("operator"), &["In", "NotIn"]);
        let values = codes.at("values");
        if values.len() > CODES_MAX {
            errors.too_many(&values, values.len(), CODES_MAX);
        }
    }
}

fn duplicate_name(errors: &mut Errors, container: &Node) {
    push(errors, Problem::Duplicate, &container.path.child("name"), &container.text("name").into(), "");
}
