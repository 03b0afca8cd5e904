//! `delete` and `deletecollection`: at once, after a grace period, or when the last finalizer is gone.

use std::sync::Arc;

use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};
use machinery::field::{Errors, FieldError, Problem};
use machinery::object::Meta;
use machinery::status::{GroupResource, Status};
use serde_json::{Value, json};
use store::cache::Item;
use store::{Change, Expect, Revision, Written};

use crate::admission;
use crate::allocate;
use crate::app::stamp;
use crate::call::Call;
use crate::conversion::decode_stored;
use crate::filter::Filter;
use crate::negotiate::{Form, Media};
use crate::resources::Resource;
use crate::respond::{self, Reply};
use crate::verbs::list::list_item;
use crate::verbs::list_body;
use crate::write::{self, encode, store_status};

const TRIES_MAX: usize = 32;
/// How many objects of a collection are deleted at the same time: so many share a commit of the store. With more, others would
/// wait for the work on all of them.
const COLLECTION_PARALLEL: usize = 64;

/// DeleteOptions, from the body or the query.
#[derive(Clone, Debug, Default)]
pub struct Options {
    pub grace_period_seconds: Option<i64>,
    pub propagation: Option<Propagation>,
    pub uid: Option<String>,
    pub resource_version: Option<String>,
    pub dry_run: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    Orphan,
    Background,
    Foreground,
}

pub async fn delete(call: &Call, body: Bytes) -> Result<Reply, Status> {
    let options = Options::read(call, &body)?;
    let (namespace, name) = (&call.target.namespace, &call.target.name);
    match one(call, namespace, name, &options).await? {
        Outcome::Marked(value, revision) => respond::stored(call, &call.resource, 200, &value, Some(revision)).await,
        Outcome::Gone(mut object) if call.resource.kind.delete_returns_object => {
            machinery::codec::unpack(&mut object);
            respond::object(call, &call.resource, 200, call.resource.conversion.show(&call.app, object).await?)
        }
        Outcome::Gone(object) => Ok(respond::deleted(call, &call.resource, name, object.uid())),
    }
}

/// Deletes what matches, and answers the list of it.
pub async fn collection(call: &Call, body: Bytes) -> Result<Reply, Status> {
    use futures::stream::{StreamExt, TryStreamExt};
    let options = Options::read(call, &body)?;
    let resource = &call.resource;
    let filter = Filter::parse(resource, &call.target.namespace, "", &call.query)?;
    call.app.cache.fresh().await.map_err(store_status)?;
    write::refuse_undecrypted(resource, &filter.prefix)?;
    let snapshot = resource.state()?.snapshot();
    let from: Arc<str> = filter.prefix.as_str().into();
    let range = snapshot.items.range(from..).take_while(|(key, _)| key.starts_with(&filter.prefix));
    let items: Vec<Arc<Item>> = range.filter(|(_, item)| filter.matches(item)).map(|(_, item)| item.clone()).collect();
    let items = filter.narrow(&call.app, resource, items).await?;
    let deletes = futures::stream::iter(items.clone()).map(|item| {
        let options = &options;
        async move {
            let mut parts = item.key.rsplit('/');
            let name = parts.next().unwrap_or("").to_string();
            let namespace =
                if resource.kind.namespaced() { parts.next().unwrap_or("").to_string() } else { String::new() };
            let key = resource.key(&namespace, &name)?;
            let _alone = write::alone(call, resource, &key).await;
            // The list was fresh. What has changed since is found at the write, and not asked for before each.
            match by_key(call, &key, &name, options).await {
                // Somebody else deleted it first: it is gone, as asked.
                Err(status) if status.code == 404 => Ok(None),
                deleted => deleted.map(|(_, written)| written),
            }
        }
    });
    let written = deletes.buffer_unordered(COLLECTION_PARALLEL);
    let newest = written.try_fold(None, async |newest: Option<Revision>, one| Ok(newest.max(one))).await?;
    if let Some(newest) = newest {
        write::wait_for_cache(call, newest).await;
    }
    let as_stored = items.iter().all(|item| resource.conversion.as_stored(item.revision.0));
    if as_stored && call.answer.media == Media::Json && call.answer.form == Form::Object && !call.answer.pretty {
        let meta = json!({"resourceVersion": snapshot.revision.to_string()});
        return Ok(list_body::json(call, &meta, items));
    }
    let shown = async {
        let decoded = items.iter().filter_map(|item| decode_stored(&item.value, item.revision.0).ok()).collect();
        resource.conversion.show_all(&call.app, decoded).await
    };
    let objects = call.app.offload.run(shown).await?.into_iter();
    let objects: Vec<Value> = objects.map(|object| list_item(resource, object)).collect();
    let list = json!({
        "kind": format!("{}List", resource.kind.kind), "apiVersion": resource.kind.api_version(),
        "metadata": {"resourceVersion": snapshot.revision.to_string()}, "items": objects,
    });
    Ok(respond::value(200, &call.answer, &list))
}

