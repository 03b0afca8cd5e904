//! Why a write is refused: it is sent as the user with dryRun, and what refuses it is named.

use http::{HeaderValue, Method};
use machinery::status::Status;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::kinds::Kind;
use crate::pass::check_path;
use crate::rights::{Check, review};
use crate::session::SignedIn;
use crate::table::row::each;

/// An object and what stands around it.
pub(crate) const BODY_BYTES_MAX: usize = 3 * 1024 * 1024 + 64 * 1024;

#[derive(Deserialize)]
struct Asked {
    method: String,
    path: String,
    #[serde(default)]
    body: Value,
}

pub(crate) async fn answer(signed_in: &SignedIn, body: &Value) -> Result<Value, Status> {
    let asked: Asked = crate::serve::parse(body)?;
    let method = match asked.method.to_ascii_uppercase().as_str() {
        "POST" => Method::POST,
        "PUT" => Method::PUT,
        "PATCH" => Method::PATCH,
        "DELETE" => Method::DELETE,
        other => {
            return Err(Status::bad_request(format!("{other} writes nothing: ask about POST, PUT, PATCH or DELETE")));
        }
    };
    let (path, query) = asked.path.split_once('?').unwrap_or((&asked.path, ""));
    check_path(path)?;
    let joint = if query.is_empty() { "" } else { "&" };
    let dry = format!("{path}?{query}{joint}dryRun=All");
    let accept = HeaderValue::from_static("application/json");
    let body = (!asked.body.is_null()).then_some(&asked.body);
    let outcome = crate::ask::ask(&signed_in.client, method.clone(), &dry, accept, body).await;
    let Err(status) = outcome else {
        return Ok(json!({"allowed": true, "by": null, "reason": "it would be done", "rules": []}));
    };
    let by = refused_by(&status);
    let rules = match by {
        "rbac" => rules(signed_in, &method, path).await,
        _ => Vec::new(),
    };
    Ok(json!({"allowed": false, "by": by, "reason": status.message, "code": status.code, "rules": rules}))
}

/// The API server's sentences say who refused.
fn refused_by(status: &Status) -> &'static str {
    let said = |words: &str| status.message.contains(words);
    match status.code {
        401 => "authentication",
        403 if said("exceeded quota") || said("failed quota") => "quota",
        403 if said("violates PodSecurity") => "pod-security",
        403 if said("ValidatingAdmissionPolicy") || said("denied request") || said("admission webhook") => "admission",
        403 if said("User \"") && said("cannot ") => "rbac",
        403 => "admission",
        404 => "not-found",
        409 => "conflict",
        413 => "size",
        422 if said("ValidatingAdmissionPolicy") => "admission",
        400 | 422 => "validation",
        429 => "limits",
        _ => "server",
    }
}

/// What the user may do with that resource there, one line for each rule.
async fn rules(signed_in: &SignedIn, method: &Method, path: &str) -> Vec<String> {
    let Some((kind, namespace, name)) = parts(path) else { return Vec::new() };
    let verb = match *method {
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        _ => "delete",
    };
    let check = Check {
        verb: verb.into(),
        group: kind.group.clone(),
        resource: kind.resource.clone(),
        namespace: namespace.clone(),
        name,
        ..Check::default()
    };
    let mut lines = Vec::new();
    if let Ok((false, reason)) = review(&signed_in.client, &check).await
        && !reason.is_empty()
    {
        lines.push(reason);
    }
    let body = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": if namespace.is_empty() { "default" } else { namespace.as_str() }},
    });
    let review =
        crate::ask::post(&signed_in.client, "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", &body).await;
    for rule in each(&review.unwrap_or_default()["status"]["resourceRules"]) {
        let has = |field: &str, value: &str| each(&rule[field]).any(|one| one == value || one == "*");
        if has("apiGroups", &kind.group) && has("resources", &kind.resource) {
            let verbs: Vec<&str> = each(&rule["verbs"]).filter_map(Value::as_str).collect();
            lines.push(format!("you may {} {}", verbs.join(", "), kind.resource));
        }
    }
    if lines.is_empty() {
        lines.push(format!("no role gives you any right to {} here", kind.resource));
    }
    lines
}

/// The resource, namespace and name that a path names.
fn parts(path: &str) -> Option<(Kind, String, String)> {
    let words: Vec<&str> = path.split('/').filter(|word| !word.is_empty()).collect();
    let (group, version, rest) = match words.as_slice() {
        ["api", version, rest @ ..] => ("", *version, rest),
        ["apis", group, version, rest @ ..] => (*group, *version, rest),
        _ => return None,
    };
    let (namespace, rest) = match rest {
        ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, rest),
        _ => ("", rest),
    };
    let resource = rest.first()?;
    let name = rest.get(1).copied().unwrap_or_default();
    Some((Kind::new(group, version, resource), namespace.into(), name.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_refused() {
        let check = |code: u16, message: &str, expected: &str| {
            assert_eq!(refused_by(&Status::new(code, "Forbidden", message)), expected, "{message}");
        };
        check(403, "pods is forbidden: User \"jane\" cannot create resource \"pods\" in API group \"\"", "rbac");
        check(403, "pods \"x\" is forbidden: exceeded quota: q, requested: pods=1", "quota");
        check(403, "pods \"x\" is forbidden: violates PodSecurity \"restricted:latest\"", "pod-security");
        check(403, "admission webhook \"w\" denied the request: no", "admission");
        check(422, "Pod \"x\" is invalid: spec.containers: Required value", "validation");
        check(409, "already exists", "conflict");
    }

    #[test]
    fn paths() {
        let (kind, namespace, name) = parts("/apis/apps/v1/namespaces/a/deployments/b").unwrap();
        assert_eq!((kind, namespace.as_str(), name.as_str()), (Kind::new("apps", "v1", "deployments"), "a", "b"));
        assert_eq!(parts("/api/v1/namespaces/a").unwrap().0, Kind::new("", "v1", "namespaces"));
        assert!(parts("/version").is_none());
    }
}
