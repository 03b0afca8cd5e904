//! What is refused of a Namespace: odd finalizers, and a phase that does not fit.

use machinery::field::{Errors, Path};
use machinery::names;
use machinery::node::Node;
use machinery::object::Meta;
use serde_json::json;

pub(super) fn validate(namespace: &Node, errors: &mut Errors) {
    let finalizers = namespace.at("spec").at("finalizers");
    for item in finalizers.items() {
        finalizer(item.str(), &finalizers.path, errors);
    }
}

/// What is refused of a write to `finalize`.
pub fn validate_finalize(new: &Node, errors: &mut Errors) {
    for item in new.at("spec").each("finalizers") {
        finalizer(item.str(), &item.path, errors);
    }
}

pub(super) fn validate_status(new: &Node, _old: &Node, errors: &mut Errors) {
    let phase = new.at("status").text("phase");
    let (expected, when) = match new.value.is_deleting() {
        true => ("Terminating", "not empty"),
        false => ("Active", "empty"),
    };
    if phase != expected {
        let path = Path::new("status").child("Phase");
        errors.invalid_value(
            &path,
            &json!(phase),
            format!("may only be '{expected}' if `deletionTimestamp` is {when}"),
        );
    }
}

fn finalizer(name: &str, path: &Path, errors: &mut Errors) {
    for sentence in names::qualified_name(name) {
        errors.invalid_value(path, &json!(name), sentence);
    }
    let standard = ["kubernetes", "orphan", "foregroundDeletion"];
    if !name.contains('/') && !standard.contains(&name) {
        let detail = "name is neither a standard finalizer name nor is it fully qualified";
        errors.invalid_value(path, &json!(name), detail);
    }
}
