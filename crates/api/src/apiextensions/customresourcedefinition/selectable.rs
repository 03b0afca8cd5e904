//! Validation of `selectableFields` of CustomResourceDefinitions: of each version, or of all where they are the same.

use machinery::field::Errors;
use machinery::node::Node;

use super::list_types::field_at;
use super::validate::{Part, common_part};
use crate::check;

const SELECTABLE_MAX: usize = 8;

/// They need the schema besides, so they have no rule here.
pub(super) const PART: Part = Part { field: "selectableFields", common: "selectableFields", rule: |_, _, _| {} };

pub(super) fn of_version(version: &Node, before: Option<&Node>, errors: &mut Errors) {
    let may_stay = before.is_some_and(|before| may_stay(version, before));
    selectable_fields(&version.at("selectableFields"), &version.at("schema"), may_stay, errors);
}

/// Where all versions have the same ones, they stand at the spec, and so must the schema.
pub(super) fn common(spec: &Node, old: Option<&Node>, common: &[Option<Node>], errors: &mut Errors) {
    let Some(fields) = common_part(spec, &PART).filter(|fields| !fields.is_empty()) else { return };
    let schema = common.first().and_then(Option::as_ref).filter(|schema| schema.exists());
    let Some(schema) = schema else {
        return check::invalid_whole(&fields.path, "may only be set when validations.schema is included", errors);
    };
    let before = old.and_then(|old| common_part(old, &PART));
    let may_stay =
        before.is_some_and(|before| before.len() > SELECTABLE_MAX && check::same(before.value, fields.value));
    selectable_fields(&fields, schema, may_stay, errors);
}

/// Whether there were too many selectable fields before, and the same.
fn may_stay(version: &Node, before: &Node) -> bool {
    let (now, before) = (version.at("selectableFields"), before.at("selectableFields"));
    before.len() > SELECTABLE_MAX && check::same(now.value, before.value)
}

/// Fields that selectors may name: plain ones, outside of metadata, not too many.
fn selectable_fields(list: &Node, validation: &Node, may_stay: bool, errors: &mut Errors) {
    let schema = validation.at("openAPIV3Schema");
    let mut seen: Vec<String> = Vec::new();
    for path in list.items().map(|field| field.at("jsonPath")) {
        if path.str().is_empty() {
            errors.required(&path, "");
            continue;
        }
        let (found, at) = match field_at(&schema, path.str(), false) {
            Ok(found) => found,
            Err(why) => {
                errors.invalid(&path, format!("is an invalid path: {why}"));
                continue;
            }
        };
        let found = found.to_string();
        if found.split('.').next() == Some("metadata") {
            errors.invalid(&path, "must not point to fields in metadata");
        }
        if !matches!(at.text("type"), "string" | "boolean" | "integer") {
            let detail = "must point to a field of type string, boolean or integer. Enum string fields and strings with \
                          formats are allowed.";
            errors.invalid(&path, detail);
        }
        if seen.contains(&found) { errors.duplicate(&path) } else { seen.push(found) }
    }
    if seen.len() > SELECTABLE_MAX && !may_stay {
        errors.too_many(list, seen.len(), SELECTABLE_MAX);
    }
}