pub enum Outcome {
    /// Still there, marked for deletion.
    Marked(Bytes, u64),
    Gone(Value),
}

/// Deletes one object, or marks it.
pub async fn one(call: &Call, namespace: &str, name: &str, options: &Options) -> Result<Outcome, Status> {
    let key = call.resource.key(namespace, name)?;
    let _alone = write::alone(call, &call.resource, &key).await;
    call.app.cache.fresh().await.map_err(store_status)?;
    let (outcome, written) = by_key(call, &key, name, options).await?;
    if let Some(written) = written {
        write::wait_for_cache(call, written).await;
    }
    Ok(outcome)
}

/// Deletes what is at a key that the caller has locked, and answers the revision of the write, if there was one.
async fn by_key(call: &Call, key: &str, name: &str, options: &Options) -> Result<(Outcome, Option<Revision>), Status> {
    let (app, resource) = (&call.app, &call.resource);
    let mut current = resource.state()?.get(key).map(|item| (item.value.clone(), item.revision));
    for _ in 0..TRIES_MAX {
        let Some((value, revision)) = &current else {
            return Err(write::missing(resource, key, name));
        };
        let old =
            resource.conversion.decode_for_write(value, revision.0).map_err(|why| write::undecodable(key, &why))?;
        check_preconditions(resource, name, &old, options)?;
        let mut request = admission::Request::delete(call, resource, &old, options.dry_run);
        request.options = Some(options.to_value());
        app.admission.validate(&request, None).await?;
        let next = marked(resource, &old, options, app.clock.now());
        let (store, at) = (app.cache.store(), *revision);
        let mark = match &next {
            Next::Unchanged => return Ok((Outcome::Marked(value.clone(), revision.0), None)),
            Next::Mark(object) => Some(encode(object)),
            // Watchers see what ends gracefully end before it is gone, also when it goes at once, as upstream.
            Next::Delete(object) => (ends_gracefully(resource) && *object != old).then(|| encode(object)),
        };
        let written = match (&next, mark.clone()) {
            _ if options.dry_run => None,
            (Next::Delete(_), Some(last)) => Some(store.end_if(key, at, last).await),
            (Next::Delete(_), None) => Some(store.write_if(key, Expect::At(at), Change::Delete).await),
            (Next::Unchanged | Next::Mark(_), mark) => {
                let put = Change::Put { value: mark.unwrap_or_default(), ttl: None };
                Some(store.write_if(key, Expect::At(at), put).await)
            }
        };
        let written = match written.transpose().map_err(store_status)? {
            None => None,
            Some(Written::Done(revision)) => Some(revision),
            Some(Written::Conflict(entry)) => {
                current = entry.map(|entry| (entry.value, entry.revision));
                continue;
            }
        };
        drop(request);
        let outcome = match next {
            Next::Unchanged => unreachable!("answered above"),
            Next::Mark(_) => Outcome::Marked(mark.unwrap_or_default(), written.unwrap_or(*revision).0),
            // Only what ends gracefully shows the marks of a deletion that took place at once.
            Next::Delete(object) => {
                if let Some(written) = written.filter(|_| allocate::is_service(resource)) {
                    // Who repairs claims must not find the Service any more when its own are free.
                    write::wait_for_cache(call, written).await;
                    allocate::release(app, resource, &old).await;
                }
                Outcome::Gone(if ends_gracefully(resource) { object } else { old })
            }
        };
        return Ok((outcome, written));
    }
    Err(Status::modified(resource.group_resource(), name))
}

