//! Reviews: questions about identities and permissions. They are answered and never stored.

use bytes::Bytes;
use machinery::field::Errors;
use machinery::node::Node;
use machinery::status::Status;
use serde_json::{Map, Value, json};

use crate::authn::User;
use crate::authz::{Attributes, Decision};
use crate::call::{Call, decode_object};
use crate::respond::{self, Reply};

pub async fn create(call: &Call, body: Bytes) -> Result<Reply, Status> {
    let mut review = decode_object(call, &call.resource, &body, call.strictness("CreateOptions")?)?;
    call.dry_run("CreateOptions")?;
    let mut errors = Errors::default();
    (call.resource.kind.validate)(&Node::root(&review), &mut errors);
    if !errors.is_empty() {
        return Err(Status::invalid(call.resource.kind.group, call.resource.kind.kind, "", &errors));
    }
    if let ("TokenReview", Some(why)) = (call.resource.kind.kind, api::authentication::tokenreview::refusal(&review)) {
        return Err(Status::bad_request(why));
    }
    review["status"] = match call.resource.kind.kind {
        "TokenReview" => token_review(call, &review).await,
        "SelfSubjectReview" => json!({"userInfo": user_info(&call.user)}),
        "SelfSubjectRulesReview" => {
            let namespace = review.pointer("/spec/namespace").and_then(Value::as_str).unwrap_or("");
            call.app.authorizer.rules_for(&call.user, namespace, &call.app.views).to_status()
        }
        "SelfSubjectAccessReview" => access(call, &call.user, &review["spec"]).await,
        "SubjectAccessReview" => access(call, &reviewed_user(&review["spec"]), &review["spec"]).await,
        "LocalSubjectAccessReview" => {
            let namespace = review.pointer("/spec/resourceAttributes/namespace").and_then(Value::as_str).unwrap_or("");
            if namespace != call.target.namespace {
                let message =
                    format!("spec.resourceAttributes.namespace must match namespace: {}", call.target.namespace);
                return Err(Status::bad_request(message));
            }
            access(call, &reviewed_user(&review["spec"]), &review["spec"]).await
        }
        _ => return Err(Status::method_not_allowed()),
    };
    if review.get("metadata").is_none_or(Value::is_null) {
        review["metadata"] = json!({"creationTimestamp": null});
    }
    Ok(respond::value(201, &call.answer, &review))
}

async fn token_review(call: &Call, review: &Value) -> Value {
    let token = review.pointer("/spec/token").and_then(Value::as_str).unwrap_or("");
    let audiences: Vec<String> = review
        .pointer("/spec/audiences")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|audience| audience.as_str().map(Into::into))
        .collect();
    match call.app.authenticator.review_token(token, &audiences, &call.app.views).await {
        Ok((user, audiences)) => json!({"authenticated": true, "user": user_info(&user), "audiences": audiences}),
        Err(error) => json!({"user": {}, "error": error.to_string()}),
    }
}

fn user_info(user: &User) -> Value {
    let mut info = Map::new();
    info.insert("username".into(), user.name.clone().into());
    if !user.uid.is_empty() {
        info.insert("uid".into(), user.uid.clone().into());
    }
    if !user.groups.is_empty() {
        info.insert("groups".into(), user.groups.clone().into());
    }
    if !user.extra.is_empty() {
        info.insert("extra".into(), json!(user.extra));
    }
    Value::Object(info)
}

fn reviewed_user(spec: &Value) -> User {
    let texts = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().filter_map(|text| text.as_str().map(Into::into)).collect()
    };
    let extra = spec["extra"].as_object().into_iter().flatten();
    User {
        name: spec["user"].as_str().unwrap_or("").into(),
        uid: spec["uid"].as_str().unwrap_or("").into(),
        groups: texts(&spec["groups"]),
        extra: extra.map(|(key, values)| (key.to_ascii_lowercase(), texts(values))).collect(),
    }
}

async fn access(call: &Call, user: &User, spec: &Value) -> Value {
    let resource = &spec["resourceAttributes"];
    let path = &spec["nonResourceAttributes"];
    let text = |value: &'_ Value, field: &str| value[field].as_str().unwrap_or("").to_string();
    let from = if resource.is_null() { path } else { resource };
    let verb = text(from, "verb");
    let parts: Vec<String> = ["group", "version", "resource", "subresource", "namespace", "name"]
        .iter()
        .map(|field| text(resource, field))
        .collect();
    let path = text(path, "path");
    let attributes = Attributes {
        user,
        verb: &verb,
        group: &parts[0],
        version: &parts[1],
        resource: &parts[2],
        subresource: &parts[3],
        namespace: &parts[4],
        name: &parts[5],
        path: &path,
        field_selector: "",
        label_selector: "",
    };
    let mut status = Map::new();
    let (allowed, denied, reason, error) = match call.app.authorizer.authorize(&attributes, &call.app.views).await {
        Decision::Allow(reason) => (true, false, reason, String::new()),
        Decision::Deny(reason) => (false, true, reason, String::new()),
        Decision::NoOpinion(reason) => (false, false, reason, String::new()),
        Decision::Failed { denied, reason, error } => (false, denied, reason, error),
    };
    status.insert("allowed".into(), allowed.into());
    if denied {
        status.insert("denied".into(), true.into());
    }
    if !reason.is_empty() {
        status.insert("reason".into(), reason.into());
    }
    if !error.is_empty() {
        status.insert("evaluationError".into(), error.into());
    }
    Value::Object(status)
}
