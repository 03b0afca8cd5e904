//! Objects as those outside see them: in the version that they want, and subresources as the objects they are asked for
//! with, where the server keeps something else.

use machinery::codec;
use machinery::object::{Meta, child_mut};
use machinery::status::Status;
use serde_json::{Value, json};

use super::Seen;
use crate::admission::Operation;
use crate::call::Strictness;
use crate::decode::{self, Expected};
use crate::resources::Resource;
use crate::subresources::scale;

/// Group, version and kind of what is sent to that subresource.
pub fn kind<'a>(resource: &'a Resource, subresource: &str) -> (&'a str, &'a str, String) {
    let own = resource.kind.kind;
    match subresource {
        "scale" => ("autoscaling", "v1", "Scale".into()),
        "binding" => ("", "v1", "Binding".into()),
        "eviction" => ("policy", "v1", "Eviction".into()),
        "token" => ("authentication.k8s.io", "v1", "TokenRequest".into()),
        "exec" => ("", "v1", "PodExecOptions".into()),
        "attach" => ("", "v1", "PodAttachOptions".into()),
        "portforward" => ("", "v1", "PodPortForwardOptions".into()),
        "proxy" => ("", "v1", format!("{own}ProxyOptions")),
        _ => (resource.kind.group, resource.kind.version, own.into()),
    }
}

pub async fn show(seen: &Seen<'_>, resource: &Resource, object: &Value) -> Result<Value, Status> {
    match seen.request.subresource {
        "scale" => scale::scale_of(resource, &resource.conversion.show(seen.request.app, object.clone()).await?),
        "binding" => Ok(binding_of(object)),
        "eviction" | "token" => Ok(object.clone()),
        _ if seen.request.operation == Operation::Connect => Ok(object.clone()),
        _ => {
            let mut object = object.clone();
            codec::unpack(&mut object);
            resource.conversion.show(seen.request.app, object).await
        }
    }
}

/// What came back is brought into shape again, as if a client had sent it: nothing behind this looks at its types.
pub async fn take(seen: &Seen<'_>, resource: &Resource, mut changed: Value, stored: &mut Value) -> Result<(), Status> {
    let app = seen.request.app;
    match seen.request.subresource {
        "scale" => {
            let expected = scale::expected()?;
            typed(&mut changed, &expected)?;
            let mut object = resource.conversion.show(app, stored.clone()).await?;
            scale::put(resource, &mut object, &changed)?;
            *stored = work(seen, resource, object).await?;
        }
        "binding" => put_binding(stored, &changed),
        subresource @ ("eviction" | "token") => {
            typed(&mut changed, &sent(subresource)?)?;
            *stored = changed;
        }
        _ if seen.request.operation == Operation::Connect => *stored = changed,
        _ => {
            typed(&mut changed, &Expected::of(resource))?;
            *stored = work(seen, resource, changed).await?;
            if resource.custom.is_none() {
                codec::pack(stored);
            }
        }
    }
    Ok(())
}

/// Back into the form that the write path works on.
async fn work(seen: &Seen<'_>, resource: &Resource, object: Value) -> Result<Value, Status> {
    if resource.conversion.asks_others() {
        seen.request.resource.conversion.show(seen.request.app, object).await
    } else {
        Ok(resource.conversion.to_work(object))
    }
}

/// What is sent to a subresource that is no part of its object.
fn sent(subresource: &str) -> Result<Expected<'static>, Status> {
    let (group, kind, name) = match subresource {
        "eviction" => ("policy", "Eviction", "io.k8s.api.policy.v1.Eviction"),
        _ => ("authentication.k8s.io", "TokenRequest", "io.k8s.api.authentication.v1.TokenRequest"),
    };
    let shape = api::schema::schemas().by_name(name).ok_or_else(Status::no_such_resource)?;
    Ok(Expected { group, version: "v1", kind, shape, defaults: |_| {}, custom: None, packed: false })
}

fn typed(changed: &mut Value, expected: &Expected) -> Result<(), Status> {
    let (kind, wanted) = (expected.kind, expected.api_version());
    if changed["kind"] != kind || changed["apiVersion"] != *wanted {
        let found = format!("{}, Kind={}", text(&changed["apiVersion"]), text(&changed["kind"]));
        return Err(Status::internal(format!("expected {wanted}, Kind={kind} after the patch, got {found}")));
    }
    decode::typed(changed, expected, Default::default(), Strictness::Ignore, &mut |_| {})
        .map_err(|status| Status::internal(status.message))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("")
}

/// A pod on its node, as the scheduler asked for it.
fn binding_of(pod: &Value) -> Value {
    json!({
        "kind": "Binding", "apiVersion": "v1",
        "metadata": {"name": pod.name(), "namespace": pod.namespace(), "uid": pod.uid()},
        "target": {"kind": "Node", "name": pod.pointer("/spec/nodeName").cloned().unwrap_or_default()},
    })
}

/// Another node, or labels and annotations that come with the decision.
fn put_binding(pod: &mut Value, binding: &Value) {
    if let Some(node) = binding.pointer("/target/name").filter(|node| node.is_string()) {
        child_mut(pod, "spec").insert("nodeName".into(), node.clone());
    }
    for field in ["labels", "annotations"] {
        let Some(added) = binding.meta(field).and_then(Value::as_object) else { continue };
        let slot = pod.meta_mut().entry(field).or_insert_with(|| json!({}));
        if let Some(map) = slot.as_object_mut() {
            let texts = added.iter().filter(|(_, value)| value.is_string());
            map.extend(texts.map(|(key, value)| (key.clone(), value.clone())));
        }
    }
}
