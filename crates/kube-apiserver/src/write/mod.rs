//! The common path of every write: own, admit, prepare, validate, store. Verbs bring the object as `decode` leaves it; this file
//! decides nothing about kinds; their entries in the table do.

mod prepare;
mod check;
mod errors;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use api::common::pod_spec::gated::drop_disabled;
use bytes::Bytes;
use machinery::codec;
use machinery::object::Meta;
use machinery::patch::managed::{self, Manager};
use machinery::status::Status;
use serde_json::Value;
use store::cache::Item;
use store::{Change, Expect, Written};

use crate::admission;
use crate::allocate;
use crate::call::Call;
use crate::decode;
use crate::encryption;
use crate::key_locks::KeyGuard;
use crate::names;
use crate::resources::Resource;

pub use errors::undecodable;
pub(crate) use errors::{missing, refuse_undecrypted, store_status};

use check::{check_changed, check_new};
pub(crate) use prepare::keep_identity;
use prepare::{begin, prepare, sign};

/// How often a write is tried again when others wrote first. Writers of one server queue on the key, so only other
/// servers can make us lose.
const TRIES_MAX: usize = 32;
/// How often another generated name is tried when one is taken, as upstream.
const GENERATED_NAMES_MAX: usize = 8;
/// How long a writer waits for its own write to show in the cache.
const OWN_WRITE_TIMEOUT: Duration = Duration::from_secs(3);

/// The outcome of a write: the stored bytes and their revision; none where nothing was stored (dry run of a create).
pub struct Stored {
    pub value: Bytes,
    pub revision: Option<u64>,
}

/// Which part of an object a request writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Main,
    Status,
    /// Another subresource that changes the object, such as `binding`.
    Sub(&'static str),
}

impl Part {
    pub fn subresource(self) -> &'static str {
        match self {
            Part::Main => "",
            Part::Status => "status",
            Part::Sub(name) => name,
        }
    }
}

/// Who the changed fields belong to afterwards.
#[derive(Clone, Debug)]
pub enum Owner {
    /// The manager of an ordinary write.
    Update(String),
    /// Server-side apply has worked ownership out already.
    Applied,
}

/// Stores a new object. `object` is in the version that was asked for, as `decode` leaves it.
pub async fn create(
    call: &Call,
    resource: &Resource,
    namespace: &str,
    object: Value,
    owner: &Owner,
    dry_run: bool,
) -> Result<Stored, Status> {
    if is_to_be_named(&object) {
        // The object is kept for another name, in case this one is taken.
        return create_from(call, resource, namespace, || Ok(object.clone()), owner, dry_run).await;
    }
    let mut once = Some(object);
    create_from(call, resource, namespace, || Ok(once.take().unwrap_or_default()), owner, dry_run).await
}

/// The same of an object that can be made again: it is where the name that was generated for it is taken.
pub(crate) async fn create_from(
    call: &Call,
    resource: &Resource,
    namespace: &str,
    mut object: impl FnMut() -> Result<Value, Status>,
    owner: &Owner,
    dry_run: bool,
) -> Result<Stored, Status> {
    let mut tries = 0;
    loop {
        tries += 1;
        let mut object = object()?;
        check_namespace(resource, namespace, &mut object)?;
        own(call, resource, None, &mut object, owner, Part::Main);
        let object = resource.conversion.to_work(object);
        let again = tries < GENERATED_NAMES_MAX && is_to_be_named(&object);
        match create_once(call, resource, namespace, object, dry_run).await {
            Err(status) if again && status.reason == "AlreadyExists" => {}
            outcome => return outcome,
        }
    }
}

fn is_to_be_named(object: &Value) -> bool {
    object.name().is_empty() && !object.meta("generateName").map_or("", |v| v.as_str().unwrap_or("")).is_empty()
}

/// The same for an object that this server makes.
pub(crate) async fn create_own(call: &Call, mut object: Value, owner: &Owner) -> Result<Stored, Status> {
    decode::own(&call.resource, &mut object)?;
    let namespace = object.namespace().to_string();
    create(call, &call.resource, &namespace, object, owner, false).await
}

