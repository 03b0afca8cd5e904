//! Validation of APIService.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use machinery::field::{Errors, FieldError, Problem};
use machinery::node::Node;
use serde_json::Value;

use crate::check;
use machinery::names;

const GROUP_PRIORITY_MAX: i64 = 20_000;
const VERSION_PRIORITY_MAX: i64 = 1_000;

pub(super) fn validate(service: &Node, errors: &mut Errors) {
    let spec = service.at("spec");
    let (group, version) = (spec.at("group"), spec.at("version"));
    let name = service.at("metadata").at("name");
    let wanted = format!("{}.{}", version.str(), group.str());
    if name.str() != wanted {
        errors.invalid(&name, format!("must be `spec.version+\".\"+spec.group`: {wanted:?}"));
    }
    if group.str().is_empty() && version.str() != "v1" {
        errors.required(&group, "only v1 may have an empty group and it better be legacy kube");
    }
    check::optional_rule(&group, names::dns_subdomain, errors);
    for problem in names::dns1035_label(version.str()) {
        errors.invalid_value(&version.path, &version.str().into(), problem);
    }
    for (field, max) in [("groupPriorityMinimum", GROUP_PRIORITY_MAX), ("versionPriority", VERSION_PRIORITY_MAX)] {
        let priority = spec.at(field);
        let number = priority.int().unwrap_or(0);
        if !(1..=max).contains(&number) {
            let detail = format!("must be positive and less than {max}");
            errors.invalid_value(&priority.path, &number.into(), detail);
        }
    }
    if spec.has("service") { remote(&spec, errors) } else { local(&spec, errors) }
}

/// Local groups are served by this server itself, so there is nobody to trust or not.
fn local(spec: &Node, errors: &mut Errors) {
    let bundle = spec.at("caBundle");
    if !bundle.str().is_empty() {
        let bytes = STANDARD.decode(bundle.str()).map_or(0, |bytes| bytes.len());
        let detail = "local APIServices may not have a caBundle";
        errors.push(FieldError::new(Problem::Invalid, &bundle.path, format!("\"{bytes} bytes\""), detail));
    }
    if spec.flag("insecureSkipTLSVerify") {
        let at = spec.at("insecureSkipTLSVerify");
        errors.invalid(&at, "local APIServices may not have insecureSkipTLSVerify");
    }
}

fn remote(spec: &Node, errors: &mut Errors) {
    let service = spec.at("service");
    check::required(&service.at("namespace"), "", errors);
    check::required(&service.at("name"), "", errors);
    let port = service.at("port");
    for problem in names::port_number(port.int().unwrap_or(0)) {
        let number = Value::from(port.int().unwrap_or(0));
        errors.invalid_value(&port.path, &number, format!("port is not valid: {problem}"));
    }
    if spec.flag("insecureSkipTLSVerify") && !spec.text("caBundle").is_empty() {
        errors.invalid(&spec.at("insecureSkipTLSVerify"), "may not be true if caBundle is present");
    }
}
