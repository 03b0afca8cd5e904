//! Matches namespace and object selectors of webhooks and policies.

use machinery::selector::{LabelSelector, SelectorError};
use machinery::status::{GroupResource, Status};
use serde_json::Value;

use super::Seen;

#[derive(Debug)]
pub struct Selectors {
    namespace: Result<LabelSelector, SelectorError>,
    object: Result<LabelSelector, SelectorError>,
}

impl Selectors {
    /// From a webhook, or from the match resources of a policy. A missing selector selects everything.
    pub fn of(rules: &Value) -> Selectors {
        let read = |field: &str| match &rules[field] {
            Value::Null => Ok(LabelSelector::default()),
            selector => LabelSelector::from_object(selector),
        };
        Selectors { namespace: read("namespaceSelector"), object: read("objectSelector") }
    }

    /// Either the new or the old object must have the labels.
    pub(crate) fn match_object(&self, object: Option<&Value>, old: Option<&Value>) -> Result<bool, Status> {
        let selector = self.object.as_ref().map_err(|why| Status::internal(why.to_string()))?;
        Ok(selector.matches_everything() || [object, old].into_iter().flatten().any(|it| selector.matches_object(it)))
    }

    /// What belongs to no namespace is never left out; a namespace goes by its own labels.
    pub(crate) fn match_namespace(&self, seen: &Seen, object: Option<&Value>) -> Result<bool, Status> {
        let is_namespace = seen.request.is_for("", "namespaces");
        if seen.namespace.is_empty() && !is_namespace {
            return Ok(true);
        }
        let selector = self.namespace.as_ref().map_err(|why| Status::internal(why.to_string()))?;
        if selector.matches_everything() {
            return Ok(true);
        }
        if seen.request.is("", "namespaces") && matches!(seen.operation, "CREATE" | "UPDATE") {
            return Ok(object.is_some_and(|object| selector.matches_object(object)));
        }
        match seen.request.app.views.one("namespaces", "", &seen.namespace) {
            Some(namespace) => Ok(selector.matches_object(&namespace)),
            None => Err(Status::not_found(GroupResource { group: "", resource: "namespaces" }, &seen.namespace)),
        }
    }
}
