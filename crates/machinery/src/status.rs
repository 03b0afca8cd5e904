//! The error a user sees: `Status`, with the codes, reasons and sentences Kubernetes already has.

use serde_json::{Value, json};

use crate::field::Errors;

#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct Status {
    pub code: u16,
    pub reason: &'static str,
    pub message: String,
    pub details: Option<Details>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Details {
    pub name: String,
    pub group: String,
    pub kind: String,
    pub uid: String,
    pub causes: Vec<Cause>,
    pub retry_after_seconds: Option<u32>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Cause {
    pub reason: String,
    pub message: String,
    pub field: String,
}

/// `group` and plural name, as they stand in messages: `deployments.apps`, `pods`.
#[derive(Clone, Copy, Debug)]
pub struct GroupResource<'a> {
    pub group: &'a str,
    pub resource: &'a str,
}

impl std::fmt::Display for GroupResource<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.resource)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        Ok(())
    }
}

impl GroupResource<'_> {
    fn details(&self, name: &str) -> Option<Details> {
        Some(Details { name: name.into(), group: self.group.into(), kind: self.resource.into(), ..Details::default() })
    }
}

impl Status {
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Status {
        Status { code, reason, message: message.into(), details: None }
    }

    /// Upstream answers some errors with `"details": {}` where nothing is known of the object.
    pub fn with_empty_details(mut self) -> Status {
        self.details = Some(Details::default());
        self
    }

    pub fn not_found(resource: GroupResource, name: &str) -> Status {
        let message = format!("{resource} \"{name}\" not found");
        Status { details: resource.details(name), ..Status::new(404, "NotFound", message) }
    }

    /// The path names no resource that is served.
    pub fn no_such_resource() -> Status {
        Status::new(404, "NotFound", "the server could not find the requested resource").with_empty_details()
    }

    pub fn already_exists(resource: GroupResource, name: &str) -> Status {
        let message = format!("{resource} \"{name}\" already exists");
        Status { details: resource.details(name), ..Status::new(409, "AlreadyExists", message) }
    }

    pub fn conflict(resource: GroupResource, name: &str, why: &str) -> Status {
        let message = format!("Operation cannot be fulfilled on {resource} \"{name}\": {why}");
        Status { details: resource.details(name), ..Status::new(409, "Conflict", message) }
    }

