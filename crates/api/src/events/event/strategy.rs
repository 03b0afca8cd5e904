//! The rules of events in their new form. They are those of the stored form, and more; messages name stored fields,
//! as upstream's do.

use machinery::field::Errors;
use machinery::kind::Selectable;
use machinery::node::Node;
use machinery::object::{child_mut, set_default};
use serde_json::Value;

use super::convert::stored;
use crate::core::event::validate as core;
use crate::core::print::text;

pub(super) fn defaults(event: &mut Value) {
    child_mut(event, "regarding");
    child_mut(event, "deprecatedSource");
    set_default(event, "reportingController", "");
    set_default(event, "reportingInstance", "");
}

pub(super) fn validate(event: &Node, errors: &mut Errors) {
    let event = stored(event.value);
    core::validate_reported_by("reportingController", &Node::root(&event), errors);
    core::validate_strict(&Node::root(&event), errors);
}

pub(super) fn validate_update(new: &Node, old: &Node, errors: &mut Errors) {
    let (new, old) = (stored(new.value), stored(old.value));
    core::validate_reported_by("reportingController", &Node::root(&new), errors);
    core::validate_strict_update(&Node::root(&new), &Node::root(&old), errors);
}

macro_rules! regarding {
    ($field:literal) => {
        Selectable {
            field: concat!("regarding.", $field),
            read: |event| text(&stored(event), concat!("/involvedObject/", $field)).into(),
        }
    };
}

pub(super) const SELECTABLE: &[Selectable] = &[
    regarding!("kind"),
    regarding!("namespace"),
    regarding!("name"),
    regarding!("uid"),
    regarding!("apiVersion"),
    regarding!("resourceVersion"),
    regarding!("fieldPath"),
    Selectable { field: "reason", read: |event| text(event, "/reason").into() },
    Selectable { field: "reportingController", read: |event| text(&stored(event), "/reportingComponent").into() },
    Selectable { field: "type", read: |event| text(event, "/type").into() },
];