async fn create_once(
    call: &Call,
    resource: &Resource,
    namespace: &str,
    mut object: Value,
    dry_run: bool,
) -> Result<Stored, Status> {
    let app = &call.app;
    let kind = &*resource.stored;
    let has_revision = !object.resource_version().is_empty();
    let request = admission::Request::create(call, resource, namespace, dry_run);
    app.admission.mutate(&request, &mut object).await?;
    if object.name().is_empty() {
        let base = object.meta("generateName").and_then(Value::as_str).unwrap_or("").to_string();
        if !base.is_empty() {
            object.meta_mut().insert("name".into(), names::generate(&base).into());
        }
    }
    begin(call, resource, &mut object);
    (kind.prepare_create)(&mut object);
    drop_disabled(kind, &mut object, None, |gate| app.settings.gates.is_on(gate));
    sign(call, resource, &mut object, None, Part::Main);
    let reserved = allocate::for_create(call, resource, &mut object, dry_run).await?;
    check_new(resource, &object)?;
    (kind.warnings)(&object, None).into_iter().for_each(|text| call.warn(text));
    app.admission.validate(&request, Some(&object)).await?;
    let name = object.name().to_string();
    let key = resource.key(object.namespace(), &name)?;
    if dry_run {
        if resource.state()?.get(&key).is_some() {
            return Err(Status::already_exists(resource.group_resource(), &name));
        }
        return Ok(Stored { value: encode(&resource.conversion.to_stored(app, object).await?), revision: None });
    }
    if has_revision {
        // Said by the store upstream, so that whatever admission and validation have to say comes first.
        app.admission.give_back(&request).await;
        return Err(Status::bad_request("resourceVersion should not be set on objects to be created"));
    }
    let value = encode(&resource.conversion.to_stored(app, object).await?);
    let put = Change::Put { value: value.clone(), ttl: ttl(call, resource) };
    match app.cache.store().write_if(&key, Expect::Absent, put).await.map_err(store_status)? {
        Written::Done(revision) => {
            reserved.keep().await;
            if admission::governs(&resource.kind) {
                // What its writer sends next must already be held to it.
                wait_for_cache(call, revision).await;
            }
            Ok(Stored { value, revision: Some(revision.0) })
        }
        Written::Conflict(_) => {
            app.admission.give_back(&request).await;
            Err(Status::already_exists(resource.group_resource(), &name))
        }
    }
}

/// Which object is changed, by whom, and how.
pub struct Update<'a> {
    pub call: &'a Call,
    pub resource: &'a Resource,
    pub namespace: &'a str,
    pub name: &'a str,
    pub part: Part,
    pub owner: &'a Owner,
    pub dry_run: bool,
}

/// Changes an object that is there. `change` gets the current object in the version that was asked for and answers
/// the new one, conformed and defaulted; it runs again when others wrote meanwhile.
pub async fn update(
    update: Update<'_>,
    mut change: impl FnMut(&Value) -> Result<Value, Status>,
) -> Result<Stored, Status> {
    update_moving(update, |current| change(current)).await
}

