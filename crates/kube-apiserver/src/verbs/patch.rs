//! `patch`: JSON patch, merge patch, strategic merge patch and server-side apply.

use bytes::Bytes;
use machinery::codec::{self, DecodeError, Decoded};
use machinery::field::{Errors, FieldError, Problem};
use machinery::object::Meta;
use machinery::patch::apply;
use machinery::patch::managed::Manager;
use machinery::patch::{json, merge, strategic};
use machinery::schema::TypeRef;
use machinery::status::Status;
use serde_json::Value;

use super::unconvertible;
use crate::call::{Call, Strictness};
use crate::decode::{self, Expected, Read};
use crate::respond::{self, Reply};
use crate::write::{self, Owner, Part, Update};

pub async fn patch(call: &Call, part: Part, body: Bytes) -> Result<Reply, Status> {
    if is_apply(call) {
        return apply(call, part, body).await;
    }
    let resource = &call.resource;
    let patch = PatchBody::read(call, &body)?;
    let dry_run = call.dry_run("PatchOptions")?;
    let strictness = call.strictness("PatchOptions")?;
    let owner = Owner::Update(call.field_manager()?);
    let (namespace, name) = (&call.target.namespace, &call.target.name);
    let stored = write::update(Update { call, resource, namespace, name, part, owner: &owner, dry_run }, |current| {
        patched(call, &patch, current, strictness, part)
    });
    let stored = stored.await?;
    respond::stored(call, resource, 200, &stored.value, stored.revision).await
}

pub fn is_apply(call: &Call) -> bool {
    matches!(media(call), "application/apply-patch+yaml" | "application/apply-patch+json")
}