enum Next {
    Unchanged,
    Mark(Value),
    /// Carries the object as it was when it went.
    Delete(Value),
}

/// What becomes of an object that somebody asked to delete.
fn marked(resource: &Resource, old: &Value, options: &Options, now: Timestamp) -> Next {
    let mut new = old.clone();
    set_finalizers(resource, &mut new, options);
    let grace = resource.kind.grace_period.map_or(0, |period| period(old, options.grace_period_seconds));
    let deleting = old.is_deleting();
    if grace == 0 {
        if !deleting {
            crate::custom::cleanup::mark(resource, &mut new, &stamp(now));
            new.meta_mut().insert("deletionTimestamp".into(), stamp(now).into());
            bump_generation(&mut new);
        }
        (resource.kind.begin_deletion)(&mut new);
        return if write::ends(resource, &new) {
            Next::Delete(new)
        } else if new == *old {
            Next::Unchanged
        } else {
            Next::Mark(new)
        };
    }
    if deleting {
        let left = old.meta("deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(0);
        if grace >= left {
            return if new == *old { Next::Unchanged } else { Next::Mark(new) };
        }
        // A shorter period counts from when the deletion began.
        let until =
            old.meta("deletionTimestamp").and_then(Value::as_str).and_then(|time| time.parse::<Timestamp>().ok());
        let until = until.unwrap_or(now) - SignedDuration::from_secs(left - grace);
        new.meta_mut().insert("deletionTimestamp".into(), stamp(until.max(now)).into());
    } else {
        new.meta_mut().insert("deletionTimestamp".into(), stamp(now + SignedDuration::from_secs(grace)).into());
        bump_generation(&mut new);
    }
    new.meta_mut().insert("deletionGracePeriodSeconds".into(), grace.into());
    Next::Mark(new)
}

fn ends_gracefully(resource: &Resource) -> bool {
    resource.kind.grace_period.is_some()
}

fn bump_generation(object: &mut Value) {
    if let Some(generation) = object.meta("generation").and_then(Value::as_i64) {
        object.meta_mut().insert("generation".into(), (generation + 1).into());
    }
}

/// Dependents are orphaned or awaited by finalizers that the garbage collector works off.
fn set_finalizers(resource: &Resource, object: &mut Value, options: &Options) {
    let propagation = options.propagation.or_else(|| {
        let held: Vec<&str> = object.finalizers();
        // What an earlier delete asked for stays.
        match (held.contains(&"orphan"), held.contains(&"foregroundDeletion")) {
            (true, _) => Some(Propagation::Orphan),
            (_, true) => Some(Propagation::Foreground),
            _ if resource.kind.orphan_by_default => Some(Propagation::Orphan),
            _ => None,
        }
    });
    let wanted = match propagation {
        Some(Propagation::Orphan) => Some("orphan"),
        Some(Propagation::Foreground) => Some("foregroundDeletion"),
        Some(Propagation::Background) | None => None,
    };
    let mut list: Vec<Value> = object.meta("finalizers").and_then(Value::as_array).cloned().unwrap_or_default();
    list.retain(|finalizer| {
        !matches!(finalizer.as_str(), Some("orphan" | "foregroundDeletion")) || finalizer.as_str() == wanted
    });
    if let Some(wanted) = wanted.filter(|wanted| !list.iter().any(|finalizer| finalizer == wanted)) {
        list.push(wanted.into());
    }
    if list.is_empty() {
        object.meta_mut().remove("finalizers")
    } else {
        object.meta_mut().insert("finalizers".into(), list.into())
    };
}

fn check_preconditions(resource: &Resource, name: &str, old: &Value, options: &Options) -> Result<(), Status> {
    let checks = [
        ("UID", options.uid.as_deref(), old.uid(), "deleted and then recreated"),
        ("ResourceVersion", options.resource_version.as_deref(), old.resource_version(), "modified"),
    ];
    for (what, wanted, found, meanwhile) in checks {
        if let Some(wanted) = wanted.filter(|wanted| *wanted != found) {
            let why = format!(
                "the {what} in the precondition ({wanted}) does not match the {what} in record ({found}). The object \
                 might have been {meanwhile}"
            );
            // Upstream names the kind here, not the resource.
            let kind = GroupResource { group: resource.kind.group, resource: resource.kind.kind };
            return Err(Status::conflict(kind, name, &why));
        }
    }
    Ok(())
}

impl Options {
    fn read(call: &Call, body: &[u8]) -> Result<Options, Status> {
        let given = if body.is_empty() {
            Value::Null
        } else {
            let content_type = call.headers.get(http::header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
            crate::decode::delete_options(content_type.unwrap_or(""), body)?
        };
        let mut options = Options::from_value(&given)?;
        options.dry_run |= call.dry_run("DeleteOptions")?;
        if let Some(seconds) = call.query.number("gracePeriodSeconds")? {
            options.grace_period_seconds = Some(seconds);
        }
        let orphan = call.query.has("orphanDependents").then(|| call.query.flag("orphanDependents"));
        if let Some(propagation) = Propagation::read(call.query.get("propagationPolicy"), orphan)? {
            options.propagation = Some(propagation);
        }
        Ok(options)
    }

    /// As an object again, for those who ask.
    fn to_value(&self) -> Value {
        let mut out = json!({"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1"});
        if let Some(seconds) = self.grace_period_seconds {
            out["gracePeriodSeconds"] = seconds.into();
        }
        for (field, text) in [("uid", &self.uid), ("resourceVersion", &self.resource_version)] {
            if let Some(text) = text {
                out["preconditions"][field] = text.as_str().into();
            }
        }
        if let Some(propagation) = self.propagation {
            out["propagationPolicy"] = format!("{propagation:?}").into();
        }
        if self.dry_run {
            out["dryRun"] = json!(["All"]);
        }
        out
    }

    /// From a DeleteOptions object; null means nothing was said.
    pub fn from_value(given: &Value) -> Result<Options, Status> {
        let wrong = |field: &str| Status::bad_request(format!("DeleteOptions: {field} has the wrong type"));
        let text = |path: &str| given.pointer(path).and_then(Value::as_str).map(str::to_string);
        let dry_run = match given["dryRun"].as_array().map(Vec::as_slice) {
            None | Some([]) => false,
            Some([all]) if all == "All" => true,
            Some(other) => {
                let mut errors = Errors::default();
                let shown = Value::from(other.to_vec()).to_string();
                errors.push(FieldError::new(Problem::NotSupported, "dryRun", shown, "supported values: \"All\""));
                return Err(Status::invalid("meta.k8s.io", "DeleteOptions", "", &errors));
            }
        };
        Ok(Options {
            grace_period_seconds: match &given["gracePeriodSeconds"] {
                Value::Null => None,
                seconds => Some(seconds.as_i64().ok_or_else(|| wrong("gracePeriodSeconds"))?),
            },
            propagation: Propagation::read(
                given["propagationPolicy"].as_str().unwrap_or(""),
                given["orphanDependents"].as_bool(),
            )?,
            uid: text("/preconditions/uid"),
            resource_version: text("/preconditions/resourceVersion"),
            dry_run,
        })
    }
}

impl Propagation {
    fn read(policy: &str, orphan: Option<bool>) -> Result<Option<Propagation>, Status> {
        Ok(match (policy, orphan) {
            ("", None) => None,
            ("", Some(true)) => Some(Propagation::Orphan),
            ("", Some(false)) => Some(Propagation::Background),
            ("Orphan", None) => Some(Propagation::Orphan),
            ("Background", None) => Some(Propagation::Background),
            ("Foreground", None) => Some(Propagation::Foreground),
            (_, Some(_)) => {
                return Err(bad_policy(
                    Problem::Invalid,
                    policy,
                    "orphanDependents and deletionPropagation cannot be both set",
                ));
            }
            _ => {
                let detail = "supported values: \"Foreground\", \"Background\", \"Orphan\", \"nil\"";
                return Err(bad_policy(Problem::NotSupported, policy, detail));
            }
        })
    }
}

fn bad_policy(problem: Problem, policy: &str, detail: &str) -> Status {
    let mut errors = Errors::default();
    errors.push(FieldError::new(problem, "propagationPolicy", format!("{policy:?}"), detail));
    Status::invalid("meta.k8s.io", "DeleteOptions", "", &errors)
}
