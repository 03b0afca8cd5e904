//! Validation of CSINode: the drivers that kubelets register.

use machinery::field::{Errors, FieldError, Problem};
use machinery::names;
use machinery::node::Node;
use serde_json::json;

use super::super::driver_name;
use crate::core::check;

const NODE_ID_MAX: usize = 256;

pub(super) fn validate(node: &Node, errors: &mut Errors) {
    let mut names = Vec::new();
    for driver in node.at("spec").each("drivers") {
        let (name, id) = (driver.at("name"), driver.at("nodeID"));
        driver_name(&name, errors);
        check::required_text(&id, errors);
        if id.str().len() > NODE_ID_MAX {
            check::invalid_text(&id, format!("must be {NODE_ID_MAX} characters or less"), errors);
        }
        check::non_negative(&driver.at("allocatable").at("count"), errors);
        if names.contains(&name.str()) {
            errors.duplicate(&name);
        }
        names.push(name.str());
        topology_keys(&driver, errors);
    }
}

/// What a driver said of itself stays, apart from how many volumes it can take.
pub(super) fn validate_update(new: &Node, old: &Node, errors: &mut Errors) {
    const FIXED: [&str; 2] = ["nodeID", "topologyKeys"];
    validate(new, errors);
    let drivers = new.at("spec").at("drivers");
    for before in old.at("spec").each("drivers") {
        for after in drivers.items().filter(|after| after.text("name") == before.text("name")) {
            if FIXED.iter().any(|field| after.at(field).value != before.at(field).value) {
                errors.push(FieldError::new(Problem::Invalid, &drivers.path, internal(&after), check::IMMUTABLE));
            }
        }
    }
}

/// A driver as upstream's message shows it: the internal struct, in Go's names and order.
fn internal(driver: &Node) -> String {
    format!(
        r#"{{"Name":{},"NodeID":{},"TopologyKeys":{},"Allocatable":null}}"#,
        json!(driver.text("name")),
        json!(driver.text("nodeID")),
        driver.at("topologyKeys").value
    )
}

fn topology_keys(driver: &Node, errors: &mut Errors) {
    let mut keys = Vec::new();
    for key in driver.each("topologyKeys") {
        if key.str().is_empty() {
            errors.required(driver, "");
        }
        if keys.contains(&key.str()) {
            errors.push(FieldError::new(Problem::Duplicate, &driver.path, json!(key.str()).to_string(), ""));
        }
        keys.push(key.str());
        for sentence in names::qualified_name(key.str()) {
            errors.invalid_value(&driver.path, key.value, sentence);
        }
    }
}
