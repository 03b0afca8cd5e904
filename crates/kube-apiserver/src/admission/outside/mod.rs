//! What webhooks and policies, the rules that users bring, have in common: how a request looks to them, which of them
//! are about it, and what they may ask.

pub mod rules;
pub mod selectors;
pub mod conditions;
mod shown;

use std::sync::Arc;

use machinery::object::Meta;
use machinery::status::Status;
use serde_json::{Map, Value, json};

use super::{Operation, Request};
use crate::resources::Resource;
use rules::{Asked, Rule};

pub const GROUP: &str = "admissionregistration.k8s.io";

/// Whether a request is a user's rules' business at all. Their own configuration is not: nobody shall be locked out from
/// repairing it. Neither is what a server does before it serves: it could not start while a webhook is down.
pub fn concerns(request: &Request<'_>) -> bool {
    let kind = &request.resource.kind;
    let exempt = kind.group == GROUP
        && matches!(
            kind.plural,
            "validatingwebhookconfigurations"
                | "mutatingwebhookconfigurations"
                | "validatingadmissionpolicies"
                | "validatingadmissionpolicybindings"
                | "mutatingadmissionpolicies"
                | "mutatingadmissionpolicybindings"
        );
    !exempt && request.app.health.bootstrapped.load(std::sync::atomic::Ordering::Acquire)
}

/// A request as those outside see it.
pub struct Seen<'a> {
    pub request: &'a Request<'a>,
    pub operation: &'static str,
    pub namespace: String,
    pub name: String,
}

/// In which version a rule wants to see an object.
#[derive(Clone)]
pub enum Way {
    Asked,
    Other(Arc<Resource>),
}

impl<'a> Seen<'a> {
    pub fn new(request: &'a Request<'a>, object: Option<&Value>) -> Seen<'a> {
        let name = match request.name {
            "" => object.map_or("", |object| object.name()),
            name => name,
        };
        let operation = match request.operation {
            // The scheduler's decision is written to the pod, but asked for as an object of its own.
            _ if request.subresource == "binding" => "CREATE",
            Operation::Create => "CREATE",
            Operation::Update => "UPDATE",
            Operation::Delete => "DELETE",
            Operation::Connect => "CONNECT",
        };
        // A namespace is in itself.
        let is_namespace = request.is_for("", "namespaces");
        let namespace = if is_namespace { name } else { request.namespace };
        Seen { request, operation, namespace: namespace.to_string(), name: name.to_string() }
    }

    /// What was there before, where the operation has a before.
    pub fn old(&self) -> Option<&'a Value> {
        self.request.old.filter(|_| matches!(self.operation, "UPDATE" | "DELETE"))
    }

    pub fn resource<'s>(&'s self, way: &'s Way) -> &'s Resource {
        match way {
            Way::Asked => self.request.resource,
            Way::Other(resource) => resource,
        }
    }

    /// Whether a rule is about this request, and in which version it wants to see it. With `equivalent`, also by another
    /// version, or another group, of the same objects.
    pub fn matched(&self, rules: &[Rule], equivalent: bool) -> Option<Way> {
        let kind = &self.request.resource.kind;
        let asked = |group, version, resource| Asked {
            operation: self.operation,
            group,
            version,
            resource,
            subresource: self.request.subresource,
            namespace: &self.namespace,
            name: &self.name,
        };
        let own = asked(kind.group, kind.version, kind.plural);
        if rules.iter().any(|rule| rule.matches(&own)) {
            return Some(Way::Asked);
        }
        if !equivalent || kind.storage.is_empty() {
            return None;
        }
        let table = self.request.app.table.load();
        let others: Vec<&Arc<Resource>> = table
            .resources()
            .iter()
            .filter(|other| other.kind.storage == kind.storage)
            .filter(|other| other.kind.group != kind.group || other.kind.version != kind.version)
            .collect();
        rules.iter().find_map(|rule| {
            let mut fitting = others.iter();
            let found =
                fitting.find(|other| rule.matches(&asked(other.kind.group, other.kind.version, other.kind.plural)));
            found.map(|other| Way::Other(Arc::clone(other)))
        })
    }

    /// The object in that version, as those outside know it.
    pub async fn show(&self, way: &Way, object: Option<&Value>) -> Result<Value, Status> {
        match object {
            None => Ok(Value::Null),
            Some(object) => shown::show(self, self.resource(way), object).await,
        }
    }

    /// An object that somebody outside changed, as it is stored.
    pub async fn take(&self, way: &Way, changed: Value, stored: &mut Value) -> Result<(), Status> {
        shown::take(self, self.resource(way), changed, stored).await
    }

    /// `request` of an AdmissionReview, without the objects: also what expressions know by that name.
    pub fn described(&self, way: &Way) -> Value {
        let (asked, seen) = (self.request.resource, self.resource(way));
        let subresource = self.request.subresource;
        let kind = |resource: &Resource| {
            let (group, version, kind) = shown::kind(resource, subresource);
            json!({"group": group, "version": version, "kind": kind})
        };
        let resource =
            |it: &Resource| json!({"group": it.kind.group, "version": it.kind.version, "resource": it.kind.plural});
        let mut out = json!({
            "kind": kind(seen), "resource": resource(seen), "requestKind": kind(asked),
            "requestResource": resource(asked), "operation": self.operation, "userInfo": self.user(),
            "dryRun": self.request.dry_run, "options": self.options(),
        });
        for (field, text) in [
            ("subResource", subresource),
            ("requestSubResource", subresource),
            ("name", &self.name),
            ("namespace", &self.namespace),
        ] {
            if !text.is_empty() {
                out[field] = text.into();
            }
        }
        out
    }

    fn user(&self) -> Value {
        let user = self.request.user;
        let mut out = json!({"username": user.name});
        if !user.uid.is_empty() {
            out["uid"] = user.uid.as_str().into();
        }
        if !user.groups.is_empty() {
            out["groups"] = user.groups.clone().into();
        }
        if !user.extra.is_empty() {
            out["extra"] = json!(user.extra);
        }
        out
    }

    /// The options of the request, of the kind that its operation has.
    fn options(&self) -> Value {
        if let Some(options) = &self.request.options {
            return options.clone();
        }
        let kind = match self.operation {
            "CREATE" => "CreateOptions",
            "UPDATE" => "UpdateOptions",
            "DELETE" => "DeleteOptions",
            _ => return Value::Null,
        };
        let mut out = Map::new();
        out.insert("kind".into(), kind.into());
        out.insert("apiVersion".into(), "meta.k8s.io/v1".into());
        if self.request.dry_run {
            out.insert("dryRun".into(), json!(["All"]));
        }
        for field in ["fieldManager", "fieldValidation"] {
            let given = self.request.call.query.get(field);
            if !given.is_empty() && kind != "DeleteOptions" {
                out.insert(field.into(), given.into());
            }
        }
        Value::Object(out)
    }
}
