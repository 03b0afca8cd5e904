//! `list`: many objects of one revision, whole or in pages. The bytes are sent as they are stored.

use std::io::Write;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use flate2::Compression;
use flate2::write::GzEncoder;
use machinery::codec::{self, DecodeError};
use machinery::field::{Errors, FieldError, Problem};
use machinery::status::Status;
use serde_json::{Map, Value, json};
use store::cache::{Item, Snapshot};
use store::{Revision, StoreError};

use super::get::{REVISION_TIMEOUT, revision};
use super::list_body;
use crate::body::Body;
use crate::call::Call;
use crate::conversion::decode_stored;
use crate::filter::Filter;
use crate::negotiate::{Form, Media};
use crate::offload::HEAVY_BYTES;
use crate::resources::Resource;
use crate::respond::{self, Reply};
use crate::table::{self, Include};
use crate::transcode::Transcoding;
use crate::write::{refuse_undecrypted, store_status};

pub async fn list(call: &Call) -> Result<Reply, Status> {
    let resource = &call.resource;
    let filter = Filter::parse(resource, &call.target.namespace, &call.target.name, &call.query)?;
    let limit = call.query.number("limit")?.unwrap_or(0).max(0) as usize;
    let start = Start::read(call)?;
    if let Some((at, value)) = filter.indexed(resource).filter(|_| limit == 0)
        && start.is_newest()
    {
        start.wait(call).await?;
        refuse_undecrypted(resource, &filter.prefix)?;
        let (revision, mut items) = resource.state()?.having(at, value, &filter.prefix);
        items.retain(|item| filter.matches(item));
        return answer(call, resource, revision, &filter, Page { items, last_key: None, remaining: None }).await;
    }
    let start = match start {
        Start::Fresh => {
            call.app.cache.fresh().await.map_err(store_status)?;
            (resource.state()?.snapshot(), None)
        }
        Start::Any => (resource.state()?.snapshot(), None),
        Start::NotOlderThan(revision) => {
            call.app.cache.wait_for(revision, REVISION_TIMEOUT).await.map_err(store_status)?;
            (resource.state()?.snapshot(), None)
        }
        Start::Exact(revision) => (snapshot_at(call, revision).await?, None),
        Start::Continue { revision: None, after } => {
            call.app.cache.fresh().await.map_err(store_status)?;
            (resource.state()?.snapshot(), Some(after))
        }
        Start::Continue { revision: Some(revision), after } => match snapshot_at(call, revision).await {
            Ok(snapshot) => (snapshot, Some(after)),
            Err(status) if status.code == 410 => return Ok(expired_continue(call, &after)),
            Err(status) => return Err(status),
        },
    };
    refuse_undecrypted(resource, filter.key().unwrap_or(&filter.prefix))?;
    let (snapshot, after) = start;
    let page = if filter.is_late() {
        let all = Page::take(&snapshot, &filter, after.as_deref(), 0);
        Page::cut(filter.narrow(&call.app, resource, all.items).await?, limit)
    } else {
        Page::take(&snapshot, &filter, after.as_deref(), limit)
    };
    let revision = snapshot.revision;
    if page.last_key.is_some() {
        resource.state()?.keep_for_pages(snapshot);
    }
    answer(call, resource, revision, &filter, page).await
}

/// The objects of one answer, and how many remain behind it.
struct Page {
    items: Vec<Arc<Item>>,
    last_key: Option<Arc<str>>,
    remaining: Option<usize>,
}

impl Page {
    /// The first of items that are all meant.
    fn cut(mut items: Vec<Arc<Item>>, limit: usize) -> Page {
        let more = limit > 0 && items.len() > limit;
        if more {
            items.truncate(limit);
        }
        let last_key = items.last().filter(|_| more).map(|item| item.key.clone());
        Page { items, last_key, remaining: None }
    }