/// The same, where `change` may move parts of the current object into the new one instead of copying them. Only for writes to a
/// subresource of which nobody behind this compares these parts.
pub(crate) async fn update_moving(
    update: Update<'_>,
    mut change: impl FnMut(&mut Value) -> Result<Value, Status>,
) -> Result<Stored, Status> {
    let Update { call, resource, namespace, name, .. } = update;
    let app = &call.app;
    let state = resource.state()?;
    let key = resource.key(namespace, name)?;
    let _alone = alone(call, resource, &key).await;
    let mut current = state.get(&key);
    let mut fresh = false;
    for _ in 0..TRIES_MAX {
        if current.is_none() && !fresh {
            app.cache.fresh().await.map_err(store_status)?;
            fresh = true;
            current = state.get(&key);
        }
        let Some(item) = &current else {
            return Err(missing(resource, &key, name));
        };
        if let Some(why) = encryption::reason(&item.value) {
            return Err(Status::internal(why));
        }
        let old = resource
            .conversion
            .decode_for_write(&item.value, item.revision.0)
            .map_err(|why| undecodable(&key, &why))?;
        let mut old = resource.conversion.stored_to_work(app, old).await?;
        let mut other = None;
        if !resource.conversion.asks_others()
            && let Cow::Owned(shown) = resource.conversion.shown(&old)
        {
            other = Some(shown);
        }
        let proposed = change(other.as_mut().unwrap_or(&mut old))?;
        let shown = other.as_ref().unwrap_or(&old);
        match conflict(resource, name, shown, &proposed) {
            // The cache may lag behind another server: look once more before refusing.
            Some(_) if !fresh => {
                app.cache.fresh().await.map_err(store_status)?;
                fresh = true;
                current = state.get(&key);
                continue;
            }
            Some(status) => return Err(status),
            None => {}
        }
        match replace(&update, &key, item, &old, shown, proposed).await? {
            Outcome::Stored(stored) => return Ok(stored),
            Outcome::Unchanged(stored) if fresh => return Ok(stored),
            Outcome::Unchanged(stored) => {
                // Nothing was written, so nothing has told yet whether the cache lags behind another server: an answer
                // from the past would hide a conflict.
                app.cache.fresh().await.map_err(store_status)?;
                fresh = true;
                let now = state.get(&key);
                if now.as_ref().is_some_and(|now| now.revision == item.revision) {
                    return Ok(stored);
                }
                current = now;
            }
            Outcome::Lost(entry) => {
                fresh = true;
                current = match entry {
                    Some(entry) => {
                        let (revision, created) = (entry.revision, entry.created);
                        Some(Arc::new(Item::new(entry.key, entry.value, revision, created, Default::default())))
                    }
                    None => None,
                };
            }
        }
    }
    Err(Status::modified(resource.group_resource(), name))
}

/// Writers of one object take turns, so that none writes in vain. Where somebody else is asked about the write they do not: that
/// may take as long as a webhook's timeout. The store says who was first then, and the others try again.
pub(crate) async fn alone<'a>(call: &'a Call, resource: &Resource, key: &str) -> Option<KeyGuard<'a>> {
    let app = &call.app;
    if app.admission.asks_others(app, &resource.kind) { None } else { Some(app.locks.lock(key).await) }
}

enum Outcome {
    Stored(Stored),
    /// There was nothing to write.
    Unchanged(Stored),
    /// Another server wrote first; this is what the key holds now.
    Lost(Option<store::Entry>),
}

/// One try of `update`.
async fn replace(
    update: &Update<'_>,
    key: &str,
    item: &Item,
    old: &Value,
    shown: &Value,
    mut proposed: Value,
) -> Result<Outcome, Status> {
    let Update { call, resource, part, owner, dry_run, .. } = *update;
    let app = &call.app;
    let kind = &*resource.stored;
    keep_identity(&mut proposed, shown);
    own(call, resource, Some(shown), &mut proposed, owner, part);
    let mut new = resource.conversion.to_work(proposed);
    let request = admission::Request::update(call, resource, old, part, dry_run);
    app.admission.mutate(&request, &mut new).await?;
    prepare(resource, &app.settings.gates, &mut new, old, part);
    sign(call, resource, &mut new, Some(old), part);
    let reserved = allocate::for_update(call, resource, &mut new, old, dry_run).await?;
    check_changed(resource, &new, old, part)?;
    (kind.warnings)(&new, Some(old)).into_iter().for_each(|text| call.warn(text));
    app.admission.validate(&request, Some(&new)).await?;
    // One that is stored in another form than it would be today is written again.
    let unchanged = new == *old;
    let gone = new.is_deleting() && ends(resource, &new);
    let value = encode(&resource.conversion.to_stored(app, new).await?);
    let as_stored = resource.conversion.as_stored(item.revision.0) || value == item.value;
    // A value that another key wrote is written again, too: that is how keys are rotated.
    if unchanged && as_stored && !app.encrypted.is_stale(key).await.map_err(store_status)? {
        return Ok(Outcome::Unchanged(Stored { value: item.value.clone(), revision: Some(item.revision.0) }));
    }
    if dry_run {
        return Ok(Outcome::Stored(Stored { value, revision: Some(item.revision.0) }));
    }
    let change = if gone { Change::Delete } else { Change::Put { value: value.clone(), ttl: ttl(call, resource) } };
    match app.cache.store().write_if(key, Expect::At(item.revision), change).await.map_err(store_status)? {
        Written::Done(revision) => {
            reserved.keep().await;
            if gone {
                allocate::release(app, resource, old).await;
            }
            wait_for_cache(call, revision).await;
            Ok(Outcome::Stored(Stored { value, revision: Some(if gone { item.revision.0 } else { revision.0 }) }))
        }
        Written::Conflict(entry) => {
            app.admission.give_back(&request).await;
            Ok(Outcome::Lost(entry))
        }
    }
}

