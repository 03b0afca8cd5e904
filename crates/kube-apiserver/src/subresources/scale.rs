//! `scale`: the number of replicas of anything that has one, as one small kind.

use bytes::Bytes;
use machinery::object::Meta;
use machinery::patch::managed::Manager;
use machinery::selector;
use machinery::status::Status;
use serde_json::{Map, Value, json};

use crate::call::{Call, Strictness, decode_as};
use crate::conversion::decode_stored;
use crate::decode::{self, Expected};
use crate::resources::Resource;
use crate::respond::{self, Reply};
use crate::verbs::patch::{self, PatchBody};
use crate::write::{self, Owner, Part, Stored, Update, store_status};

/// Where a kind keeps what a Scale shows.
struct Paths {
    spec: String,
    status: String,
    selector: Option<String>,
}

pub async fn get(call: &Call) -> Result<Reply, Status> {
    call.app.cache.fresh().await.map_err(store_status)?;
    let resource = &call.resource;
    let key = resource.key(&call.target.namespace, &call.target.name)?;
    let item =
        resource.state()?.get(&key).ok_or_else(|| Status::not_found(resource.group_resource(), &call.target.name))?;
    let stored = decode_stored(&item.value, item.revision.0).map_err(|why| write::undecodable(&key, &why))?;
    let object = resource.conversion.show(&call.app, stored).await?;
    Ok(respond::value(200, &call.answer, &scale_of(&call.resource, &object)?))
}

pub async fn update(call: &Call, body: Bytes) -> Result<Reply, Status> {
    let strictness = call.strictness("UpdateOptions")?;
    let scale = decode_as(call, &expected()?, &body, strictness)?;
    check_name(call, &scale)?;
    write(call, "UpdateOptions", |_| Ok(scale.clone())).await
}

pub async fn patch(call: &Call, body: Bytes) -> Result<Reply, Status> {
    if patch::is_apply(call) {
        return apply(call, &body).await;
    }
    let patch = PatchBody::read(call, &body)?;
    let strictness = call.strictness("PatchOptions")?;
    write(call, "PatchOptions", |current| {
        let shape = expected()?;
        let mut next = patch.apply(shape.shape, current.clone())?;
        decode::typed(&mut next, &shape, Default::default(), strictness, &mut |warning| call.warn(warning))?;
        Ok(next)
    })
    .await
}

/// Server-side apply of a Scale: its one field is owned where the object keeps it.
async fn apply(call: &Call, body: &[u8]) -> Result<Reply, Status> {
    patch::check_applier(call)?;
    let strictness = call.strictness("PatchOptions")?;
    let dry_run = call.dry_run("PatchOptions")?;
    let scale = decode::object("application/yaml", body, &expected()?, strictness, &mut |warning| call.warn(warning))?;
    check_name(call, &scale)?;
    let (resource, paths) = (&call.resource, paths(&call.resource)?);
    let (namespace, name) = (call.target.namespace.as_str(), call.target.name.as_str());
    let api_version = resource.kind.api_version();
    let mut config = json!({
        "apiVersion": api_version, "kind": resource.kind.kind, "metadata": {"name": name, "namespace": namespace},
    });
    if let Some(replicas) = scale.pointer("/spec/replicas").and_then(Value::as_i64) {
        if replicas < 0 {
            return Err(negative(name, replicas));
        }
        set(&mut config, &paths.spec, replicas.into());
    }
    if !scale.resource_version().is_empty() {
        config.meta_mut().insert("resourceVersion".into(), scale.resource_version().into());
    }
    let (owner, force) = (call.field_manager()?, call.query.flag("force"));
    let manager = Manager { name: &owner, api_version: &api_version, subresource: "scale", time: "" };
    let part = Part::Sub("scale");
    let untracked = write::untracked(resource, part);
    let update = Update { call, resource, namespace, name, part, owner: &Owner::Applied, dry_run };
    let stored = write::update(update, |live| {
        let mut next =
            machinery::patch::apply::apply(resource.shape(), Some(live), &config, &manager, force, untracked)
                .map_err(|error| error.status())?;
        if resource.custom.is_some() {
            machinery::codec::unpack(&mut next);
        }
        decode::typed(&mut next, &Expected::of(resource), Default::default(), Strictness::Ignore, &mut |_| {})?;
        Ok(next)
    })
    .await?;
    answer(call, &stored).await
}

fn check_name(call: &Call, scale: &Value) -> Result<(), Status> {
    if scale.name().is_empty() || scale.name() == call.target.name {
        return Ok(());
    }
    Err(Status::bad_request(format!(
        "the name of the object ({}) does not match the name on the URL ({})",
        scale.name(),
        call.target.name
    )))
}