    fn take(snapshot: &Snapshot, filter: &Filter, after: Option<&str>, limit: usize) -> Page {
        if let Some(key) = filter.key() {
            let item = snapshot.items.get(key).filter(|item| filter.matches(item));
            return Page { items: item.cloned().into_iter().collect(), last_key: None, remaining: None };
        }
        let from: Arc<str> = match after {
            // The next key there can be.
            Some(after) => format!("{}{after}\0", filter.prefix).as_str().into(),
            None => filter.prefix.as_str().into(),
        };
        let range = snapshot.items.range(from..).take_while(|(key, _)| key.starts_with(&filter.prefix));
        let mut matching = range.filter(|(_, item)| !filter.selects() || filter.matches(item));
        if limit == 0 {
            let items = matching.map(|(_, item)| item.clone()).collect();
            return Page { items, last_key: None, remaining: None };
        }
        let items: Vec<Arc<Item>> = matching.by_ref().take(limit).map(|(_, item)| item.clone()).collect();
        let more = matching.next().is_some();
        let remaining = (more && !filter.selects()).then(|| 1 + matching.count());
        let last_key = more.then(|| items.last().map(|item| item.key.clone())).flatten();
        Page { items, last_key, remaining }
    }
}

/// Where a list begins, from resourceVersion, resourceVersionMatch and continue.
enum Start {
    Fresh,
    Any,
    NotOlderThan(Revision),
    Exact(Revision),
    /// Behind that key; without a revision the list goes on with the newest state.
    Continue {
        revision: Option<Revision>,
        after: String,
    },
}

impl Start {
    /// Whether the newest state serves, once it is new enough.
    fn is_newest(&self) -> bool {
        match self {
            Start::Fresh | Start::Any | Start::NotOlderThan(_) => true,
            Start::Exact(_) | Start::Continue { .. } => false,
        }
    }

    /// Until the state is as new as was asked for.
    async fn wait(&self, call: &Call) -> Result<(), Status> {
        match self {
            Start::Fresh => call.app.cache.fresh().await.map(|_| ()),
            Start::NotOlderThan(revision) => call.app.cache.wait_for(*revision, REVISION_TIMEOUT).await,
            Start::Any | Start::Exact(_) | Start::Continue { .. } => Ok(()),
        }
        .map_err(store_status)
    }

    fn read(call: &Call) -> Result<Start, Status> {
        let token = call.query.get("continue");
        let version = call.query.get("resourceVersion");
        let how = call.query.get("resourceVersionMatch");
        let forbidden_field = |field: &str, detail: &str| {
            let mut errors = Errors::default();
            errors.push(FieldError::new(Problem::Forbidden, field, "", detail));
            Status::invalid("meta.k8s.io", "ListOptions", "", &errors)
        };
        let forbidden = |detail: &str| forbidden_field("resourceVersionMatch", detail);
        if call.query.has("sendInitialEvents") {
            return Err(forbidden_field("sendInitialEvents", "sendInitialEvents is forbidden for list"));
        }
        if !how.is_empty() {
            if version.is_empty() {
                return Err(forbidden("resourceVersionMatch is forbidden unless resourceVersion is provided"));
            }
            if !token.is_empty() {
                return Err(forbidden("resourceVersionMatch is forbidden when continue is provided"));
            }
            if how != "Exact" && how != "NotOlderThan" {
                let mut errors = Errors::default();
                let detail = "supported values: \"Exact\", \"NotOlderThan\"";
                errors.push(FieldError::new(Problem::NotSupported, "resourceVersionMatch", format!("{how:?}"), detail));
                return Err(Status::invalid("meta.k8s.io", "ListOptions", "", &errors));
            }
            if how == "Exact" && version == "0" {
                return Err(forbidden("resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\""));
            }
        }
        if !token.is_empty() {
            if !version.is_empty() && version != "0" {
                return Err(Status::bad_request("specifying resource version is not allowed when using continue"));
            }
            return read_token(token);
        }
        Ok(match (revision(version)?, how) {
            (None, _) => Start::Fresh,
            (Some(Revision(0)), _) => Start::Any,
            (Some(revision), "Exact") => Start::Exact(revision),
            (Some(revision), _) => Start::NotOlderThan(revision),
        })
    }
}

