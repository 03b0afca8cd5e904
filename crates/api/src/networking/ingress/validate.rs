//! Validation of Ingress.

use machinery::field::{Errors, FieldError, Path, Problem};
use machinery::names;
use machinery::node::Node;
use machinery::object::Meta;

use super::super::reference;
use crate::check;

const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";
const PATH_TYPES: &[&str] = &["Exact", "ImplementationSpecific", "Prefix"];
const FORBIDDEN_SEQUENCES: &[&str] = &["//", "/./", "/../", "%2f", "%2F"];
const FORBIDDEN_ENDS: &[&str] = &["/..", "/."];

/// What a stored object does wrong already may stay so.
#[derive(Default)]
struct Kept {
    secret_names: bool,
    wildcard_rules: bool,
}

impl Kept {
    fn of(old: &Node) -> Kept {
        let spec = old.at("spec");
        let is_bad =
            |tls: Node| !tls.text("secretName").is_empty() && !names::dns_subdomain(tls.text("secretName")).is_empty();
        let is_bad_wildcard = |rule: Node| {
            let mut errors = Errors::default();
            http_rule(&rule, &mut errors);
            rule.text("host").contains('*') && !errors.is_empty()
        };
        Kept { secret_names: spec.each("tls").any(is_bad), wildcard_rules: spec.each("rules").any(is_bad_wildcard) }
    }
}

pub(super) fn validate(ingress: &Node, errors: &mut Errors) {
    validate_spec(&ingress.at("spec"), &Kept::default(), errors);
    class_annotation(ingress, errors);
}

/// The class annotation may contradict the field on objects that once were allowed to.
pub(super) fn validate_update(new: &Node, old: &Node, errors: &mut Errors) {
    validate_spec(&new.at("spec"), &Kept::of(old), errors);
}

pub(super) fn validate_status(new: &Node, old: &Node, errors: &mut Errors) {
    let before: Vec<Node> = points(old).items().collect();
    for ingress in points(new).items() {
        let was_there = before.iter().any(|one| one.text("ip") == ingress.text("ip"));
        if !ingress.text("ip").is_empty() && !was_there {
            check::ip_address(&ingress.at("ip"), errors);
        }
        let host = ingress.at("hostname");
        if !host.str().is_empty() {
            check::rule(&host, names::dns_subdomain(host.str()), errors);
            if check::is_ip(host.str()) {
                errors.invalid(&host, "must be a DNS name, not an IP address");
            }
        }
    }
}

fn points<'a>(ingress: &Node<'a>) -> Node<'a> {
    ingress.at("status").at("loadBalancer").at("ingress")
}

fn class_annotation(ingress: &Node, errors: &mut Errors) {
    let spec = ingress.at("spec");
    let Some(class) = ingress.value.annotation(CLASS_ANNOTATION) else { return };
    if spec.has("ingressClassName") && spec.text("ingressClassName") != class {
        let path = Path::new("annotations").child(CLASS_ANNOTATION);
        errors.invalid_value(&path, &class.into(), "must match `ingressClassName` when both are specified");
    }
}

fn validate_spec(spec: &Node, kept: &Kept, errors: &mut Errors) {
    if spec.at("rules").is_empty() && !spec.has("defaultBackend") {
        let detail = "either `defaultBackend` or `rules` must be specified";
        errors.push(FieldError::new(Problem::Invalid, &spec.path, "null", detail));
    }
    if spec.has("defaultBackend") {
        backend(&spec.at("defaultBackend"), errors);
    }
    for rule in spec.each("rules") {
        validate_rule(&rule, kept, errors);
    }
    for tls in spec.each("tls") {
        for host in tls.each("hosts") {
            check::rule(&host, host_problems(host.str()), errors);
        }
        if !kept.secret_names {
            check::optional_rule(&tls.at("secretName"), names::dns_subdomain, errors);
        }
    }
    if spec.has("ingressClassName") {
        let class = spec.at("ingressClassName");
        check::rule(&class, names::dns_subdomain(class.str()), errors);
    }
}

fn validate_rule(rule: &Node, kept: &Kept, errors: &mut Errors) {
    let host = rule.at("host");
    if !host.str().is_empty() {
        if check::is_ip(host.str()) {
            errors.invalid(&host, "must be a DNS name, not an IP address");
        }
        check::rule(&host, host_problems(host.str()), errors);
    }
    if !(kept.wildcard_rules && host.str().contains('*')) {
        http_rule(rule, errors);
    }
}

fn http_rule(rule: &Node, errors: &mut Errors) {
    if rule.has("http") {
        let paths = rule.at("http").at("paths");
        if paths.is_empty() {
            errors.required(&paths, "");
        }
        for path in paths.items() {
            http_path(&path, errors);
        }
    }
}

fn host_problems(host: &str) -> Vec<String> {
    if host.contains('*') { names::wildcard_dns_subdomain(host) } else { names::dns_subdomain(host) }
}

fn http_path(entry: &Node, errors: &mut Errors) {
    let kind = entry.at("pathType");
    if !kind.exists() {
        errors.required(&kind, "pathType must be specified");
        return;
    }
    // The path may be missing, in which case upstream shows it as an empty text.
    let path = entry.at("path");
    let text = path.str();
    let mut refuse = |detail: String| errors.invalid_value(&path.path, &text.into(), detail);
    match kind.str() {
        "Exact" | "Prefix" => {
            if !text.starts_with('/') {
                refuse("must be an absolute path".into());
            }
            for sequence in FORBIDDEN_SEQUENCES.iter().filter(|sequence| text.contains(**sequence)) {
                refuse(format!("must not contain '{sequence}'"));
            }
            for end in FORBIDDEN_ENDS.iter().filter(|end| text.ends_with(**end)) {
                refuse(format!("cannot end with '{end}'"));
            }
        }
        "ImplementationSpecific" => {
            if !text.is_empty() && !text.starts_with('/') {
                refuse("must be an absolute path".into());
            }
        }
        _ => errors.not_supported(&kind, PATH_TYPES),
    }
    backend(&entry.at("backend"), errors);
}

fn backend(backend: &Node, errors: &mut Errors) {
    match (backend.has("resource"), backend.has("service")) {
        (true, true) => check::invalid_whole(&backend.path, "cannot set both resource and service backends", errors),
        (true, false) => reference::typed(&backend.at("resource"), errors),
        (false, true) => service_backend(backend, errors),
        (false, false) => check::invalid_whole(&backend.path, "resource or service backend is required", errors),
    }
}

fn service_backend(backend: &Node, errors: &mut Errors) {
    let service = backend.at("service");
    check::required_rule(&service.at("name"), names::dns_label, errors);
    let port = service.at("port");
    let (name, number) = (port.at("name"), port.at("number"));
    match (!name.str().is_empty(), number.int().unwrap_or(0)) {
        (true, 0) => check::rule(&name, names::port_name(name.str()), errors),
        (true, _) => check::invalid_whole(&backend.path, "cannot set both port name & port number", errors),
        (false, 0) => errors.required(backend, "port name or number is required"),
        (false, value) => check::rule(&number, names::port_number(value), errors),
    }
}