    /// The sentence of a lost optimistic lock, which clients look for.
    pub fn modified(resource: GroupResource, name: &str) -> Status {
        Status::conflict(
            resource,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    pub fn forbidden(resource: GroupResource, name: &str, why: &str) -> Status {
        let message = match name {
            "" => format!("{resource} is forbidden: {why}"),
            _ => format!("{resource} \"{name}\" is forbidden: {why}"),
        };
        Status { details: resource.details(name), ..Status::new(403, "Forbidden", message) }
    }

    /// One field error stands alone in the message; several stand in brackets.
    pub fn invalid(group: &str, kind: &str, name: &str, errors: &Errors) -> Status {
        let group_kind = if group.is_empty() { kind.to_string() } else { format!("{kind}.{group}") };
        let details = Details {
            name: name.into(),
            group: group.into(),
            kind: kind.into(),
            causes: errors.causes(),
            ..Details::default()
        };
        let message = format!("{group_kind} \"{name}\" is invalid: {}", errors.summary());
        Status { details: Some(details), ..Status::new(422, "Invalid", message) }
    }

    pub fn bad_request(message: impl Into<String>) -> Status {
        Status::new(400, "BadRequest", message)
    }

    pub fn unauthorized() -> Status {
        Status::new(401, "Unauthorized", "Unauthorized")
    }

    pub fn internal(message: impl Into<String>) -> Status {
        let message = message.into();
        let cause = Cause { reason: String::new(), message: message.clone(), field: String::new() };
        Status {
            details: Some(Details { causes: vec![cause], ..Details::default() }),
            ..Status::new(500, "InternalError", format!("Internal error occurred: {message}"))
        }
    }

    pub fn expired(message: impl Into<String>) -> Status {
        Status::new(410, "Expired", message)
    }

    pub fn method_not_allowed() -> Status {
        Status::new(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
            .with_empty_details()
    }

    pub fn too_many_requests(message: impl Into<String>, retry_after_seconds: u32) -> Status {
        let details = Details { retry_after_seconds: Some(retry_after_seconds), ..Details::default() };
        Status { details: Some(details), ..Status::new(429, "TooManyRequests", message) }
    }

    pub fn too_large(message: impl Into<String>) -> Status {
        Status::new(413, "RequestEntityTooLarge", message)
    }

    pub fn timeout(message: impl Into<String>) -> Status {
        Status::new(504, "Timeout", message)
    }

    pub fn unavailable(message: impl Into<String>) -> Status {
        Status::new(503, "ServiceUnavailable", message)
    }

    pub fn to_value(&self) -> Value {
        let mut out = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.code,
        });
        if let Some(details) = &self.details {
            out["details"] = details.to_value();
        }
        // Errors that upstream has no reason for are sent without one.
        if self.reason.is_empty()
            && let Some(members) = out.as_object_mut()
        {
            members.remove("reason");
        }
        out
    }
}

impl Details {
    pub fn to_value(&self) -> Value {
        let mut out = serde_json::Map::new();
        for (key, text) in [("name", &self.name), ("group", &self.group), ("kind", &self.kind), ("uid", &self.uid)] {
            if !text.is_empty() {
                out.insert(key.into(), text.clone().into());
            }
        }
        if !self.causes.is_empty() {
            out.insert("causes".into(), self.causes.iter().map(Cause::to_value).collect());
        }
        if let Some(seconds) = self.retry_after_seconds {
            out.insert("retryAfterSeconds".into(), seconds.into());
        }
        Value::Object(out)
    }
}

impl Cause {
    fn to_value(&self) -> Value {
        let mut out = serde_json::Map::new();
        for (key, text) in [("reason", &self.reason), ("message", &self.message), ("field", &self.field)] {
            if !text.is_empty() {
                out.insert(key.into(), text.clone().into());
            }
        }
        Value::Object(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::Path;
    use crate::node::Node;

    const PODS: GroupResource = GroupResource { group: "", resource: "pods" };
    const DEPLOYMENTS: GroupResource = GroupResource { group: "apps", resource: "deployments" };

    /// Codes, reasons and sentences that clients compare.
    #[test]
    fn sentences() {
        for (status, code, reason, message) in [
            (Status::not_found(PODS, "p"), 404, "NotFound", "pods \"p\" not found"),
            (Status::already_exists(DEPLOYMENTS, "d"), 409, "AlreadyExists", "deployments.apps \"d\" already exists"),
            (
                Status::modified(PODS, "p"),
                409,
                "Conflict",
                "Operation cannot be fulfilled on pods \"p\": the object has been modified; please apply your changes to the \
                 latest version and try again",
            ),
            (Status::forbidden(PODS, "p", "no"), 403, "Forbidden", "pods \"p\" is forbidden: no"),
            (Status::forbidden(DEPLOYMENTS, "", "no"), 403, "Forbidden", "deployments.apps is forbidden: no"),
            (Status::unauthorized(), 401, "Unauthorized", "Unauthorized"),
            (Status::internal("disk"), 500, "InternalError", "Internal error occurred: disk"),
            (Status::no_such_resource(), 404, "NotFound", "the server could not find the requested resource"),
            (
                Status::method_not_allowed(),
                405,
                "MethodNotAllowed",
                "the server does not allow this method on the requested resource",
            ),
        ] {
            assert_eq!((status.code, status.reason, status.message.as_str()), (code, reason, message));
            let value = status.to_value();
            assert_eq!((&value["status"], &value["kind"]), (&json!("Failure"), &json!("Status")));
            assert!(value["details"].is_object() || code == 401, "{value}");
        }
    }

    #[test]
    fn details_say_what_is_known() {
        let details = |status: Status| status.to_value()["details"].clone();
        assert_eq!(
            details(Status::not_found(DEPLOYMENTS, "d")),
            json!({"name": "d", "group": "apps", "kind": "deployments"})
        );
        assert_eq!(details(Status::no_such_resource()), json!({}));
        assert_eq!(details(Status::too_many_requests("later", 1)), json!({"retryAfterSeconds": 1}));
        assert_eq!(details(Status::internal("disk")), json!({"causes": [{"message": "disk"}]}));
        assert_eq!(details(Status::bad_request("x")), Value::Null);
        let mut errors = Errors::default();
        errors.required(&Node::new(&Value::Null, Path::new("spec")), "why");
        let status = Status::invalid("apps", "Deployment", "d", &errors);
        assert_eq!(status.message, "Deployment.apps \"d\" is invalid: spec: Required value: why");
        let cause = json!({"reason": "FieldValueRequired", "message": "Required value: why", "field": "spec"});
        assert_eq!(details(status), json!({"name": "d", "group": "apps", "kind": "Deployment", "causes": [cause]}));
    }

    #[test]
    fn an_error_without_a_reason_is_sent_without_one() {
        assert!(Status::new(499, "", "gone").to_value().get("reason").is_none());
    }
}