/// Continue tokens are upstream's: base64 of a small JSON object.
fn read_token(token: &str) -> Result<Start, Status> {
    let bad = |why: String| Status::bad_request(format!("invalid continue token: continue key is not valid: {why}"));
    let text = URL_SAFE_NO_PAD.decode(token.trim_end_matches('=')).map_err(|error| bad(error.to_string()))?;
    let value = match machinery::codec::decode_json(&text) {
        Ok(decoded) => decoded.value,
        Err(DecodeError::Json(error)) => return Err(bad(error.to_string())),
        Err(error) => return Err(bad(error.to_string())),
    };
    if value["v"] != "meta.k8s.io/v1" {
        return Err(bad("server does not recognize this encoded version".into()));
    }
    // As upstream writes it: behind this key, below the prefix of the list.
    let after = value["start"].as_str().unwrap_or("").trim_start_matches('/').trim_end_matches('\0');
    if after.is_empty() || after.split('/').any(|part| part == "..") {
        return Err(bad(format!("{after:?}")));
    }
    match value["rv"].as_i64() {
        Some(-1) => Ok(Start::Continue { revision: None, after: after.into() }),
        Some(revision) if revision > 0 => {
            Ok(Start::Continue { revision: Some(Revision(revision as u64)), after: after.into() })
        }
        _ => Err(bad("incorrect encoded start resourceVersion".into())),
    }
}

fn make_token(revision: i64, after: &str) -> String {
    URL_SAFE_NO_PAD.encode(json!({"v": "meta.k8s.io/v1", "rv": revision, "start": format!("{after}\0")}).to_string())
}

async fn snapshot_at(call: &Call, revision: Revision) -> Result<Snapshot, Status> {
    call.app.cache.wait_for(revision, REVISION_TIMEOUT).await.map_err(store_status)?;
    match call.resource.state()?.snapshot_at(revision) {
        Ok(snapshot) => Ok(snapshot),
        Err(StoreError::Compacted { .. }) => {
            Err(Status::expired("The resourceVersion for the provided list is too old."))
        }
        Err(error) => Err(store_status(error)),
    }
}

/// The page cannot be shown as of its revision any more; the answer brings a token to go on with the newest state.
fn expired_continue(call: &Call, after: &str) -> Reply {
    let message = "The provided continue parameter is too old to display a consistent list result. You can start a new \
                   list without the continue parameter, or use the continue token in this response to retrieve the \
                   remainder of the results. Continuing with the provided token results in an inconsistent list - \
                   objects that were created, modified, or deleted between the time the first chunk was returned and \
                   now may show up in the list.";
    let mut value = Status::expired(message).to_value();
    value["metadata"] = json!({"continue": make_token(-1, after)});
    respond::value(410, &call.answer, &value)
}

async fn answer(
    call: &Call,
    resource: &Resource,
    revision: Revision,
    filter: &Filter,
    page: Page,
) -> Result<Reply, Status> {
    let mut meta = Map::new();
    meta.insert("resourceVersion".into(), revision.to_string().into());
    if let Some(key) = &page.last_key {
        let after = key.strip_prefix(filter.prefix.as_str()).unwrap_or(key);
        meta.insert("continue".into(), make_token(revision.0 as i64, after).into());
    }
    if let Some(remaining) = page.remaining {
        meta.insert("remainingItemCount".into(), remaining.into());
    }
    let meta = Value::Object(meta);
    let as_stored = page.items.iter().all(|item| resource.conversion.as_stored(item.revision.0));
    let bytes: usize = page.items.iter().map(|item| item.value.len()).sum();
    if as_stored && call.answer.media == Media::Json && call.answer.form == Form::Object && !call.answer.pretty {
        return Ok(list_body::json(call, &meta, page.items));
    }
    if as_stored && let Some(transcoding) = Transcoding::of(call, resource) {
        let made = async { list_body::protobuf(call, transcoding, &meta, &page.items) };
        if let Some(reply) = call.app.offload.run_if(bytes >= HEAVY_BYTES, made).await {
            return Ok(reply);
        }
    }
    let encoded = encoded(call, resource, meta, &page.items);
    call.app.offload.run_if(bytes >= HEAVY_BYTES, encoded).await
}

