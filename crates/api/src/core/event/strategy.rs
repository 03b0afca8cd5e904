//! What events always show, and by which fields they may be selected.

use machinery::kind::Selectable;
use machinery::object::{child_mut, set_default};
use serde_json::Value;

use super::print::first_of;
use crate::core::print::text;

pub(super) fn defaults(event: &mut Value) {
    child_mut(event, "source");
    child_mut(event, "involvedObject");
    set_default(event, "reportingComponent", "");
    set_default(event, "reportingInstance", "");
}

pub(super) const SELECTABLE: &[Selectable] = &[
    Selectable { field: "involvedObject.kind", read: |event| text(event, "/involvedObject/kind").into() },
    Selectable { field: "involvedObject.namespace", read: |event| text(event, "/involvedObject/namespace").into() },
    Selectable { field: "involvedObject.name", read: |event| text(event, "/involvedObject/name").into() },
    Selectable { field: "involvedObject.uid", read: |event| text(event, "/involvedObject/uid").into() },
    Selectable { field: "involvedObject.apiVersion", read: |event| text(event, "/involvedObject/apiVersion").into() },
    Selectable {
        field: "involvedObject.resourceVersion",
        read: |event| text(event, "/involvedObject/resourceVersion").into(),
    },
    Selectable { field: "involvedObject.fieldPath", read: |event| text(event, "/involvedObject/fieldPath").into() },
    Selectable { field: "reason", read: |event| text(event, "/reason").into() },
    Selectable { field: "reportingComponent", read: |event| text(event, "/reportingComponent").into() },
    Selectable { field: "source", read: |event| first_of(event, "/source/component", "/reportingComponent").into() },
    Selectable { field: "type", read: |event| text(event, "/type").into() },
];