async fn write(
    call: &Call,
    options: &'static str,
    mut change: impl FnMut(&Value) -> Result<Value, Status>,
) -> Result<Reply, Status> {
    let dry_run = call.dry_run(options)?;
    let owner = Owner::Update(call.field_manager()?);
    let (namespace, name) = (&call.target.namespace, &call.target.name);
    let paths = paths(&call.resource)?;
    let stored = write::update(
        Update { call, resource: &call.resource, namespace, name, part: Part::Sub("scale"), owner: &owner, dry_run },
        |current| {
            let scale = change(&scale_of(&call.resource, current)?)?;
            let replicas = scale.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(0);
            if replicas < 0 {
                return Err(negative(name, replicas));
            }
            let mut next = current.clone();
            set(&mut next, &paths.spec, replicas.into());
            // A Scale's version is that of the object it shows.
            if !scale.resource_version().is_empty() {
                next.meta_mut().insert("resourceVersion".into(), scale.resource_version().into());
            }
            Ok(next)
        },
    )
    .await?;
    answer(call, &stored).await
}

async fn answer(call: &Call, stored: &Stored) -> Result<Reply, Status> {
    let mut object: Value =
        serde_json::from_slice(&stored.value).map_err(|error| Status::internal(error.to_string()))?;
    if let Some(revision) = stored.revision {
        object.meta_mut().insert("resourceVersion".into(), revision.to_string().into());
    }
    let object = call.resource.conversion.show(&call.app, object).await?;
    Ok(respond::value(200, &call.answer, &scale_of(&call.resource, &object)?))
}

pub fn expected() -> Result<Expected<'static>, Status> {
    let shape =
        api::schema::schemas().by_name("io.k8s.api.autoscaling.v1.Scale").ok_or_else(Status::no_such_resource)?;
    Ok(Expected {
        group: "autoscaling",
        version: "v1",
        kind: "Scale",
        shape,
        defaults: |_| {},
        custom: None,
        packed: false,
    })
}

fn paths(resource: &Resource) -> Result<Paths, Status> {
    match &resource.custom {
        Some(custom) => {
            let scale = custom.scale().ok_or_else(Status::no_such_resource)?;
            Ok(Paths {
                spec: scale.spec_path.clone(),
                status: scale.status_path.clone(),
                selector: scale.selector_path.clone(),
            })
        }
        None => Ok(Paths { spec: "/spec/replicas".into(), status: "/status/replicas".into(), selector: None }),
    }
}

/// What a Scale shows of an object, in the version of that resource.
pub(crate) fn scale_of(resource: &Resource, object: &Value) -> Result<Value, Status> {
    let paths = paths(resource)?;
    let mut metadata = Map::new();
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = object.meta(field) {
            metadata.insert(field.into(), value.clone());
        }
    }
    let number = |path: &str| object.pointer(path).and_then(Value::as_i64).unwrap_or(0);
    let mut scale = json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata,
        "spec": {}, "status": {"replicas": number(&paths.status)},
    });
    if number(&paths.spec) != 0 {
        scale["spec"]["replicas"] = number(&paths.spec).into();
    }
    let selector = match (&paths.selector, &resource.custom) {
        (Some(path), _) => object.pointer(path).and_then(Value::as_str).unwrap_or("").to_string(),
        (None, Some(_)) => String::new(),
        (None, None) => selector_text(object.pointer("/spec/selector").unwrap_or(&Value::Null)),
    };
    if !selector.is_empty() {
        scale["status"]["selector"] = selector.into();
    }
    Ok(scale)
}

/// A selector as `key=value,...`; replication controllers have a plain map, the others a LabelSelector.
fn selector_text(selector: &Value) -> String {
    let plain = selector.as_object().is_some_and(|map| map.values().all(Value::is_string));
    if plain {
        let pairs = selector.as_object().into_iter().flatten();
        pairs.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or(""))).collect::<Vec<_>>().join(",")
    } else {
        selector::LabelSelector::from_object(selector).map(|selector| selector.to_string()).unwrap_or_default()
    }
}

/// Writes the number that a Scale asks for where the object keeps it.
pub fn put(resource: &Resource, object: &mut Value, scale: &Value) -> Result<(), Status> {
    let replicas = scale.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(0);
    if replicas < 0 {
        return Err(negative(object.name(), replicas));
    }
    set(object, &paths(resource)?.spec, replicas.into());
    Ok(())
}

fn set(object: &mut Value, path: &str, value: Value) {
    let mut at = object;
    for part in path.split('/').filter(|part| !part.is_empty()) {
        if !at.is_object() {
            *at = Value::Object(Map::new());
        }
        at = &mut at[part];
    }
    *at = value;
}

fn negative(name: &str, replicas: i64) -> Status {
    let mut errors = machinery::field::Errors::default();
    errors.push(machinery::field::FieldError::new(
        machinery::field::Problem::Invalid,
        "spec.replicas",
        replicas.to_string(),
        "must be greater than or equal to 0",
    ));
    Status::invalid("autoscaling", "Scale", name, &errors)
}