fn media(call: &Call) -> &str {
    let content_type = call.headers.get(http::header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    content_type.split(';').next().unwrap_or("").trim()
}

/// A patch that changes what is there, whatever owns it.
pub struct PatchBody {
    operations: Operations,
    /// What strict field validation finds wrong with the text of the patch itself: fields that stand there twice, and fields
    /// that operations of a JSON patch do not have.
    faults: Vec<String>,
    /// Whether it may name what is within managed fields, or take all of the metadata elsewhere.
    looks_inside: bool,
}

enum Operations {
    Json(Value),
    Merge(Value),
    Strategic(Value),
}

impl PatchBody {
    fn new(operations: fn(Value) -> Operations, body: &[u8]) -> Result<PatchBody, Status> {
        let decoded = json_body(body)?;
        let looks_inside = mentions_managed_fields(body);
        Ok(PatchBody { operations: operations(decoded.value), faults: decoded.duplicates, looks_inside })
    }

    pub fn read(call: &Call, body: &[u8]) -> Result<PatchBody, Status> {
        if call.query.flag("force") {
            let mut errors = Errors::default();
            errors.push(FieldError::new(Problem::Forbidden, "force", "", "may not be specified for non-apply patch"));
            return Err(Status::invalid("meta.k8s.io", "PatchOptions", "", &errors));
        }
        match media(call) {
            "application/json-patch+json" => {
                let Decoded { value, duplicates } = json_body(body)?;
                let faults = json::unknown_fields(&value).into_iter().chain(duplicates);
                let faults = faults.map(|fault| format!("json patch {fault}")).collect();
                let looks_inside = mentions_managed_fields(body) || names_all_metadata(&value);
                Ok(PatchBody { operations: Operations::Json(value), faults, looks_inside })
            }
            "application/merge-patch+json" => PatchBody::new(Operations::Merge, body),
            "application/strategic-merge-patch+json" if call.resource.custom.is_none() => {
                PatchBody::new(Operations::Strategic, body)
            }
            // Upstream refuses this one later than others, for custom kinds only.
            _ if call.resource.custom.is_some() => Err(Status::new(
                415,
                "UnsupportedMediaType",
                "the body of the request was in an unknown format - accepted media types include: \
                 application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
            )),
            _ => Err(Status::new(415, "UnsupportedMediaType", "415: Unsupported Media Type").with_empty_details()),
        }
    }

    /// Whether it changes nothing but these fields of the object, and has no directive about others.
    fn is_about(&self, fields: &[&str]) -> bool {
        match &self.operations {
            Operations::Json(_) => false,
            Operations::Merge(patch) | Operations::Strategic(patch) => {
                patch.as_object().is_some_and(|patch| patch.keys().all(|field| fields.contains(&field.as_str())))
            }
        }
    }

    /// What becomes of the object.
    pub fn apply(&self, shape: TypeRef, mut next: Value) -> Result<Value, Status> {
        let unpacked = self.looks_inside && codec::unpack(&mut next);
        match &self.operations {
            Operations::Json(patch) => json::apply(&mut next, patch).map_err(|error| error.status())?,
            Operations::Merge(patch) => merge::apply(&mut next, patch).map_err(|error| error.status())?,
            Operations::Strategic(patch) => {
                strategic::apply(shape, &mut next, patch).map_err(|error| error.status())?
            }
        }
        if unpacked {
            codec::pack(&mut next);
        }
        Ok(next)
    }

    /// The object as the patch leaves it, as text.
    fn outcome(&self, shape: TypeRef, current: &Value) -> String {
        let mut next = self.apply(shape, current.clone()).unwrap_or_default();
        codec::unpack(&mut next);
        next.to_string()
    }
}

/// Letters may be written by number, and what is no text may mean anything.
fn mentions_managed_fields(body: &[u8]) -> bool {
    str::from_utf8(body).map_or(true, |text| text.contains("managedFields") || text.contains("\\u"))
}

fn names_all_metadata(patch: &Value) -> bool {
    let all = |operation: &Value, field: &str| {
        operation.get(field).and_then(Value::as_str).is_some_and(|path| matches!(path, "" | "/metadata"))
    };
    patch.as_array().is_some_and(|operations| operations.iter().any(|one| all(one, "path") || all(one, "from")))
}

fn json_body(body: &[u8]) -> Result<Decoded, Status> {
    match codec::decode_json(body) {
        Ok(decoded) => Ok(decoded),
        Err(DecodeError::Json(why)) => Err(Status::bad_request(format!("error decoding patch: {why}"))),
        Err(error) => Err(Status::bad_request(format!("error decoding patch: {error}"))),
    }
}

fn patched(
    call: &Call,
    patch: &PatchBody,
    current: &Value,
    strictness: Strictness,
    part: Part,
) -> Result<Value, Status> {
    let resource = &call.resource;
    // A pod's specification is most of it, and no write to the status changes it: it is not brought into shape again to be dropped.
    let alone = part == Part::Status && resource.kind.status_alone && patch.is_about(&BESIDE_SPEC);
    let before = if alone { only(current, &BESIDE_SPEC) } else { current.clone() };
    let mut next = patch.apply(resource.shape(), before)?;
    let unchanged = if alone { same(&next, current, &BESIDE_SPEC) } else { next == *current };
    if unchanged && patch.faults.is_empty() {
        return Ok(if alone { current.clone() } else { next });
    }
    check_kept(call, &next, current)?;
    write::check_namespace(resource, current.namespace(), &mut next)?;
    let read = Read { duplicates: patch.faults.clone(), text: None };
    decode::typed(&mut next, &Expected::of(resource), read, strictness, &mut |warning| call.warn(warning)).map_err(
        |status| {
            let detail = status.message.split_once(": ").map_or(status.message.as_str(), |(_, rest)| rest).to_string();
            let (shown, detail) = match &patch.operations {
                Operations::Strategic(patch) => (unconvertible::shown(patch), unconvertible::reason(&detail)),
                // The object as the patch left it, which checking has changed; it is made again only to be shown.
                _ => (patch.outcome(resource.shape(), current), detail),
            };
            let mut errors = Errors::default();
            errors.push(FieldError::new(Problem::Invalid, "patch", Value::String(shown).to_string(), detail));
            Status::invalid("", "", "", &errors)
        },
    )?;
    if alone {
        take_others(&mut next, current, &BESIDE_SPEC);
    }
    Ok(next)
}

/// What a patch of the status may speak of without touching anything that the status does not belong to.
const BESIDE_SPEC: [&str; 4] = ["apiVersion", "kind", "metadata", "status"];

/// The object with these fields alone.
fn only(object: &Value, fields: &[&str]) -> Value {
    let member = |field: &&str| Some(((*field).to_owned(), object.get(*field)?.clone()));
    Value::Object(fields.iter().filter_map(member).collect())
}

fn same(left: &Value, right: &Value, fields: &[&str]) -> bool {
    fields.iter().all(|field| left.get(field) == right.get(field))
}

/// Gives the object all other fields of that one.
fn take_others(object: &mut Value, from: &Value, fields: &[&str]) {
    let (Some(object), Some(from)) = (object.as_object_mut(), from.as_object()) else { return };
    object.retain(|field, _| fields.contains(&field.as_str()));
    let others = from.iter().filter(|(field, _)| !fields.contains(&field.as_str()));
    object.extend(others.map(|(field, value)| (field.clone(), value.clone())));
}

/// A patch cannot turn an object into another one.
fn check_kept(call: &Call, next: &Value, current: &Value) -> Result<(), Status> {
    for field in ["kind", "apiVersion"] {
        if next.get(field) != current.get(field) {
            let kind = &call.resource.kind;
            let message = format!(
                "{} in version \"{}\" cannot be handled as a {}: a patch may not change {field}",
                kind.kind, kind.version, kind.kind
            );
            return Err(Status::bad_request(message));
        }
    }
    if next.name() != current.name() {
        let message =
            format!("the name of the object ({}) does not match the name on the URL ({})", next.name(), current.name());
        return Err(Status::bad_request(message));
    }
    if call.resource.kind.namespaced() && !next.namespace().is_empty() && next.namespace() != current.namespace() {
        return Err(Status::bad_request(format!(
            "the namespace of the object ({}) does not match the namespace on the URL ({})",
            next.namespace(),
            current.namespace()
        )));
    }
    Ok(())
}

/// Who applies must give a name: fields are owned by it.
pub(crate) fn check_applier(call: &Call) -> Result<(), Status> {
    if !call.query.get("fieldManager").is_empty() {
        return Ok(());
    }
    let mut errors = Errors::default();
    errors.push(FieldError::new(Problem::Required, "fieldManager", "", "is required for apply patch"));
    Err(Status::invalid("meta.k8s.io", "PatchOptions", "", &errors))
}

/// Server-side apply: the fields in the body are this manager's from now on.
async fn apply(call: &Call, part: Part, body: Bytes) -> Result<Reply, Status> {
    let resource = &call.resource;
    let dry_run = call.dry_run("PatchOptions")?;
    let strictness = call.strictness("PatchOptions")?;
    check_applier(call)?;
    let force = call.query.flag("force");
    let (name, api_version, time) = (call.field_manager()?, resource.kind.api_version(), call.app.clock.stamp());
    let manager = Manager { name: &name, api_version: &api_version, subresource: part.subresource(), time: &time };
    let Config { object: config, duplicates } = read_config(call, &body)?;
    let (namespace, name) = (call.target.namespace.as_str(), call.target.name.as_str());
    let untracked = write::untracked(resource, part);
    let merged = |live: Option<&Value>| {
        let mut next = apply::apply(resource.shape(), live, &config, &manager, force, untracked)
            .map_err(|error| error.status())?;
        if resource.custom.is_some() {
            codec::unpack(&mut next);
        }
        match strictness {
            Strictness::Strict if !duplicates.is_empty() => {
                return Err(Status::bad_request(format!("error strict decoding YAML: {duplicates}")));
            }
            _ => {}
        }
        // Merging can leave what decoding would drop.
        decode::typed(&mut next, &Expected::of(resource), Default::default(), Strictness::Ignore, &mut |_| {})?;
        Ok(next)
    };
    let stored =
        write::update(Update { call, resource, namespace, name, part, owner: &Owner::Applied, dry_run }, |live| {
            merged(Some(live))
        })
        .await;
    if strictness == Strictness::Warn && !duplicates.is_empty() {
        call.warn(&duplicates);
    }
    match stored {
        Ok(stored) => respond::stored(call, resource, 200, &stored.value, stored.revision).await,
        Err(status) if status.code == 404 && part == Part::Main && config.uid().is_empty() => {
            if !call.may("create", resource.kind.group, resource.kind.plural, "", namespace, name).await {
                let why = format!("User \"{}\" cannot create resource \"{}\"", call.user.name, resource.kind.plural);
                return Err(Status::forbidden(resource.group_resource(), name, &why));
            }
            let mut object = merged(None)?;
            object.meta_mut().remove("resourceVersion");
            let stored = write::create(call, resource, namespace, object, &Owner::Applied, dry_run).await?;
            respond::stored(call, resource, 201, &stored.value, stored.revision).await
        }
        Err(status) => Err(status),
    }
}

/// What somebody applies.
struct Config {
    object: Value,
    /// The sentence about fields that stand there twice. Fields that there are not are refused where the configuration is held
    /// against the schema, however strict the request is.
    duplicates: String,
}

fn read_config(call: &Call, body: &[u8]) -> Result<Config, Status> {
    let decoded = codec::decode_body("application/yaml", body)
        .map_err(|error| Status::bad_request(format!("error decoding YAML: {error}")))?;
    let mut config = decoded.value;
    let resource = &call.resource;
    let wanted = (resource.kind.kind, resource.kind.api_version());
    let text = |field: &str| config.get(field).and_then(Value::as_str).unwrap_or("");
    if text("kind") != wanted.0 || text("apiVersion") != wanted.1 {
        return Err(Status::bad_request(format!(
            "Incorrect version specified in apply patch. Specified patch version: {}, expected: {}",
            text("apiVersion"),
            wanted.1
        )));
    }
    let (given, name) = (config.name().to_string(), call.target.name.as_str());
    if !given.is_empty() && given != name {
        return Err(Status::bad_request(format!(
            "the name of the object ({given}) does not match the name on the URL ({name})"
        )));
    }
    config.meta_mut().insert("name".into(), name.into());
    write::check_namespace(resource, &call.target.namespace, &mut config)?;
    let duplicates = if decoded.duplicates.is_empty() {
        String::new()
    } else {
        format!("error converting YAML to JSON: {}", decoded.duplicates.join(", "))
    };
    Ok(Config { object: config, duplicates })
}