/// A list whose objects are decoded and written again, in another form than the stored one.
async fn encoded(call: &Call, resource: &Resource, meta: Value, items: &[Arc<Item>]) -> Result<Reply, Status> {
    let (kind, api_version) = (format!("{}List", resource.kind.kind), resource.kind.api_version());
    // One object that cannot be decoded does not break a list; the cache has reported it by key.
    let decoded = items.iter().filter_map(|item| decode_stored(&item.value, item.revision.0).ok());
    let mut objects: Box<dyn Iterator<Item = Value> + Send> = if resource.conversion.asks_others() {
        Box::new(resource.conversion.show_all(&call.app, decoded.collect()).await?.into_iter())
    } else {
        Box::new(decoded.map(|object| resource.conversion.to_requested(object)))
    };
    let version = call.answer.meta_version;
    let (include, now) = (Include::from(&call.query), call.app.clock.now());
    let (mut shell, field) = match call.answer.form {
        Form::Table => (table::whole(resource, meta, Vec::new(), version, true), "rows"),
        Form::Metadata => {
            let kind = "PartialObjectMetadataList";
            (
                json!({"kind": kind, "apiVersion": format!("meta.k8s.io/{version}"), "metadata": meta, "items": []}),
                "items",
            )
        }
        Form::Object => (json!({"kind": kind, "apiVersion": api_version, "metadata": meta, "items": []}), "items"),
    };
    let items = objects.by_ref().map(|object| match call.answer.form {
        Form::Table => table::row_of(resource, object, include, version, now),
        Form::Metadata => table::partial_metadata(object, version),
        Form::Object => list_item(resource, object),
    });
    let mut reply = if call.answer.media == Media::Json && !call.answer.pretty {
        respond::bytes_reply(200, "application/json", written(&shell, field, items))
    } else {
        shell[field] = items.collect();
        respond::value(200, &call.answer, &shell)
    };
    if let Body::Full(Some(bytes)) = reply.body_mut()
        && call.answer.gzip
        && bytes.len() >= list_body::GZIP_BYTES_MIN
    {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(bytes).map_err(|error| Status::internal(error.to_string()))?;
        *bytes = gzip.finish().map_err(|error| Status::internal(error.to_string()))?.into();
        list_body::mark_gzip(&mut reply);
    }
    Ok(reply)
}

/// The text of a list, each item written as soon as it is made: decoded, all of them would take many times the memory.
fn written(shell: &Value, field: &str, items: impl Iterator<Item = Value>) -> Vec<u8> {
    let (text, mark) = (codec::encode(shell), format!("\"{field}\":["));
    let at = text.windows(mark.len()).position(|part| part == mark.as_bytes()).map_or(text.len(), |at| at + mark.len());
    let mut out = text[..at].to_vec();
    for (number, item) in items.enumerate() {
        if number > 0 {
            out.push(b',');
        }
        out.extend(codec::encode(&item));
    }
    out.extend_from_slice(&text[at..]);
    out.push(b'\n');
    out
}

/// Items of a built-in list do not repeat kind and apiVersion.
pub(crate) fn list_item(resource: &Resource, mut object: Value) -> Value {
    if let (None, Some(map)) = (&resource.custom, object.as_object_mut()) {
        map.remove("kind");
        map.remove("apiVersion");
    }
    object
}