/// The next writer of this key, queued on its lock, should see this write. A cache that lags is not the client's
/// trouble: the write is done, and a writer who sees the past loses to the expected revision and tries again.
pub async fn wait_for_cache(call: &Call, revision: store::Revision) {
    if let Err(error) = call.app.cache.wait_for(revision, OWN_WRITE_TIMEOUT).await {
        tracing::warn!(%revision, %error, "watch cache did not see own write in time");
    }
}

/// An object marked for deletion goes when nothing holds it any more.
pub fn ends(resource: &Resource, object: &Value) -> bool {
    let grace = object.meta("deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(0);
    grace == 0 && object.finalizers().is_empty() && !(resource.stored.held)(object)
}

/// What a body said of its namespace must be what the path says.
pub(crate) fn check_namespace(resource: &Resource, namespace: &str, object: &mut Value) -> Result<(), Status> {
    if !resource.kind.namespaced() {
        // Manifests are written by tools that put a namespace everywhere; there is none to be in.
        if !object.namespace().is_empty() {
            object.meta_mut().remove("namespace");
        }
        return Ok(());
    }
    match object.namespace() {
        "" => {
            object.meta_mut().insert("namespace".into(), namespace.into());
            Ok(())
        }
        given if given == namespace => Ok(()),
        _ => Err(namespace_mismatch()),
    }
}

pub(crate) fn namespace_mismatch() -> Status {
    Status::bad_request("the namespace of the provided object does not match the namespace sent on the request")
}

fn own(call: &Call, resource: &Resource, old: Option<&Value>, new: &mut Value, owner: &Owner, part: Part) {
    let Owner::Update(name) = owner else { return };
    // Upstream's entries of scale have no time.
    let time = if part == Part::Sub("scale") { String::new() } else { call.app.clock.stamp() };
    let api_version = resource.kind.api_version();
    let manager = Manager { name, api_version: &api_version, subresource: part.subresource(), time: &time };
    managed::update(resource.shape(), old, new, &manager, untracked(resource, part));
    if resource.custom.is_some() {
        codec::unpack(new);
    }
}

/// Fields that a write to this part does not own: status for the object itself, all but status for its status.
pub(crate) fn untracked(resource: &Resource, part: Part) -> &'static [&'static str] {
    let has_status = resource.kind.subresources.iter().any(|sub| sub.name == "status");
    match part {
        Part::Main if has_status => &["status"],
        Part::Main => &[],
        Part::Status => resource.kind.status_keeps,
        // Approvers write conditions, which are theirs then.
        Part::Sub("approval") => &["spec"],
        Part::Sub(_) => &["status"],
    }
}

/// Why this object may not replace that one, if it names another version of it.
fn conflict(resource: &Resource, name: &str, current: &Value, proposed: &Value) -> Option<Status> {
    let wanted = proposed.resource_version();
    (!wanted.is_empty() && wanted != current.resource_version())
        .then(|| Status::modified(resource.group_resource(), name))
}

/// The stored text: without resourceVersion, which the store gives.
pub fn encode(object: &Value) -> Bytes {
    codec::encode_stored(object).into()
}

/// How long what vanishes by itself is kept.
fn ttl(call: &Call, resource: &Resource) -> Option<Duration> {
    resource.stored.expires.then_some(call.app.settings.event_ttl)
}
