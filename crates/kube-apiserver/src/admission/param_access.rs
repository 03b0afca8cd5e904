//! Who writes a policy sees its parameters, in the messages that it makes. So authors of policies and bindings must be allowed to
//! read what `paramKind` and `paramRef` name. Upstream asks this while it validates them, with the same answers.

use machinery::field::{Errors, FieldError, Problem};
use machinery::object::Meta;
use machinery::status::Status;
use serde_json::Value;

use super::outside::GROUP;
use super::{Operation, Plugin, Request};
use crate::authn::User;
use crate::authz::MASTERS;

pub struct ParamAccess;

#[async_trait::async_trait]
impl Plugin for ParamAccess {
    fn name(&self) -> &'static str {
        "ParamAccess"
    }

    async fn validate(&self, request: &Request<'_>, object: Option<&Value>) -> Result<(), Status> {
        let kind = &request.resource.kind;
        let writes =
            matches!(request.operation, Operation::Create | Operation::Update) && request.subresource.is_empty();
        let Some(object) = object.filter(|_| writes && kind.group == GROUP) else { return Ok(()) };
        if request.user.groups.iter().any(|group| group == MASTERS) {
            return Ok(());
        }
        let refused = match kind.plural {
            "validatingadmissionpolicies" | "mutatingadmissionpolicies" => {
                policy(request, object).await.map(|why| ("spec.paramKind", why))
            }
            "validatingadmissionpolicybindings" | "mutatingadmissionpolicybindings" => {
                binding(request, object).await.map(|why| ("spec.paramRef", why))
            }
            _ => None,
        };
        let Some((field, why)) = refused else { return Ok(()) };
        let mut errors = Errors::default();
        errors.push(FieldError::new(Problem::Forbidden, field, "", why));
        Err(Status::invalid(kind.group, kind.kind, object.name(), &errors))
    }
}

/// The same field of what is stored now.
fn was<'a>(request: &Request<'a>, path: &str) -> Option<&'a Value> {
    request.old.and_then(|old| old.pointer(path))
}

/// Why the author may not write that policy.
async fn policy(request: &Request<'_>, object: &Value) -> Option<String> {
    let param_kind = object.pointer("/spec/paramKind").filter(|kind| kind.is_object())?;
    if was(request, "/spec/paramKind") == Some(param_kind) {
        return None;
    }
    let read = Kind::of(request, param_kind);
    if request.call.may("get", &read.group, &read.resource, "", "*", "*").await {
        return None;
    }
    let text = |field: &str| param_kind[field].as_str().unwrap_or_default();
    Some(format!(
        "user {} must have \"get\" permission on all objects of the referenced paramKind (kind={}, apiVersion={})",
        as_go(request.user),
        text("kind"),
        text("apiVersion"),
    ))
}

/// Why the author may not write that binding.
async fn binding(request: &Request<'_>, object: &Value) -> Option<String> {
    let reference = object.pointer("/spec/paramRef").filter(|reference| reference.is_object())?;
    let policy_name = object.pointer("/spec/policyName").and_then(Value::as_str).unwrap_or_default();
    let same_policy = was(request, "/spec/policyName").and_then(Value::as_str) == Some(policy_name);
    if same_policy && was(request, "/spec/paramRef") == Some(reference) {
        return None;
    }
    let mutates = request.resource.kind.plural == "mutatingadmissionpolicybindings";
    let policies = if mutates { "mutatingadmissionpolicies" } else { "validatingadmissionpolicies" };
    let policy = request.app.views.one(policies, "", policy_name);
    let param_kind =
        policy.as_ref().and_then(|policy| policy.pointer("/spec/paramKind")).filter(|kind| kind.is_object());
    // What it is about is not known: then it could be anything.
    let read = param_kind.map_or_else(Kind::anything, |kind| Kind::of(request, kind));
    let text = |field: &str| reference[field].as_str().unwrap_or_default();
    let verb = if text("name").is_empty() { "list" } else { "get" };
    if request.call.may(verb, &read.group, &read.resource, "", text("namespace"), text("name")).await {
        return None;
    }
    let user = as_go(request.user);
    Some(match (policy.as_ref(), param_kind) {
        (None, _) => format!(
            "unable to get policy {policy_name} to determine minimum required permissions and user {user} does not have \"{verb}\" permission for all groups, versions and resources"
        ),
        (_, Some(kind)) if read.resource == ANY => format!(
            "unable to resolve paramKind &ParamKind{{APIVersion:{},Kind:{},}} to determine minimum required permissions and user {user} does not have \"{verb}\" permission for all groups, versions and resources",
            kind["apiVersion"].as_str().unwrap_or_default(),
            kind["kind"].as_str().unwrap_or_default(),
        ),
        // Upstream has them the other way round there.
        _ if mutates => format!("user {verb} does not have \"{user}\" permission on the object referenced by paramRef"),
        _ => format!("user {user} does not have \"{verb}\" permission on the object referenced by paramRef"),
    })
}

const ANY: &str = "*";

/// What authorization calls a kind.
struct Kind {
    group: String,
    resource: String,
}

impl Kind {
    fn anything() -> Kind {
        Kind { group: ANY.into(), resource: ANY.into() }
    }

    fn of(request: &Request<'_>, param_kind: &Value) -> Kind {
        let text = |field: &str| param_kind[field].as_str().unwrap_or_default();
        let (group, version) = text("apiVersion").split_once('/').unwrap_or(("", text("apiVersion")));
        let table = request.app.table.load();
        let resource = table.of_kind(group, version, text("kind")).map(|resource| resource.kind.plural.to_owned());
        Kind { group: group.to_owned(), resource: resource.unwrap_or_else(|| ANY.into()) }
    }
}

/// A user as upstream's messages show one.
fn as_go(user: &User) -> String {
    let extra: Vec<String> = user.extra.iter().map(|(name, values)| format!("{name}:[{}]", values.join(" "))).collect();
    format!("&{{{} {} [{}] map[{}]}}", user.name, user.uid, user.groups.join(" "), extra.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_look_as_they_do_upstream() {
        let mut user = User { name: "ada".into(), groups: vec!["dev".into(), "all".into()], ..User::default() };
        assert_eq!(as_go(&user), "&{ada  [dev all] map[]}");
        user.extra.insert("a".into(), vec!["1".into(), "2".into()]);
        assert_eq!(as_go(&user), "&{ada  [dev all] map[a:[1 2]]}");
    }
}
