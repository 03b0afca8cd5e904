//! `serviceaccounts/token`: a token for a service account, bound to a pod, a node or a secret if asked.

use std::sync::Arc;

use bytes::Bytes;
use machinery::field::{Errors, FieldError, Problem};
use machinery::object::Meta;
use machinery::status::{GroupResource, Status};
use serde_json::{Value, json};

use crate::admission;
use crate::app::stamp;
use crate::authn::{Reference, TokenRequest};
use crate::call::{Call, decode_as};
use crate::decode::Expected;
use crate::respond::{self, Reply};
use crate::write::store_status;

const SECONDS_DEFAULT: i64 = 3600;
const SECONDS_MIN: i64 = 600;
const SECONDS_MAX: i64 = 1 << 32;

pub async fn create(call: &Call, body: Bytes) -> Result<Reply, Status> {
    let shape = api::schema::schemas()
        .by_name("io.k8s.api.authentication.v1.TokenRequest")
        .ok_or_else(Status::no_such_resource)?;
    let expected = Expected {
        group: "authentication.k8s.io",
        version: "v1",
        kind: "TokenRequest",
        shape,
        defaults: |_| {},
        custom: None,
        packed: false,
    };
    let strictness = call.strictness("CreateOptions")?;
    let mut request = decode_as(call, &expected, &body, strictness)?;
    let seconds = request.pointer("/spec/expirationSeconds").and_then(Value::as_i64).unwrap_or(SECONDS_DEFAULT);
    validate(seconds)?;
    let accounts = call.app.authenticator.service_accounts();
    let seconds = accounts.seconds_of(seconds);
    let (namespace, name) = (call.target.namespace.as_str(), call.target.name.as_str());
    call.app.cache.fresh().await.map_err(store_status)?;
    let views = &call.app.views;
    let account = views
        .one("serviceaccounts", namespace, name)
        .ok_or_else(|| Status::not_found(call.resource.group_resource(), name))?;
    let asked = admission::Request::create_of(call, &call.resource, &account, "token", call.dry_run("CreateOptions")?);
    call.app.admission.mutate_sent(&asked, &mut request).await?;
    call.app.admission.validate(&asked, Some(&request)).await?;
    let bound = bound_object(call, namespace, name, &request)?;
    let node = match &bound {
        Some((kind, pod)) if *kind == "Pod" => {
            let node_name = pod.pointer("/spec/nodeName").and_then(Value::as_str).unwrap_or("");
            views.one("nodes", "", node_name)
        }
        Some((kind, node)) if *kind == "Node" => Some(node.clone()),
        _ => None,
    };
    let audiences: Vec<String> = request
        .pointer("/spec/audiences")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|audience| audience.as_str().map(Into::into))
        .collect();
    let reference = |wanted: &str| {
        bound
            .as_ref()
            .filter(|(kind, _)| *kind == wanted)
            .map(|(_, object)| Reference { name: object.name(), uid: object.uid() })
    };
    let wanted = TokenRequest {
        namespace,
        account: Reference { name, uid: account.uid() },
        pod: reference("Pod"),
        secret: reference("Secret"),
        node: node.as_ref().map(|node| Reference { name: node.name(), uid: node.uid() }),
        audiences: &audiences,
        expiration_seconds: seconds,
    };
    let issued = accounts.issue(&wanted, call.app.clock.now()).await;
    let issued = issued.map_err(|error| Status::internal(format!("failed to generate token: {error}")))?;
    if audiences.is_empty() {
        request["spec"]["audiences"] = accounts.audiences().into();
    }
    request["spec"]["expirationSeconds"] = seconds.into();
    request["metadata"] = json!({"name": name, "namespace": namespace, "creationTimestamp": call.app.clock.stamp()});
    request["status"] = json!({"token": issued.token, "expirationTimestamp": stamp(issued.expiration)});
    Ok(respond::value(201, &call.answer, &request))
}

fn validate(seconds: i64) -> Result<(), Status> {
    let detail = match seconds {
        ..SECONDS_MIN => "may not specify a duration less than 10 minutes",
        SECONDS_MIN..=SECONDS_MAX => return Ok(()),
        _ => "may not specify a duration larger than 2^32 seconds",
    };
    let mut errors = Errors::default();
    errors.push(FieldError::new(Problem::Invalid, "spec.expirationSeconds", seconds.to_string(), detail));
    Err(Status::invalid("authentication.k8s.io", "TokenRequest", "", &errors))
}

/// The object whose end ends the token.
fn bound_object(
    call: &Call,
    namespace: &str,
    account: &str,
    request: &Value,
) -> Result<Option<(&'static str, Arc<Value>)>, Status> {
    let Some(wanted) = request.pointer("/spec/boundObjectRef").filter(|wanted| !wanted.is_null()) else {
        return Ok(None);
    };
    let text = |field: &str| wanted[field].as_str().unwrap_or("");
    let (kind, plural, scope) = match (text("apiVersion"), text("kind")) {
        ("v1", "Pod") => ("Pod", "pods", namespace),
        ("v1", "Secret") => ("Secret", "secrets", namespace),
        ("v1", "Node") => ("Node", "nodes", ""),
        (version, kind) => {
            return Err(Status::bad_request(format!(
                "cannot bind token to object of type {}, Kind={kind}",
                version_shown(version)
            )));
        }
    };
    let resource = GroupResource { group: "", resource: plural };
    let name = text("name");
    let object = call.app.views.one(plural, scope, name).ok_or_else(|| Status::not_found(resource, name))?;
    if kind == "Pod" {
        let runs_as = object.pointer("/spec/serviceAccountName").and_then(Value::as_str).unwrap_or("default");
        if runs_as != account {
            let message = format!(
                "cannot bind token for serviceaccount \"{account}\" to pod running with different serviceaccount name."
            );
            return Err(Status::bad_request(message));
        }
    }
    let uid = text("uid");
    if !uid.is_empty() && uid != object.uid() {
        let why = format!(
            "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been deleted and then recreated"
        );
        return Err(Status::conflict(resource, name, &why));
    }
    Ok(Some((kind, object)))
}

fn version_shown(version: &str) -> String {
    match version.split_once('/') {
        Some((group, version)) => format!("{group}/{version}"),
        None => format!("/{version}"),
    }
}
