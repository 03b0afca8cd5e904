//! The object of a bookmark: a revision, and whether the first objects have all been sent.

use machinery::kind::Kind;
use serde_json::{Value, json};
use store::Revision;

use crate::negotiate::Form;

/// Only metadata. A table has it where it has all others': in its row.
pub(super) fn object(kind: &Kind, form: Form, revision: Revision, initial_end: bool) -> Value {
    let mut meta = json!({"resourceVersion": revision.to_string()});
    if initial_end {
        meta["annotations"] = json!({"k8s.io/initial-events-end": "true"});
    }
    match form {
        Form::Table => {
            let partial = json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": meta});
            json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {"resourceVersion": revision.to_string()},
                "columnDefinitions": null, "rows": [{"cells": [], "object": partial}]})
        }
        Form::Metadata => json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": meta}),
        Form::Object => json!({"kind": kind.kind, "apiVersion": kind.api_version(), "metadata": meta}),
    }
}
