//! Validation of a write: rules of all objects, of the kind, of a custom kind's definition.

use machinery::field::Errors;
use machinery::kind::Kind;
use machinery::meta;
use machinery::node::Node;
use machinery::object::Meta;
use machinery::status::Status;
use serde_json::Value;

use super::Part;
use crate::resources::Resource;

/// Whose validation counts: that of the stored version, but a group that is only another view of a kind has its own.
fn rules(resource: &Resource) -> &Kind {
    if resource.kind.group == resource.stored.group { &resource.stored } else { &resource.kind }
}

/// Whether to look first if there is any error, and only then where: most objects have none, and the path to every field costs
/// more than the rules about it. Rules that users bring may compute for long: they run once.
fn looks_first(resource: &Resource) -> bool {
    resource.custom.is_none() && !rules(resource).slow_validation
}

pub(super) fn check_new(resource: &Resource, object: &Value) -> Result<(), Status> {
    if looks_first(resource) && problems_of_new(resource, &Node::untold(object)).is_empty() {
        return Ok(());
    }
    refuse(resource, object.name(), &problems_of_new(resource, &Node::root(object)))
}

fn problems_of_new(resource: &Resource, node: &Node) -> Errors {
    let kind = &*resource.stored;
    let mut errors = Errors::default();
    let metadata = node.at("metadata");
    match resource.custom {
        Some(_) => meta::validate_custom_object_meta(&metadata, kind.namespaced(), kind.name_rule, &mut errors),
        None => meta::validate_object_meta(&metadata, kind.namespaced(), kind.name_rule, &mut errors),
    }
    (rules(resource).validate)(node, &mut errors);
    if let Some(custom) = &resource.custom {
        custom.validate(node, &mut errors);
    }
    errors
}

pub(super) fn check_changed(resource: &Resource, new: &Value, old: &Value, part: Part) -> Result<(), Status> {
    if looks_first(resource) && problems_of_changed(resource, &Node::untold(new), &Node::untold(old), part).is_empty() {
        return Ok(());
    }
    let errors = problems_of_changed(resource, &Node::root(new), &Node::root(old), part);
    refuse(resource, new.name(), &errors)
}

fn problems_of_changed(resource: &Resource, node: &Node, old_node: &Node, part: Part) -> Errors {
    let mut errors = Errors::default();
    meta::validate_object_meta_update(&node.at("metadata"), &old_node.at("metadata"), &mut errors);
    // Upstream finds these once for all kinds and once more for the kind: said once, they are two causes.
    errors.0.extend_from_within(..);
    match part {
        Part::Main => (rules(resource).validate_update)(node, old_node, &mut errors),
        Part::Status => (rules(resource).validate_status)(node, old_node, &mut errors),
        Part::Sub(_) => {}
    }
    if let Some(custom) = &resource.custom {
        custom.validate_update(node, old_node, &mut errors);
    }
    errors
}

fn refuse(resource: &Resource, name: &str, errors: &Errors) -> Result<(), Status> {
    if errors.is_empty() { Ok(()) } else { Err(Status::invalid(resource.kind.group, resource.kind.kind, name, errors)) }
}
